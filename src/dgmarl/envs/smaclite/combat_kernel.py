"""The turns of a tick as one GPU kernel: a few battles per block, with the loop over shots inside.

As separate operations they take about a dozen kernel launches per shot, more than half of the time
of a step with few battles."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jaxtyping import Array, Bool, Float

from .combat import Arms, arms_of, columns_of
from .kernels import Ref, launch
from .roster import Roster
from .types import State

BLOCK = 128
"""Units per block, over all of its battles."""


def in_one_kernel(
    roster: Roster, turns: Callable[..., Any], arguments: tuple[State, Any, Any, Any]
) -> Any:
    """`turns(arms, *arguments)`, whose first result is the new state, for arrays `[U, ..., B]`."""
    given, tree = jax.tree.flatten(arguments)
    shapes, results_tree = jax.tree.flatten(
        jax.eval_shape(lambda: turns(arms_of(roster), *arguments))
    )
    n_battles, columns = given[0].shape[-1], columns_of(roster)
    n_rows = pl.next_power_of_2(roster.n_units)
    per_block = max(1, BLOCK // n_rows)

    def kernel(table: Ref, damage: Ref, *refs: Ref) -> None:
        first = pl.program_id(0) * per_block
        battles = first + lax.iota(jnp.int32, per_block)
        block = Block(lax.iota(jnp.int32, n_rows), battles, roster.n_units, n_battles)
        arms = block.arms(roster, table, damage, list(columns))
        loaded = [block.load(ref) for ref in refs[: len(given)]]
        results = jax.tree.leaves(turns(arms, *jax.tree.unflatten(tree, loaded)))
        for ref, value in zip(refs[len(given) :], results, strict=True):
            block.store(ref, value)

    tables = (np.stack([*columns.values()]).astype(np.float32), roster.damage)
    # A block reads everything before it writes, so the new state can overwrite the old.
    n_state = len(jax.tree.leaves(arguments[0]))
    overwritten = {len(tables) + k: k for k in range(n_state)}
    grid = (pl.cdiv(n_battles, per_block),)
    found = launch(kernel, grid, shapes, (*map(jnp.asarray, tables), *given), overwritten)
    return jax.tree.unflatten(results_tree, found)


class Block:
    """Units and battles of a block, both padded with zeros to powers of two: the padding is units
    that are not in play, and battles without any."""

    def __init__(self, units: Array, battles: Array, n_units: int, n_battles: int):
        self.units, self.battles = units, battles
        self.real_units, self.real_battles = units < n_units, battles < n_battles

    def load(self, ref: Ref) -> Array:
        """A block of an array `[U, B]` or `[U, 2, B]`."""
        places, real = self._places(ref)
        return triton.load(ref.at[places], mask=real, other=jnp.zeros((), ref.dtype))

    def store(self, ref: Ref, value: Array) -> None:
        places, real = self._places(ref)
        triton.store(ref.at[places], value.astype(ref.dtype), mask=real)

    def _places(self, ref: Ref) -> tuple[tuple[Array, ...], Bool[Array, "..."]]:
        """Indices into an array, and which of them are not padding."""
        if len(ref.shape) == 2:
            places = (self.units[:, None], self.battles[None])
            real = self.real_units[:, None] & self.real_battles[None]
        else:
            middle = lax.iota(jnp.int32, ref.shape[1])[None, :, None]
            places = (self.units[:, None, None], middle, self.battles[None, None])
            real = self.real_units[:, None, None] & self.real_battles[None, None]
        shape = jnp.broadcast_shapes(*(place.shape for place in places))
        every = tuple(jnp.broadcast_to(place, shape) for place in places)
        return every, jnp.broadcast_to(real, shape)

    def arms(self, roster: Roster, table: Ref, damage: Ref, names: Sequence[str]) -> Arms:
        """`Arms` from a table of columns and the damage of every unit to every other."""

        def column(row: int) -> Array:
            values = triton.load(table.at[row, self.units], mask=self.real_units, other=0.0)
            return values[:, None]

        columns = {name: column(row) for row, name in enumerate(names)}
        for name in ("is_ally", "is_healer"):
            columns[name] = columns[name] > 0
        columns["attacks"] = columns["attacks"].astype(jnp.int32)
        return Arms(**columns, damage=partial(self._damage, damage), roster=roster)

    def _damage(self, damage: Ref, fires: Bool[Array, "U B"]) -> Float[Array, "U B"]:
        actor = jnp.where(fires, self.units[:, None], -1).max(0)
        shape = fires.shape
        real = jnp.broadcast_to(self.real_units[:, None] & (actor >= 0)[None], shape)
        places = (jnp.maximum(actor, 0)[None], self.units[:, None])
        places = tuple(jnp.broadcast_to(place, shape) for place in places)
        return triton.load(damage.at[places], mask=real, other=0.0)
