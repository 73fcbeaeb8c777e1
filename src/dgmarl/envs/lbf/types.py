"""What a game of level-based foraging is made of: its settings and its state."""

from dataclasses import dataclass
from functools import cache
from typing import Literal, NamedTuple

from jaxtyping import Array, Int

from dgmarl.errors import UsageError

NONE, NORTH, SOUTH, WEST, EAST, LOAD = range(6)
N_ACTIONS = 6

SIZES, PLAYERS, FOODS = range(5, 31), range(2, 17), range(1, 17)


class State(NamedTuple):
    """One moment of a game. Positions are (row, column), row 0 at the top."""

    position: Int[Array, "N 2"]
    """Where each player stands; two players can share a cell (see `dynamics.move`)."""
    level: Int[Array, "N"]
    """Strength of each player, 1 or 2, constant in an episode."""
    food_position: Int[Array, "F 2"]
    """Where the foods lie, in row-major order, constant in an episode; a food that found no place
    lies off the board."""
    food_level: Int[Array, "F"]
    """Level of each food; 0 once it is eaten, or if it found no place."""
    food_total: Int[Array, ""]
    """Sum of the food levels at the start: what rewards are divided by."""
    time: Int[Array, ""]
    """Steps taken so far."""


@dataclass(frozen=True)
class LBFConfig:
    """The settings of a game; the defaults are those of the paper. Ids (`ids.py`) name the usual
    combinations."""

    size: int = 10
    """Rows and columns of the square field, 5 to 30."""
    n_players: int = 3
    """Number of players, 2 to 16; all of them learn."""
    n_foods: int = 3
    """Number of foods asked for, 1 to 16; on a crowded field some may find no place."""
    force_coop: bool = False
    """Every food has the highest level, instead of a random one up to it."""
    winner_take_all: bool = False
    """The strongest loader takes the whole reward, and the two (not three) weakest players set the
    highest food level."""
    sight: int | None = None
    """How many cells away, per axis, an agent sees; None: everything."""
    penalty: float = 0.0
    """What each loader loses when a food is too heavy for those who load it."""
    max_food_level: int | None = None
    """A fixed highest food level; None: the sum of the weakest players' levels."""
    observation: Literal["vector", "grid"] = "vector"
    """A list of foods and players, or three layers of cells around the agent."""
    mask_invalid: bool = False
    """`Observation.action_mask` shows only actions that do something; False: all six, as in the
    paper."""
    timeout: Literal["terminal", "truncate"] = "terminal"
    """What the last step of the horizon is: the end of the task (paper: no bootstrapping), or a
    time-out."""
    horizon: int = 50
    """Steps after which an episode ends."""
    oracle_distance: int = 2
    """Largest L1 distance of an oracle edge; 2: the paper's text, 3: the authors' code (read by
    them after the step)."""
    oracle_neighbours: int = 2
    """How many other agents, the closest, a row of the oracle graph keeps."""

    def __post_init__(self) -> None:
        """Refuse what cannot be played."""
        _within("size", self.size, SIZES)
        _within("number of players", self.n_players, PLAYERS)
        _within("number of foods", self.n_foods, FOODS)
        if self.n_foods > most_foods(self.size):
            raise UsageError(
                (
                    f"at most {most_foods(self.size)} foods, three steps apart and off the border, "
                    f"fit on {self.size}x{self.size}, but {self.n_foods} were asked for; take "
                    "fewer foods or a larger field."
                )
            )
        if self.sight is not None:
            _within("sight", self.sight, range(1, self.size + 1))
        if self.max_food_level is not None:
            _within("highest food level", self.max_food_level, range(1, 7))
        if not self.penalty >= 0:
            raise UsageError(f"the penalty must be 0 or more, but {self.penalty} was given.")
        _one_of("observation", self.observation, ("vector", "grid"))
        _one_of("timeout", self.timeout, ("terminal", "truncate"))
        _within("horizon", self.horizon, range(1, 1_000_001))
        _within("oracle distance", self.oracle_distance, range(0, 2 * self.size))
        _within("number of oracle neighbours", self.oracle_neighbours, range(0, PLAYERS.stop))

    @property
    def sees_everything(self) -> bool:
        """Whether every agent sees the whole field."""
        return self.sight is None or self.sight == self.size

    @property
    def radius(self) -> int:
        """`sight` as a number of cells."""
        return self.size if self.sight is None else self.sight

    @property
    def obs_size(self) -> int:
        """Length of one agent's observation."""
        if self.observation == "grid":
            return 3 * (2 * self.radius + 1) ** 2
        return 3 * (self.n_foods + self.n_players)


@cache
def most_foods(size: int) -> int:
    """How many foods at pairwise L1 distance of at least 3 the inside of a field can hold, up to
    `FOODS.stop - 1`.

    Exact for small fields, row by row: foods of one row are three columns apart, of neighbouring
    rows two, of rows two apart not in one column. From 11x11 on the inside holds a 9x9 square, in
    which (row + 2 column) mod 5 = 0 marks at least 16. Players never take the last place: all 16
    fit on the border of the smallest field."""
    limit, inside = FOODS.stop - 1, size - 2
    if inside >= 9:
        return limit
    rows = [row for row in range(1 << inside) if not row & (row << 1 | row << 2)]
    best = {(0, 0): 0}
    for _ in range(inside):
        longer: dict[tuple[int, int], int] = {}
        for (before, last), count in best.items():
            for row in rows:
                if not row & (last | last << 1 | last >> 1 | before):
                    longer[last, row] = max(longer.get((last, row), 0), count + row.bit_count())
        best = longer
    return min(limit, max(best.values()))


def _within(what: str, given: int, allowed: range) -> None:
    if given not in allowed:
        raise UsageError(
            f"the {what} must be from {allowed.start} to {allowed.stop - 1}, but {given} was given."
        )


def _one_of(what: str, given: str, allowed: tuple[str, ...]) -> None:
    if given not in allowed:
        raise UsageError(f"{what} must be one of {', '.join(allowed)}, but {given!r} was given.")
