"""Networks of the paper's reverse world models, which predict an action from its effect."""

from math import sqrt

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from dgmarl.nets.layers import Linear, rows_times, uniform_within, weight_gradient

REVERSE = (256, 128, 128)
"""Hidden widths of the reverse models."""


class NormalisedLinear(nn.Module):
    """y = LayerNorm(relu(x)) W + b; see `normalised_product`. With `n_heads`, x is [..., n_heads,
    K, in], and every head has its own W and b."""

    features: int
    n_heads: int | None = None

    @nn.compact
    def __call__(self, x: Float[Array, "*B in"]) -> Float[Array, "*B out"]:
        size, heads = x.shape[-1], () if self.n_heads is None else (self.n_heads,)
        draw = uniform_within(1 / sqrt(size))
        scale = self.param("scale", nn.initializers.ones, (size,))
        shift = self.param("shift", nn.initializers.zeros, (size,))
        weight = self.param("weight", draw, (*heads, size, self.features))
        bias = self.param("bias", draw, (*heads, self.features))

        def of_rows(x: Array, weight: Array, offset: Array) -> Array:
            rows = normalised_product(x.reshape(-1, size), weight, offset)
            return rows.reshape(*x.shape[:-1], self.features)

        if heads:
            of_rows = jax.vmap(of_rows, in_axes=(-3, 0, 0), out_axes=-3)
        y = of_rows(x, scale[:, None] * weight, shift @ weight + bias)
        # XLA would fuse the transposition of heads with the softmax that follows. With one pair per
        # agent and several seeds, compiling that GPU kernel takes more than ten minutes.
        return jax.lax.optimization_barrier(y) if heads else y


@jax.custom_vjp
def normalised_product(
    x: Float[Array, "R in"], weight: Float[Array, "in out"], offset: Float[Array, "out"]
) -> Float[Array, "R out"]:
    """normalise(relu(x)) W + offset, where normalise gives each row mean 0 and variance 1.

    With r = relu(x), its row mean m and standard deviation s, that is

        (r W - m * (column sums of W)) / s + offset

    so the normalisation is applied to the product, which has fewer columns than x. The gradient is
    custom: one product for x, one for W, and otherwise only sums over rows."""
    return _forwards(x, weight, offset)[0]


def _forwards(x: Array, weight: Array, offset: Array) -> tuple[Array, tuple[Array, ...]]:
    rectified = nn.relu(x)
    mean = rectified.mean(axis=-1, keepdims=True)
    # Rounding can make the difference negative for constant rows.
    variance = jnp.maximum((rectified**2).mean(axis=-1, keepdims=True) - mean**2, 0)
    inverse = jax.lax.rsqrt(variance + 1e-5)
    product = (rectified @ weight - mean * weight.sum(axis=0)) * inverse
    return product + offset, (rectified, mean, inverse, product, weight)


def _backwards(residuals: tuple[Array, ...], from_output: Array) -> tuple[Array, Array, Array]:
    """With g the output's gradient over s, and y the output without offset, the gradient of r is
    g W^T + a + b r, where b = -(g . y) / (s in) and a = -(g . column sums of W) / in - b m."""
    rectified, mean, inverse, product, weight = residuals
    gradient = from_output * inverse
    size = rectified.shape[-1]
    by_scale = -inverse * (gradient * product).sum(axis=-1, keepdims=True) / size
    by_mean = -(gradient @ weight.sum(axis=0))[:, None] / size - by_scale * mean
    of_rectified = gradient @ weight.T + by_mean + by_scale * rectified
    of_weight = weight_gradient(rectified, gradient) - mean[:, 0] @ gradient
    return jnp.where(rectified > 0, of_rectified, 0), of_weight, from_output.sum(axis=0)


normalised_product.defvjp(_forwards, _backwards)


class Perceptron(nn.Module):
    """ReLU and LayerNorm after each hidden layer, none after the last."""

    widths: tuple[int, ...]
    n_outputs: int

    @nn.compact
    def __call__(self, x: Float[Array, "*B in"]) -> Float[Array, "*B out"]:
        x = Linear(self.widths[0])(x)
        for width in (*self.widths[1:], self.n_outputs):
            x = NormalisedLinear(width)(x)
        return x


class PairModel(nn.Module):
    """q_psi: predicts the source's action from the target's transition and the source's state.

    The first layer is linear in [target, source], so it is computed once per agent and added for
    each pair: N products instead of N^2. With `heads`, every source has its own last layer."""

    n_outputs: int
    heads: bool = False
    widths: tuple[int, ...] = REVERSE

    @nn.compact
    def __call__(
        self,
        source: Float[Array, "R N d"],
        target: Float[Array, "R N k"],
        chosen: Int[Array, "N K"] | None = None,
    ) -> Float[Array, "R N K out"]:
        """Outputs [r, i, k] for the source i and the target chosen[i, k]; without `chosen`, for
        every target."""
        size = target.shape[-1] + source.shape[-1]
        draw = uniform_within(1 / sqrt(size))
        weight = self.param("weight", draw, (size, self.widths[0]))
        bias = self.param("bias", draw, (self.widths[0],))
        of_target = rows_times(target, weight[: target.shape[-1]])
        of_source = rows_times(source, weight[target.shape[-1] :]) + bias
        of_target = of_target[..., None, :, :] if chosen is None else of_target[..., chosen, :]
        x = of_source[..., :, None, :] + of_target
        for width in self.widths[1:]:
            x = NormalisedLinear(width)(x)
        return NormalisedLinear(self.n_outputs, source.shape[-2] if self.heads else None)(x)
