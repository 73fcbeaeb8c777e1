"""The linear programs of collision avoidance: the admissible velocity closest to the preferred one.

Arrays are `[K, L]`: K lines (half-planes) of L units. Lines are processed in order, as in the
original: the solution is kept while it satisfies the next line and recomputed on that line
otherwise. Each iteration of the loops below jumps, for every unit, to the first violated line, so
the number of iterations is the number of recomputations."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from dgmarl.device import launch_bound

from .plane import Lines, Vector, choose
from .work_queue import chunk_width, map_selected

EPSILON = 1e-5
UNROLL = 4
"""Iterations per loop trip on an accelerator, where a trip costs more than its arithmetic; most
units need three or four."""


def solve(lines: Lines, n_walls: int, wish: Vector, speed: Float[Array, "L"]) -> Vector:
    """The velocity closest to `wish` within `speed` that satisfies all lines; if there is none, the
    one that satisfies the lines of walls (the first `n_walls`) and least violates the others."""
    start = within_speed(wish, speed)
    n_lines, n_units = lines.valid.shape

    def part(who: Int[Array, "L"], *values: Any) -> Any:
        return jax.tree.map(lambda leaf: leaf[..., who], values)

    def resolve(who: Int[Array, "L"]) -> tuple[Vector, Array]:
        mine, start_, wish_, speed_ = part(who, lines, start, wish, speed)
        return nearest(mine, start_, wish_, speed_, farthest=False)

    violated = _first_violated(lines, start, 0, 0.0) < n_lines
    kept = (start, jnp.full(n_units, n_lines, jnp.int32))
    velocity, failed = map_selected(violated, chunk_width(n_units, 4), resolve, kept)

    def compromise(who: Int[Array, "L"]) -> Vector:
        mine, velocity_, failed_, speed_ = part(who, lines, velocity, failed, speed)
        return least_violation(mine, n_walls, velocity_, failed_, speed_)

    return map_selected(failed < n_lines, chunk_width(n_units, 8), compromise, velocity)


def within_speed(wish: Vector, speed: Float[Array, "*L"]) -> Vector:
    """The preferred velocity clipped to the speed limit."""
    return choose(wish.dot(wish) > speed**2, wish.unit() * speed, wish)


def nearest(
    lines: Lines, start: Vector, wish: Vector, speed: Float[Array, "L"], farthest: bool
) -> tuple[Vector, Int[Array, "L"]]:
    """The optimum under all lines, and the first line that cannot be satisfied (K if all can). If
    one cannot, the optimum under the lines before it.

    farthest: maximise the component along `wish` instead of minimising the distance to `wish`."""
    n_lines = lines.valid.shape[0]

    def trip(carry: tuple[Vector, Array, Array]) -> tuple[Vector, Array, Array]:
        velocity, line, failed = carry
        runs = line < n_lines
        found, possible = _on_line(lines, line, wish, speed, farthest)
        velocity = choose(runs & possible, found, velocity)
        failed = jnp.where(runs & ~possible, line, failed)
        following = _first_violated(lines, velocity, line + 1, 0.0)
        return velocity, jnp.where(runs & possible, following, n_lines), failed

    def trips(carry: tuple[Vector, Array, Array]) -> tuple[Vector, Array, Array]:
        for _ in range(UNROLL if launch_bound() else 1):  # a no-op for finished units
            carry = trip(carry)
        return carry

    none = jnp.full(speed.shape, n_lines, jnp.int32)
    first = _first_violated(lines, start, 0, 0.0)
    velocity, _, failed = lax.while_loop(
        lambda carry: (carry[1] < n_lines).any(), trips, (start, first, none)
    )
    return velocity, failed


def least_violation(
    lines: Lines, n_walls: int, velocity: Vector, begin: Int[Array, "L"], speed: Float[Array, "L"]
) -> Vector:
    """From line `begin` on: satisfy walls, minimise the violation of other units' lines."""
    n_lines = lines.valid.shape[0]

    def trip(carry: tuple[Vector, Array]) -> tuple[Vector, Array]:
        velocity, line = carry
        runs = line < n_lines
        point, direction = _line_at(lines, line)
        inwards = direction.left()
        found, failed = nearest(
            _projected(lines, n_walls, line), inwards * speed, inwards, speed, farthest=True
        )
        velocity = choose(runs & (failed == n_lines), found, velocity)
        following = _first_violated(lines, velocity, line + 1, direction.det(point - velocity))
        return velocity, jnp.where(runs, following, n_lines)

    return lax.while_loop(lambda carry: (carry[1] < n_lines).any(), trip, (velocity, begin))[0]


def _projected(lines: Lines, n_walls: int, at: Int[Array, "L"]) -> Lines:
    """Walls unchanged; for each earlier line of a unit, the locus of equal violation of that line
    and line `at`."""
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
    """The optimum on line `at` under all earlier lines and the speed limit, if it exists."""
    point, direction = _line_at(lines, at)
    middle = point.dot(direction)
    squared = middle**2 + speed**2 - point.dot(point)
    half = jnp.sqrt(jnp.maximum(squared, 0.0))
    low, high, possible = -middle - half, half - middle, squared >= 0
    for k, line in enumerate(_one_by_one(lines)):
        before = line.valid & (k < at)
        across = direction.det(line.direction)
        room = line.direction.det(point - line.point)
        parallel = jnp.abs(across) <= EPSILON
        crossing = room / jnp.where(parallel, 1.0, across)
        high = jnp.where(before & (across > EPSILON), jnp.minimum(high, crossing), high)
        low = jnp.where(before & (across < -EPSILON), jnp.maximum(low, crossing), low)
        possible &= ~(before & parallel & (room < 0))
    if farthest:
        along = jnp.where(wish.dot(direction) > 0, high, low)
    else:
        along = jnp.maximum(low, jnp.minimum(direction.dot(wish - point), high))
    return point + direction * along, possible & (low <= high)


def _first_violated(
    lines: Lines, velocity: Vector, begin: Int[Array, "L"] | int, beyond: Array | float
) -> Int[Array, "L"]:
    """The first line from `begin` on that is violated by more than `beyond`, or K."""
    n_lines = lines.valid.shape[0]
    first = jnp.full(velocity.x.shape, n_lines, jnp.int32)
    for k, line in reversed(list(enumerate(_one_by_one(lines)))):
        first = jnp.where(line.valid & (k >= begin) & (line.violation(velocity) > beyond), k, first)
    return first


def _line_at(lines: Lines, at: Int[Array, "L"]) -> tuple[Vector, Vector]:
    """Point and direction of one line per unit; those of line 0 where `at` is K."""
    first, *others = _one_by_one(lines)
    chosen = (first.point, first.direction)
    for k, line in enumerate(others, start=1):
        chosen = choose(at == k, (line.point, line.direction), chosen)
    return chosen


def _one_by_one(lines: Lines) -> list[Lines]:
    """The K lines as a list: a fold over it vectorises over units, a reduction over K does not."""
    return [jax.tree.map(lambda values, k=k: values[k], lines) for k in range(lines.valid.shape[0])]
