"""Point estimates with 95 % bootstrap intervals over runs."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float


class Interval(NamedTuple):
    """An estimate and the ends of its 95 % interval."""

    estimate: float
    low: float
    high: float


def mean_interval(values: Float[np.ndarray, "runs"], n_resamples: int = 10_000, seed: int = 0) -> Interval:
    """Mean over runs, with the percentile bootstrap over runs (not over episodes: those of one run are no new evidence)."""
    values = np.asarray(values, float)
    if len(values) < 2:
        return Interval(float(values.mean()), np.nan, np.nan)
    chosen = np.random.default_rng(seed).integers(0, len(values), (n_resamples, len(values)))
    low, high = np.percentile(values[chosen].mean(axis=1), [2.5, 97.5])
    return Interval(float(values.mean()), float(low), float(high))
