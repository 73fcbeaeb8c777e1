"""The environment contract: pure functions of a key and a state, stacked over agents, jit- and
vmap-able.

A custom environment is a subclass of `Environment` with a `spec`, `reset` and `step`; `dgmarl
check-env file.py:Class` runs it through the contract. Nothing here resets by itself: the rollout
does, so that the view before a reset is never lost."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

State = TypeVar("State")


@dataclass(frozen=True)
class EnvSpec:
    """The sizes of an environment, all known before anything is compiled."""

    name: str
    """The id under which a user finds it."""
    n_agents: int
    """Number of learning agents N."""
    n_actions: int
    """Number of discrete actions A, the same for every agent (mask with `Observation.action_mask`
    where an agent has fewer)."""
    obs_size: int
    """Length O of one agent's observation vector."""
    state_size: int
    """Length D of the state vector a central critic sees."""
    horizon: int
    """Every episode has ended, one way or the other, after this many steps."""
    state_is_obs: bool = False
    """Whether the state is all agents' observations, one after the other: then a replay keeps only
    these."""


class Observation(NamedTuple):
    """What the learner may see at one step."""

    agents_view: Float[Array, "N O"]
    """What each agent sees."""
    global_state: Float[Array, "D"]
    """What a central critic or mixer sees."""
    action_mask: Bool[Array, "N A"]
    """Which actions each agent may take; never all false for a living agent."""
    alive: Bool[Array, "N"]


class Outcome(NamedTuple):
    """What a step brought. The end of the task, a time-out and diagnostics are three different
    things."""

    reward: Float[Array, "N"]
    """One reward per agent. The team goal is their sum."""
    terminated: Bool[Array, ""]
    """The task is over: nothing comes after, no bootstrapping."""
    truncated: Bool[Array, ""]
    """Time is up, though the task would go on: bootstrap from the successor."""
    info: dict[str, Any]
    """Diagnostics for people, arrays only; no learner reads them."""


class Environment(ABC, Generic[State]):
    """A cooperative multi-agent environment with one reward per agent."""

    spec: EnvSpec
    loops_inside: bool = False
    """Whether a step is itself made of loops: then nothing is gained by compiling several steps as
    one, and much time lost."""

    @abstractmethod
    def reset(self, key: PRNGKeyArray) -> tuple[State, Observation]:
        """A first state, drawn with `key`."""

    @abstractmethod
    def step(
        self, key: PRNGKeyArray, state: State, action: Int[Array, "N"]
    ) -> tuple[State, Observation, Outcome]:
        """One step of all agents at once. Never resets."""

    def oracle_graph(self, state: State) -> Bool[Array, "N N"]:
        """Optional. Entry [j, i]: can what j does now reach i's next local state? Row = source,
        column = target."""
        raise NotOfferedError(self, "oracle_graph")

    def local_state(self, state: State) -> Float[Array, "N L"]:
        """Optional. What "agent i's own state" means, for interventional graphs."""
        raise NotOfferedError(self, "local_state")

    def draw(self, state: State, graph: Bool[Array, "N N"] | None = None) -> str:
        """Optional. The state as SVG, with an arrow from source to target for each edge of
        `graph`."""
        raise NotOfferedError(self, "draw")

    def offers(self, method: str) -> bool:
        """Whether this environment implements the optional `method`."""
        return getattr(type(self), method) is not getattr(Environment, method)


def random_actions(key: PRNGKeyArray, observation: Observation) -> Int[Array, "*B N"]:
    """Uniform over the available actions of every agent, from one random number per agent."""
    rank = jnp.cumsum(observation.action_mask, axis=-1)
    chosen = jnp.floor(jax.random.uniform(key, rank.shape[:-1]) * rank[..., -1])
    return (rank <= chosen[..., None]).sum(axis=-1).clip(max=rank.shape[-1] - 1)


class NotOfferedError(NotImplementedError):
    """An optional method of the contract that this environment does not have."""

    def __init__(self, env: Environment, method: str):
        super().__init__(
            f"{env.spec.name} does not offer {method}; define `{method}` in {type(env).__name__} "
            "to use it."
        )
