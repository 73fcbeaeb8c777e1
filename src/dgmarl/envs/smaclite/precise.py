"""Double-float arithmetic: numbers as unevaluated sums of two float32.

The original computes some walking directions in double precision. Its discs come to rest in exact
contact, where the last bit decides whether they interact, so these directions must be correct to
the last bit of a float32."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array


class Pair(NamedTuple):
    """high + low, with low below half a unit in the last place of high."""

    high: Array
    low: Array


def pair(value: float | np.ndarray) -> Pair:
    """A double-precision constant."""
    high = np.asarray(value, np.float32)
    return Pair(high, np.asarray(value - high.astype(np.float64), np.float32))  # pyright: ignore[reportArgumentType]


def add(one: Array, other: Array) -> Pair:
    """The exact sum of two float32 (Knuth)."""
    total = one + other
    part = total - one
    return Pair(total, (one - (total - part)) + (other - part))


def plus(one: Pair, other: Pair) -> Pair:
    """one + other."""
    total = add(one.high, other.high)
    return add(total.high, total.low + (one.low + other.low))


def multiply(one: Array, other: Array) -> Pair:
    """The exact product of two float32 (Dekker)."""
    product = one * other
    (a, b), (c, d) = _halves(one), _halves(other)
    return Pair(product, ((a * c - product) + a * d + b * c) + b * d)


def times(one: Pair, other: Pair) -> Pair:
    """one * other."""
    product = multiply(one.high, other.high)
    return add(product.high, product.low + (one.high * other.low + one.low * other.high))


def divide(one: Pair, other: Pair) -> Array:
    """one / other as float32."""
    ratio = one.high / other.high
    back = multiply(ratio, other.high)
    rest = ((one.high - back.high) - back.low) + (one.low - ratio * other.low)
    return ratio + rest / other.high


def root(value: Pair) -> Pair:
    """The square root."""
    first = jnp.sqrt(value.high)
    square = multiply(first, first)
    rest = ((value.high - square.high) - square.low) + value.low
    return add(first, rest / jnp.where(first > 0, 2 * first, 1.0))


def _halves(value: Array) -> tuple[Array, Array]:
    """Upper and lower twelve bits, whose products are exact."""
    scaled = value * 4097.0
    high = scaled - (scaled - value)
    return high, value - high
