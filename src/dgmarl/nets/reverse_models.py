"""Networks of the paper's reverse world models, which predict an action from its outcome."""

from collections.abc import Callable
from math import sqrt

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from dgmarl.nets.layers import Linear, rows_times, uniform_within

REVERSE = (256, 128, 128)
"""Hidden widths of the reverse models."""


class NormalisedLinear(nn.Module):
    """y = LayerNorm(relu(x)) W + b without materialising the normalised rows.

    With r = relu(x), its row mean m and standard deviation s, and the norm's scale g and shift h,

        y = (r W' - m * (column sums of W')) / s + (h W + b),      W' = diag(g) W

    The normalisation is thus applied to the product, which has fewer columns than x. With
    `n_heads`, x is [..., n_heads, K, in], and every head has its own W and b."""

    features: int
    n_heads: int | None = None

    @nn.compact
    def __call__(self, x: Float[Array, "*B in"]) -> Float[Array, "*B out"]:
        """Apply ReLU, norm and layer."""
        size, heads = x.shape[-1], () if self.n_heads is None else (self.n_heads,)
        draw = uniform_within(1 / sqrt(size))
        scale, shift = (
            self.param("scale", nn.initializers.ones, (size,)),
            self.param("shift", nn.initializers.zeros, (size,)),
        )
        weight, bias = (
            self.param("weight", draw, (*heads, size, self.features)),
            self.param("bias", draw, (*heads, self.features)),
        )
        product: Callable[[Array, Array], Array] = rows_times if not heads else _product_of_heads
        rectified = nn.relu(x)
        mean = rectified.mean(axis=-1, keepdims=True)
        # Rounding can make the difference negative for constant rows.
        variance = jnp.maximum((rectified**2).mean(axis=-1, keepdims=True) - mean**2, 0)
        scaled = scale[:, None] * weight
        sums, offset = scaled.sum(axis=-2), shift @ weight + bias
        if heads:
            sums, offset = sums[:, None], offset[:, None]
        return (product(rectified, scaled) - mean * sums) * jax.lax.rsqrt(variance + 1e-5) + offset


def _product_of_heads(
    x: Float[Array, "*B H K in"], weight: Float[Array, "H in out"]
) -> Float[Array, "*B H K out"]:
    """Each head's rows times its own weights.

    XLA computes it with heads first. The barrier keeps it from fusing the transposition with the
    softmax that follows: for a single K and several seeds, assembling that kernel for a GPU took
    more than ten minutes."""
    return jax.lax.optimization_barrier(jnp.einsum("...hkd,hda->...hka", x, weight))


class Perceptron(nn.Module):
    """ReLU and LayerNorm after each hidden layer, none after the last."""

    widths: tuple[int, ...]
    n_outputs: int

    @nn.compact
    def __call__(self, x: Float[Array, "*B in"]) -> Float[Array, "*B out"]:
        """Outputs for each row."""
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
        of_target = rows_times(target, weight[: target.shape[-1]])
        of_source = rows_times(source, weight[target.shape[-1] :]) + self.param(
            "bias", draw, (self.widths[0],)
        )
        of_target = of_target[..., None, :, :] if chosen is None else of_target[..., chosen, :]
        x = of_source[..., :, None, :] + of_target
        for width in self.widths[1:]:
            x = NormalisedLinear(width)(x)
        return NormalisedLinear(self.n_outputs, source.shape[-2] if self.heads else None)(x)
