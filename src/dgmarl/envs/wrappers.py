"""Environment wrappers. They can be nested and forward what they do not change: graphs, local
state, drawing, and the preset of the wrapped family.

    # my_env.py
    def pairs(steps: int = 20) -> Environment:
        return TimeLimit(AgentSubset(make_env("lbf/8x8-3p-3f"), (0, 1)), steps)

    dgmarl train my_env.py:pairs --env-options.steps 30
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from dgmarl.envs.base import Environment, Observation, Outcome, random_actions
from dgmarl.envs.checker import play_randomly
from dgmarl.errors import UsageError


class Wrapper(Environment[Any]):
    """Forwards everything to `env`. A subclass overrides what it changes, and `inner` if its state
    holds more than that of `env`."""

    def __init__(self, env: Environment, **changes: Any):
        """changes: fields to replace in the spec."""
        if getattr(env, "on_host", False):
            raise UsageError(
                f"{env.spec.name} runs outside the compiled program, where wrappers have no "
                "effect: use those of its own library."
            )
        self.env = env
        self.loops_inside, self.can_intervene = env.loops_inside, env.can_intervene
        self.spec = replace(env.spec, name=f"{type(self).__name__}({env.spec.name})", **changes)

    def inner(self, state: Any) -> Any:
        """The part of a state that belongs to `env`."""
        return state

    def reset(self, key: PRNGKeyArray) -> tuple[Any, Observation]:
        return self.env.reset(key)

    def step(
        self, key: PRNGKeyArray, state: Any, action: Int[Array, "N"]
    ) -> tuple[Any, Observation, Outcome]:
        return self.env.step(key, state, action)

    def oracle_graph(self, state: Any) -> Bool[Array, "N N"]:
        return self.env.oracle_graph(self.inner(state))

    def oracle_reward_graph(self, state: Any) -> Bool[Array, "N N"]:
        return self.env.oracle_reward_graph(self.inner(state))

    def local_state(self, state: Any) -> Float[Array, "N L"]:
        return self.env.local_state(self.inner(state))

    def draw(self, state: Any, graph: Bool[Array, "N N"] | None = None) -> str:
        return self.env.draw(self.inner(state), graph)

    def offers(self, method: str) -> bool:
        """Whether `env` or the subclass implements the optional `method`."""
        adds = getattr(type(self), method) is not getattr(Wrapper, method)
        return adds or self.env.offers(method)


class ShapedRewards(Wrapper):
    """Rewards [N] = shape(state, action, next state, reward), with the states of `env`.

    Shaping can change who influences whose reward, so `oracle_reward_graph` is not offered."""

    def __init__(self, env: Environment, shape: Callable[[Any, Array, Any, Array], Array]):
        super().__init__(env)
        self.shape = shape

    def step(
        self, key: PRNGKeyArray, state: Any, action: Int[Array, "N"]
    ) -> tuple[Any, Observation, Outcome]:
        after, observation, outcome = self.env.step(key, state, action)
        reward = self.shape(state, action, after, outcome.reward)
        return after, observation, outcome._replace(reward=reward)

    def offers(self, method: str) -> bool:
        return method != "oracle_reward_graph" and super().offers(method)


class NormalisedObservations(Wrapper):
    """agents_view = (agents_view - mean) / std, with fixed statistics, since environments are pure.
    The global state is changed only if it is the flattened views (`state_is_obs`)."""

    def __init__(self, env: Environment, mean: Float[Array, "*N O"], std: Float[Array, "*N O"]):
        """mean, std: per feature [O], or per agent and feature [N, O]."""
        super().__init__(env)
        self.mean, self.std = jnp.asarray(mean), jnp.asarray(std)
        if not bool((self.std > 0).all()):
            raise UsageError("std must be above 0 for every feature: use 1 for a constant one.")

    @classmethod
    def measured(cls, env: Environment, seed: int = 0) -> "NormalisedObservations":
        """With the statistics of random episodes; constant features are only centred."""
        played = play_randomly(env, jax.random.key(seed))
        counted = (played.running[..., None] & played.observation.alive)[..., None]
        view = played.observation.agents_view
        mean = view.mean((0, 1, 2), where=counted)
        std = view.std((0, 1, 2), where=counted)
        return cls(env, mean, jnp.where(std > 1e-6, std, 1))

    def reset(self, key: PRNGKeyArray) -> tuple[Any, Observation]:
        state, observation = self.env.reset(key)
        return state, self._normalised(observation)

    def step(
        self, key: PRNGKeyArray, state: Any, action: Int[Array, "N"]
    ) -> tuple[Any, Observation, Outcome]:
        state, observation, outcome = self.env.step(key, state, action)
        return state, self._normalised(observation), outcome

    def _normalised(self, observation: Observation) -> Observation:
        view = (observation.agents_view - self.mean) / self.std
        global_state = view.reshape(-1) if self.spec.state_is_obs else observation.global_state
        return observation._replace(agents_view=view, global_state=global_state)


class SubsetState(NamedTuple):
    """State of `AgentSubset`."""

    inner: Any
    observation: Observation
    """Observation of all agents, the input of the other agents' policy."""


class AgentSubset(Wrapper):
    """Only some agents learn and are rewarded; the others follow a fixed policy as part of the
    environment. The global state remains that of all agents."""

    def __init__(
        self,
        env: Environment,
        agents: Sequence[int],
        others: Callable[[PRNGKeyArray, Observation], Int[Array, "N"]] = random_actions,
    ):
        """agents: their indices in `env`. others: policy that maps a key and the observation of all
        agents to their actions; those of `agents` are replaced."""
        n = env.spec.n_agents
        agents = tuple(agents)
        if not agents or len(set(agents)) < len(agents) or not set(agents) <= set(range(n)):
            raise UsageError(
                f"agents is {agents}, but must be one or more distinct indices from 0 to {n - 1}."
            )
        super().__init__(env, n_agents=len(agents), state_is_obs=False)
        self.agents, self.others = jnp.array(agents), others

    def inner(self, state: SubsetState) -> Any:
        return state.inner

    def reset(self, key: PRNGKeyArray) -> tuple[SubsetState, Observation]:
        state, observation = self.env.reset(key)
        return SubsetState(state, observation), self._observation(observation)

    def step(
        self, key: PRNGKeyArray, state: SubsetState, action: Int[Array, "N"]
    ) -> tuple[SubsetState, Observation, Outcome]:
        others_key, key = jax.random.split(key)
        joint = self.others(others_key, state.observation).at[self.agents].set(action)
        after, observation, outcome = self.env.step(key, state.inner, joint)
        outcome = outcome._replace(reward=outcome.reward[self.agents])
        return SubsetState(after, observation), self._observation(observation), outcome

    def oracle_graph(self, state: SubsetState) -> Bool[Array, "N N"]:
        return self.env.oracle_graph(state.inner)[self.agents][:, self.agents]

    def oracle_reward_graph(self, state: SubsetState) -> Bool[Array, "N N"]:
        return self.env.oracle_reward_graph(state.inner)[self.agents][:, self.agents]

    def local_state(self, state: SubsetState) -> Float[Array, "N L"]:
        return self.env.local_state(state.inner)[self.agents]

    def draw(self, state: SubsetState, graph: Bool[Array, "N N"] | None = None) -> str:
        """All agents, with the edges between the learning ones."""
        if graph is not None:
            all_agents = jnp.eye(self.env.spec.n_agents, dtype=bool)
            graph = all_agents.at[jnp.ix_(self.agents, self.agents)].set(graph)
        return self.env.draw(state.inner, graph)

    def offers(self, method: str) -> bool:
        return self.env.offers(method)

    def _observation(self, observation: Observation) -> Observation:
        view, state, mask, alive = observation
        return Observation(view[self.agents], state, mask[self.agents], alive[self.agents])


class TimedState(NamedTuple):
    """State of `TimeLimit`."""

    inner: Any
    time: Int[Array, ""]


class TimeLimit(Wrapper):
    """Truncates episodes after `steps`."""

    def __init__(self, env: Environment, steps: int):
        if not 1 <= steps <= env.spec.horizon:
            raise UsageError(
                f"steps is {steps}, but must lie between 1 and {env.spec.horizon}, the horizon of "
                f"{env.spec.name}."
            )
        super().__init__(env, horizon=steps)

    def inner(self, state: TimedState) -> Any:
        return state.inner

    def reset(self, key: PRNGKeyArray) -> tuple[TimedState, Observation]:
        state, observation = self.env.reset(key)
        return TimedState(state, jnp.int32(0)), observation

    def step(
        self, key: PRNGKeyArray, state: TimedState, action: Int[Array, "N"]
    ) -> tuple[TimedState, Observation, Outcome]:
        inner, observation, outcome = self.env.step(key, state.inner, action)
        late = (state.time + 1 >= self.spec.horizon) & ~outcome.terminated
        outcome = outcome._replace(truncated=outcome.truncated | late)
        return TimedState(inner, state.time + 1), observation, outcome
