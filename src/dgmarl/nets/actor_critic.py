"""Policies and critics. Arrays are time-major, agents before features: `[T, B, N, ...]`.

Parameters are shared between agents (with an agent id as input) or stacked, one set per agent."""

from dataclasses import dataclass
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from dgmarl.config.parts import CriticKind
from dgmarl.envs.base import EnvSpec, Observation
from dgmarl.nets.layers import GRU, Linear

UNAVAILABLE = -1e10


class Actor(nn.Module):
    """Linear, ReLU, a hidden layer (FC) or a GRU (RNN), then logits: the paper's two actors."""

    n_actions: int
    hidden: int
    recurrent: bool
    n_agents: int | None

    @nn.compact
    def __call__(
        self, hidden_state: Array, agents_view: Array, is_first: Array
    ) -> tuple[Array, Array]:
        """Hidden state after the last step, and logits of each step."""
        x = nn.relu(Linear(self.hidden, self.n_agents)(agents_view))
        if self.recurrent:
            hidden_state, x = GRU(self.hidden)(hidden_state, x, is_first)
        else:
            x = nn.relu(Linear(self.hidden)(x))
        return hidden_state, Linear(self.n_actions)(x)


class Critic(nn.Module):
    """A feed-forward network: Linear, ReLU, Linear, ReLU, Linear."""

    hidden: int
    n_outputs: int
    n_agents: int | None

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """Values, [..., n_outputs]."""
        x = nn.relu(Linear(self.hidden, self.n_agents)(x))
        x = nn.relu(Linear(self.hidden)(x))
        return Linear(self.n_outputs)(x)


@dataclass(frozen=True)
class Policy:
    """The actor as pure functions of its parameters."""

    spec: EnvSpec
    hidden: int
    recurrent: bool
    shared: bool

    @property
    def module(self) -> Actor:
        """The network of one agent, or of all agents if parameters are shared."""
        return Actor(
            self.spec.n_actions,
            self.hidden,
            self.recurrent,
            self.spec.n_agents if self.shared else None,
        )

    def init(self, key: PRNGKeyArray) -> Any:
        """Initial parameters."""
        observation = jnp.zeros((1, self.spec.n_agents, self.spec.obs_size))
        return _init(
            self.module,
            key,
            self.spec.n_agents,
            self.shared,
            self.init_hidden_state(),
            observation,
            jnp.zeros(observation.shape[:-1], bool),
        )

    def init_hidden_state(self, *batch: int) -> Float[Array, "*B N h"]:
        """Hidden state at the start of an episode; size 0 for feed-forward networks."""
        return jnp.zeros((*batch, self.spec.n_agents, self.hidden if self.recurrent else 0))

    def log_probs(
        self,
        params: Any,
        hidden_state: Float[Array, "B N h"],
        observation: Observation,
        is_first: Bool[Array, "T B"],
    ) -> tuple[Float[Array, "B N h"], Float[Array, "T B N A"]]:
        """log(pi + 1e-10) of every action at every step: the form of the paper's code, finite for
        unavailable actions."""
        hidden_state, logits = self.outputs(params, hidden_state, observation.agents_view, is_first)
        return hidden_state, jnp.log(
            jax.nn.softmax(jnp.where(observation.action_mask, logits, UNAVAILABLE)) + 1e-10
        )

    def outputs(
        self,
        params: Any,
        hidden_state: Float[Array, "B N h"],
        agents_view: Float[Array, "T B N O"],
        is_first: Bool[Array, "T B"],
    ) -> tuple[Float[Array, "B N h"], Float[Array, "T B N A"]]:
        """Network outputs per action and step: logits of a policy, or Q-values of a Q-learner."""
        is_first = jnp.broadcast_to(is_first[..., None], agents_view.shape[:-1])
        return _apply(
            self.module,
            self.shared,
            params,
            (hidden_state, agents_view, is_first),
            in_axes=(-2, -2, -1),
        )


@dataclass(frozen=True)
class Value:
    """The critic as pure functions of its parameters. Its input depends on `kind`:

    agent: the agent's observation.
    own-state: the agent's local state, its part of a global state that concatenates them.
    central: the global state and the agent's id.
    central-heads: the global state; one output per agent."""

    spec: EnvSpec
    hidden: int
    kind: CriticKind
    shared: bool

    @property
    def module(self) -> Critic:
        """The network of one agent, or of all agents if parameters are shared."""
        heads = self.kind == "central-heads"
        return Critic(
            self.hidden,
            self.spec.n_agents if heads else 1,
            self.spec.n_agents if self.shared and not heads else None,
        )

    def init(self, key: PRNGKeyArray) -> Any:
        """Initial parameters."""
        size = self.spec.obs_size if self.kind == "agent" else self.spec.state_size
        size = size // self.spec.n_agents if self.kind == "own-state" else size
        return _init(
            self.module,
            key,
            self.spec.n_agents,
            self._one_set,
            jnp.zeros((self.spec.n_agents, size)),
        )

    def __call__(self, params: Any, observation: Observation) -> Float[Array, "*B N"]:
        """V^i for every agent i."""
        if self.kind == "central-heads":
            return self.module.apply(params, observation.global_state)  # pyright: ignore[reportReturnType]
        x = (
            observation.agents_view
            if self.kind == "agent"
            else observation.global_state[..., None, :]
        )
        if self.kind == "own-state":
            x = observation.global_state.reshape(*observation.alive.shape, -1)
        if not self._one_set:
            x = jnp.broadcast_to(x, (*x.shape[:-2], self.spec.n_agents, x.shape[-1]))
        return _apply(self.module, self._one_set, params, (x,), in_axes=(-2,))[..., 0]

    @property
    def _one_set(self) -> bool:
        return self.shared or self.kind == "central-heads"


def _init(
    module: nn.Module, key: PRNGKeyArray, n_agents: int, shared: bool, *example: Array
) -> Any:
    if shared:
        return module.init(key, *example)
    one_agent = [array[..., 0] if array.dtype == bool else array[..., 0, :] for array in example]
    return jax.vmap(lambda key: module.init(key, *one_agent))(jax.random.split(key, n_agents))


def _apply(
    module: nn.Module,
    shared: bool,
    params: Any,
    inputs: tuple[Array, ...],
    in_axes: tuple[int, ...],
) -> Any:
    if shared:
        return module.apply(params, *inputs)
    return jax.vmap(module.apply, in_axes=(0, *in_axes), out_axes=-2)(params, *inputs)
