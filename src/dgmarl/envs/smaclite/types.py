"""Configuration, state and constants of SMAClite."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

from jaxtyping import Array, Bool, Float, Int

from dgmarl.config.ranges import check_fields

NO_OP, STOP, NORTH, SOUTH, EAST, WEST = range(6)
COMMANDS = ("none", "stop", "north", "south", "east", "west")
"""Names of the actions before the first target."""
FIRST_TARGET = 6
"""Action `FIRST_TARGET + k` orders an attack on enemy k, or, for a healer, to heal ally k."""
DIRECTIONS = ((0, 1), (0, -1), (1, 0), (-1, 0))
"""North, south, east, west."""
NOBODY = -1

TICKS_PER_STEP = 8
TICK = 1 / 16
"""Seconds per tick."""
SIGHT = 9.0
TARGETING_RANGE = 6.0
MOVE_PROBE = 1.0
"""A move is available if the cell at this distance is walkable."""
MOVE_LENGTH = 2.0
"""Distance of a move's goal."""

KILL_REWARD = 10.0
WIN_REWARD = 200.0
REWARD_SCALE = 20.0
"""Team return for killing every enemy once."""


class State(NamedTuple):
    """Environment state. Units are allies (agent i is unit i) followed by enemies."""

    position: Float[Array, "U 2"]
    """(x, y); fixed once the unit is out of play."""
    velocity: Float[Array, "U 2"]
    """Result of collision avoidance in the last tick."""
    hp: Float[Array, "U"]
    """Hit points; a healer can spend some on a dead ally, which stays out of play."""
    shield: Float[Array, "U"]
    energy: Float[Array, "U"]
    heal_reserve: Float[Array, "U"]
    """Hit points a healer has paid for with energy but not yet given."""
    cooldown: Float[Array, "U"]
    """Seconds until the next volley."""
    shield_cooldown: Float[Array, "U"]
    """Seconds until the shield regenerates."""
    target: Int[Array, "U"]
    """The unit that is attacked or healed, or `NOBODY`."""
    attacking: Bool[Array, "U"]
    """In range when velocities were chosen, and not yet fired."""
    in_play: Bool[Array, "U"]
    last_action: Int[Array, "N"]
    """Part of the global state; `NOBODY` before the first step."""
    time: Int[Array, ""]


class Command(NamedTuple):
    """The order to each ally for one step: an attack (`aim`), a move, or neither (stop)."""

    aim: Int[Array, "N"]
    """Unit to attack or heal, or `NOBODY`."""
    moves: Bool[Array, "N"]
    origin: Float[Array, "N 2"]
    """Position at which a move was ordered."""
    offset: Float[Array, "N 2"]
    """Goal relative to `origin`; stored separately because the sum would lose digits."""


class Ticks(NamedTuple):
    """Per-tick results of a step."""

    earned: Float[Array, "T U"]
    """Raw reward of each unit."""
    took_part: Bool[Array, "T U"]
    """Units in play when the tick began."""


@dataclass(frozen=True)
class SmacliteConfig:
    """Options besides the scenario; the defaults are those of the paper's text."""

    reward: Literal["by_source", "team", "as_published"] = "by_source"
    """Reward assignment: to the ally that dealt the damage, evenly, or as in the paper's code,
    which mixes up unit ids; see `rewards`."""
    horizon: int = 150
    """Maximum episode length; the episode is then truncated."""
    revive: bool = True
    """Healers can revive a unit killed earlier in the same tick, as in the original."""
    healer_flags: bool = True
    """A healer's "attackable" feature of enemy k encodes whether ally k can be healed, as in the
    original; False: always 0."""
    oracle: Literal["distance", "nearest"] = "distance"
    """Oracle graph: allies within `oracle_distance`, or the `oracle_neighbours` nearest, as in the
    paper's code."""
    oracle_distance: float = TARGETING_RANGE
    """Largest distance, centre to centre, of an edge."""
    oracle_neighbours: int = 3
    """Edges per row of the nearest-neighbour graph, self-loop included."""

    def __post_init__(self) -> None:
        check_fields(self, "smaclite")
