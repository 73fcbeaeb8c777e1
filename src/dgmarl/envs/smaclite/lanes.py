"""A queue for the few that need dear work: who waits is served some lanes at a time, the others
cost nothing."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Int

from dgmarl.device import launch_bound

AT_ONCE = 16_384
"""So many lanes take an accelerator no longer than one."""


def lanes_for(n: int, share: int) -> int:
    """How many of n to serve at once where about one in `share` waits."""
    few = max(1, n // share)
    return min(n, max(few, AT_ONCE)) if launch_bound() else few


def serve_queue(
    waits: Bool[Array, "M"], n_lanes: int, serve: Callable[[Int[Array, "L"]], Any], otherwise: Any
) -> Any:
    """`serve(who)` for all that wait, at most `n_lanes` at once, and `otherwise` (leaves [M]) for
    those that do not.

    `serve` is given indices into M; spare lanes repeat some index, and what they give is dropped.
    Where there are lanes for all, all are served: those that do not wait should take no trips of
    its loops."""
    if n_lanes >= waits.shape[0]:
        everybody = jnp.arange(waits.shape[0], dtype=jnp.int32)
        return jax.tree.map(
            lambda mine, other: jnp.where(waits, mine, other), serve(everybody), otherwise
        )
    total = waits.sum()
    order, place = _places(waits, n_lanes)

    def chunk(carry: tuple[Array, Any]) -> tuple[Array, Any]:
        served, found = carry
        results = serve(lax.dynamic_slice(order, (served,), (n_lanes,)))
        found = jax.tree.map(
            lambda all_, some: lax.dynamic_update_slice(all_, some, (served,)), found, results
        )
        return served + n_lanes, found

    nothing = jax.tree.map(lambda leaf: jnp.zeros(order.shape, leaf.dtype), otherwise)
    _, found = lax.while_loop(lambda carry: carry[0] < total, chunk, (jnp.int32(0), nothing))
    return jax.tree.map(lambda mine, other: jnp.where(waits, mine[place], other), found, otherwise)


def _places(waits: Bool[Array, "M"], n_lanes: int) -> tuple[Int[Array, "M+"], Int[Array, "M"]]:
    """Who stands at each place of the queue, filled up to whole chunks, and the place of each."""
    n = waits.shape[0]
    place = jnp.cumsum(waits, dtype=jnp.int32) - 1
    order = jnp.zeros(-(-n // n_lanes) * n_lanes, jnp.int32)
    order = order.at[jnp.where(waits, place, order.shape[0])].set(
        jnp.arange(n, dtype=jnp.int32), mode="drop"
    )
    return order, jnp.maximum(place, 0)
