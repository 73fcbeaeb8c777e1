"""The linear programs of collision avoidance: the admissible velocity closest to the preferred one.

Arrays are `[K, L]`: K lines (half-planes) of L units. Lines are processed in order, as in the
original: the solution is kept while it satisfies the next line and recomputed on that line
otherwise. On a CPU each iteration of the loop jumps, for every unit, to the first violated line, so
the number of iterations is the number of recomputations. On an accelerator the solutions on all
lines are computed together, with the lines that each of them violates; the loop is then a few
bitwise operations per line. A GPU with kernels runs the CPU's loop inside a kernel
(`avoidance_kernel`), with the operations of an accelerator."""

from collections.abc import Callable
from functools import reduce
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from dgmarl.device import in_kernel, launch_bound

from .plane import Lines, Vector, choose
from .work_queue import chunk_width, map_selected

EPSILON = 1e-5
MOST_OVER_LIMIT = 8.0
"""Factor by which a velocity may exceed the speed limit; the largest in the recordings of the
original is between 5 and 8."""


def solve(lines: Lines, n_walls: int, wish: Vector, speed: Float[Array, "L"]) -> Vector:
    """The velocity closest to `wish` within `speed` that satisfies all lines; if there is none, the
    one that satisfies the lines of walls (the first `n_walls`) and least violates the others."""
    start = within_speed(wish, speed)
    n_lines, n_units = lines.valid.shape

    def part(who: Int[Array, "L"], *values: Any) -> Any:
        if len(who) == n_units:  # all of them, in order
            return values
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

    velocity = map_selected(failed < n_lines, chunk_width(n_units, 8), compromise, velocity)
    return without_outliers(velocity, speed)


def without_outliers(velocity: Vector, speed: Float[Array, "*L"]) -> Vector:
    """Velocities far beyond the speed limit scaled back to it.

    A deviation from the original. Where nearly parallel lines cross far away, single precision
    loses the speed limit in `_on_line`, in the original and here: on 25m_vs_30m slightly in 0.07 %
    of the steps, but now and then by a factor of up to 57, which carries units through walls."""
    limit = (MOST_OVER_LIMIT * speed) ** 2
    return choose(velocity.dot(velocity) > limit, velocity.unit() * speed, velocity)


def within_speed(wish: Vector, speed: Float[Array, "*L"]) -> Vector:
    """The preferred velocity clipped to the speed limit."""
    return choose(wish.dot(wish) > speed**2, wish.unit() * speed, wish)


def nearest(
    lines: Lines, start: Vector, wish: Vector, speed: Float[Array, "L"], farthest: bool
) -> tuple[Vector, Int[Array, "L"]]:
    """The optimum under all lines, and the first line that cannot be satisfied (K if all can). If
    one cannot, the optimum under the lines before it.

    farthest: maximise the component along `wish` instead of minimising the distance to `wish`."""
    together = launch_bound() and not in_kernel()
    method = _all_at_once if together else _one_after_another
    return method(lines, start, wish, speed, farthest)


def _one_after_another(
    lines: Lines, start: Vector, wish: Vector, speed: Float[Array, "L"], farthest: bool
) -> tuple[Vector, Int[Array, "L"]]:
    """`nearest` as a loop over the violated lines."""
    n_lines = lines.valid.shape[0]

    def trip(carry: tuple[Vector, Array, Array]) -> tuple[Vector, Array, Array]:
        velocity, line, failed = carry
        runs = line < n_lines
        found, possible = _on_line(lines, line, _line_at(lines, line), wish, speed, farthest)
        velocity = choose(runs & possible, found, velocity)
        failed = jnp.where(runs & ~possible, line, failed)
        following = _first_violated(lines, velocity, line + 1, 0.0)
        return velocity, jnp.where(runs & possible, following, n_lines), failed

    none = jnp.full(speed.shape, n_lines, jnp.int32)
    first = _first_violated(lines, start, 0, 0.0)
    velocity, _, failed = lax.while_loop(
        lambda carry: _any(carry[1] < n_lines), trip, (start, first, none)
    )
    return velocity, failed


def _all_at_once(
    lines: Lines, start: Vector, wish: Vector, speed: Float[Array, "L"], farthest: bool
) -> tuple[Vector, Int[Array, "L"]]:
    """`nearest` with the solutions on all lines computed first, so that the loop is unrolled."""
    n_lines = lines.valid.shape[0]
    every = jnp.arange(n_lines, dtype=jnp.int32)[:, None]
    found, possible = _on_line(lines, every, (lines.point, lines.direction), wish, speed, farthest)
    violated_by = _violated(lines, found)  # [K, L]
    velocity, violated = start, _violated(lines, start)
    failed = jnp.full(speed.shape, n_lines, jnp.int32)
    for k in range(n_lines):
        moves = ((violated >> k) & 1 == 1) & (failed == n_lines)
        failed = jnp.where(moves & ~possible[k], k, failed)
        moves &= possible[k]
        velocity = choose(moves, Vector(found.x[k], found.y[k]), velocity)
        violated = jnp.where(moves, violated_by[k], violated)
    return velocity, failed


def _violated(lines: Lines, velocity: Vector) -> Int[Array, "*K L"]:
    """The lines that a velocity violates, as bits of an integer."""

    def bit(k: Any, line: Lines) -> tuple[Array]:
        return (jnp.where(line.valid & (line.violation(velocity) > 0), 1 << k, 0),)

    return _over_lines(lines, bit, (jnp.bitwise_or,), velocity.x.ndim)[0]


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

    return lax.while_loop(lambda carry: _any(carry[1] < n_lines), trip, (velocity, begin))[0]


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
    lines: Lines,
    at: Int[Array, "*K L"],
    line_at: tuple[Vector, Vector],
    wish: Vector,
    speed: Float[Array, "L"],
    farthest: bool,
) -> tuple[Vector, Bool[Array, "*K L"]]:
    """The optimum on line `at` under all earlier lines and the speed limit, and whether it exists.
    line_at: the line's point and direction."""
    point, direction = line_at
    middle = point.dot(direction)
    squared = middle**2 + speed**2 - point.dot(point)
    half = jnp.sqrt(jnp.maximum(squared, 0.0))

    def limits(k: Any, line: Lines) -> tuple[Array, Array, Array]:
        before = line.valid & (k < at)
        across = direction.det(line.direction)
        room = line.direction.det(point - line.point)
        parallel = jnp.abs(across) <= EPSILON
        crossing = room / jnp.where(parallel, 1.0, across)
        return (
            jnp.where(before & (across < -EPSILON), crossing, -jnp.inf),
            jnp.where(before & (across > EPSILON), crossing, jnp.inf),
            before & parallel & (room < 0),
        )

    how = (jnp.maximum, jnp.minimum, jnp.logical_or)
    low, high, blocked = _over_lines(lines, limits, how, point.x.ndim)
    low, high = jnp.maximum(low, -middle - half), jnp.minimum(high, half - middle)
    possible = (squared >= 0) & ~blocked
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

    def place(k: Any, line: Lines) -> tuple[Array]:
        counts = line.valid & (k >= begin) & (line.violation(velocity) > beyond)
        return (jnp.where(counts, k, n_lines),)

    return _over_lines(lines, place, (jnp.minimum,), velocity.x.ndim)[0]


def _line_at(lines: Lines, at: Int[Array, "L"]) -> tuple[Vector, Vector]:
    """Point and direction of one line per unit; arbitrary where `at` is K."""
    both = (lines.point, lines.direction)
    if in_kernel():
        this = jnp.arange(len(lines.valid), dtype=jnp.int32)[:, None] == at
        return jax.tree.map(lambda values: jnp.where(this, values, 0.0).sum(0), both)
    if launch_bound():
        place = jnp.minimum(at, len(lines.valid) - 1) * len(at) + jnp.arange(len(at))
        return jax.tree.map(lambda values: values.reshape(-1)[place], both)
    first, *others = _one_by_one(both)
    return reduce(
        lambda kept, k: choose(at == k, others[k - 1], kept), range(1, len(lines.valid)), first
    )


def _over_lines(
    lines: Lines, function: Callable[[Any, Lines], tuple], how: tuple[Any, ...], ndim: int
) -> list[Array]:
    """The results of `function(k, line k)` for all lines, combined by the ufuncs `how`.

    A fold vectorises over units on a CPU, where a reduction over K does not; on an accelerator a
    reduction is one operation instead of K. ndim: number of axes of the results."""
    if launch_bound() or in_kernel():
        places = (slice(None), *(None for _ in range(ndim - 1)), slice(None))
        index = jnp.arange(len(lines.valid), dtype=jnp.int32)[:, None]
        every = jax.tree.map(lambda values: values[places], (index, lines))
        return [
            _any(part, 0) if ufunc is jnp.logical_or else ufunc.reduce(part)
            for ufunc, part in zip(how, function(*every), strict=True)
        ]
    parts = zip(*map(function, range(len(lines.valid)), _one_by_one(lines)), strict=True)
    return [reduce(ufunc, part) for ufunc, part in zip(how, parts, strict=True)]


def _any(mask: Bool[Array, "..."], axis: int | None = None) -> Bool[Array, "..."]:
    """`mask.any(axis)`; kernels cannot reduce booleans."""
    return mask.astype(jnp.int32).max(axis) > 0 if in_kernel() else mask.any(axis)


def _one_by_one(lines: Any) -> list[Any]:
    n_lines = len(jax.tree.leaves(lines)[0])
    return [jax.tree.map(lambda values, k=k: values[k], lines) for k in range(n_lines)]
