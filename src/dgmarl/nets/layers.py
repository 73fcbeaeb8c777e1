"""Layers with the initialisation of the paper's code: every weight and bias uniform within 1 / sqrt(fan-in)."""

from math import sqrt

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


def uniform_within(bound: float):
    """An initialiser that draws uniformly from [-bound, bound]."""

    def draw(key: Array, shape: tuple[int, ...]) -> Float[Array, "..."]:
        return jax.random.uniform(key, shape, minval=-bound, maxval=bound)

    return draw


def rows_times(x: Float[Array, "*B in"], weight: Float[Array, "in out"]) -> Float[Array, "*B out"]:
    """x @ weight as one product of two matrices: with all leading axes in one, XLA's gradients take a third less time."""
    return (x.reshape(-1, x.shape[-1]) @ weight).reshape(*x.shape[:-1], weight.shape[-1])


class Linear(nn.Module):
    """y = x W + b. With `n_agents`, y_i = [x_i, one-hot i] W + b: who one is costs an addition, not wider inputs.

    With `n_agents`, x is [..., N, in], or [..., 1, in] for an input that all agents share; y is [..., N, features].
    """

    features: int
    n_agents: int | None = None

    @nn.compact
    def __call__(self, x: Float[Array, "*B in"]) -> Float[Array, "*B out"]:
        """Apply the layer."""
        draw = uniform_within(1 / sqrt(x.shape[-1] + (self.n_agents or 0)))
        y = rows_times(x, self.param("weight", draw, (x.shape[-1], self.features))) + self.param("bias", draw, (self.features,))
        return y if self.n_agents is None else y + self.param("identity", draw, (self.n_agents, self.features))


class GRU(nn.Module):
    """A gated recurrent unit over time, reset where an episode starts.

    r, z = sigmoid(W x + b + U h + c),  n = tanh(W_n x + b_n + r * (U_n h + c_n)),  h' = (1 - z) n + z h
    """

    features: int

    @nn.compact
    def __call__(
        self, memory: Float[Array, "*B h"], x: Float[Array, "T *B in"], starts: Bool[Array, "T *B"]
    ) -> tuple[Float[Array, "*B h"], Float[Array, "T *B h"]]:
        """The memory after the last step, and the output of each step."""
        size, draw = self.features, uniform_within(1 / sqrt(self.features))
        weight, bias = self.param("weight", draw, (x.shape[-1], 3 * size)), self.param("bias", draw, (3 * size,))
        recurrent, offset = self.param("recurrent", draw, (size, 3 * size)), self.param("offset", draw, (3 * size,))

        def step(memory: Array, inputs: tuple[Array, Array]) -> tuple[Array, Array]:
            from_input, start = inputs
            memory = jnp.where(start[..., None], 0.0, memory)
            from_memory = memory @ recurrent + offset
            gates = jax.nn.sigmoid(from_input[..., : 2 * size] + from_memory[..., : 2 * size])
            reset, keep = gates[..., :size], gates[..., size:]
            candidate = jnp.tanh(from_input[..., 2 * size :] + reset * from_memory[..., 2 * size :])
            memory = (1 - keep) * candidate + keep * memory
            return memory, memory

        # The inputs' share of the gates does not depend on the past: one product for all steps.
        return jax.lax.scan(step, memory, (rows_times(x, weight) + bias, starts))
