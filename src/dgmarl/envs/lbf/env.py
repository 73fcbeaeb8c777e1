"""Level-based foraging as an `Environment`."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from dgmarl.envs.base import Environment, EnvSpec, Observation, Outcome

from . import dynamics, observe
from .draw import draw
from .ids import id_of
from .spawn import spawn
from .types import ACTION_NAMES, N_ACTIONS, LBFConfig, State


class LevelBasedForaging(Environment[State]):
    """Players of level 1 or 2 collect foods, some of which need several players; follows version 3
    of the original exactly.

    The team return is the collected share of the total food level: 1 iff all foods are collected.
    Transitions are deterministic."""

    def __init__(self, config: LBFConfig | None = None):
        self.config = config = LBFConfig() if config is None else config
        self.spec = EnvSpec(
            name=f"lbf/{id_of(config)}",
            n_agents=config.n_players,
            n_actions=N_ACTIONS,
            obs_size=config.obs_size,
            state_size=config.n_players * config.obs_size,
            horizon=config.horizon,
            state_is_obs=True,
            action_names=ACTION_NAMES,
        )

    def reset(self, key: PRNGKeyArray) -> tuple[State, Observation]:
        """Players and foods at random positions with random levels."""
        state = spawn(self.config, key)
        return state, self._observation(state)

    def step(
        self, key: PRNGKeyArray, state: State, action: Int[Array, "N"]
    ) -> tuple[State, Observation, Outcome]:
        """Move, then load. Invalid actions are no-ops."""
        if jnp.shape(action) != (self.config.n_players,):
            raise ValueError(
                f"action must have shape ({self.config.n_players},), not {jnp.shape(action)}."
            )
        reward, collected = dynamics.load(self.config, state, action)
        after = state._replace(
            position=dynamics.move(self.config, state, action),
            food_level=jnp.where(collected, 0, state.food_level),
            time=state.time + 1,
        )
        food_left = (after.food_level > 0).sum()
        all_eaten = food_left == 0
        time_up = after.time >= self.config.horizon
        terminal = self.config.timeout == "terminal"
        outcome = Outcome(
            reward=reward,
            terminated=all_eaten | time_up if terminal else all_eaten,
            truncated=jnp.zeros_like(all_eaten) if terminal else time_up & ~all_eaten,
            info={"food_left": food_left, "loads": collected.sum()},
        )
        return after, self._observation(after), outcome

    def valid_actions(self, state: State) -> Bool[Array, "N 6"]:
        """Actions that have an effect; with `mask_invalid` these are the `action_mask`."""
        return dynamics.valid_actions(self.config, state)

    def oracle_graph(self, state: State) -> Bool[Array, "N N"]:
        return observe.oracle_graph(self.config, state)

    def local_state(self, state: State) -> Float[Array, "N 7"]:
        return observe.local_state(state)

    def draw(self, state: State, graph: Any = None) -> str:
        return draw(self.config, state, graph)

    def _observation(self, state: State) -> Observation:
        n_players = self.config.n_players
        agents_view = observe.observe(self.config, state)
        action_mask = jnp.ones((n_players, N_ACTIONS), bool)
        if self.config.mask_invalid:
            action_mask = self.valid_actions(state)
        return Observation(
            agents_view=agents_view,
            global_state=agents_view.reshape(-1),
            action_mask=action_mask,
            alive=jnp.ones(n_players, bool),
        )
