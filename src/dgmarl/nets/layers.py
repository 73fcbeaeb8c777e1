"""Layers initialised as in the paper's code: uniform within 1 / sqrt(fan-in)."""

from functools import partial
from math import sqrt
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from dgmarl.device import envs_divided, has_kernels, launch_bound, unroll


def uniform_within(bound: float):
    """An initialiser that draws uniformly from [-bound, bound]."""

    def draw(key: Array, shape: tuple[int, ...]) -> Float[Array, "..."]:
        return jax.random.uniform(key, shape, minval=-bound, maxval=bound)

    return draw


def rows_times(x: Float[Array, "*B in"], weight: Float[Array, "in out"]) -> Float[Array, "*B out"]:
    """x @ weight with the leading axes flattened, which makes XLA's gradients a third faster. Not
    flattened if environments are divided among devices, which needs a separate axis."""
    if envs_divided():
        return x @ weight
    times = jnp.matmul if launch_bound() else product
    return times(x.reshape(-1, x.shape[-1]), weight).reshape(*x.shape[:-1], weight.shape[-1])


@jax.custom_vjp
def product(x: Float[Array, "R in"], weight: Float[Array, "in out"]) -> Float[Array, "R out"]:
    """x @ weight, with `weight_gradient`."""
    return x @ weight


product.defvjp(
    lambda x, weight: (x @ weight, (x, weight)),
    lambda factors, given: (given @ factors[1].T, weight_gradient(factors[0], given)),
)


def weight_gradient(
    x: Float[Array, "R in"], from_output: Float[Array, "R out"]
) -> Float[Array, "in out"]:
    """x^T from_output.

    On a CPU, XLA's fast matrix products do not support a transposed left factor. With few outputs
    it is faster to transpose these first: a third of the time for 6 outputs and 128 inputs. The
    barriers keep the compiler from moving the transpositions into the product."""
    if launch_bound() or 2 * from_output.shape[-1] > x.shape[-1]:
        return x.T @ from_output
    barrier = jax.lax.optimization_barrier
    return barrier(barrier(from_output.T) @ x).T


class Linear(nn.Module):
    """y = x W + b. With `n_agents`, y_i = [x_i, one-hot i] W + b, computed by adding row i of the
    identity weights instead of concatenating.

    With `n_agents`, x is [..., N, in], or [..., 1, in] for an input shared by all agents; y is
    [..., N, features]."""

    features: int
    n_agents: int | None = None

    @nn.compact
    def __call__(self, x: Float[Array, "*B in"]) -> Float[Array, "*B out"]:
        draw = uniform_within(1 / sqrt(x.shape[-1] + (self.n_agents or 0)))
        weight = self.param("weight", draw, (x.shape[-1], self.features))
        y = rows_times(x, weight) + self.param("bias", draw, (self.features,))
        if self.n_agents is None:
            return y
        return y + self.param("identity", draw, (self.n_agents, self.features))


class GRU(nn.Module):
    """A gated recurrent unit over time; the hidden state is reset where `is_first`.

    r, z = sigmoid(W x + b + U h + c)
    n    = tanh(W_n x + b_n + r * (U_n h + c_n))
    h'   = (1 - z) n + z h"""

    features: int

    @nn.compact
    def __call__(
        self,
        hidden_state: Float[Array, "*B h"],
        x: Float[Array, "T *B in"],
        is_first: Bool[Array, "T *B"],
    ) -> tuple[Float[Array, "*B h"], Float[Array, "T *B h"]]:
        size, draw = self.features, uniform_within(1 / sqrt(self.features))
        weight = self.param("weight", draw, (x.shape[-1], 3 * size))
        bias = self.param("bias", draw, (3 * size,))
        recurrent = self.param("recurrent", draw, (size, 3 * size))
        offset = self.param("offset", draw, (3 * size,))
        # The input part of the gates is independent of the hidden state: one product for all steps.
        inputs = _split(rows_times(x, weight) + bias)
        loop = _in_kernels if _has_kernels(hidden_state, len(x)) else recurrence
        outputs = loop(recurrent, offset, hidden_state, inputs, is_first)
        return outputs[-1], outputs


def _has_kernels(hidden_state: Float[Array, "*B h"], n_steps: int) -> bool:
    """Whether this loop over time can run as one GPU kernel."""
    if n_steps == 1 or not has_kernels():
        return False
    from dgmarl.nets.recurrent_kernels import suits

    return suits(hidden_state)


def _in_kernels(
    recurrent: Array, offset: Array, hidden_state: Array, inputs: "Gates", is_first: Array
) -> Float[Array, "T *B h"]:
    """`recurrence` as a GPU kernel, with the leading axes flattened to rows."""
    from dgmarl.nets.recurrent_kernels import recurrence

    shape = inputs.reset.shape
    rows = jax.tree.map(lambda gate: gate.reshape(shape[0], -1, shape[-1]), inputs)
    start = hidden_state.reshape(-1, shape[-1])
    kept = jnp.broadcast_to(~is_first, shape[:-1]).reshape(shape[0], -1, 1).astype(jnp.float32)
    return recurrence(recurrent, offset, start, tuple(rows), kept).reshape(shape)


class Gates(NamedTuple):
    """Values for the reset gate r, the update gate z and the candidate n.

    Separate arrays, because slicing one array inside the loop is three times slower on a CPU: XLA
    does not vectorise it."""

    reset: Float[Array, "*B h"]
    update: Float[Array, "*B h"]
    candidate: Float[Array, "*B h"]


@jax.custom_vjp
def recurrence(
    recurrent: Float[Array, "h 3*h"],
    offset: Float[Array, "3*h"],
    hidden_state: Float[Array, "*B h"],
    inputs: Gates,
    is_first: Bool[Array, "T *B"],
) -> Float[Array, "T *B h"]:
    """The hidden state after each step of a GRU. inputs: W x + b for each gate, [T, ...] each.

    The gradient is custom: gates are recomputed for all steps in parallel, the backward loop
    carries only the gradient of the hidden state, and weight gradients are one product each."""

    def step(hidden_state: Array, now: tuple[Gates, Array]) -> tuple[Array, Array]:
        hidden_state = jnp.where(now[1][..., None], 0.0, hidden_state)
        gates, _ = _gates(recurrent, offset, hidden_state, now[0])
        hidden_state = (1 - gates.update) * gates.candidate + gates.update * hidden_state
        return hidden_state, hidden_state

    return jax.lax.scan(step, hidden_state, (inputs, is_first), unroll=unroll())[1]


def _forwards(
    recurrent: Array, offset: Array, hidden_state: Array, inputs: Gates, is_first: Array
) -> tuple[Array, Any]:
    outputs = recurrence(recurrent, offset, hidden_state, inputs, is_first)
    return outputs, (recurrent, offset, hidden_state, inputs, is_first, outputs)


def _backwards(
    residuals: Any, from_outputs: Float[Array, "T *B h"]
) -> tuple[Array, Array, Array, Gates, None]:
    """With d the gradient of h', that of h is d z + [d f_r, d f_z, d f_n r] U^T, where f are the
    derivatives of h' with respect to the gates."""
    recurrent, offset, hidden_state, inputs, is_first, outputs = residuals
    before = jnp.where(
        is_first[..., None], 0.0, jnp.concatenate([hidden_state[None], outputs[:-1]])
    )
    (reset, update, candidate), recurrent_part = _gates(recurrent, offset, before, inputs)
    by_candidate = (1 - update) * (1 - candidate**2)
    by_update = (before - candidate) * update * (1 - update)
    by_reset = by_candidate * recurrent_part * reset * (1 - reset)
    by_hidden = jnp.concatenate([by_reset, by_update, by_candidate * reset], axis=-1)

    def step(later: Array, now: tuple[Array, ...]) -> tuple[Array, Array]:
        from_output, update, by_hidden, is_first = now
        gradient = later + from_output
        earlier = gradient * update + (_thrice(gradient) * by_hidden) @ recurrent.T
        return jnp.where(is_first[..., None], 0.0, earlier), gradient

    last = jnp.zeros_like(hidden_state)
    first, gradient = jax.lax.scan(
        step, last, (from_outputs, update, by_hidden, is_first), reverse=True, unroll=unroll()
    )
    products = _thrice(gradient) * by_hidden
    _, of_recurrent = jax.vjp(partial(rows_times, before), recurrent)
    of_offset = products.sum(axis=tuple(range(products.ndim - 1)))
    of_inputs = Gates(gradient * by_reset, gradient * by_update, gradient * by_candidate)
    return *of_recurrent(products), of_offset, first, of_inputs, None


recurrence.defvjp(_forwards, _backwards)


def _gates(
    recurrent: Array, offset: Array, hidden_state: Array, inputs: Gates
) -> tuple[Gates, Array]:
    """r, z and n, and U_n h + c_n."""
    recurrent_part = _split(rows_times(hidden_state, recurrent) + offset)
    reset = jax.nn.sigmoid(inputs.reset + recurrent_part.reset)
    update = jax.nn.sigmoid(inputs.update + recurrent_part.update)
    candidate = jnp.tanh(inputs.candidate + reset * recurrent_part.candidate)
    return Gates(reset, update, candidate), recurrent_part.candidate


def _split(x: Float[Array, "*B 3*h"]) -> Gates:
    return Gates(*jnp.split(x, 3, axis=-1))


def _thrice(x: Float[Array, "*B h"]) -> Float[Array, "*B 3*h"]:
    return jnp.concatenate([x, x, x], axis=-1)
