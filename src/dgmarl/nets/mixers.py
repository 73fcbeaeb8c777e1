"""Mixers: the identity (IQL), the sum (VDN), QMIX and QPLEX, with one signature.

All of them satisfy IGM (individual-global-max): the joint action of the agents' greedy actions
maximises the mixed value."""

from dataclasses import dataclass
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from dgmarl.config.parts import MixerKind
from dgmarl.envs.base import EnvSpec
from dgmarl.nets.layers import Linear

_POSITIVE = 1e-10
"""Lower bound of QPLEX's positive weights, as in the original code."""


class QMIX(nn.Module):
    """Q_tot = elu(q W1 + b1) W2 + v with hypernetwork weights |W| >= 0 of the state, so Q_tot is
    non-decreasing in every Q_i."""

    embedding: int
    hidden: int

    @nn.compact
    def __call__(self, chosen: Array, best: Array, action: Array, state: Array) -> Array:
        """One value for the team, [..., 1]."""
        n_agents, width = chosen.shape[-1], self.embedding
        # The first layers of the four hypernetworks share their input, so they are one product.
        first = Linear(2 * self.hidden + 2 * width)(state)
        for_w1, for_w2, for_v, b1 = jnp.split(
            first, [self.hidden, 2 * self.hidden, 2 * self.hidden + width], axis=-1
        )
        w1 = jnp.abs(Linear(n_agents * width)(nn.relu(for_w1))).reshape(
            *state.shape[:-1], n_agents, width
        )
        w2 = jnp.abs(Linear(width)(nn.relu(for_w2)))
        v = Linear(1)(nn.relu(for_v))
        # A sum over few agents is cheaper than a batched matrix product.
        mixed = nn.elu((chosen[..., None] * w1).sum(axis=-2) + b1)
        return (mixed * w2).sum(axis=-1, keepdims=True) + v


class QPLEX(nn.Module):
    """Duplex dueling: q~_i = w_i Q_i(a_i) + b_i, v~_i = w_i max Q_i + b_i, and

        Q_tot = sum_i q~_i + sum_i stop_gradient(q~_i - v~_i) (lambda_i - 1)

    Its value is sum_i v~_i + lambda_i (q~_i - v~_i). w_i > 0 depends on the state, lambda_i > 0 on
    the state and the joint action. It represents every joint value function that satisfies IGM."""

    hidden: int
    heads: int
    n_actions: int

    @nn.compact
    def __call__(self, chosen: Array, best: Array, action: Array, state: Array) -> Array:
        n_agents, heads, width = chosen.shape[-1], self.heads, self.hidden
        joint = jax.nn.one_hot(action, self.n_actions).reshape(
            *action.shape[:-1], n_agents * self.n_actions
        )
        # Two-layer networks whose first layers are one product: scale and offset, then the key,
        # agent and action parts of each head.
        from_state = _in_heads(Linear((2 + 2 * heads) * width)(state), 2 + 2 * heads)
        from_joint = _in_heads(
            Linear(heads * width)(jnp.concatenate([state, joint], axis=-1)), heads
        )
        scale, offset = jnp.split(_PerHead(n_agents)(from_state[..., :2, :]), 2, axis=-2)
        key = jnp.abs(_PerHead(1)(from_state[..., 2 : 2 + heads, :])) + _POSITIVE
        of_agent = nn.sigmoid(_PerHead(n_agents)(from_state[..., 2 + heads :, :]))
        of_action = nn.sigmoid(_PerHead(n_agents)(from_joint))
        weight = (key * of_agent * of_action).sum(axis=-2)
        scale = jnp.abs(scale[..., 0, :]) + _POSITIVE
        transformed = scale * chosen + offset[..., 0, :]
        advantage = jax.lax.stop_gradient(scale * (chosen - best))
        return (transformed + advantage * (weight - 1)).sum(axis=-1, keepdims=True)


class _PerHead(nn.Module):
    """ReLU, then one linear layer per head: [..., heads, in] to [..., heads, features]."""

    features: int

    @nn.compact
    def __call__(self, x: Array) -> Array:
        layer = nn.vmap(
            Linear,
            variable_axes={"params": 0},
            split_rngs={"params": True},
            in_axes=-2,
            out_axes=-2,
        )
        return layer(self.features)(nn.relu(x))


def _in_heads(x: Array, heads: int) -> Array:
    return x.reshape(*x.shape[:-1], heads, x.shape[-1] // heads)


@dataclass(frozen=True)
class Mixer:
    """A mixer as pure functions of its parameters."""

    spec: EnvSpec
    kind: MixerKind
    embedding: int = 32
    hidden: int = 64
    heads: int = 4

    @property
    def sees_state(self) -> bool:
        return self.kind in ("qmix", "qplex")

    @property
    def module(self) -> QMIX | QPLEX:
        if self.kind == "qmix":
            return QMIX(self.embedding, self.hidden)
        return QPLEX(self.hidden, self.heads, self.spec.n_actions)

    def init(self, key: PRNGKeyArray) -> Any:
        """Initial parameters; empty for IQL and VDN."""
        if not self.sees_state:
            return {}
        of_agents = jnp.zeros((1, self.spec.n_agents))
        return self.module.init(
            key, of_agents, of_agents, of_agents.astype(int), jnp.zeros((1, self.spec.state_size))
        )

    def __call__(
        self,
        params: Any,
        chosen: Float[Array, "*B N"],
        best: Float[Array, "*B N"],
        action: Int[Array, "*B N"],
        state: Float[Array, "*B D"],
    ) -> Float[Array, "*B K"]:
        """Mixed values: K = N for IQL, K = 1 for the team value of the others.

        chosen: Q_i of `action`.  best: maximum of Q_i over available actions (used by QPLEX)."""
        if self.kind == "none":
            return chosen
        if self.kind == "vdn":
            return chosen.sum(axis=-1, keepdims=True)
        return self.module.apply(params, chosen, best, action, state)  # pyright: ignore[reportReturnType]
