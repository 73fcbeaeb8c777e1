"""Collision avoidance as one GPU kernel: a few units per block, with all of its loops inside.

As separate operations it takes about fifty kernel launches, most of the time of a tick with few
battles. Units are independent, so the loops of a block run only until all of its units are done."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jaxtyping import Array, Bool, Float, Int

from .kernels import Ref, launch
from .linear_programs import least_violation, nearest, within_speed, without_outliers
from .obstacles import Body, cell_of, no_lines, unit_line, unit_lines, wall_lines
from .plane import Vector, choose
from .roster import Roster
from .types import State

UNITS = 4
"""Units per block, each in another battle: their 64 or 128 lines are distributed over the 32
threads of a warp."""


class Tables(NamedTuple):
    """The state and the tables of a roster, in GPU memory."""

    position: Ref
    velocity: Ref
    wish: Ref
    in_play: Ref
    kinds: Ref
    """Radius, speed, sight and plane of each unit, [4, U]."""
    near_cells: Ref
    """Indices of the walls near each cell, [cells, C]; -1: none."""
    walls: Ref
    """Start x, y and end x, y of each wall, [W, 4]."""


def avoid(
    roster: Roster,
    state: State,
    preferred: Float[Array, "U 2 B"],
    sight: Float[np.ndarray, "U"],
    most: tuple[int, int],
) -> Float[Array, "U 2 B"]:
    """`avoidance.avoid` in one kernel. sight: squared distance within which units are neighbours.
    most: maximum numbers of lines of walls and of other units."""
    n_units, n_battles = state.hp.shape
    kinds = np.stack([roster.radius, roster.speed, sight, roster.is_air])
    near = roster.walls_near_cells if most[0] else np.full((1, 1), -1)  # no array may be empty
    walls = np.concatenate([roster.walls.start, roster.walls.end], axis=1) if most[0] else near
    tables = Tables(
        state.position,
        state.velocity,
        preferred,
        state.in_play,
        jnp.asarray(kinds, jnp.float32),
        jnp.asarray(near, jnp.int32),
        jnp.asarray(walls, jnp.float32),
    )

    def kernel(*refs: Ref) -> None:
        unit = jnp.full(UNITS, pl.program_id(0))
        battle = pl.program_id(1) * UNITS + lax.iota(jnp.int32, UNITS)
        block = Block(Tables(*refs[:-1]), battle, battle < n_battles, n_units)
        found = block.velocities(unit, most)
        for axis, part in enumerate((found.x, found.y)):
            places = (unit, jnp.full(UNITS, axis), battle)
            triton.store(refs[-1].at[places], part, mask=block.exists)

    grid = (n_units, pl.cdiv(n_battles, UNITS))
    return launch(kernel, grid, jax.ShapeDtypeStruct(preferred.shape, jnp.float32), tables)


class Block(NamedTuple):
    """One unit in each battle of a block."""

    tables: Tables
    battle: Int[Array, "L"]
    exists: Bool[Array, "L"]
    """Whether the battle exists; False for padding."""
    n_units: int

    def velocities(self, unit: Int[Array, "L"], most: tuple[int, int]) -> Vector:
        n_walls, n_others = most
        me, wish = self.body(unit)
        speed = self.kind(1, unit)
        moves = (wish.x != 0) | (wish.y != 0)
        lines = no_lines(pl.next_power_of_2(n_walls + n_others), len(unit))
        if n_walls:
            lines = wall_lines(
                *self.walls(me), lines, n_walls, me, speed, moves & (self.kind(3, unit) == 0)
            )

        def line_to(who: Int[Array, "L"], squared: Float[Array, "L"]) -> Any:
            other, its_wish = self.body(who)
            line = unit_line(me, other, (its_wish.x == 0) & (its_wish.y == 0))
            return line._replace(valid=line.valid & (squared < jnp.inf))

        squared = jnp.where(moves, self.neighbours(unit, me), jnp.inf)
        lines = unit_lines(lines, n_walls, squared, line_to, n_walls + n_others)
        velocity, failed = nearest(lines, within_speed(wish, speed), wish, speed, farthest=False)
        velocity = least_violation(lines, n_walls, velocity, failed, speed)
        velocity = without_outliers(velocity, speed)
        return choose(moves, velocity, wish * 0.0)

    def body(self, unit: Int[Array, "*K L"]) -> tuple[Body, Vector]:
        position, velocity, wish = (
            self.vector(ref, unit)
            for ref in (self.tables.position, self.tables.velocity, self.tables.wish)
        )
        return Body(position, velocity, self.kind(0, unit)), wish

    def vector(self, ref: Ref, unit: Int[Array, "*K L"]) -> Vector:
        return Vector(*(self.load(ref, unit, axis) for axis in range(2)))

    def load(self, ref: Ref, unit: Int[Array, "*K L"], *middle: int) -> Array:
        """Values of these units, 0 for those that do not exist."""
        battle = jnp.broadcast_to(self.battle, unit.shape)
        places = (unit, *(jnp.full(unit.shape, k) for k in middle), battle)
        exists = jnp.broadcast_to(self.exists, unit.shape) & (unit < self.n_units)
        return triton.load(ref.at[places], mask=exists, other=jnp.zeros((), ref.dtype))

    def kind(self, row: int, unit: Int[Array, "*K L"]) -> Float[Array, "*K L"]:
        places = (jnp.full(unit.shape, row), unit)
        return triton.load(self.tables.kinds.at[places], mask=unit < self.n_units, other=0.0)

    def neighbours(self, unit: Int[Array, "L"], me: Body) -> Float[Array, "U L"]:
        """Squared distance to every neighbour, infinite for other units."""
        n_rows = pl.next_power_of_2(self.n_units)
        others = jnp.broadcast_to(lax.iota(jnp.int32, n_rows)[:, None], (n_rows, len(unit)))
        there = self.vector(self.tables.position, others)
        squared = (there.x - me.position.x) ** 2 + (there.y - me.position.y) ** 2
        near = (
            (squared < self.kind(2, unit))
            & (self.kind(3, others) == self.kind(3, unit))
            & (others != unit)
            & self.load(self.tables.in_play, others)
        )
        return jnp.where(near, squared, jnp.inf)

    def walls(self, me: Body) -> tuple[Vector, Vector, Bool[Array, "C L"]]:
        """Start and end of the walls near these units, and which of them exist."""
        n_near = self.tables.near_cells.shape[1]
        n_rows = pl.next_power_of_2(n_near)
        shape = (n_rows, len(self.battle))
        row = jnp.broadcast_to(lax.iota(jnp.int32, n_rows)[:, None], shape)
        cell = jnp.broadcast_to(cell_of(me.position), shape)
        edge = triton.load(self.tables.near_cells.at[(cell, row)], mask=row < n_near, other=-1)

        def end(axis: int) -> Array:
            places = (jnp.maximum(edge, 0), jnp.full(shape, axis))
            return triton.load(self.tables.walls.at[places], mask=edge >= 0, other=0.0)

        return Vector(end(0), end(1)), Vector(end(2), end(3)), edge >= 0
