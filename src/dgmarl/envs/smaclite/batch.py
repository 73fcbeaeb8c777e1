"""Many battles at once in one program, however they were vmapped.

Inside a tick arrays carry the battles as their *last* axis, `[U, B]`: neighbours in memory then do
the same arithmetic, on a CPU's vector units as on a GPU, and units of all battles can be put into
one queue for the few that need dear work. An ordinary `vmap` would not let us: it runs every loop
as long as the slowest lane, on all lanes. `over_battles` therefore takes the vmap rule into its own
hands: nested vmapped axes are merged into the one batch axis that the function already has."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap
from jaxtyping import Array, Int


def over_battles(function: Callable[..., Any]) -> Callable[..., Any]:
    """From a function of arrays with the battles last to one of single battles, to be vmapped any
    number of times."""

    @custom_vmap
    def batched(*arguments: Any) -> Any:  # battles first, as vmap has them
        last = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, -1), arguments)
        return jax.tree.map(lambda leaf: jnp.moveaxis(leaf, -1, 0), function(*last))

    @batched.def_vmap
    def merge(axis_size: int, in_batched: Any, *arguments: Any) -> Any:
        def merged(leaf: Array, is_batched: bool) -> Array:
            leaf = leaf if is_batched else jnp.broadcast_to(leaf, (axis_size, *leaf.shape))
            return leaf.reshape(-1, *leaf.shape[2:])

        results = batched(*jax.tree.map(merged, arguments, tuple(in_batched)))
        split = jax.tree.map(lambda leaf: leaf.reshape(axis_size, -1, *leaf.shape[1:]), results)
        return split, jax.tree.map(lambda _: True, split)

    compiled = jax.jit(batched)

    def single(*arguments: Any) -> Any:
        results = compiled(*jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], arguments))
        return jax.tree.map(lambda leaf: leaf[0], results)

    return single


def pick(values: Array, index: Int[Array, "K B"]) -> Array:
    """`values[index[k, b], ..., b]`: what unit `index[k, b]` of battle b has. An index of -1 gives
    anything."""
    index = jnp.maximum(index, 0)
    index = index.reshape(index.shape[0], *(1,) * (values.ndim - index.ndim), index.shape[-1])
    return jnp.take_along_axis(
        values, jnp.broadcast_to(index, (index.shape[0], *values.shape[1:])), axis=0
    )


def first_least(values: Array, axis: int) -> tuple[Array, Array]:
    """Least value along an axis and the first place that holds it: two plain reductions, faster
    than an argmin on a CPU."""
    least = values.min(axis)
    shape = [1] * values.ndim
    shape[axis] = -1
    places = jnp.arange(values.shape[axis]).reshape(shape)
    return least, jnp.where(values == jnp.expand_dims(least, axis), places, values.shape[axis]).min(
        axis
    )
