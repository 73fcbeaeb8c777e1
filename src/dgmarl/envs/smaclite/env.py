"""SMAClite as an `Environment`."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from dgmarl.envs.base import Environment, EnvSpec, Observation, Outcome

from . import observe
from .avoidance import avoid
from .batch import over_battles
from .combat import take_turns
from .draw import draw
from .rewards import rewards
from .roster import Roster, make_roster
from .scenarios import Scenario
from .targeting import intend
from .types import (
    COMMANDS,
    DIRECTIONS,
    FIRST_TARGET,
    MOVE_LENGTH,
    NOBODY,
    NORTH,
    STOP,
    TICKS_PER_STEP,
    WEST,
    Command,
    SmacliteConfig,
    State,
    Ticks,
)


class Smaclite(Environment[State]):
    """Micromanagement battles of learning allies against scripted enemies; follows the original
    tick by tick.

    The initial state is deterministic. The only randomness is the order in which units act within a
    tick."""

    loops_inside = True

    def __init__(self, scenario: Scenario, config: SmacliteConfig | None = None):
        self.config = config = SmacliteConfig() if config is None else config
        self.roster = roster = make_roster(scenario)
        self.simulate = over_battles(partial(_eight_ticks, roster, config.revive))
        self.spec = EnvSpec(
            name=f"smaclite/{scenario.name}",
            n_agents=roster.n_allies,
            n_actions=roster.n_actions,
            obs_size=observe.observation_size(roster),
            state_size=observe.state_size(roster),
            horizon=config.horizon,
            action_names=(*COMMANDS, *(f"target {k}" for k in range(roster.n_targets))),
        )

    def reset(self, key: PRNGKeyArray) -> tuple[State, Observation]:
        """All units at their initial positions with full hit points."""
        state = first_state(self.roster)
        return state, self.observation(state)

    def step(
        self,
        key: PRNGKeyArray,
        state: State,
        action: Int[Array, "N"],
        order: Int[Array, "8 U"] | None = None,
    ) -> tuple[State, Observation, Outcome]:
        """Eight ticks under the allies' commands. Unavailable actions are treated as stop.

        order: the order in which units act in each tick, instead of one sampled with `key`; units
          out of play are skipped."""
        after, ticks = self.play(key, state, action, order)
        allies, enemies = jnp.split(after.in_play, [self.roster.n_allies])
        won = ~enemies.any()
        over = won | ~allies.any()
        outcome = Outcome(
            reward=rewards(self.roster, self.config.reward, ticks, won),
            terminated=over,
            truncated=(after.time >= self.config.horizon) & ~over,
            info={"battle_won": won, "allies_left": allies.sum(), "enemies_left": enemies.sum()},
        )
        return after, self.observation(after), outcome

    def play(
        self,
        key: PRNGKeyArray,
        state: State,
        action: Int[Array, "N"],
        order: Int[Array, "8 U"] | None = None,
    ) -> tuple[State, Ticks]:
        """The dynamics without observation and outcome: the next state and per-tick results."""
        n_units = self.roster.n_units
        if jnp.shape(action) != (self.roster.n_allies,):
            raise ValueError(
                f"action must have shape ({self.roster.n_allies},), not {jnp.shape(action)}."
            )
        if order is not None and jnp.shape(order) != (TICKS_PER_STEP, n_units):
            raise ValueError(
                f"order must have shape ({TICKS_PER_STEP}, {n_units}), not {jnp.shape(order)}."
            )
        turns = random_turns(key, n_units) if order is None else jnp.asarray(order).argsort(1)
        action = jnp.asarray(action, jnp.int32)
        after, ticks = self.simulate(state, give_commands(self.roster, state, action), turns)
        return after._replace(last_action=action, time=state.time + 1), ticks

    def oracle_graph(self, state: State) -> Bool[Array, "N N"]:
        return observe.oracle_graph(self.roster, self.config, state)

    def local_state(self, state: State) -> Float[Array, "N 12"]:
        return observe.local_state(self.roster, state)

    def draw(self, state: State, graph: Any = None) -> str:
        return draw(self.roster, self.config, state, graph)

    def observation(self, state: State) -> Observation:
        action_mask = observe.available_actions(self.roster, state)
        return Observation(
            agents_view=observe.observe(self.roster, self.config, state, action_mask),
            global_state=observe.central_state(self.roster, state),
            action_mask=action_mask,
            alive=state.in_play[: self.roster.n_allies],
        )


def first_state(roster: Roster) -> State:
    """The initial state."""
    n_units = roster.n_units
    return State(
        position=jnp.asarray(roster.position),
        velocity=jnp.zeros((n_units, 2)),
        hp=jnp.asarray(roster.max_hp),
        shield=jnp.asarray(roster.max_shield),
        energy=jnp.asarray(roster.starting_energy),
        heal_reserve=jnp.zeros(n_units),
        cooldown=jnp.zeros(n_units),
        shield_cooldown=jnp.zeros(n_units),
        target=jnp.full(n_units, NOBODY),
        attacking=jnp.zeros(n_units, bool),
        in_play=jnp.ones(n_units, bool),
        last_action=jnp.full(roster.n_allies, NOBODY),
        time=jnp.int32(0),
    )


def give_commands(roster: Roster, state: State, action: Int[Array, "N"]) -> Command:
    """Commands for the actions; unavailable actions become stop."""
    n = roster.n_allies
    mask = observe.available_actions(roster, state)
    possible = jnp.take_along_axis(mask, action[:, None], axis=1)[:, 0]
    action = jnp.where(possible, action, STOP)
    moves = (action >= NORTH) & (action <= WEST)
    direction = jnp.array(DIRECTIONS, jnp.float32)[jnp.clip(action - NORTH, 0, WEST - NORTH)]
    first_unit = jnp.where(roster.is_healer[:n], 0, n)
    return Command(
        aim=jnp.where(action >= FIRST_TARGET, action - FIRST_TARGET + first_unit, NOBODY),
        moves=moves,
        origin=state.position[:n],
        offset=MOVE_LENGTH * direction,
    )


def _eight_ticks(
    roster: Roster, revive: bool, state: State, command: Command, turns: Int[Array, "8 U B"]
) -> tuple[State, Ticks]:
    """The ticks of a step, for a batch of battles on the last axis. turns: distinct numbers per
    tick; units act in ascending order."""

    def tick(state: State, turn: Int[Array, "U B"]) -> tuple[State, Ticks]:
        intent = intend(roster, state, command)
        velocity = avoid(roster, state, intent.preferred)
        after, earned = take_turns(roster, state, intent, velocity, turn, revive)
        return after, Ticks(earned, state.in_play)

    return lax.scan(tick, state, turns)


def random_turns(key: PRNGKeyArray, n_units: int) -> Int[Array, "8 U"]:
    """A random order of units for each tick, as distinct numbers; units act in ascending order.

    Random words whose lowest bits are the unit's index: distinct, and uniform up to ties in the
    remaining bits (25 random bits for 64 units)."""
    bits = max(1, (n_units - 1).bit_length())
    words = jax.random.bits(key, (TICKS_PER_STEP, n_units), jnp.uint32) >> 1
    return ((words >> bits << bits) | jnp.arange(n_units, dtype=jnp.uint32)).astype(jnp.int32)
