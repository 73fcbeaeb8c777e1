"""The GRU's loop over time as GPU kernels, one for the forward and one for the backward pass.

A compiled loop launches two or three kernels per step, which take most of the time of a Q-learner's
update. The rows of a batch are independent: here one kernel computes all steps of a block of rows.
Steps at the end of all rows of a block that clear the hidden state, as the padding of replayed
episodes does, depend on no other step and need no matrix product: they are computed apart."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jaxtyping import Array, Float

from dgmarl.device import compute_capability

Ref = Any
"""A block of an array in the GPU's memory."""
ROWS = 16
"""Rows per block; the smallest number that a GPU's matrix products support."""
SMALL, LARGE = (16, 32, 64), 128
"""Supported sizes of the hidden state, powers of two: weights of the small ones fit into the shared
memory of any GPU, those of the large one only of data-centre GPUs from Hopper on."""
INTERPRET = False
"""Whether kernels run as ordinary operations, on any backend (for tests)."""


def suits(hidden_state: Float[Array, "*B h"]) -> bool:
    """Whether the rows fill whole blocks and the weights fit into this GPU's shared memory."""
    size, n_rows = hidden_state.shape[-1], hidden_state[..., 0].size
    capability = compute_capability()
    fits = capability >= 8 if size in SMALL else size == LARGE and 9 <= capability < 12
    return fits and n_rows % ROWS == 0


@jax.custom_vjp
def recurrence(
    recurrent: Float[Array, "h 3*h"],
    offset: Float[Array, "3*h"],
    hidden_state: Float[Array, "R h"],
    inputs: tuple[Float[Array, "T R h"], ...],
    kept: Float[Array, "T R 1"],
) -> Float[Array, "T R h"]:
    """The hidden state after each step, as in `layers.recurrence`. kept: 0 where it is cleared
    before the step, else 1."""
    return _forwards(recurrent, offset, hidden_state, inputs, kept, n_results=1)[0]


def _forwards(
    recurrent: Array,
    offset: Array,
    hidden_state: Array,
    inputs: Sequence[Array],
    kept: Array,
    n_results: int = 5,
) -> list[Float[Array, "T R h"]]:
    """The first `n_results` of: hidden states, r, z, n and U_n h + c_n of each step."""
    size = hidden_state.shape[-1]

    def kernel(
        n_chained: Ref, recurrent: Ref, offset: Ref, start: Ref, r: Ref, z: Ref, n: Ref, kept: Ref,
        *results: Ref,
    ) -> None:  # fmt: skip
        weights, offsets = _thirds(recurrent, size), _thirds(offset, size)

        def gates(t: Array, hidden: Array | float, parts: Sequence[Array]) -> Array:
            reset, update = jax.nn.sigmoid(r[t] + parts[0]), jax.nn.sigmoid(z[t] + parts[1])
            candidate = jnp.tanh(n[t] + reset * parts[2])
            hidden = (1 - update) * candidate + update * hidden
            found = (hidden, reset, update, candidate, jnp.broadcast_to(parts[2], hidden.shape))
            for result, value in zip(results, found[:n_results], strict=True):
                result[t] = value
            return hidden

        def chained(t: Array, hidden: Array) -> Array:
            hidden = hidden * kept[t]
            parts = [hidden @ w + c for w, c in zip(weights, offsets, strict=True)]
            return gates(t, hidden, parts)

        def cleared(t: Array, _: None) -> None:
            gates(t, 0.0, offsets)

        jax.lax.fori_loop(0, n_chained[0], chained, start[0])
        jax.lax.fori_loop(n_chained[0], kept.shape[0], cleared, None)

    over_time = (hidden_state[None], *inputs, kept)
    return _call(kernel, (recurrent, offset), over_time, kept, size, [len(kept)] * n_results)


def _forwards_kept(
    recurrent: Array, offset: Array, hidden_state: Array, inputs: Sequence[Array], kept: Array
) -> tuple[Array, Any]:
    outputs, *gates = _forwards(recurrent, offset, hidden_state, inputs, kept)
    return outputs, (recurrent, hidden_state, kept, outputs, gates)


def _backwards(residuals: Any, from_outputs: Float[Array, "T R h"]) -> tuple[Any, ...]:
    """The kernel computes the gradients of the inputs of the gates r, z and n, and of U_n h + c_n;
    weight gradients are products of these."""
    recurrent, hidden_state, kept, outputs, gates = residuals
    size = hidden_state.shape[-1]
    before = jnp.concatenate([hidden_state[None], outputs[:-1]]) * kept

    def kernel(
        n_chained: Ref, recurrent: Ref, given: Ref, before: Ref, kept: Ref, r: Ref, z: Ref, n: Ref,
        part: Ref, start: Ref, *results: Ref,
    ) -> None:  # fmt: skip
        weights = _thirds(recurrent, size)

        def of_gates(t: Array, gradient: Array) -> tuple[Array, ...]:
            reset, update, candidate = r[t], z[t], n[t]
            of_candidate = gradient * (1 - update) * (1 - candidate**2)
            of_update = gradient * (before[t] - candidate) * update * (1 - update)
            of_part = of_candidate * reset
            of_reset = of_part * part[t] * (1 - reset)
            found = (of_reset, of_update, of_candidate, of_part)
            for result, value in zip(results, found, strict=True):
                result[t] = value
            return of_reset, of_update, of_part

        def chained(k: Array, later: Array) -> Array:
            t = n_chained[0] - 1 - k
            gradient = later + given[t]
            earlier = gradient * z[t]
            for weight, value in zip(weights, of_gates(t, gradient), strict=True):
                earlier += value @ weight.T
            return earlier * kept[t]

        def cleared(t: Array, _: None) -> None:
            of_gates(t, given[t])

        jax.lax.fori_loop(n_chained[0], kept.shape[0], cleared, None)
        start[0] = jax.lax.fori_loop(0, n_chained[0], chained, jnp.zeros((ROWS, size)))

    over_time = (from_outputs, before, kept, *gates)
    lengths = (1, *[len(kept)] * 4)
    start, reset, update, candidate, part = _call(
        kernel, (recurrent,), over_time, kept, size, lengths
    )
    products = jnp.concatenate([reset, update, part], axis=-1)
    of_recurrent = jnp.einsum("trh,trk->hk", before, products)
    return of_recurrent, products.sum((0, 1)), start[0], (reset, update, candidate), None


recurrence.defvjp(_forwards_kept, _backwards)


def _call(
    kernel: Callable[..., None],
    weights: Sequence[Array],
    over_time: Sequence[Float[Array, "T R _"]],
    kept: Float[Array, "T R 1"],
    size: int,
    lengths: Sequence[int],
) -> list[Array]:
    """Run a kernel on blocks of rows, with all weights in each. lengths: steps of each result.

    Its first argument is the number of steps up to the last that keeps the hidden state of a row of
    the block."""

    def block(n_steps: int, size: int) -> pl.BlockSpec:
        return pl.BlockSpec((n_steps, ROWS, size), lambda k: (0, k, 0))

    n_rows = over_time[0].shape[1]
    until = jnp.where(kept[..., 0] > 0, 1 + jnp.arange(len(kept))[:, None], 0).max(axis=0)
    n_chained = until.reshape(-1, ROWS).max(axis=1)
    whole = [pl.BlockSpec(array.shape, lambda k, n=array.ndim: (0,) * n) for array in weights]
    call = pl.pallas_call(
        kernel,
        grid=(n_rows // ROWS,),
        in_specs=[
            pl.BlockSpec((1,), lambda k: (k,)),
            *whole,
            *(block(len(array), array.shape[-1]) for array in over_time),
        ],
        out_specs=[block(length, size) for length in lengths],
        out_shape=[jax.ShapeDtypeStruct((length, n_rows, size), jnp.float32) for length in lengths],
        compiler_params=_params(size),
        interpret=INTERPRET,
    )
    return call(n_chained, *weights, *over_time)


def _params(size: int) -> triton.CompilerParams:
    """Two pipeline stages if memory allows; tuned on an H200."""
    return triton.CompilerParams(
        num_warps=8 if size == LARGE else 4, num_stages=1 if size == LARGE else 2
    )


def _thirds(ref: Ref, size: int) -> list[Array]:
    """The parts for the three gates."""
    return [ref[..., pl.ds(k * size, size)] for k in range(3)]
