"""A custom vmap rule that merges nested batch axes into one explicit axis of battles.

Inside a tick the battles are the *last* axis of all arrays, `[U, B]`: operations vectorise over
contiguous memory on CPU and GPU, and units of all battles that need expensive computation can be
compacted into one batch. An ordinary `vmap` would run every loop for all battles until the slowest
one has finished. `over_battles` therefore defines its own rule."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap
from jaxtyping import Array, Int


def over_battles(function: Callable[..., Any]) -> Callable[..., Any]:
    """Turn a function of arrays with a last axis of battles into a function of a single battle that
    can be vmapped any number of times."""

    @custom_vmap
    def batched(*arguments: Any) -> Any:  # battles on the first axis, as in vmap
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
    """`values[index[k, b], ..., b]`. The result for an index of -1 is arbitrary."""
    index = jnp.maximum(index, 0)
    index = index.reshape(index.shape[0], *(1,) * (values.ndim - index.ndim), index.shape[-1])
    index = jnp.broadcast_to(index, (index.shape[0], *values.shape[1:]))
    return jnp.take_along_axis(values, index, axis=0)


def first_least(values: Array, axis: int) -> tuple[Array, Array]:
    """Minimum along an axis and its first index: two reductions, faster than an argmin on a CPU."""
    least = values.min(axis)
    shape = [1] * values.ndim
    shape[axis] = -1
    places = jnp.arange(values.shape[axis]).reshape(shape)
    is_least = values == jnp.expand_dims(least, axis)
    return least, jnp.where(is_least, places, values.shape[axis]).min(axis)
