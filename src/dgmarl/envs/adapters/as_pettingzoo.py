"""Our environments as PettingZoo `ParallelEnv`s, made by `dgmarl.envs.adapters.to_pettingzoo`.

All agents stay until the episode ends: dead ones keep receiving observations, rewards and action
masks. Masks are in `infos[agent]["action_mask"]`, in the format of Gymnasium's
`Discrete.sample`."""

from typing import Any

import jax
import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv

from dgmarl.envs.base import Environment, Observation


class AsParallelEnv(ParallelEnv):
    """An environment with dictionaries over agents, NumPy arrays and its own random key."""

    def __init__(self, env: Environment):
        spec = env.spec
        self.env, self.render_mode = env, "svg" if env.offers("draw") else None
        self.metadata = {"name": spec.name, "render_modes": ["svg"] if self.render_mode else []}
        self.possible_agents = [f"agent_{k}" for k in range(spec.n_agents)]
        self.agents: list[str] = []
        self.state_space = spaces.Box(-np.inf, np.inf, (spec.state_size,), np.float32)
        self._views = {
            agent: spaces.Box(-np.inf, np.inf, (spec.obs_size,), np.float32)
            for agent in self.possible_agents
        }
        self._actions = {agent: spaces.Discrete(spec.n_actions) for agent in self.possible_agents}
        self._reset, self._step = jax.jit(env.reset), jax.jit(env.step)
        self._split = jax.jit(jax.random.split)
        self._key = jax.random.key(np.random.SeedSequence().generate_state(1)[0])

    def observation_space(self, agent: str) -> spaces.Box:
        return self._views[agent]

    def action_space(self, agent: str) -> spaces.Discrete:
        """All actions, including masked ones."""
        return self._actions[agent]

    def reset(self, seed: int | None = None, options: dict | None = None) -> Any:
        """Start an episode; without a seed, continue the current sequence of random keys."""
        key = self._key if seed is None else jax.random.key(seed)
        self._key, key = self._split(key)
        self._state, observation = self._reset(key)
        self.agents = list(self.possible_agents)
        return self._by_agent(jax.device_get(observation))

    def step(self, actions: dict[str, int]) -> Any:
        if not self.agents:
            raise ValueError("The episode has ended: call reset first.")
        action = np.array([actions[agent] for agent in self.agents], np.int32)
        self._key, key = self._split(self._key)
        self._state, *result = self._step(key, self._state, action)
        observation, outcome = jax.device_get(result)
        views, infos = self._by_agent(observation)
        rewards = dict(zip(self.agents, outcome.reward.tolist(), strict=True))
        terminated = dict.fromkeys(self.agents, bool(outcome.terminated))
        truncated = dict.fromkeys(self.agents, bool(outcome.truncated))
        if outcome.terminated or outcome.truncated:
            self.agents = []
        return views, rewards, terminated, truncated, infos

    def state(self) -> np.ndarray:
        return self._global_state

    def render(self) -> str | None:
        return self.env.draw(self._state) if self.render_mode else None

    def _by_agent(self, observation: Observation) -> tuple[dict[str, Any], dict[str, Any]]:
        self._global_state = np.asarray(observation.global_state, np.float32)
        views = np.asarray(observation.agents_view, np.float32)
        masks = np.asarray(observation.action_mask, np.int8)
        infos = [
            {"action_mask": mask, "alive": bool(alive)}
            for mask, alive in zip(masks, observation.alive, strict=True)
        ]
        return (
            dict(zip(self.agents, views, strict=True)),
            dict(zip(self.agents, infos, strict=True)),
        )
