"""What a battle is made of: its settings, its state, and the constants of the game."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

from jaxtyping import Array, Bool, Float, Int

from dgmarl.errors import UsageError

NO_OP, STOP, NORTH, SOUTH, EAST, WEST = range(6)
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
"""A move is offered if the cell this far ahead is walkable ..."""
MOVE_LENGTH = 2.0
"""... and then aims at the point this far ahead."""

KILL_REWARD = 10.0
WIN_REWARD = 200.0
REWARD_SCALE = 20.0
"""Rewards are scaled so that killing every enemy once is worth this much."""


class State(NamedTuple):
    """One moment of a battle. Units are numbered allies first (agent i is unit i), then enemies."""

    position: Float[Array, "U 2"]
    """(x, y); stays where the unit fell once it is out of play."""
    velocity: Float[Array, "U 2"]
    """What collision avoidance gave in the last tick."""
    hp: Float[Array, "U"]
    """Hit points; a healer can waste some on a fallen ally, who does not come back."""
    shield: Float[Array, "U"]
    energy: Float[Array, "U"]
    heal_reserve: Float[Array, "U"]
    """Hit points a healer has paid for and not yet given."""
    cooldown: Float[Array, "U"]
    """Seconds until the next volley."""
    shield_cooldown: Float[Array, "U"]
    """Seconds until the shield grows back."""
    target: Int[Array, "U"]
    """Whom the unit attacks or heals, or `NOBODY`."""
    attacking: Bool[Array, "U"]
    """It was in range when velocities were chosen, and has not yet fired."""
    in_play: Bool[Array, "U"]
    last_action: Int[Array, "N"]
    """Part of the state a central critic sees; `NOBODY` before the first step."""
    time: Int[Array, ""]


class Command(NamedTuple):
    """What an ally does for one step. At most one of the two is set; neither: stand still."""

    aim: Int[Array, "N"]
    """Unit to attack or heal, or `NOBODY`."""
    moves: Bool[Array, "N"]
    origin: Float[Array, "N 2"]
    """Where it was told to move ..."""
    offset: Float[Array, "N 2"]
    """... and how far from there; kept apart, because the sum would lose digits."""


@dataclass(frozen=True)
class SmacliteConfig:
    """What can be chosen about a battle, beside the scenario. The defaults are those of the paper's
    text."""

    reward: Literal["by_source", "team", "as_published"] = "by_source"
    """Who is paid: the ally that dealt the damage; everybody alike; or what the paper's code does,
    whose ids are mixed up."""
    horizon: int = 150
    """Steps until an episode is truncated."""
    revive: bool = True
    """A healer that acts later in the same tick can bring back a unit that was just killed, as in
    the original."""
    healer_flags: bool = True
    """A healer's "can be attacked" number of enemy k says whether ally k can be healed, as in the
    original; False: always 0."""
    oracle: Literal["distance", "nearest"] = "distance"
    """Oracle graph: allies within `oracle_distance`, or the `oracle_neighbours` nearest, as in the
    paper's code."""
    oracle_distance: float = TARGETING_RANGE
    """How far apart, centre to centre, two allies may be for an edge."""
    oracle_neighbours: int = 3
    """How many allies, itself included, a row of the nearest-neighbour graph points to."""

    def __post_init__(self) -> None:
        """Refuse what cannot be played."""
        if self.horizon < 1:
            raise UsageError(f"smaclite has horizon={self.horizon}: choose 1 step or more.")
        if not self.oracle_distance >= 0:
            raise UsageError(
                f"smaclite has oracle_distance={self.oracle_distance}: choose 0 or more cells."
            )
        if self.oracle_neighbours < 1:
            raise UsageError(
                f"smaclite has oracle_neighbours={self.oracle_neighbours}: choose 1 (itself) or "
                "more."
            )
