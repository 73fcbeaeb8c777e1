"""The steps of a batch in blocks: sums and results over the blocks that contain steps.

A rollout of whole episodes is as long as the longest possible one, and the steps after the end of
an episode are padding. Here the steps that happened come first, so that a loop over blocks ends
before those that are all padding. Gradients are summed block by block, which also keeps the
activations of one block in memory instead of those of the batch."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from dgmarl.arrays import anywhere
from dgmarl.device import cores_per_device, envs_divided, launch_bound

ROWS, COLUMNS = 64, 2
"""Steps per block of feed-forward networks, and columns of episodes per block of recurrent ones."""


class Places(NamedTuple):
    """Which step of a batch is in each place of C blocks, [C, P, R]: P steps in time, R rows."""

    step: Int[Array, "C P R"]
    env: Int[Array, "C P R"]
    present: Bool[Array, "C P R"]
    """False for padding, whose `step` and `env` are arbitrary."""
    n_used: Int[Array, ""]
    """Blocks with steps; they come first."""

    @property
    def in_order(self) -> bool:
        """Whether there is one block of rows, which has the order of the batch."""
        return self.step.shape[:2] == (1, 1)

    def take(self, batch: Any) -> Any:
        """Arrays [T, B, ...] as [C, P, R, ...]."""
        if self.in_order:
            return jax.tree.map(lambda leaf: leaf.reshape(1, 1, -1, *leaf.shape[2:]), batch)
        return jax.tree.map(lambda leaf: leaf[self.step, self.env], batch)

    def put_back(self, found: Array, valid: Bool[Array, "T B"], padding: float) -> Array:
        """Results [C, P, R, ...] as [T, B, ...]. padding: the result of steps in no block."""
        shape = (*valid.shape, *found.shape[3:])
        if self.in_order:
            return found.reshape(shape)
        step = jnp.where(self.present, self.step, len(valid))  # writes there are dropped
        return jnp.full(shape, padding, found.dtype).at[step, self.env].set(found, mode="drop")


def leaves_out_padding(batch: Any, recurrent: bool = False) -> bool:
    """Whether learning from a batch should leave out padding: of whole episodes, on a CPU, whose
    time is arithmetic. On an accelerator it is kernel launches, of which a loop has more.

    Feed-forward networks only where every device has one core: several cores share the products of
    a whole batch, but not those of 64 rows."""
    whole_episodes = batch.last_observation is not None
    suits = recurrent or cores_per_device() == 1
    return whole_episodes and suits and not launch_bound() and not envs_divided()


def as_rows(valid: Bool[Array, "T B"], size: int = ROWS) -> Places:
    """Every step in a row of its own, for networks without memory; at most `size` rows per block.
    P is 1. A single block has the order of the batch."""
    n_envs, n_rows = valid.shape[1], valid.size
    n_blocks = -(-n_rows // size)
    size = -(-n_rows // n_blocks)
    chosen, n_valid = jnp.arange(n_rows), valid.sum()
    if n_blocks > 1:
        flat = valid.reshape(-1)
        place = jnp.where(flat, jnp.cumsum(flat), n_valid + jnp.cumsum(~flat)) - 1
        chosen = jnp.zeros(n_blocks * size, int).at[place].set(chosen)
    present = valid.reshape(-1)[chosen] & (jnp.arange(len(chosen)) < n_rows)
    step, env, present = (
        each.reshape(n_blocks, 1, size) for each in (chosen // n_envs, chosen % n_envs, present)
    )
    return Places(step, env, present, jnp.maximum(-(-n_valid // size), 1))


def as_columns(valid: Bool[Array, "T B"], width: int = COLUMNS) -> Places:
    """Whole episodes one after the other in columns of T steps, for recurrent networks; at most
    `width` columns per block. Episodes are placed by length, the longest first, each in the first
    column with room for it, so that they never need more columns than there are episodes."""
    horizon, n_envs = valid.shape
    width = min(width, n_envs)
    length, n_blocks = valid.sum(axis=0), -(-n_envs // width)
    order = jnp.argsort(length, descending=True)

    def place(free: Array, size: Array) -> tuple[Array, tuple[Array, Array]]:
        column = (free >= size).argmax()
        return free.at[column].add(-size), (column, horizon - free[column])

    _, (column, first) = jax.lax.scan(place, jnp.full(n_envs, horizon), length[order])
    step = jnp.arange(horizon)[:, None]
    slot = jnp.where(step < length[order], first + step, horizon)  # writes there are dropped
    nowhere = jnp.full((horizon, n_blocks * width), horizon)
    steps = nowhere.at[slot, column].set(step, mode="drop")
    envs = jnp.zeros_like(steps).at[slot, column].set(order, mode="drop")
    present = steps < horizon
    steps, envs, present = (
        jnp.moveaxis(each.reshape(horizon, n_blocks, width), 1, 0)
        for each in (jnp.where(present, steps, 0), envs, present)
    )
    return Places(steps, envs, present, column.max() // width + 1)


def sum_of(function: Callable[[Any], Any], blocks: Any, n_used: Int[Array, ""] | int) -> Any:
    """The sum of function(block) over the first `n_used` blocks of arrays [C, ...]."""
    if _count(blocks) == 1:
        return function(jax.tree.map(lambda leaf: leaf[0], blocks))

    def add(carry: tuple[Array, Any]) -> tuple[Array, Any]:
        number, total = carry
        found = function(jax.tree.map(lambda leaf: leaf[number], blocks))
        return number + 1, jax.tree.map(jnp.add, total, found)

    zeros = _zeros(function, blocks)
    return jax.lax.while_loop(_before(n_used), add, (jnp.int32(0), zeros))[1]


def map_of(function: Callable[[Any], Any], blocks: Any, n_used: Int[Array, ""] | int) -> Any:
    """function(block) for the first `n_used` blocks of arrays [C, ...], and 0 for the others."""
    if (n_blocks := _count(blocks)) == 1:
        return jax.tree.map(lambda leaf: leaf[None], function(jax.tree.map(lambda x: x[0], blocks)))

    def put(carry: tuple[Array, Any]) -> tuple[Array, Any]:
        number, results = carry
        found = function(jax.tree.map(lambda leaf: leaf[number], blocks))
        results = jax.tree.map(lambda all_, new: all_.at[number].set(new), results, found)
        return number + 1, results

    zeros = jax.tree.map(
        lambda leaf: jnp.zeros((n_blocks, *leaf.shape), leaf.dtype), _zeros(function, blocks)
    )
    return jax.lax.while_loop(_before(n_used), put, (jnp.int32(0), zeros))[1]


def _before(n_used: Int[Array, ""] | int) -> Callable[[tuple[Array, Any]], Bool[Array, ""]]:
    return lambda carry: anywhere(carry[0] < n_used)


def _zeros(function: Callable[[Any], Any], blocks: Any) -> Any:
    shapes = jax.eval_shape(lambda: function(jax.tree.map(lambda leaf: leaf[0], blocks)))
    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)


def _count(blocks: Any) -> int:
    return jax.tree.leaves(blocks)[0].shape[0]
