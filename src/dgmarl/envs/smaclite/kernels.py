"""How the GPU kernels of SMAClite are started: each block is one warp.

Values in a kernel have sizes that are powers of two. Loads and stores are masked where there are
fewer units, battles or walls."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

from dgmarl.device import inside_kernel

Ref = Any
"""An array in the GPU's memory."""
INTERPRET = False
"""Whether kernels run as ordinary operations, on any backend."""


def launch(
    kernel: Callable[..., None],
    grid: tuple[int, ...],
    out_shape: Any,
    given: Sequence[Any],
    overwritten: Mapping[int, int] | None = None,
) -> Any:
    """The results of `kernel(*inputs, *results)`, called with references to whole arrays by each
    block. overwritten: which inputs become which results."""

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
