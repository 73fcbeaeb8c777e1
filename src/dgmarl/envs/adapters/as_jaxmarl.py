"""Our environments as JaxMARL `MultiAgentEnv`s, for its wrappers and training scripts."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxmarl.environments import spaces
from jaxmarl.environments.multi_agent_env import MultiAgentEnv
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from dgmarl.envs.base import Environment, Observation

ByAgent = dict[str, Array]


class AsState(NamedTuple):
    """Our state, with the fields that JaxMARL reads."""

    inner: Any
    observation: Observation
    done: Bool[Array, ""]
    step: Array


class AsMultiAgentEnv(MultiAgentEnv):
    """A `MultiAgentEnv` with the agents `agent_0`, `agent_1`, ... `step` resets, `step_env` does
    not. JaxMARL's `done` is set on termination and on truncation."""

    def __init__(self, env: Environment):
        super().__init__(env.spec.n_agents)
        self.env = env
        view = spaces.Box(-jnp.inf, jnp.inf, (env.spec.obs_size,))
        self.observation_spaces = dict.fromkeys(self.agents, view)
        self.action_spaces = dict.fromkeys(self.agents, spaces.Discrete(env.spec.n_actions))
        self.max_steps = env.spec.horizon

    @property
    def name(self) -> str:
        return self.env.spec.name

    @property
    def agent_classes(self) -> dict[str, list[str]]:
        return {"agents": self.agents}

    @partial(jax.jit, static_argnums=0)
    def reset(self, key: PRNGKeyArray) -> tuple[ByAgent, AsState]:
        inner, observation = self.env.reset(key)
        state = AsState(inner, observation, jnp.bool_(False), jnp.int32(0))
        return self.get_obs(state), state

    def step_env(self, key: PRNGKeyArray, state: Any, actions: ByAgent) -> Any:
        """Observations, state, rewards, dones and info after one step; scalars of `info` are
        repeated for each agent, as training scripts expect."""
        action = jnp.stack([jnp.reshape(actions[agent], ()) for agent in self.agents])
        inner, observation, outcome = self.env.step(key, state.inner, action)
        done = outcome.terminated | outcome.truncated
        after = AsState(inner, observation, done, state.step + 1)
        dones = {**self._by_agent(~observation.alive | done), "__all__": done}
        info = {
            name: jnp.broadcast_to(value, (self.num_agents,))
            for name, value in outcome.info.items()
            if jnp.ndim(value) == 0
        }
        return self.get_obs(after), after, self._by_agent(outcome.reward), dones, info

    def get_obs(self, state: Any) -> ByAgent:
        """Each agent's view and, as in SMAX, the `world_state`."""
        views = self._by_agent(state.observation.agents_view)
        return {**views, "world_state": state.observation.global_state}

    def get_world_state(self, state: AsState) -> Float[Array, "D"]:
        return state.observation.global_state

    @partial(jax.jit, static_argnums=0)
    def get_avail_actions(self, state: AsState) -> ByAgent:
        return self._by_agent(state.observation.action_mask)

    def _by_agent(self, rows: Array) -> ByAgent:
        return {agent: rows[i] for i, agent in enumerate(self.agents)}
