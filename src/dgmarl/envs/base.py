"""The environment interface: pure functions of a key and a state, batched over agents.

A custom environment subclasses `Environment` and defines `spec`, `reset` and `step`; all of them
must work under jit and vmap. `dgmarl check-env file.py:Class` validates an implementation.
`step` never resets: the rollout does, and keeps the successor observation for bootstrapping."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

State = TypeVar("State")


@dataclass(frozen=True)
class EnvSpec:
    """Static sizes of an environment."""

    name: str
    """The environment id."""
    n_agents: int
    """Number of learning agents N."""
    n_actions: int
    """Number of discrete actions A, equal for all agents; `Observation.action_mask` masks the rest
    for agents with fewer."""
    obs_size: int
    """Length O of one agent's observation vector."""
    state_size: int
    """Length D of the global state vector, the input of central critics and mixers."""
    horizon: int
    """Maximum episode length in steps."""
    state_is_obs: bool = False
    """Whether `global_state` is `agents_view.reshape(-1)`; a replay buffer then stores only the
    latter."""
    action_names: tuple[str, ...] = ()
    """Names of the actions 0, 1, ... in reports; empty: their indices."""


class Observation(NamedTuple):
    """What policies, critics and mixers receive at one step."""

    agents_view: Float[Array, "N O"]
    """Local observation of each agent."""
    global_state: Float[Array, "D"]
    """Input of central critics and mixers."""
    action_mask: Bool[Array, "N A"]
    """Available actions; at least one for every living agent."""
    alive: Bool[Array, "N"]


class Outcome(NamedTuple):
    """Result of a step besides state and observation."""

    reward: Float[Array, "N"]
    """Reward per agent; the team objective is the sum."""
    terminated: Bool[Array, ""]
    """The task has ended: no bootstrapping."""
    truncated: Bool[Array, ""]
    """Time limit reached: bootstrap from the successor. Never set together with `terminated`."""
    info: dict[str, Any]
    """Diagnostics, arrays only; not read by learners."""


class Environment(ABC, Generic[State]):
    """A cooperative multi-agent environment with one reward per agent."""

    spec: EnvSpec
    loops_inside: bool = False
    """Whether `step` contains loops. The rollout then does not unroll steps, which would multiply
    the compilation time for no gain."""
    can_intervene: bool = True
    """Whether `step` may be called again from an earlier state, as interventional graphs and
    difference rewards do; False for a simulator that cannot restore earlier states."""
    on_host: bool = False
    """Whether episodes run outside the compiled program. `step` then invalidates the state it is
    given, `step_kept` does not, and `begin_where` starts new episodes."""

    @abstractmethod
    def reset(self, key: PRNGKeyArray) -> tuple[State, Observation]:
        """Sample an initial state."""

    @abstractmethod
    def step(
        self, key: PRNGKeyArray, state: State, action: Int[Array, "N"]
    ) -> tuple[State, Observation, Outcome]:
        """One joint step. Never resets."""

    def step_kept(
        self, key: PRNGKeyArray, state: State, action: Int[Array, "N"]
    ) -> tuple[State, Observation, Outcome]:
        """`step` that leaves `state` valid, so that it can be stepped again."""
        return self.step(key, state, action)

    def begin_where(
        self, key: PRNGKeyArray, done: Bool[Array, ""], state: State, observation: Observation
    ) -> tuple[State, Observation]:
        """Reset if `done`, else return `state, observation`; only called if `on_host`."""
        raise NotOfferedError(self, "begin_where")

    def no_interventions(self) -> str:
        """Why `step` cannot be called again from an earlier state; empty if it can."""
        return "" if self.can_intervene else "its simulator cannot restore earlier states"

    def oracle_graph(self, state: State) -> Bool[Array, "N N"]:
        """Optional. Entry [j, i]: whether j's action in this state can influence i's next local
        state. Row = source, column = target, self-loops set."""
        raise NotOfferedError(self, "oracle_graph")

    def oracle_reward_graph(self, state: State) -> Bool[Array, "N N"]:
        """Optional. Entry [j, i]: whether j's action in this state can influence i's reward of the
        same step. Row = source, column = target."""
        raise NotOfferedError(self, "oracle_reward_graph")

    def local_state(self, state: State) -> Float[Array, "N L"]:
        """Optional. Agent i's own state, compared by interventional graphs."""
        raise NotOfferedError(self, "local_state")

    def draw(self, state: State, graph: Bool[Array, "N N"] | None = None) -> str:
        """Optional. Render the state as SVG, with an arrow from source to target per edge of
        `graph`."""
        raise NotOfferedError(self, "draw")

    def close(self) -> None:
        """Release external resources such as processes. Running episodes are lost; new ones can be
        started."""

    def offers(self, method: str) -> bool:
        """Whether this environment implements the optional `method`."""
        return getattr(type(self), method) is not getattr(Environment, method)


def random_actions(key: PRNGKeyArray, observation: Observation) -> Int[Array, "*B N"]:
    """A uniformly random available action per agent, from one random number per agent."""
    rank = jnp.cumsum(observation.action_mask, axis=-1)
    chosen = jnp.floor(jax.random.uniform(key, rank.shape[:-1]) * rank[..., -1])
    return (rank <= chosen[..., None]).sum(axis=-1).clip(max=rank.shape[-1] - 1)


def local_size(env: Environment) -> int:
    """Length L of one agent's `local_state`."""
    state = jax.eval_shape(lambda key: env.local_state(env.reset(key)[0]), jax.random.key(0))
    return state.shape[-1]


class NotOfferedError(NotImplementedError):
    """An optional method of the interface is missing."""

    def __init__(self, env: Environment, method: str):
        super().__init__(
            f"{env.spec.name} does not offer {method}; define `{method}` in {type(env).__name__} "
            "to use it."
        )
