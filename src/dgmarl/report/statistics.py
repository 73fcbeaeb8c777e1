"""Point estimates with 95 % intervals over runs: percentile-bootstrap intervals as in rliable, and
Welch's for differences of means.

A method's scores are a list of strata, one per scenario: `[runs]`, or `[runs, K]` at K points of a
curve; the number of runs may differ between scenarios. Runs, not episodes, are resampled within
their scenario: episodes of one run are not independent samples of the method. All points of a curve
use the same resampled runs. The bootstrap is seeded, so the same results give the same numbers."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import stdtrit

N_RESAMPLES = 10_000
N_RESAMPLES_BAND = 2_000
"""For bands, which have many points and need less precision."""

Strata = Sequence[Float[np.ndarray, "*B runs"]]
Estimator = Callable[[Strata], Float[np.ndarray, "*B"]]


class Interval(NamedTuple):
    """An estimate and the ends of its 95 % interval, NaN with a single run."""

    estimate: float
    low: float
    high: float


class Band(NamedTuple):
    """An interval at each of K points."""

    estimate: Float[np.ndarray, "K"]
    low: Float[np.ndarray, "K"]
    high: Float[np.ndarray, "K"]


def mean(strata: Strata) -> Float[np.ndarray, "*B"]:
    """Mean over scenarios of the mean over runs."""
    return _scenario_means(strata).mean(axis=0)


def median(strata: Strata) -> Float[np.ndarray, "*B"]:
    """Median over scenarios of the mean over runs."""
    return np.median(_scenario_means(strata), axis=0)


def iqm(strata: Strata) -> Float[np.ndarray, "*B"]:
    """Interquartile mean of all runs, with floor(n / 4) runs dropped at either end."""
    pooled = np.concatenate([np.asarray(stratum, float) for stratum in strata], axis=-1)
    count = pooled.shape[-1]
    return np.sort(pooled, axis=-1)[..., count // 4 : count - count // 4].mean(axis=-1)


def optimality_gap(strata: Strata, target: float = 1.0) -> Float[np.ndarray, "*B"]:
    """Mean shortfall of runs below `target`; scores above `target` count as `target`."""
    return target - mean([np.minimum(stratum, target) for stratum in strata])


ESTIMATORS: dict[str, Estimator] = {"median": median, "IQM": iqm, "mean": mean}
"""Aggregates that need no target, by their usual names."""


def aggregate_interval(
    strata: Strata, estimator: Estimator = iqm, n_resamples: int = N_RESAMPLES
) -> Interval:
    """Estimate over all runs of all scenarios, whose scores must share a scale."""
    strata = _checked(strata, ndim=1)
    band = aggregate_band([stratum[:, None] for stratum in strata], estimator, n_resamples)
    return Interval(*(float(values[0]) for values in band))


def aggregate_band(
    strata: Sequence[Float[np.ndarray, "runs K"]],
    estimator: Estimator = iqm,
    n_resamples: int = N_RESAMPLES_BAND,
) -> Band:
    """`aggregate_interval` at every point of a curve; with the IQM, the sample-efficiency curve."""
    strata = _checked(strata, ndim=2)
    generator = np.random.default_rng(0)
    drawn = [_draws(len(stratum), n_resamples, generator) for stratum in strata]
    points = range(strata[0].shape[1])
    # Point by point, because resamples of all points at once would need too much memory.
    estimate = np.array([estimator([stratum[:, k] for stratum in strata]) for k in points])
    resampled = (
        estimator([stratum[:, k][draw] for stratum, draw in zip(strata, drawn, strict=True)])
        for k in points
    )
    ends = np.array([_ends(values, strata) for values in resampled])
    return Band(estimate, ends[:, 0], ends[:, 1])


def performance_profile(strata: Strata, thresholds: Float[np.ndarray, "K"]) -> Band:
    """Share of runs that score above each threshold, with equal weight per scenario."""
    above = [stratum[:, None] > thresholds for stratum in _checked(strata, ndim=1)]
    return aggregate_band(above, mean)


def probability_of_improvement(first: Strata, second: Strata) -> Interval:
    """Probability that a run of the first method beats one of the second in the same scenario; ties
    count half. Both lists have the same scenarios in the same order; both methods are resampled."""
    first, second = _checked(first, ndim=1), _checked(second, ndim=1)
    generator = np.random.default_rng(0)
    chances, resampled = [], []
    for ours, theirs in zip(first, second, strict=True):
        wins = (np.sign(ours[:, None] - theirs[None, :]) + 1) / 2
        # With counts of drawn runs, a resample of pairs is two matrix products.
        of_ours, of_theirs = (_counts(len(runs), generator) for runs in (ours, theirs))
        chances.append(wins.mean())
        resampled.append(((of_ours @ wins) * of_theirs).sum(axis=1) / wins.size)
    return Interval(float(np.mean(chances)), *_ends(np.mean(resampled, axis=0), [*first, *second]))


def mean_interval(values: Float[np.ndarray, "runs"]) -> Interval:
    """Mean over the runs of one scenario."""
    return aggregate_interval([values], mean)


def contrast_interval(
    groups: Sequence[Float[np.ndarray, "runs"]], weights: Sequence[float]
) -> Interval:
    """sum_k weights[k] * mean(groups[k]) with Welch's t interval: independent groups of different
    variances, degrees of freedom by Welch and Satterthwaite.

    Weights (1, -1) compare two methods; (1, -1, -1, 1) give the change of a difference between two
    scenarios. With five or ten normal runs per group it covers 95 %; a percentile-bootstrap
    interval is too narrow (tests/report/test_statistics.py)."""
    groups = _checked(groups, ndim=1)
    estimate = float(np.dot(weights, [group.mean() for group in groups]))
    if any(len(group) < 2 for group in groups):
        return Interval(estimate, np.nan, np.nan)
    sizes = np.array([len(group) for group in groups])
    squares = np.square(weights) * [group.var(ddof=1) for group in groups] / sizes
    variance = squares.sum()
    if variance == 0:
        return Interval(estimate, estimate, estimate)
    degrees = variance**2 / (squares**2 / (sizes - 1)).sum()
    half_width = float(stdtrit(degrees, 0.975) * np.sqrt(variance))
    return Interval(estimate, estimate - half_width, estimate + half_width)


def _scenario_means(strata: Strata) -> Float[np.ndarray, "scenarios *B"]:
    return np.stack([np.asarray(stratum).mean(axis=-1) for stratum in strata])


def _checked(strata: Sequence[np.ndarray], ndim: int) -> list[np.ndarray]:
    arrays = [np.asarray(stratum, float) for stratum in strata]
    if not arrays or any(array.ndim != ndim or not array.size for array in arrays):
        shape = "[runs]" if ndim == 1 else "[runs, K]"
        raise ValueError(
            f"Scores have the shapes {[array.shape for array in arrays]}: give {shape} with at "
            "least one run each."
        )
    if len({array.shape[1:] for array in arrays}) > 1:
        raise ValueError(
            f"Scores have the shapes {[array.shape for array in arrays]}: give all scenarios at "
            "the same points."
        )
    return arrays


def _draws(n_runs: int, n_resamples: int, generator: np.random.Generator) -> np.ndarray:
    """Indices `[n_resamples, n_runs]` of runs drawn with replacement."""
    return generator.integers(0, n_runs, (n_resamples, n_runs))


def _counts(n_runs: int, generator: np.random.Generator) -> Float[np.ndarray, "resamples runs"]:
    """Count of each run in each resample."""
    drawn = _draws(n_runs, N_RESAMPLES, generator)
    return (drawn[..., None] == np.arange(n_runs)).sum(axis=1).astype(float)


def _ends(
    resampled: Float[np.ndarray, "resamples"], strata: list[np.ndarray]
) -> tuple[float, float]:
    if any(len(stratum) < 2 for stratum in strata):
        return np.nan, np.nan
    low, high = np.percentile(resampled, [2.5, 97.5])
    return float(low), float(high)
