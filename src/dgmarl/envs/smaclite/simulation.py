"""The eight ticks of a step, for a batch of battles."""

from collections.abc import Callable
from typing import NamedTuple

from jax import lax
from jaxtyping import Array, Bool, Float

from .avoidance import avoid
from .batch import over_battles
from .combat import take_turns
from .roster import Roster
from .targeting import intend
from .types import Command, State


class Ticks(NamedTuple):
    """Per-tick results."""

    earned: Float[Array, "T U"]
    """Raw reward of each unit."""
    took_part: Bool[Array, "T U"]
    """Units in play when the tick began."""


def make_simulation(roster: Roster, revive: bool = True) -> Callable[..., tuple[State, Ticks]]:
    """`simulate(state, command, turns) -> state, ticks` for one battle; can be vmapped.

    turns: Int[T, U], one row of distinct numbers per tick; units act in ascending order."""

    def simulate(state: State, command: Command, turns: Array) -> tuple[State, Ticks]:
        def tick(state: State, turn: Array) -> tuple[State, Ticks]:
            intent = intend(roster, state, command)
            velocity = avoid(roster, state, intent.preferred)
            after, earned = take_turns(roster, state, intent, velocity, turn, revive)
            return after, Ticks(earned, state.in_play)

        return lax.scan(tick, state, turns)

    return over_battles(simulate)
