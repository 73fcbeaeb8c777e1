"""Reward standardisation with running mean and variance, merged batch by batch.

The shape of the statistics differs between the paper's methods: a scalar of the summed reward for
global credit, one value per agent for local credit, a scalar over all agents' rewards for
dependence graphs. Statistics are updated before they are applied."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from dgmarl.graphs.reach import Arrays, require_per_step

_FIRST_COUNT = 1e-4
TINY = 1e-12
"""Lower bound of the mean square, so that rewards stay 0 if all have been 0."""


class RunningStatistics(NamedTuple):
    """Running mean and population variance, scalars or one per agent, and the number of values."""

    mean: Float[Array, "*shape"]
    variance: Float[Array, "*shape"]
    seen: Float[Array, ""]


def initial_statistics(
    shape: tuple[int, ...] = (), dtype: jnp.dtype | type = jnp.float32
) -> RunningStatistics:
    """Mean 0, variance 1, negligible weight. shape: () for a scalar, (N,) for one per agent."""
    return RunningStatistics(
        jnp.zeros(shape, dtype), jnp.ones(shape, dtype), jnp.asarray(_FIRST_COUNT, dtype)
    )


def update_statistics(
    statistics: RunningStatistics,
    batch: Float[Arrays, "*B N"],
    valid: Bool[Arrays, "*B"] | None = None,
) -> RunningStatistics:
    """The statistics with a batch [..., N] merged in.

    valid: the steps to include; by default all, padding included, as in the paper's runs. Without
      any valid step the statistics are unchanged."""
    return merge(statistics, statistics_of(batch, valid, statistics.mean.shape))


def statistics_of(
    batch: Float[Arrays, "*B N"],
    valid: Bool[Arrays, "*B"] | None = None,
    shape: tuple[int, ...] = (),
) -> RunningStatistics:
    """Statistics of the valid steps of a batch [..., N]. shape: () for a scalar, (N,) per agent."""
    if shape not in ((), batch.shape[-1:]):
        raise ValueError(
            f"statistics must be a scalar or have one entry for each of the {batch.shape[-1]} "
            f"agents of the batch, got shape {shape}"
        )
    steps = True if valid is None else require_per_step("valid", valid, batch.shape[:-1])[..., None]
    counted = jnp.broadcast_to(steps, batch.shape)
    axes = tuple(range(batch.ndim - len(shape)))
    # With one statistic per agent all columns have the same count.
    count = jnp.max(jnp.sum(counted, axis=axes))
    mean = jnp.mean(batch, axis=axes, where=counted)
    variance = jnp.var(batch, axis=axes, where=counted)
    return RunningStatistics(mean, variance, count.astype(mean.dtype))


def merge(statistics: RunningStatistics, batch: RunningStatistics) -> RunningStatistics:
    """Combine statistics by the parallel algorithm of Chan et al.; unchanged by an empty batch.

    delta    = batch mean - mean,  n = count + batch count
    mean    += delta * batch count / n
    variance = (variance * count + batch variance * batch count
                + delta^2 * count * batch count / n) / n"""
    mean, variance, count = statistics
    total = count + batch.seen
    delta = batch.mean - mean
    squares = variance * count + batch.variance * batch.seen + delta**2 * count * batch.seen / total
    merged = RunningStatistics(mean + delta * batch.seen / total, squares / total, total)
    return RunningStatistics(
        *(jnp.where(batch.seen > 0, new, old) for new, old in zip(merged, statistics, strict=True))
    )


def standardise(
    statistics: RunningStatistics, values: Float[Arrays, "*B N"]
) -> Float[Array, "*B N"]:
    """(values - mean) / sqrt(variance), without clipping.

    >>> seen = update_statistics(initial_statistics(), jnp.array([[1.0, 3.0]]))
    >>> standardise(seen, jnp.array([[1.0, 3.0]])).round(2)
    Array([[-1.,  1.]], dtype=float32)
    """
    return (jnp.asarray(values) - statistics.mean) / jnp.sqrt(statistics.variance)


def scale(statistics: RunningStatistics, values: Float[Arrays, "*B N"]) -> Float[Array, "*B N"]:
    """values / sqrt(mean of squares): scaled, not shifted; zero stays zero.

    >>> seen = update_statistics(initial_statistics(), jnp.array([[1.0, 7.0]]))
    >>> scale(seen, jnp.array([[0.0, 10.0]])).round(2)
    Array([[0., 2.]], dtype=float32)
    """
    mean_square = statistics.variance + statistics.mean**2
    return jnp.asarray(values) / jnp.sqrt(jnp.maximum(mean_square, TINY))
