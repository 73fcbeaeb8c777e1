"""How much the rewards of others should count, chosen by the data.

The policy gradient of graph credit is a sum g = g_own + g_cross: from an agent's own rewards and
from those of the agents it reached. Both are estimated from one batch, and the second is often much
noisier. Adam divides out the length of a step, so what counts is how surely it points the right
way: the signal-to-noise ratio

    ( <g, g_own> + beta <g, g_cross> )^2 / ( V_own + 2 beta V_both + beta^2 V_cross )

which is largest at beta = x_cross / x_own with x = V^-1 (<g, g_own>, <g, g_cross>). Signal and
noise V are measured with the gradients of two halves of each batch: products across the halves have
the right expectation, and the differences are noise. Running means are taken before the batch they
weigh, so beta never depends on it and the gradient of each part stays unbiased."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

DECAY = 0.99
"""Of the running means; a batch is forgotten in about a hundred."""


LEAST = 0.2
"""Smallest weight. With none, a policy that has become selfish never meets what would speak for
others."""


class CrossMoments(NamedTuple):
    """Running means over batches; index 0 = own rewards, 1 = rewards of others."""

    signal: Float[Array, "2"]
    noise: Float[Array, "2 2"]


def initial_moments() -> CrossMoments:
    """Before the first batch."""
    return CrossMoments(jnp.zeros(2), jnp.zeros((2, 2)))


def updated_moments(moments: CrossMoments, gradients: Float[Array, "2 2 P"]) -> CrossMoments:
    """With the gradients of one more batch: of its two halves, from own rewards and from those of
    others."""
    first, second = gradients
    signal = (second @ first.sum(axis=0) + first @ second.sum(axis=0)) / 2
    noise = (first - second) @ (first - second).T
    new = CrossMoments(signal, noise)
    return CrossMoments(
        *(DECAY * old + (1 - DECAY) * now for old, now in zip(moments, new, strict=True))
    )


def best_cross_weight(moments: CrossMoments) -> Float[Array, ""]:
    """beta from `LEAST` to 1; 1 as long as nothing speaks for less."""
    (v_own, v_both), (_, v_cross) = moments.noise
    own = v_cross * moments.signal[0] - v_both * moments.signal[1]
    cross = v_own * moments.signal[1] - v_both * moments.signal[0]
    share = jnp.clip(cross / jnp.where(own > 0, own, 1), LEAST, 1)
    return jnp.where(own > 0, share, jnp.float32(1))
