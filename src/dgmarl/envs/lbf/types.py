"""Configuration and state of level-based foraging."""

from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

from jaxtyping import Array, Int

from dgmarl.config.ranges import Range, check_fields
from dgmarl.errors import UsageError

NONE, NORTH, SOUTH, WEST, EAST, LOAD = range(6)
ACTION_NAMES = ("none", "north", "south", "west", "east", "load")
N_ACTIONS = len(ACTION_NAMES)

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
        check_fields(self, "lbf")
        most_foods = MOST_FOODS.get(self.size, self.n_foods)
        if self.n_foods > most_foods:
            raise UsageError(
                f"at most {most_foods} foods, three steps apart and off the border, "
                f"fit on {self.size}x{self.size}, but {self.n_foods} were asked for; choose "
                "fewer foods or a larger field."
            )
        on_field = {"sight": Range(1, self.size), "oracle_distance": Range(0, 2 * self.size - 1)}
        for name, allowed in on_field.items():
            value = getattr(self, name)
            if value is not None and not allowed.allows(value):
                raise UsageError(f"lbf.{name} is {value}, but must be {allowed}.")
        for name in ("observation", "timeout"):
            value, allowed = getattr(self, name), get_args(LBFConfig.__annotations__[name])
            if value not in allowed:
                raise UsageError(f"lbf.{name} is {value!r}, but must be {' or '.join(allowed)}.")

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
