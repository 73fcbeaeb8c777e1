"""Point estimates with 95 % percentile-bootstrap intervals over runs.

Runs are resampled, never episodes: the episodes of one run are no new evidence about the method. All intervals are seeded, so
the same results give the same numbers.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

N_RESAMPLES = 10_000


class Interval(NamedTuple):
    """An estimate and the ends of its 95 % interval; the ends are NaN where a single run leaves nothing to resample."""

    estimate: float
    low: float
    high: float


def mean_interval(values: Float[np.ndarray, "runs"], n_resamples: int = N_RESAMPLES, seed: int = 0) -> Interval:
    """Mean over runs."""
    return contrast_interval([values], [1.0], n_resamples, seed)


def contrast_interval(
    groups: Sequence[Float[np.ndarray, "runs"]], weights: Sequence[float], n_resamples: int = N_RESAMPLES, seed: int = 0
) -> Interval:
    """sum_k weights[k] * mean(groups[k]), the runs of every group resampled independently.

    Weights (1, -1) compare two methods; (1, -1, -1, 1) say how much a difference changed between two scenarios.
    """
    groups = _checked(groups)
    if len(groups) != len(weights):
        raise ValueError(f"{len(groups)} groups have {len(weights)} weights: give one weight per group.")
    generator = np.random.default_rng(seed)
    resampled = [_resample(group, n_resamples, generator).mean(axis=1) for group in groups]
    estimate = np.dot(weights, [group.mean() for group in groups])
    return _interval(float(estimate), np.tensordot(weights, resampled, axes=1), groups)


def iqm(values: Float[np.ndarray, "..."]) -> float:
    """Interquartile mean: the mean of the middle half of all values, floor(n / 4) being dropped at either end."""
    return float(_middle_mean(np.asarray(values, float).reshape(1, -1))[0])


def stratified_interval(strata: Sequence[Float[np.ndarray, "runs"]], n_resamples: int = N_RESAMPLES, seed: int = 0) -> Interval:
    """Interquartile mean over all runs of all strata (scenarios), the runs being resampled within each stratum.

    The number of runs may differ between strata. Scores must share a scale.
    """
    strata = _checked(strata)
    generator = np.random.default_rng(seed)
    resampled = np.concatenate([_resample(stratum, n_resamples, generator) for stratum in strata], axis=1)
    return _interval(iqm(np.concatenate(strata)), _middle_mean(resampled), strata)


def mean_band(
    values: Float[np.ndarray, "runs K"], n_resamples: int = 2_000, seed: int = 0
) -> tuple[Float[np.ndarray, "K"], Float[np.ndarray, "K"]]:
    """Ends of the interval of the mean over runs at each of K points of a curve; whole runs are resampled."""
    means = _resample(np.asarray(values, float), n_resamples, np.random.default_rng(seed)).mean(axis=1)
    low, high = np.percentile(means, [2.5, 97.5], axis=0)
    return low, high


def _checked(groups: Sequence[np.ndarray]) -> list[np.ndarray]:
    arrays = [np.asarray(group, float) for group in groups]
    if not arrays or any(array.ndim != 1 or not array.size for array in arrays):
        raise ValueError(f"Runs have the shapes {[array.shape for array in arrays]}: give vectors with at least one run each.")
    return arrays


def _resample(values: np.ndarray, n_resamples: int, generator: np.random.Generator) -> np.ndarray:
    """`[n_resamples, runs, ...]`: as many runs as there are, drawn with replacement."""
    return values[generator.integers(0, len(values), (n_resamples, len(values)))]


def _middle_mean(values: np.ndarray) -> np.ndarray:
    """Row by row, the mean without the lowest and the highest quarter."""
    count = values.shape[1]
    return np.sort(values, axis=1)[:, count // 4 : count - count // 4].mean(axis=1)


def _interval(estimate: float, resampled: np.ndarray, groups: list[np.ndarray]) -> Interval:
    if any(len(group) < 2 for group in groups):
        return Interval(estimate, np.nan, np.nan)
    low, high = np.percentile(resampled, [2.5, 97.5])
    return Interval(estimate, float(low), float(high))
