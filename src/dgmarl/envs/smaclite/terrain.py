"""Terrain: walkable cells, walls as edges of blocked rectangles, and the walls near each cell."""

from dataclasses import dataclass
from functools import cache

import numpy as np

from dgmarl.errors import UsageError

SIZE = 32
# Units can leave the map slightly where it has no side walls; the table of nearby walls covers this
# margin.
RIM = 4
WALKABLE, BLOCKED = "_", "X"


@dataclass(frozen=True)
class Walls:
    """Edges of all blocked rectangles, four each, counter-clockwise; the walkable side is on the
    right of an edge."""

    start: np.ndarray
    """[W, 2]"""
    end: np.ndarray
    """[W, 2]"""


def _rows(first: int, *intervals: tuple[int, int]) -> tuple[str, ...]:
    """A map whose rows from `first` upwards are walkable on one interval each."""
    rows = [BLOCKED * SIZE] * SIZE
    for y, (left, right) in enumerate(intervals, start=first):
        rows[y] = BLOCKED * left + WALKABLE * (right - left) + BLOCKED * (SIZE - right)
    return tuple(reversed(rows))


_OCTAGON_CORNER = [(10, 22), (9, 23), (8, 24), (7, 25), (6, 26)]
_CORRIDOR_LOWER = [(2, 14), (1, 14), *[(1, 13)] * 8, (1, 14), (2, 15)]
_CORRIDOR_PASSAGE = [(11, 26), (12, 27), (13, 28), (13, 29), (12, 30), *[(11, 31)] * 4]
_CORRIDOR_UPPER = [*[(left, 31) for left in range(12, 20)], (20, 30)]

TERRAINS: dict[str, tuple[str, ...]] = {
    "simple": _rows(8, *[(0, SIZE)] * 16),
    "octagon": _rows(5, *_OCTAGON_CORNER, *[(5, 27)] * 12, *reversed(_OCTAGON_CORNER)),
    "corridor": _rows(1, *_CORRIDOR_LOWER, *_CORRIDOR_PASSAGE, *_CORRIDOR_UPPER),
    "all_green": _rows(0, *[(0, SIZE)] * SIZE),
}
"""Maps as 32 lines of 32 characters; the last line is y = 0."""


def walkable(rows: tuple[str, ...]) -> np.ndarray:
    """[y, x] booleans of a map."""
    if len(rows) != SIZE or any(len(row) != SIZE for row in rows):
        widths = sorted({len(row) for row in rows})
        raise UsageError(
            f"the terrain has {len(rows)} lines of {widths} characters, but must have {SIZE} "
            f"lines of {SIZE}."
        )
    unknown = set("".join(rows)) - {WALKABLE, BLOCKED}
    if unknown:
        raise UsageError(
            f"the terrain contains {sorted(unknown)[0]!r}, but only {WALKABLE} (walkable) and "
            f"{BLOCKED} (blocked) are allowed."
        )
    return np.array([[cell == WALKABLE for cell in row] for row in reversed(rows)])


def rectangles(free: np.ndarray) -> list[tuple[int, int, int, int]]:
    """Blocked cells as rectangles (x, y, width, height), grown greedily to the right, then upwards
    while the whole segment is blocked.

    Cells already covered by another rectangle are not excluded, so rectangles can overlap, as in
    the original."""
    covered = np.zeros_like(free)
    found = []
    for y in range(SIZE):
        for x in range(SIZE):
            if covered[y, x] or free[y, x]:
                continue
            right, top = x + 1, y + 1
            while right < SIZE and not free[y, right]:
                right += 1
            while top < SIZE and not free[top, x:right].any():
                top += 1
            covered[y:top, x:right] = True
            found.append((x, y, right - x, top - y))
    return found


def walls_near_cells(free: np.ndarray, edges: Walls, reach: float) -> np.ndarray:
    """[cells, C] the edges within `reach` of some point of a cell on their walkable side, padded
    with -1.

    Cells are numbered row by row over the map and a margin of `RIM` around it. C is the maximum
    over walkable cells: ground units are never in a blocked cell, which keeps its nearest C."""
    side = SIZE + 2 * RIM
    y, x = np.divmod(np.arange(side * side), side)
    low = np.stack([x, y], axis=-1)[:, None] - RIM
    first, last = np.minimum(edges.start, edges.end), np.maximum(edges.start, edges.end)
    gap = np.maximum(0, np.maximum(first - (low + 1), low - last))
    near = (gap**2).sum(-1) < reach**2
    # Test the walkable (right-hand) side of an edge with the corner of the cell farthest to the
    # right.
    direction = np.sign(edges.end - edges.start)
    right = np.stack([direction[:, 1], -direction[:, 0]], axis=-1)
    farthest = np.where(right > 0, low + 1, low)
    near &= ((farthest - edges.start) * right).sum(-1) > 0
    width = near[np.pad(free, RIM, mode="edge").ravel()].sum(1).max(initial=0)
    table = np.full((side * side, width), -1, np.int32)
    for cell, candidates in enumerate(near):
        chosen = np.flatnonzero(candidates)
        nearest = chosen[np.argsort((gap[cell, chosen] ** 2).sum(-1), kind="stable")][:width]
        table[cell, : len(nearest)] = np.sort(nearest)
    return table


@cache
def terrain_tables(rows: tuple[str, ...], reach: float) -> tuple[np.ndarray, Walls, np.ndarray]:
    """Walkable cells, walls and the table of nearby walls of a map."""
    free = walkable(rows)
    corners = [
        ((x, y), (x + width, y), (x + width, y + height), (x, y + height))
        for x, y, width, height in rectangles(free)
    ]
    start = np.array(corners, np.float32).reshape(-1, 4, 2)
    edges = Walls(start.reshape(-1, 2), np.roll(start, -1, axis=1).reshape(-1, 2))
    return free, edges, walls_near_cells(free, edges, reach)
