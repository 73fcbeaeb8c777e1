"""Masked computation on compacted batches: only elements that need it are computed.

`lax.map(..., batch_size=)` does not fit here: the number of elements is known at run time only."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Int

from dgmarl.device import launch_bound

LAUNCH_BOUND_WIDTH = 16_384
"""Up to this width an accelerator computes a chunk as fast as a single element."""


def chunk_width(n: int, share: int) -> int:
    """Elements per chunk for n elements of which about one in `share` is selected."""
    width = max(1, n // share)
    return min(n, max(width, LAUNCH_BOUND_WIDTH)) if launch_bound() else width


def map_selected(
    selected: Bool[Array, "M"],
    width: int,
    function: Callable[[Int[Array, "L"]], Any],
    default: Any,
) -> Any:
    """`function(indices)` for the selected elements, `default` (leaves [M]) for the others.

    `function` receives chunks of `width` indices into M; the last chunk is padded with arbitrary
    indices, whose results are dropped. If one chunk covers all elements, it is called on all of
    them, selected or not, so its loops should not iterate for elements that are not selected."""
    if width >= selected.shape[0]:
        every = jnp.arange(selected.shape[0], dtype=jnp.int32)
        return jax.tree.map(
            lambda result, other: jnp.where(selected, result, other), function(every), default
        )
    total = selected.sum()
    order, place = _compact(selected, width)

    def chunk(carry: tuple[Array, Any]) -> tuple[Array, Any]:
        start, results = carry
        computed = function(lax.dynamic_slice(order, (start,), (width,)))
        results = jax.tree.map(
            lambda whole, part: lax.dynamic_update_slice(whole, part, (start,)), results, computed
        )
        return start + width, results

    empty = jax.tree.map(lambda leaf: jnp.zeros(order.shape, leaf.dtype), default)
    _, results = lax.while_loop(lambda carry: carry[0] < total, chunk, (jnp.int32(0), empty))
    return jax.tree.map(
        lambda result, other: jnp.where(selected, result[place], other), results, default
    )


def _compact(selected: Bool[Array, "M"], width: int) -> tuple[Int[Array, "M+"], Int[Array, "M"]]:
    """Indices of the selected elements, padded to whole chunks, and the place of each."""
    n = selected.shape[0]
    place = jnp.cumsum(selected, dtype=jnp.int32) - 1
    order = jnp.zeros(-(-n // width) * width, jnp.int32)
    order = order.at[jnp.where(selected, place, order.shape[0])].set(
        jnp.arange(n, dtype=jnp.int32), mode="drop"
    )
    return order, jnp.maximum(place, 0)
