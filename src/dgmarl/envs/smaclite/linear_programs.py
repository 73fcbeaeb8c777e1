"""The small linear programs of collision avoidance: the velocity nearest to the wish that keeps to all half-planes.

A lane is one unit; arrays are `[K, L]`, K lines (half-planes) of L lanes. Lines are taken in order, as in the original: the
answer is kept while it satisfies the next line, else solved anew on that line. Instead of visiting every line in turn, each
trip of the loops below jumps, in every lane, to the first line that is violated, so there are as many trips as re-solves.
"""

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from .plane import Lines, Vector, choose

EPSILON = 1e-5


def solve(lines: Lines, n_walls: int, wish: Vector, speed: Float[Array, "L"]) -> Vector:
    """The velocity nearest to `wish` within `speed` that keeps to all lines; if there is none, to those of walls (the first
    `n_walls`), with the least violation of the others."""
    velocity, failed = nearest(lines, within_speed(wish, speed), wish, speed, farthest=False)
    return least_violation(lines, n_walls, velocity, failed, speed)


def within_speed(wish: Vector, speed: Float[Array, "*L"]) -> Vector:
    """The wish, shortened to the speed limit if need be."""
    return choose(wish.dot(wish) > speed**2, wish.unit() * speed, wish)


def nearest(
    lines: Lines, start: Vector, wish: Vector, speed: Float[Array, "L"], farthest: bool
) -> tuple[Vector, Int[Array, "L"]]:
    """The optimum under all lines, and the first line that cannot be kept (K if all can; else the answer before it).

    farthest: go as far as possible in the direction `wish`, instead of as near as possible to the point `wish`.
    """
    n_lines = lines.valid.shape[0]

    def trip(carry: tuple[Vector, Array, Array]) -> tuple[Vector, Array, Array]:
        velocity, line, failed = carry
        runs = line < n_lines
        found, possible = _on_line(lines, line, wish, speed, farthest)
        velocity = choose(runs & possible, found, velocity)
        failed = jnp.where(runs & ~possible, line, failed)
        following = _first_violated(lines, velocity, line + 1, 0.0)
        return velocity, jnp.where(runs & possible, following, n_lines), failed

    none = jnp.full(speed.shape, n_lines, jnp.int32)
    first = _first_violated(lines, start, 0, 0.0)
    velocity, _, failed = lax.while_loop(lambda carry: (carry[1] < n_lines).any(), trip, (start, first, none))
    return velocity, failed


def least_violation(lines: Lines, n_walls: int, velocity: Vector, begin: Int[Array, "L"], speed: Float[Array, "L"]) -> Vector:
    """From line `begin` on: keep to walls, and violate the lines of other units as little as possible."""
    n_lines = lines.valid.shape[0]

    def trip(carry: tuple[Vector, Array]) -> tuple[Vector, Array]:
        velocity, line = carry
        runs = line < n_lines
        point, direction = _line_at(lines, line)
        inwards = direction.left()
        found, failed = nearest(_projected(lines, n_walls, line), inwards * speed, inwards, speed, farthest=True)
        velocity = choose(runs & (failed == n_lines), found, velocity)
        following = _first_violated(lines, velocity, line + 1, direction.det(point - velocity))
        return velocity, jnp.where(runs, following, n_lines)

    return lax.while_loop(lambda carry: (carry[1] < n_lines).any(), trip, (velocity, begin))[0]


def _projected(lines: Lines, n_walls: int, at: Int[Array, "L"]) -> Lines:
    """Walls as they are; for each earlier line of a unit, the border on which it is violated as much as line `at`."""
    point, direction = _line_at(lines, at)
    index = jnp.arange(lines.valid.shape[0])[:, None]
    across = direction.det(lines.direction)
    parallel = jnp.abs(across) <= EPSILON
    share = lines.direction.det(point - lines.point) / jnp.where(parallel, 1.0, across)
    border = choose(parallel, (point + lines.point) * 0.5, point + direction * share)
    same_way = parallel & (direction.dot(lines.direction) > 0)
    of_wall = index < n_walls
    return Lines(
        point=choose(of_wall, lines.point, border),
        direction=choose(of_wall, lines.direction, (lines.direction - direction).unit()),
        valid=lines.valid & (at < lines.valid.shape[0]) & (of_wall | ((index < at) & ~same_way)),
    )


def _on_line(
    lines: Lines, at: Int[Array, "L"], wish: Vector, speed: Float[Array, "L"], farthest: bool
) -> tuple[Vector, Bool[Array, "L"]]:
    """The optimum on line `at` under all earlier lines and the speed limit, and whether there is one."""
    point, direction = _line_at(lines, at)
    middle = point.dot(direction)
    squared = middle**2 + speed**2 - point.dot(point)
    half = jnp.sqrt(jnp.maximum(squared, 0.0))
    before = lines.valid & (jnp.arange(lines.valid.shape[0])[:, None] < at)
    across = direction.det(lines.direction)
    room = lines.direction.det(point - lines.point)
    parallel = jnp.abs(across) <= EPSILON
    crossing = room / jnp.where(parallel, 1.0, across)
    crosses = before & ~parallel
    high = jnp.minimum(half - middle, jnp.where(crosses & (across > 0), crossing, jnp.inf).min(0))
    low = jnp.maximum(-middle - half, jnp.where(crosses & (across < 0), crossing, -jnp.inf).max(0))
    possible = (squared >= 0) & (low <= high) & ~(before & parallel & (room < 0)).any(0)
    if farthest:
        along = jnp.where(wish.dot(direction) > 0, high, low)
    else:
        along = jnp.maximum(low, jnp.minimum(direction.dot(wish - point), high))
    return point + direction * along, possible


def _first_violated(lines: Lines, velocity: Vector, begin: Int[Array, "L"] | int, beyond: Array | float) -> Int[Array, "L"]:
    """The first line from `begin` on that is violated by more than `beyond`, or K."""
    n_lines = lines.valid.shape[0]
    index = jnp.arange(n_lines)[:, None]
    violated = lines.valid & (index >= begin) & (lines.violation(velocity) > beyond)
    return jnp.where(violated, index, n_lines).min(0)


def _line_at(lines: Lines, at: Int[Array, "L"]) -> tuple[Vector, Vector]:
    """Point and direction of one line per lane; zero where `at` is K."""
    chosen = jnp.arange(lines.valid.shape[0])[:, None] == at
    return jax.tree.map(lambda values: jnp.where(chosen, values, 0.0).sum(0), (lines.point, lines.direction))
