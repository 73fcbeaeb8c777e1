"""Launches the GPU kernels of SMAClite: each block is one warp.

Sizes of values in a kernel are powers of two. Loads and stores are masked where there are fewer
units, battles or walls."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

from dgmarl.device import inside_kernel

Ref = Any
"""A reference to an array in GPU memory."""
INTERPRET = False
"""Whether kernels run as ordinary operations, on any backend, for tests."""


def launch(
    kernel: Callable[..., None],
    grid: tuple[int, ...],
    out_shape: Any,
    given: Sequence[Any],
    overwritten: Mapping[int, int] | None = None,
) -> Any:
    """The results of `kernel(*inputs, *results)`, which each block calls with references to whole
    arrays. overwritten: index of an input to index of the result that reuses its memory."""

    def body(*refs: Ref) -> None:
        with inside_kernel():
            kernel(*refs)

    return pl.pallas_call(
        body,
        grid=grid,
        out_shape=out_shape,
        input_output_aliases=dict(overwritten or {}),
        compiler_params=triton.CompilerParams(num_warps=1, num_stages=1),
        interpret=INTERPRET,
    )(*given)
