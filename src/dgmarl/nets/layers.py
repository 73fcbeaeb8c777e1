"""Layers with the initialisation of the paper's code: every weight and bias uniform within 1 /
sqrt(fan-in)."""

from math import sqrt
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from dgmarl.device import unroll


def uniform_within(bound: float):
    """An initialiser that draws uniformly from [-bound, bound]."""

    def draw(key: Array, shape: tuple[int, ...]) -> Float[Array, "..."]:
        return jax.random.uniform(key, shape, minval=-bound, maxval=bound)

    return draw


def rows_times(x: Float[Array, "*B in"], weight: Float[Array, "in out"]) -> Float[Array, "*B out"]:
    """x @ weight as one product of two matrices: with all leading axes in one, XLA's gradients take
    a third less time."""
    return (x.reshape(-1, x.shape[-1]) @ weight).reshape(*x.shape[:-1], weight.shape[-1])


class Linear(nn.Module):
    """y = x W + b. With `n_agents`, y_i = [x_i, one-hot i] W + b: who one is costs an addition, not
    wider inputs.

    With `n_agents`, x is [..., N, in], or [..., 1, in] for an input that all agents share; y is
    [..., N, features]."""

    features: int
    n_agents: int | None = None

    @nn.compact
    def __call__(self, x: Float[Array, "*B in"]) -> Float[Array, "*B out"]:
        """Apply the layer."""
        draw = uniform_within(1 / sqrt(x.shape[-1] + (self.n_agents or 0)))
        y = rows_times(x, self.param("weight", draw, (x.shape[-1], self.features))) + self.param(
            "bias", draw, (self.features,)
        )
        return (
            y
            if self.n_agents is None
            else y + self.param("identity", draw, (self.n_agents, self.features))
        )


class GRU(nn.Module):
    """A gated recurrent unit over time, reset where an episode starts.

    r, z = sigmoid(W x + b + U h + c),  n = tanh(W_n x + b_n + r * (U_n h + c_n)),  h' = (1 - z) n +
    z h"""

    features: int

    @nn.compact
    def __call__(
        self,
        hidden_state: Float[Array, "*B h"],
        x: Float[Array, "T *B in"],
        is_first: Bool[Array, "T *B"],
    ) -> tuple[Float[Array, "*B h"], Float[Array, "T *B h"]]:
        """The memory after the last step, and the output of each step."""
        size, draw = self.features, uniform_within(1 / sqrt(self.features))
        weight, bias = (
            self.param("weight", draw, (x.shape[-1], 3 * size)),
            self.param("bias", draw, (3 * size,)),
        )
        recurrent, offset = (
            self.param("recurrent", draw, (size, 3 * size)),
            self.param("offset", draw, (3 * size,)),
        )
        # The inputs' share of the gates does not depend on the past: one product for all steps.
        outputs = recurrence(
            recurrent, offset, hidden_state, _three(rows_times(x, weight) + bias), is_first
        )
        return outputs[-1], outputs


Three = tuple[Float[Array, "*B h"], Float[Array, "*B h"], Float[Array, "*B h"]]
"""For the reset gate r, the keep gate z and the candidate n. Three arrays: slices of one, inside
the loop, cost XLA's vector instructions on a CPU and make it three times slower."""


@jax.custom_vjp
def recurrence(
    recurrent: Float[Array, "h 3*h"],
    offset: Float[Array, "3*h"],
    hidden_state: Float[Array, "*B h"],
    inputs: Three,
    is_first: Bool[Array, "T *B"],
) -> Float[Array, "T *B h"]:
    """The memory after each step of a GRU. inputs: what the inputs add to the gates, [T, ...] each.

    Its gradient is written out: gates are recomputed for all steps at once, the loop backwards
    carries the gradient of the memory and nothing else, and those of the weights are one product
    each."""

    def step(hidden_state: Array, now: tuple[Three, Array]) -> tuple[Array, Array]:
        hidden_state = jnp.where(now[1][..., None], 0.0, hidden_state)
        _, keep, candidate, _ = _gates(recurrent, offset, hidden_state, now[0])
        hidden_state = (1 - keep) * candidate + keep * hidden_state
        return hidden_state, hidden_state

    return jax.lax.scan(step, hidden_state, (inputs, is_first), unroll=unroll())[1]


def _forwards(
    recurrent: Array, offset: Array, hidden_state: Array, inputs: Three, is_first: Array
) -> tuple[Array, Any]:
    outputs = recurrence(recurrent, offset, hidden_state, inputs, is_first)
    return outputs, (recurrent, offset, hidden_state, inputs, is_first, outputs)


def _backwards(
    kept: Any, from_outputs: Float[Array, "T *B h"]
) -> tuple[Array, Array, Array, Three, None]:
    """With d the gradient of h': that of h is d z + [d f_r, d f_z, d f_n r] U^T; f are the
    derivatives of h' by the gates."""
    recurrent, offset, hidden_state, inputs, is_first, outputs = kept
    before = jnp.where(
        is_first[..., None], 0.0, jnp.concatenate([hidden_state[None], outputs[:-1]])
    )
    reset, keep, candidate, from_memory = _gates(recurrent, offset, before, inputs)
    by_candidate = (1 - keep) * (1 - candidate**2)
    by_keep = (before - candidate) * keep * (1 - keep)
    by_reset = by_candidate * from_memory * reset * (1 - reset)
    by_memory = jnp.concatenate([by_reset, by_keep, by_candidate * reset], axis=-1)

    def step(later: Array, now: tuple[Array, ...]) -> tuple[Array, Array]:
        from_output, keep, by_memory, start = now
        gradient = later + from_output
        earlier = gradient * keep + (_thrice(gradient) * by_memory) @ recurrent.T
        return jnp.where(start[..., None], 0.0, earlier), gradient

    last = jnp.zeros_like(hidden_state)
    first, gradient = jax.lax.scan(
        step, last, (from_outputs, keep, by_memory, is_first), reverse=True, unroll=unroll()
    )
    products = (_thrice(gradient) * by_memory).reshape(-1, recurrent.shape[1])
    of_recurrent = before.reshape(-1, before.shape[-1]).T @ products
    of_inputs = (gradient * by_reset, gradient * by_keep, gradient * by_candidate)
    return of_recurrent, products.sum(axis=0), first, of_inputs, None


recurrence.defvjp(_forwards, _backwards)


def _gates(
    recurrent: Array, offset: Array, hidden_state: Array, inputs: Three
) -> tuple[Array, Array, Array, Array]:
    """r, z, n, and U_n h + c_n."""
    for_reset, for_keep, for_candidate = _three(rows_times(hidden_state, recurrent) + offset)
    reset, keep = jax.nn.sigmoid(inputs[0] + for_reset), jax.nn.sigmoid(inputs[1] + for_keep)
    return reset, keep, jnp.tanh(inputs[2] + reset * for_candidate), for_candidate


def _three(x: Float[Array, "*B 3*h"]) -> Three:
    reset, keep, candidate = jnp.split(x, 3, axis=-1)
    return reset, keep, candidate


def _thrice(x: Float[Array, "*B h"]) -> Float[Array, "*B 3*h"]:
    return jnp.concatenate([x, x, x], axis=-1)
