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
from dgmarl.errors import UsageError
from dgmarl.nets.layers import GRU, Linear

UNAVAILABLE = -1e10


class FeedForward(nn.Module):
    """Linear, ReLU, Linear, ReLU, Linear: the paper's feed-forward actor and critic."""

    n_outputs: int
    hidden: int
    n_agents: int | None

    @nn.compact
    def __call__(self, x: Array) -> Array:
        x = nn.relu(Linear(self.hidden, self.n_agents)(x))
        x = nn.relu(Linear(self.hidden)(x))
        return Linear(self.n_outputs)(x)


class Recurrent(nn.Module):
    """Linear, ReLU, GRU, Linear: the paper's recurrent actor."""

    n_outputs: int
    hidden: int
    n_agents: int | None

    @property
    def hidden_state_size(self) -> int:
        return self.hidden

    @nn.compact
    def __call__(self, hidden_state: Array, x: Array, is_first: Array) -> tuple[Array, Array]:
        x = nn.relu(Linear(self.hidden, self.n_agents)(x))
        hidden_state, x = GRU(self.hidden)(hidden_state, x, is_first)
        return hidden_state, Linear(self.n_outputs)(x)


OWN_NETWORKS = {"fc": FeedForward, "gru": Recurrent}


@dataclass(frozen=True)
class Policy:
    """The actor as pure functions of its parameters."""

    spec: EnvSpec
    hidden: int
    network: type[nn.Module]
    """Constructed like `FeedForward`; called like `Recurrent` if it has `hidden_state_size`."""
    shared: bool

    @property
    def module(self) -> nn.Module:
        """The network of one agent, or of all agents if parameters are shared."""
        return _make(self.network, self.spec.n_actions, self.hidden, self.spec, self.shared)

    @property
    def hidden_state_size(self) -> int:
        """Size of the hidden state of an agent; 0 for feed-forward networks."""
        return getattr(self.module, "hidden_state_size", 0)

    def init(self, key: PRNGKeyArray) -> Any:
        # A custom network may expect batch axes.
        x = jnp.zeros((1, 1, self.spec.n_agents, self.spec.obs_size))
        inputs = self._inputs(self.init_hidden_state(1), x, jnp.zeros((1, 1), bool))
        return _init(self.module, key, self.spec.n_agents, self.shared, *inputs)

    def init_hidden_state(self, *batch: int) -> Float[Array, "*B N h"]:
        """Hidden state at the start of an episode; size 0 for feed-forward networks."""
        return jnp.zeros((*batch, self.spec.n_agents, self.hidden_state_size))

    def log_probs(
        self,
        params: Any,
        hidden_state: Float[Array, "B N h"],
        observation: Observation,
        is_first: Bool[Array, "T B"],
    ) -> tuple[Float[Array, "B N h"], Float[Array, "T B N A"]]:
        """log(pi + 1e-10) as in the paper's code, finite for unavailable actions."""
        hidden_state, logits = self.outputs(params, hidden_state, observation.agents_view, is_first)
        probs = jax.nn.softmax(jnp.where(observation.action_mask, logits, UNAVAILABLE))
        return hidden_state, jnp.log(probs + 1e-10)

    def outputs(
        self,
        params: Any,
        hidden_state: Float[Array, "B N h"],
        agents_view: Float[Array, "T B N O"],
        is_first: Bool[Array, "T B"],
    ) -> tuple[Float[Array, "B N h"], Float[Array, "T B N A"]]:
        """Network outputs per step and action: logits of a policy, or values of a Q-learner."""
        inputs = self._inputs(hidden_state, agents_view, is_first)
        found = _apply(self.module, self.shared, params, inputs)
        new, outputs = found if self.hidden_state_size else (hidden_state, found)
        _check(self.network, outputs, (*agents_view.shape[:-1], self.spec.n_actions))
        _check(self.network, new, hidden_state.shape, "for its hidden state")
        # A custom network may compute in lower precision.
        return new.astype(jnp.float32), outputs.astype(jnp.float32)

    def _inputs(self, hidden_state: Array, x: Array, is_first: Array) -> tuple[Array, ...]:
        if not self.hidden_state_size:
            return (x,)
        return hidden_state, x, jnp.broadcast_to(is_first[..., None], x.shape[:-1])


@dataclass(frozen=True)
class Value:
    """The critic as pure functions of its parameters. Its input depends on `kind`:

    agent: the agent's observation.
    own-state: the agent's local state, a part of the concatenation in the global state.
    central: the global state and the agent's id.
    central-heads: the global state; one output per agent."""

    spec: EnvSpec
    hidden: int
    kind: CriticKind
    shared: bool
    network: type[nn.Module] = FeedForward

    @property
    def module(self) -> nn.Module:
        """The network of one agent, or of all agents if parameters are shared."""
        heads = self.kind == "central-heads"
        n_outputs = self.spec.n_agents if heads else 1
        return _make(self.network, n_outputs, self.hidden, self.spec, self.shared and not heads)

    def init(self, key: PRNGKeyArray) -> Any:
        size = self.spec.obs_size if self.kind == "agent" else self.spec.state_size
        size = size // self.spec.n_agents if self.kind == "own-state" else size
        x = jnp.zeros((1, 1, self.spec.n_agents, size))
        return _init(self.module, key, self.spec.n_agents, self._one_set, x)

    def __call__(self, params: Any, observation: Observation) -> Float[Array, "*B N"]:
        """V^i for every agent i."""
        shape = observation.alive.shape
        if self.kind == "central-heads":
            values: Any = self.module.apply(params, observation.global_state)
            return _check(self.network, values, shape)
        x = observation.global_state[..., None, :]
        if self.kind == "agent":
            x = observation.agents_view
        elif self.kind == "own-state":
            x = observation.global_state.reshape(*shape, -1)
        if not self._one_set or self.network is not FeedForward:
            x = jnp.broadcast_to(x, (*shape, x.shape[-1]))
        values = _apply(self.module, self._one_set, params, (x,))
        return _check(self.network, values, (*shape, 1))[..., 0]

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


def _apply(module: nn.Module, shared: bool, params: Any, inputs: tuple[Array, ...]) -> Any:
    if shared:
        return module.apply(params, *inputs)
    # Boolean inputs (`is_first`) have no feature axis after the agent axis.
    in_axes = [-1 if array.dtype == bool else -2 for array in inputs]
    return jax.vmap(module.apply, in_axes=(0, *in_axes), out_axes=-2)(params, *inputs)


def _make(
    network: type[nn.Module], n_outputs: int, hidden: int, spec: EnvSpec, shared: bool
) -> nn.Module:
    n_agents = spec.n_agents if shared else None
    return network(n_outputs=n_outputs, hidden=hidden, n_agents=n_agents)  # pyright: ignore[reportCallIssue]


def _check(network: type, found: Any, shape: tuple[int, ...], what: str = "for its outputs") -> Any:
    """Return `found`, or raise if it has another shape."""
    if jnp.shape(found) != shape:
        raise UsageError(
            f"The network {network.__name__} gives the shape {jnp.shape(found)} {what}, but must "
            f"give {shape}: see `A network of your own` in docs/pieces.md."
        )
    return found
