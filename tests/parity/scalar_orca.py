"""Collision avoidance one unit at a time, in the original's arithmetic: float32, and division as
the product with an inverse.

Slow and plain, the oracle for the vectorised one. It also knows two things that ours leaves open
because they change nothing but rounding: the original cuts walls where the lines of other walls
cross them, and who comes first among neighbours at exactly the same distance is decided there by
the history of a search tree. The equations are those of van den Berg et al., "Reciprocal n-body
collision avoidance", with the game's deviations, which `dgmarl.envs.smaclite.obstacles` names."""

from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple

import numpy as np

from dgmarl.envs.smaclite.roster import Roster
from dgmarl.envs.smaclite.terrain import rectangles

EPSILON = np.float32(1e-5)
ZERO, HALF, ONE, TICKS_PER_SECOND = (np.float32(value) for value in (0, 0.5, 1, 16))
INFINITY = np.float32(np.inf)


@dataclass(frozen=True)
class Vec:
    """A vector of the plane."""

    x: np.float32
    y: np.float32

    def __add__(self, other: "Vec") -> "Vec":
        return Vec(self.x + other.x, self.y + other.y)

    def __sub__(self, other: "Vec") -> "Vec":
        return Vec(self.x - other.x, self.y - other.y)

    def __neg__(self) -> "Vec":
        return Vec(-self.x, -self.y)

    def __mul__(self, factor: np.float32) -> "Vec":
        return Vec(self.x * factor, self.y * factor)

    def __truediv__(self, divisor: np.float32) -> "Vec":
        return self * (ONE / divisor)

    def dot(self, other: "Vec") -> np.float32:
        return self.x * other.x + self.y * other.y

    def det(self, other: "Vec") -> np.float32:
        return self.x * other.y - self.y * other.x

    def unit(self) -> "Vec":
        return self / np.sqrt(self.dot(self))

    def left(self) -> "Vec":
        return Vec(-self.y, self.x)

    def right(self) -> "Vec":
        return Vec(self.y, -self.x)


NOWHERE = Vec(ZERO, ZERO)


class Line(NamedTuple):
    """What lies to the left of it is allowed."""

    point: Vec
    direction: Vec

    def violation(self, velocity: Vec) -> np.float32:
        return self.direction.det(self.point - velocity)


@dataclass(eq=False)
class Edge:
    """A side of a blocked rectangle, or a piece of one: from its point to that of the next."""

    point: Vec
    direction: Vec
    previous: "Edge" = field(init=False)
    following: "Edge" = field(init=False)

    def side(self, point: Vec) -> np.float32:
        """Positive for points to the left of it."""
        return (self.point - point).det(self.following.point - self.point)


class Node(NamedTuple):
    """The edges on both sides of the line of one of them."""

    edge: Edge
    left: "Node | None"
    right: "Node | None"


def edges_of(roster: Roster) -> list[Edge]:
    """Four edges per blocked rectangle."""
    found = []
    for x, y, width, height in rectangles(roster.walkable):
        corners = [(x, y), (x + width, y), (x + width, y + height), (x, y + height)]
        directions = [(1, 0), (0, 1), (-1, 0), (0, -1)]
        ring = [
            Edge(*(Vec(*map(np.float32, pair)) for pair in both))
            for both in zip(corners, directions, strict=True)
        ]
        for edge, after in zip(ring, ring[1:] + ring[:1], strict=True):
            edge.following, after.previous = after, edge
        found += ring
    return found


def cut(edges: list[Edge]) -> Node | None:
    """The original's binary space partition, which cuts edges in two where it must."""
    if not edges:
        return None
    chosen = _best_cut(edges)
    left, right = [], []
    for edge in edges:
        if edge is chosen:
            continue
        where = _sides(chosen, edge)
        if where != "both":
            (left if where == "left" else right).append(edge)
            continue
        along, after = chosen.following.point - chosen.point, edge.following
        share = along.det(edge.point - chosen.point) / along.det(edge.point - after.point)
        starts_left = chosen.side(edge.point) > 0
        piece = Edge(edge.point + (after.point - edge.point) * share, edge.direction)
        piece.previous, piece.following, edge.following, after.previous = edge, after, piece, piece
        left.append(edge if starts_left else piece)
        right.append(piece if starts_left else edge)
    return Node(chosen, cut(left), cut(right))


def _best_cut(edges: list[Edge]) -> Edge:
    """The first that leaves the fewest on its fuller side."""
    best, least = edges[0], (len(edges), len(edges))
    for edge in edges:
        where = [_sides(edge, other) for other in edges if other is not edge]
        sizes = [sum(side in (one, "both") for side in where) for one in ("left", "right")]
        if (size := (max(sizes), min(sizes))) < least:
            best, least = edge, size
    return best


def _sides(edge: Edge, other: Edge) -> str:
    start, end = edge.side(other.point), edge.side(other.following.point)
    if start >= -EPSILON and end >= -EPSILON:
        return "left"
    return "right" if start <= EPSILON and end <= EPSILON else "both"


class Bodies(NamedTuple):
    """All units before a tick."""

    position: list[Vec]
    velocity: list[Vec]
    preferred: list[Vec]
    in_play: np.ndarray


@cache
def _walls(roster: Roster, cut_walls: bool) -> Node | list[Edge] | None:
    return cut(edges_of(roster)) if cut_walls else edges_of(roster)


def velocities(
    roster: Roster, state, preferred: np.ndarray, cut_walls: bool, last_first: bool
) -> np.ndarray:
    """[U, 2] what every unit does. `last_first`: among neighbours at the same distance that with
    the highest index is first."""
    vectors = (
        [Vec(*pair) for pair in np.asarray(part)]
        for part in (state.position, state.velocity, preferred)
    )
    bodies = Bodies(*vectors, np.asarray(state.in_play))
    chosen = np.zeros((roster.n_units, 2), np.float32)
    for unit in np.flatnonzero(bodies.in_play):
        if bodies.preferred[unit] == NOWHERE:
            continue
        speed, me = (
            np.float32(roster.speed[unit]),
            (bodies.position[unit], bodies.velocity[unit], roster.radius[unit]),
        )
        walls = [] if roster.is_air[unit] else wall_lines(_walls(roster, cut_walls), *me, speed)
        others = [
            _unit_line(roster, bodies, unit, other)
            for other in _neighbours(roster, bodies, unit, last_first)
        ]
        best = solve(walls, others, bodies.preferred[unit], speed)
        chosen[unit] = best.x, best.y
    return chosen


def _neighbours(roster: Roster, bodies: Bodies, unit: int, last_first: bool) -> list[int]:
    reach = np.float32(roster.largest_radius) + roster.radius[unit]
    found = []
    for other in np.flatnonzero(bodies.in_play & (roster.is_air == roster.is_air[unit])):
        gap = bodies.position[unit] - bodies.position[other]
        if other != unit and gap.dot(gap) < reach * reach:
            found.append((gap.dot(gap), -other if last_first else other, other))
    return [other for *_, other in sorted(found)]


def _unit_line(roster: Roster, bodies: Bodies, unit: int, other: int) -> Line:
    gap = bodies.position[other] - bodies.position[unit]
    velocity = bodies.velocity[unit] - bodies.velocity[other]
    radius = roster.radius[unit] + roster.radius[other]
    squared, share = gap.dot(gap), ONE if bodies.preferred[other] == NOWHERE else HALF
    touch = squared <= radius * radius
    horizon = TICKS_PER_SECOND if touch else ONE
    beyond = velocity - gap * horizon
    ahead, length = beyond.dot(gap), np.sqrt(beyond.dot(beyond))
    if touch or (ahead < 0 and ahead * ahead > radius * radius * beyond.dot(beyond)):
        outwards = beyond / length
        direction, push = outwards.right(), outwards * (radius * horizon - length)
    else:
        direction = _leg(gap, radius, 1) if gap.det(beyond) > 0 else -_leg(gap, radius, -1)
        push = direction * velocity.dot(direction) - velocity
    return Line(bodies.velocity[unit] + push * share, direction)


def _leg(corner: Vec, radius: np.float32, side: int) -> Vec:
    squared = corner.dot(corner)
    return (
        corner * np.sqrt(squared - radius * radius) + corner.left() * (np.float32(side) * radius)
    ) / squared


def wall_lines(
    walls: Node | list[Edge] | None,
    place: Vec,
    velocity: Vec,
    radius: np.float32,
    speed: np.float32,
) -> list[Line]:
    """Lines of the walls in reach, nearest first, less those that earlier ones take care of."""
    lines: list[Line] = []
    near: list[tuple[np.float32, Edge]] = []
    _in_reach(walls, place, (speed + radius) * (speed + radius), near)
    for _, edge in sorted(near, key=lambda pair: pair[0]):
        ends = [edge.point - place, edge.following.point - place]
        if any(
            all(
                (end - line.point).det(line.direction) - radius >= -EPSILON for end in ends
            )  # already kept clear of
            for line in lines
        ):
            continue
        line = _wall_line(edge, place, velocity, radius)
        lines += [line] if line else []
    return lines


def _in_reach(
    walls: Node | list[Edge] | None, place: Vec, squared: np.float32, found: list
) -> None:
    """Edges that face a point and are nearer than the reach, in the order in which the original
    comes across them."""
    if isinstance(walls, list):
        for edge in walls:
            _add_edge(edge, place, squared, found)
    elif walls:
        side, along = walls.edge.side(place), walls.edge.following.point - walls.edge.point
        here, there = (walls.left, walls.right) if side >= 0 else (walls.right, walls.left)
        _in_reach(here, place, squared, found)
        if side * side / along.dot(along) < squared:
            _add_edge(walls.edge, place, squared, found)
            _in_reach(there, place, squared, found)


def _add_edge(edge: Edge, place: Vec, squared: np.float32, found: list) -> None:
    start, end = edge.point, edge.following.point
    along = end - start
    share = (place - start).dot(along) / along.dot(along)
    gap = place - (start if share < 0 else end if share > 1 else start + along * share)
    if edge.side(place) < 0 and gap.dot(gap) < squared:
        found.append((gap.dot(gap), edge))


def _wall_line(edge: Edge, place: Vec, velocity: Vec, radius: np.float32) -> Line | None:
    first, last = edge, edge.following
    a, b, along = first.point - place, last.point - place, last.point - first.point
    share = (-a).dot(along) / along.dot(along)
    off = -a - along * share
    near_line = off.dot(off) <= radius * radius
    if share < 0 and a.dot(a) <= radius * radius:
        return Line(NOWHERE, a.left().unit())
    if share > 1 and b.dot(b) <= radius * radius:
        return Line(NOWHERE, b.left().unit()) if b.det(last.direction) >= 0 else None
    if 0 <= share < 1 and near_line:
        return Line(NOWHERE, -first.direction)
    if share < 0 and near_line:
        last, b = first, a
    elif share > 1 and near_line:
        first, a = last, b
    return _approach(first, last, a, b, velocity, radius)


def _approach(
    first: Edge, last: Edge, a: Vec, b: Vec, velocity: Vec, radius: np.float32
) -> Line | None:
    """The line towards the wall between two corners that is not touched; seen at a slant they are
    one corner."""
    left, right = _leg(a, radius, 1), _leg(b, radius, -1)
    foreign_left, foreign_right = (
        left.det(-first.previous.direction) >= 0,
        right.det(last.direction) <= 0,
    )
    left, right = (
        -first.previous.direction if foreign_left else left,
        last.direction if foreign_right else right,
    )
    front, corner = b - a, first is last
    share = HALF if corner else (velocity - a).dot(front) / front.dot(front)
    along_left, along_right = (velocity - a).dot(left), (velocity - b).dot(right)
    if (share < 0 and along_left < 0) or (corner and along_left < 0 and along_right < 0):
        outwards = (velocity - a).unit()
        return Line(a + outwards * radius, outwards.right())
    if share > 1 and along_right < 0:
        outwards = (velocity - b).unit()
        return Line(b + outwards * radius, outwards.right())
    gaps = [
        velocity - (a + front * share),
        velocity - (a + left * along_left),
        velocity - (b + right * along_right),
    ]
    off = [share < 0 or share > 1 or corner, along_left < 0, along_right < 0]
    to_front, to_left, to_right = (
        INFINITY if out else gap.dot(gap) for gap, out in zip(gaps, off, strict=True)
    )
    if to_front <= to_left and to_front <= to_right:
        point, direction, foreign = a, -first.direction, False
    elif to_left <= to_right:
        point, direction, foreign = a, left, foreign_left
    else:
        point, direction, foreign = b, -right, foreign_right
    return None if foreign else Line(point + direction.left() * radius, direction)


def solve(walls: list[Line], others: list[Line], wish: Vec, speed: np.float32) -> Vec:
    """The velocity nearest to the wish that keeps to all lines, or the least violation of those of
    other units."""
    start = wish.unit() * speed if wish.dot(wish) > speed * speed else wish
    lines = walls + others
    failed, best = _nearest(lines, start, wish, speed, farthest=False)
    violation = ZERO
    for k in range(failed, len(lines)):
        line = lines[k]
        if line.violation(best) <= violation:
            continue
        borders = [border for other in lines[len(walls) : k] if (border := _border(line, other))]
        inwards = line.direction.left()
        kept, found = _nearest(walls + borders, inwards * speed, inwards, speed, farthest=True)
        best = found if kept == len(walls + borders) else best
        violation = line.violation(best)
    return best


def _border(line: Line, other: Line) -> Line | None:
    """Where both are violated alike."""
    across = line.direction.det(other.direction)
    if abs(across) > EPSILON:
        point = line.point + line.direction * (
            other.direction.det(line.point - other.point) / across
        )
    elif line.direction.dot(other.direction) > 0:
        return None
    else:
        point = (line.point + other.point) * HALF
    return Line(point, (other.direction - line.direction).unit())


def _nearest(
    lines: list[Line], start: Vec, wish: Vec, speed: np.float32, farthest: bool
) -> tuple[int, Vec]:
    """The first line that cannot be kept, and the optimum under those before it."""
    best = start
    for k, line in enumerate(lines):
        if line.violation(best) > 0:
            found = _on_line(line, lines[:k], wish, speed, farthest)
            if found is None:
                return k, best
            best = found
    return len(lines), best


def _on_line(
    line: Line, before: list[Line], wish: Vec, speed: np.float32, farthest: bool
) -> Vec | None:
    middle = line.point.dot(line.direction)
    squared = middle * middle + speed * speed - line.point.dot(line.point)
    if squared < 0:
        return None
    low, high = -middle - np.sqrt(squared), -middle + np.sqrt(squared)
    for other in before:
        across, room = (
            line.direction.det(other.direction),
            other.direction.det(line.point - other.point),
        )
        if abs(across) <= EPSILON:
            if room < 0:
                return None
            continue
        low, high = (
            (low, min(high, room / across)) if across > 0 else (max(low, room / across), high)
        )
        if low > high:
            return None
    if farthest:
        along = high if wish.dot(line.direction) > 0 else low
    else:
        along = min(max(line.direction.dot(wish - line.point), low), high)
    return line.point + line.direction * along
