"""Networks that guess an action from what happened after it (the paper's reverse world models)."""

from math import sqrt

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from dgmarl.nets.layers import Linear, rows_times, uniform_within

REVERSE = (256, 128, 128)
"""Hidden widths of every model that guesses an action."""


class Perceptron(nn.Module):
    """ReLU and LayerNorm after each hidden layer, none after the last."""

    widths: tuple[int, ...]
    n_outputs: int

    @nn.compact
    def __call__(self, x: Float[Array, "*B in"]) -> Float[Array, "*B out"]:
        """Outputs for each row."""
        for width in self.widths:
            x = _activated(Linear(width)(x))
        return Linear(self.n_outputs)(x)


class PairModel(nn.Module):
    """Guesses the action of a source from what a target was and became, and from what the source was.

    The first layer is linear in [target, source], so it is computed once per agent and added for each pair: N products
    instead of N^2. With `heads`, every source has a last layer of its own.
    """

    n_outputs: int
    heads: bool = False
    widths: tuple[int, ...] = REVERSE

    @nn.compact
    def __call__(
        self, source: Float[Array, "R N d"], target: Float[Array, "R N k"], chosen: Int[Array, "N K"] | None = None
    ) -> Float[Array, "R N K out"]:
        """Outputs [r, i, k] for the source i and the target chosen[i, k]; without `chosen`, for every target."""
        size = target.shape[-1] + source.shape[-1]
        draw = uniform_within(1 / sqrt(size))
        weight = self.param("weight", draw, (size, self.widths[0]))
        of_target = rows_times(target, weight[: target.shape[-1]])
        of_source = rows_times(source, weight[target.shape[-1] :]) + self.param("bias", draw, (self.widths[0],))
        of_target = of_target[..., None, :, :] if chosen is None else of_target[..., chosen, :]
        x = _activated(of_source[..., :, None, :] + of_target)
        for width in self.widths[1:]:
            x = _activated(Linear(width)(x))
        if not self.heads:
            return Linear(self.n_outputs)(x)
        n_agents, draw = source.shape[-2], uniform_within(1 / sqrt(x.shape[-1]))
        weight = self.param("head_weight", draw, (n_agents, x.shape[-1], self.n_outputs))
        return jnp.einsum("...ikd,ida->...ika", x, weight) + self.param("head_bias", draw, (n_agents, 1, self.n_outputs))


def _activated(x: Float[Array, "*B h"]) -> Float[Array, "*B h"]:
    return nn.LayerNorm(epsilon=1e-5)(nn.relu(x))
