"""Configuration and state of level-based foraging."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

from jaxtyping import Array, Int

from dgmarl.errors import UsageError

NONE, NORTH, SOUTH, WEST, EAST, LOAD = range(6)
ACTION_NAMES = ("none", "north", "south", "west", "east", "load")
N_ACTIONS = len(ACTION_NAMES)

SIZES, PLAYERS, FOODS = range(5, 31), range(2, 17), range(1, 17)
MOST_FOODS = {5: 2, 6: 4, 7: 6, 8: 8, 9: 10, 10: 13}
"""The largest number of foods that fit into the interior of a small field at pairwise L1 distances
of at least 3. From 11x11 on the interior contains a 9x9 square, in which (row + 2 column) mod 5 = 0
marks at least 16 cells. Players cannot occupy all remaining cells: all 16 fit on the border of the
smallest field."""


class State(NamedTuple):
    """Environment state. Positions are (row, column), row 0 at the top."""

    position: Int[Array, "N 2"]
    """Players' cells; two players can share one (see `dynamics.move`)."""
    level: Int[Array, "N"]
    """Level of each player, 1 or 2, constant in an episode."""
    food_position: Int[Array, "F 2"]
    """Foods' cells in row-major order, constant; off the board for foods that were not placed."""
    food_level: Int[Array, "F"]
    """Level of each food; 0 if collected or not placed."""
    food_total: Int[Array, ""]
    """Sum of the initial food levels, the normaliser of rewards."""
    time: Int[Array, ""]
    """Steps taken so far."""


@dataclass(frozen=True)
class LBFConfig:
    """Options of the environment; the defaults are the paper's. Ids (`ids.py`) cover the usual
    combinations."""

    size: int = 10
    """Rows and columns of the square field, 5 to 30."""
    n_players: int = 3
    """Number of players (agents), 2 to 16."""
    n_foods: int = 3
    """Number of foods, 1 to 16; on a crowded field fewer may be placed."""
    force_coop: bool = False
    """Every food has the highest level instead of a random level up to it."""
    winner_take_all: bool = False
    """The strongest loader receives the whole reward, and the highest food level is set by the two
    (not three) weakest players."""
    sight: int | None = None
    """Range of vision in cells per axis; None: the whole field."""
    penalty: float = 0.0
    """Penalty to each loader of a failed load."""
    max_food_level: int | None = None
    """Fixed highest food level; None: the sum of the weakest players' levels."""
    observation: Literal["vector", "grid"] = "vector"
    """A vector of foods and players, or three grid layers centred on the agent."""
    mask_invalid: bool = False
    """Mask actions that have no effect; False: all six are available, as in the paper."""
    timeout: Literal["terminal", "truncate"] = "terminal"
    """Whether the time limit terminates the episode (paper: no bootstrapping) or truncates it."""
    horizon: int = 50
    """Maximum episode length."""
    oracle_distance: int = 2
    """Largest L1 distance of an oracle edge; 2: the paper's text, 3: the paper's code (evaluated
    after the step)."""
    oracle_neighbours: int = 2
    """Maximum number of other agents per row of the oracle graph, closest first."""

    def __post_init__(self) -> None:
        _within("size", self.size, SIZES)
        _within("number of players", self.n_players, PLAYERS)
        _within("number of foods", self.n_foods, FOODS)
        most_foods = MOST_FOODS.get(self.size, FOODS.stop - 1)
        if self.n_foods > most_foods:
            raise UsageError(
                f"at most {most_foods} foods, three steps apart and off the border, "
                f"fit on {self.size}x{self.size}, but {self.n_foods} were asked for; choose "
                "fewer foods or a larger field."
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
        return self.sight is None or self.sight == self.size

    @property
    def radius(self) -> int:
        """`sight` as a number of cells."""
        return self.size if self.sight is None else self.sight

    @property
    def obs_size(self) -> int:
        if self.observation == "grid":
            return 3 * (2 * self.radius + 1) ** 2
        return 3 * (self.n_foods + self.n_players)


def _within(what: str, given: int, allowed: range) -> None:
    if given not in allowed:
        raise UsageError(
            f"the {what} must be from {allowed.start} to {allowed.stop - 1}, but {given} was given."
        )


def _one_of(what: str, given: str, allowed: tuple[str, ...]) -> None:
    if given not in allowed:
        raise UsageError(f"{what} must be one of {', '.join(allowed)}, but {given!r} was given.")
