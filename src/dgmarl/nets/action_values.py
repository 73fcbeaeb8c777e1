"""Action-value critics: values of joint actions, for credit rules and graph sources.

Each is one network for all agents, with an agent id as input. Actions are one-hot or probabilities.
Arrays are `[..., N, ...]`."""

from dataclasses import dataclass
from math import sqrt
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from dgmarl.envs.base import EnvSpec
from dgmarl.nets.layers import Linear, uniform_within
from dgmarl.rollout import Batch


class CounterfactualCritic(nn.Module):
    """COMA's critic: Q_i(x_i, (b, a_-i)) for every own action b, with the others' actions as input.

    x_i: the agent's observation, or [..., 1, D], the global state for all agents. The value for an
    own action drawn from p is sum_b p(b) Q_i(b), exactly and without another pass."""

    hidden: int

    @nn.compact
    def __call__(
        self, x: Float[Array, "*B M D"], action: Float[Array, "*B N A"]
    ) -> Float[Array, "*B N A"]:
        n_agents, n_actions = action.shape[-2:]
        draw = uniform_within(1 / sqrt(x.shape[-1] + n_agents * (n_actions + 1)))
        weight = self.param("actions", draw, (n_agents, n_actions, self.hidden))
        # The first layer is linear: the others' part is the sum over all minus the own part.
        parts = jnp.einsum("...na,nah->...nh", action, weight)
        others = parts.sum(axis=-2, keepdims=True) - parts
        hidden = nn.relu(Linear(self.hidden, n_agents)(x) + others)
        hidden = nn.relu(Linear(self.hidden)(hidden))
        # All values start at 0: a random critic would determine the first policy updates.
        return nn.Dense(n_actions, kernel_init=nn.initializers.zeros)(hidden)


class Attended(NamedTuple):
    """Output of the attention critic."""

    value: Float[Array, "*B N"]
    """Q_i of the joint action."""
    weights: Float[Array, "*B N N"]
    """w_ij: the weight of agent j in Q_i; rows sum to 1, 0 on the diagonal."""


class AttentionCritic(nn.Module):
    """Q_i(o, a) = f(o_i, a_i, sum over j != i of w_ij v(o_j, a_j)),

        w_ij = softmax over j != i of <query(o_i), key(o_j)> / sqrt(d)

    The weights depend on observations only, not on the actions that they credit."""

    hidden: int

    @nn.compact
    def __call__(
        self, agents_view: Float[Array, "*B N O"], action: Float[Array, "*B N A"]
    ) -> Attended:
        n_agents = action.shape[-2]
        seen = nn.relu(Linear(self.hidden, n_agents)(agents_view))
        acted = nn.relu(
            Linear(self.hidden, n_agents)(jnp.concatenate([agents_view, action], axis=-1))
        )
        query, key = Linear(self.hidden)(seen), Linear(self.hidden)(seen)
        logits = jnp.einsum("...id,...jd->...ij", query, key) / sqrt(self.hidden)
        alone = jnp.eye(n_agents, dtype=bool)
        # A single agent has no others: its row is 0.
        weights = jax.nn.softmax(jnp.where(alone, -1e10, logits)) * ~alone
        others = weights @ nn.relu(Linear(self.hidden)(acted))
        hidden = nn.relu(Linear(self.hidden)(jnp.concatenate([acted, others], axis=-1)))
        return Attended(Linear(1)(hidden)[..., 0], weights)


@dataclass(frozen=True)
class AttentionValue:
    """The attention critic as pure functions of its parameters."""

    spec: EnvSpec
    hidden: int

    @property
    def module(self) -> AttentionCritic:
        return AttentionCritic(self.hidden)

    def init(self, key: PRNGKeyArray) -> Any:
        sizes = (self.spec.obs_size, self.spec.n_actions)
        return self.module.init(key, *(jnp.zeros((self.spec.n_agents, size)) for size in sizes))

    def inputs(self, batch: Batch) -> tuple[Float[Array, "T B N O"], Float[Array, "T B N A"]]:
        action = jax.nn.one_hot(batch.action, self.spec.n_actions)
        return batch.observation.agents_view, action

    def values(self, params: Any, inputs: Any) -> Float[Array, "T B N"]:
        """Q_i of every agent."""
        return self._apply(params, inputs).value

    def relevance(self, params: Any, batch: Batch) -> Float[Array, "T B N N"]:
        """Entry [j, i] (row = source): (N - 1) w_ij, agent i's attention on agent j relative to
        uniform attention, hence 1 on average for any number of agents; 0 on the diagonal."""
        weights = self._apply(params, self.inputs(batch)).weights
        return (self.spec.n_agents - 1) * weights.swapaxes(-1, -2)

    def _apply(self, params: Any, inputs: Any) -> Attended:
        return self.module.apply(params, *inputs)  # pyright: ignore[reportReturnType]
