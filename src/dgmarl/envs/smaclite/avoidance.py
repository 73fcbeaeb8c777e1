"""Collision avoidance: from preferred to actual velocities.

Only moving units with an obstacle or another unit nearby need it. They are selected over all
battles and processed in compacted chunks, so the cost is proportional to their number. Arrays are
`[U, B]` outside of a chunk and `[..., L]` inside."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from dgmarl.device import has_kernels, launch_bound

from .linear_programs import solve, within_speed
from .obstacles import Body, cell_of, no_lines, unit_line, unit_lines, wall_lines
from .plane import Lines, Vector, choose
from .roster import Roster
from .types import State
from .work_queue import map_selected

# Capacity per unit: at most 7 neighbours and 6 walls were observed in the original.
MOST_NEIGHBOURS = 10
MOST_WALLS = 8
# Units per chunk on a CPU, sized to the cache of a core; accelerators process all units together.
CPU_WIDTH = 1024


def avoid(roster: Roster, state: State, preferred: Float[Array, "U 2 B"]) -> Float[Array, "U 2 B"]:
    """Actual velocities. Units whose preferred velocity is zero do not move."""
    if has_kernels():
        from .avoidance_kernel import avoid

        return avoid(roster, state, preferred, _sight(roster), _most_lines(roster))
    n_units, n_battles = state.hp.shape
    wish = Vector(preferred[:, 0], preferred[:, 1])
    speed = jnp.broadcast_to(jnp.asarray(roster.speed, jnp.float32)[:, None], state.hp.shape)
    moves = (wish.x != 0) | (wish.y != 0)
    selected = moves & (_has_neighbours(roster, state) | _near_walls(roster, state))
    free = choose(moves, within_speed(wish, speed), Vector(0.0, 0.0))
    flat = jax.tree.map(lambda part: part.reshape(-1), free)
    width = n_units * n_battles if launch_bound() else CPU_WIDTH
    velocity = map_selected(
        selected.reshape(-1), width, partial(_velocities, roster, state, wish), flat
    )
    parts = [part.reshape(state.hp.shape) for part in (velocity.x, velocity.y)]
    return jnp.stack(parts, axis=1)


def _most_lines(roster: Roster) -> tuple[int, int]:
    """Maximum numbers of lines of walls and of other units."""
    near = roster.walls_near_cells.shape[1]
    return min(MOST_WALLS, near), min(MOST_NEIGHBOURS, roster.n_units - 1)


def _sight(roster: Roster) -> np.ndarray:
    """Squared distance within which other units are neighbours."""
    return (roster.radius + roster.largest_radius) ** 2


def _has_neighbours(roster: Roster, state: State) -> Bool[Array, "U B"]:
    x, y = state.position[:, 0], state.position[:, 1]
    squared = (x[:, None] - x) ** 2 + (y[:, None] - y) ** 2
    same_plane = (roster.is_air[:, None] == roster.is_air) & ~jnp.eye(roster.n_units, dtype=bool)
    near = (squared < _sight(roster)[:, None, None]) & same_plane[..., None] & state.in_play
    return near.any(1)


def _near_walls(roster: Roster, state: State) -> Bool[Array, "U B"]:
    some_near = jnp.asarray((roster.walls_near_cells >= 0).any(1))
    cell = cell_of(Vector(state.position[:, 0], state.position[:, 1]))
    return some_near[cell] & ~roster.is_air[:, None]


def _velocities(roster: Roster, state: State, wish: Vector, index: Int[Array, "L"]) -> Vector:
    """Velocities of the units at these indices into the flattened `[U, B]`."""
    n_battles = state.hp.shape[-1]
    unit, battle = index // n_battles, index % n_battles
    columns = [vector[:, k] for vector in (state.position, state.velocity) for k in range(2)]
    flat = [values.reshape(-1) for values in (*columns, wish.x, wish.y)]

    def body(unit: Int[Array, "*K L"]) -> tuple[Body, Vector]:
        place = unit * n_battles + battle
        x, y, velocity_x, velocity_y, *wished = (values[place] for values in flat)
        radius = jnp.asarray(roster.radius)[unit]
        return Body(Vector(x, y), Vector(velocity_x, velocity_y), radius), Vector(*wished)

    me, own_wish = body(unit)
    speed = jnp.asarray(roster.speed, jnp.float32)[unit]
    n_walls, n_others = _most_lines(roster)
    lines = no_lines(n_walls + n_others, len(index))
    moves = (own_wish.x != 0) | (own_wish.y != 0)
    if n_walls:
        on_ground = moves & ~jnp.asarray(roster.is_air)[unit]
        lines = wall_lines(*_walls(roster, me), lines, n_walls, me, speed, on_ground)

    def line_to(who: Int[Array, "*K L"], squared: Float[Array, "*K L"]) -> Lines:
        other, its_wish = body(who)
        line = unit_line(me, other, (its_wish.x == 0) & (its_wish.y == 0))
        return line._replace(valid=line.valid & (squared < jnp.inf))

    squared = jnp.where(moves, _neighbours(roster, state, me, unit, battle), jnp.inf)
    lines = unit_lines(lines, n_walls, squared, line_to)
    return solve(lines, n_walls, own_wish, speed)


def _walls(roster: Roster, me: Body) -> tuple[Vector, Vector, Bool[Array, "C L"]]:
    """Start and end of the walls near these units, and which of them exist."""
    edge = jnp.moveaxis(jnp.asarray(roster.walls_near_cells)[cell_of(me.position)], -1, 0)
    start, end = (
        Vector(jnp.asarray(ends)[edge, 0], jnp.asarray(ends)[edge, 1])
        for ends in (roster.walls.start, roster.walls.end)
    )
    return start, end, edge >= 0


def _neighbours(
    roster: Roster, state: State, me: Body, unit: Int[Array, "L"], battle: Int[Array, "L"]
) -> Float[Array, "U L"]:
    """Squared distance to every neighbour of the given units, infinite for other units."""
    x, y = state.position[:, 0][:, battle], state.position[:, 1][:, battle]
    squared = (x - me.position.x) ** 2 + (y - me.position.y) ** 2
    same_plane = roster.is_air[:, None] == jnp.asarray(roster.is_air)[unit]
    is_me = jnp.arange(roster.n_units)[:, None] == unit
    near = (squared < jnp.asarray(_sight(roster))[unit]) & same_plane & ~is_me
    return jnp.where(near & state.in_play[:, battle], squared, jnp.inf)
