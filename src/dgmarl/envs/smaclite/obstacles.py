"""ORCA half-planes: velocities that avoid walls and other units within one second.

Arrays are `[..., L]` over L moving units. Lines are built nearest first, one per unit and
iteration, until no unit has a candidate left. The derivation is in van den Berg et al.,
"Reciprocal n-body collision avoidance"; deviations of the game are noted in the docstrings."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from dgmarl.device import in_kernel, launch_bound

from .batch import first_least
from .plane import Lines, Vector, choose
from .terrain import RIM, SIZE
from .types import TICK

EPSILON = 1e-5
FEW = 2
"""Up to this many lines, an accelerator computes all without testing which are needed."""


class Body(NamedTuple):
    """Position, velocity and radius of units."""

    position: Vector
    velocity: Vector
    radius: Float[Array, "L"]


def no_lines(n_lines: int, n_units: int) -> Lines:
    """Storage for `n_lines` lines per unit, all invalid."""
    zero = jnp.zeros((n_lines, n_units))
    return Lines(Vector(zero, zero), Vector(zero, zero), jnp.zeros((n_lines, n_units), bool))


def put(lines: Lines, place: Int[Array, ""] | int, line: Lines) -> Lines:
    """The lines with `line`, one per unit, written at index `place`."""
    if in_kernel():
        here = jnp.arange(len(lines.valid))[:, None] == place
        return choose(here, line, lines)
    return jax.tree.map(
        lambda all_, one: lax.dynamic_update_index_in_dim(all_, one, place, 0), lines, line
    )


def cell_of(position: Vector) -> Int[Array, "L"]:
    """The index of a point's cell in the table of nearby walls."""
    x, y = (
        jnp.clip(jnp.floor(part).astype(jnp.int32) + RIM, 0, SIZE + 2 * RIM - 1)
        for part in (position.x, position.y)
    )
    return y * (SIZE + 2 * RIM) + x


def wall_lines(
    start: Vector,
    end: Vector,
    exists: Bool[Array, "C L"],
    lines: Lines,
    n_walls: int,
    me: Body,
    speed: Float[Array, "L"],
    on_ground: Bool[Array, "L"],
) -> Lines:
    """Write the lines of the walls from `start` to `end` to the first `n_walls` places, for ground
    units.

    A wall that is already avoided by earlier lines gives none."""
    along = end - start  # exact, unlike the difference of the two offsets from the unit
    start, end = start - me.position, end - me.position
    distance = _squared_distance(start, along)
    matters = on_ground & exists & (start.det(along) < 0) & (distance < (speed + me.radius) ** 2)

    def line_of(which: Int[Array, "L"], least: Float[Array, "L"]) -> tuple[Lines, Array]:
        chosen = jnp.arange(len(exists))[:, None] == which
        a, b, a_to_b = jax.tree.map(
            lambda values: jnp.where(chosen, values, 0.0).sum(0), (start, end, along)
        )
        line = _wall_line(a, b, a_to_b, me)
        line = line._replace(valid=line.valid & (least < jnp.inf))
        clear = [
            (ends - line.point).det(line.direction) - me.radius >= -EPSILON for ends in (start, end)
        ]
        return line, line.valid & clear[0] & clear[1]

    return _nearest_first(jnp.where(matters, distance, jnp.inf), lines, 0, n_walls, line_of)


def _nearest_first(
    left: Float[Array, "C L"],
    lines: Lines,
    begin: int,
    end: int,
    line_of: Callable[[Int[Array, "L"], Float[Array, "L"]], tuple[Lines, Array | bool]],
) -> Lines:
    """Write the lines of the candidates to the places from `begin` to `end`, nearest first, while
    any unit has a candidate left.

    left: squared distance of each candidate, infinite if it is to be ignored.
    line_of: maps the nearest candidate and its distance to its line and to a mask of the
      candidates that no longer need a line."""

    def some_left(carry: tuple[Array, Array, Lines]) -> Array:
        place, left, _ = carry
        return (place < end) & (left.min() < jnp.inf)

    def trip(carry: tuple[Any, Array, Lines]) -> tuple[Any, Array, Lines]:
        place, left, lines = carry
        least, which = first_least(left, axis=0)
        line, covered = line_of(which, least)
        done = (jnp.arange(len(left))[:, None] == which) | covered
        return place + 1, jnp.where(done, jnp.inf, left), put(lines, place, line)

    if launch_bound() and end - begin <= FEW and not in_kernel():
        carry = (begin, left, lines)
        for _ in range(begin, end):
            carry = trip(carry)
        return carry[2]
    return lax.while_loop(some_left, trip, (jnp.int32(begin), left, lines))[2]


def _squared_distance(start: Vector, along: Vector) -> Array:
    """Squared distance of the origin to the segment from `start` along `along`."""
    squared = along.dot(along)
    share = jnp.clip(-start.dot(along) / jnp.where(squared > 0, squared, 1.0), 0.0, 1.0)
    foot = start + along * share
    return foot.dot(foot)


def _wall_line(a: Vector, b: Vector, along: Vector, me: Body) -> Lines:
    """The line of the wall from a to b, relative to the unit; invalid where an adjacent wall
    provides it.

    along: b - a, exact. Walls are sides of rectangles, so the wall that ends at a comes from the
      right, the one that starts at b goes to the left."""
    radius, velocity = me.radius, me.velocity
    squared_radius = radius**2
    direction = along.unit()
    squared_a, squared_b = a.dot(a), b.dot(b)
    foot = -a.dot(along) / jnp.where(along.dot(along) > 0, along.dot(along), 1.0)
    off_line = a + along * foot
    near_line = off_line.dot(off_line) <= squared_radius
    touches_a = (foot < 0) & (squared_a <= squared_radius)
    touches_b = (foot > 1) & (squared_b <= squared_radius)
    touches = (foot >= 0) & (foot < 1) & near_line
    zero = a * 0.0
    only_a, only_b = (foot < 0) & near_line, (foot > 1) & near_line
    approach = _approach(a, b, direction, only_a, only_b, radius, velocity)

    in_contact = touches_a | touches_b | touches
    contact = choose(touches_a, a.left().unit(), choose(touches_b, b.left().unit(), -direction))
    contact_counts = ~touches_b | (b.det(direction.left()) >= 0)
    return Lines(
        point=choose(in_contact, zero, approach.point),
        direction=choose(in_contact, contact, approach.direction),
        valid=jnp.where(in_contact, contact_counts, approach.valid),
    )


def _approach(
    a: Vector,
    b: Vector,
    direction: Vector,
    only_a: Array,
    only_b: Array,
    radius: Array,
    velocity: Vector,
) -> Lines:
    """The line of a wall without contact: on the round ends or the straight front of the velocity
    obstacle, or on one of its two legs. Seen at a grazing angle (`only_a`, `only_b`) the wall
    reduces to that corner."""
    a, b = choose(only_b, b, a), choose(only_a, a, b)
    one_corner = only_a | only_b
    left_leg = _leg(a, radius, 1.0)
    right_leg = _leg(b, radius, -1.0)
    # A leg that points into an adjacent wall is replaced by that wall, which provides the line.
    left_wall = choose(only_b, -direction, direction.left())
    right_wall = choose(only_a, direction, direction.left())
    foreign_left, foreign_right = left_leg.det(left_wall) >= 0, right_leg.det(right_wall) <= 0
    left_leg = choose(foreign_left, left_wall, left_leg)
    right_leg = choose(foreign_right, right_wall, right_leg)

    front = b - a
    share = jnp.where(
        one_corner, 0.5, (velocity - a).dot(front) / jnp.where(one_corner, 1.0, front.dot(front))
    )
    along_left, along_right = (velocity - a).dot(left_leg), (velocity - b).dot(right_leg)
    round_a = ((share < 0) & (along_left < 0)) | (one_corner & (along_left < 0) & (along_right < 0))
    round_b = (share > 1) & (along_right < 0)
    from_a, from_b = (velocity - a).unit(), (velocity - b).unit()

    def squared(gap: Vector, off: Array) -> Array:
        return jnp.where(off, jnp.inf, gap.dot(gap))

    to_front = squared(velocity - (a + front * share), (share < 0) | (share > 1) | one_corner)
    to_left = squared(velocity - (a + left_leg * along_left), along_left < 0)
    to_right = squared(velocity - (b + right_leg * along_right), along_right < 0)
    at_front = (to_front <= to_left) & (to_front <= to_right)
    at_left = ~at_front & (to_left <= to_right)
    straight = choose(at_front, -direction, choose(at_left, left_leg, -right_leg))
    corner = choose(at_front | at_left, a, b)
    is_round = round_a | round_b
    return Lines(
        point=choose(
            round_a,
            a + from_a * radius,
            choose(round_b, b + from_b * radius, corner + straight.left() * radius),
        ),
        direction=choose(round_a, from_a.right(), choose(round_b, from_b.right(), straight)),
        valid=is_round | at_front | jnp.where(at_left, ~foreign_left, ~foreign_right),
    )


def _leg(corner: Vector, radius: Array, side: float) -> Vector:
    """The tangent from the origin to the circle around a corner, on its left (1) or right (-1)."""
    squared = corner.dot(corner)
    reach = jnp.sqrt(jnp.maximum(squared - radius**2, 0.0))
    tangent = corner * reach + corner.left() * (side * radius)
    return tangent * (1.0 / jnp.where(squared > 0, squared, 1.0))


def unit_lines(
    lines: Lines,
    place: int,
    squared: Float[Array, "U L"],
    line_to: Callable[[Int[Array, "*K L"], Float[Array, "*K L"]], Lines],
    end: int | None = None,
) -> Lines:
    """Write the lines of other units from `place` on, up to `end`, nearest first, ties by index.

    squared: squared distance of every unit, infinite for units to be ignored. Accelerators build
      all lines in parallel; a CPU loops while any unit has a neighbour left."""
    n_lines = lines.valid.shape[0] if end is None else end
    if launch_bound() and not in_kernel():
        near = line_to(*_nearest(squared, n_lines - place))
        return jax.tree.map(lambda all_, some: jnp.concatenate([all_[:place], some]), lines, near)
    return _nearest_first(
        squared, lines, place, n_lines, lambda who, least: (line_to(who, least), False)
    )


def _nearest(squared: Float[Array, "U L"], n: int) -> tuple[Int[Array, "K L"], Float[Array, "K L"]]:
    """The n nearest units in order, ties by index, and their squared distances. Ranks are counted
    by reductions, which keep the layout of all other arrays; a sort would transpose it."""
    index = jnp.arange(len(squared), dtype=jnp.int32)[:, None]
    other, its_index = squared[:, None], index[:, None]
    before = (other < squared) | ((other == squared) & (its_index < index))
    chosen = before.sum(0, dtype=jnp.int32) == jnp.arange(n)[:, None, None]  # [K, U, L]
    who = jnp.where(chosen, index, 0).sum(1)
    return who, jnp.where(chosen, squared, jnp.inf).min(1)


def unit_line(me: Body, other: Body, other_stands: Bool[Array, "L"]) -> Lines:
    """The line that avoids a collision with another unit within a second (within a tick if they
    touch).

    Each unit takes half of the correction. If the other unit does not move, this one takes all of
    it, unlike in ORCA."""
    gap, velocity = other.position - me.position, me.velocity - other.velocity
    radius = me.radius + other.radius
    squared = gap.dot(gap)
    touch = squared <= radius**2
    horizon = jnp.where(touch, 1 / TICK, 1.0)
    beyond = velocity - gap * horizon
    ahead = beyond.dot(gap)
    is_round = touch | ((ahead < 0) & (ahead**2 > radius**2 * beyond.dot(beyond)))
    outwards = beyond.unit()
    push_round = outwards * (radius * horizon - beyond.length())
    left = gap.det(beyond) > 0
    leg = choose(left, _leg(gap, radius, 1.0), -_leg(gap, radius, -1.0))
    direction = choose(is_round, outwards.right(), leg)
    push = choose(is_round, push_round, leg * velocity.dot(leg) - velocity)
    share = jnp.where(other_stands, 1.0, 0.5)
    return Lines(me.velocity + push * share, direction, ~is_round | (beyond.dot(beyond) > 0))
