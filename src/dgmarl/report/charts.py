"""Data of the learning curves that `charts.js` draws in `charts_part.html`, with intervals.

A chart shows one environment with all methods; metric and axis are selected on the page."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from dgmarl.report.results import Result
from dgmarl.report.statistics import aggregate_band, mean
from dgmarl.report.style import AXES, METRICS, order, styles

N_POINTS = 50
DIGITS = 5


def charts_data(charts: Mapping[str, Sequence[Result]]) -> dict[str, Any]:
    """Data of charts, given the results of each chart by title."""
    looks = styles(result.method for results in charts.values() for result in results)
    drawn = []
    for title, results in charts.items():
        ordered = sorted(results, key=lambda result: order(result.method))
        series = [{**looks[one.method]._asdict(), **_series(one)} for one in ordered]
        drawn.append({"title": title, "series": series})
    return {"axes": AXES, "metrics": METRICS, "charts": drawn}


def _series(result: Result) -> dict[str, Any]:
    measured = {**{name: result.metric(name) for name in METRICS}, "return": result.returns}
    curves = {
        name: over_axes(result, values) for name, values in measured.items() if values is not None
    }
    return {"method": result.method, "seeds": len(result.final), "curves": curves}


Line = list[float | None]
"""Numbers of a curve; None where it has no value."""


def over_axes(
    result: Result,
    values: Float[np.ndarray, "S K"],
    defined: Bool[np.ndarray, "S K"] | None = None,
) -> dict[str, list[Line | None]]:
    """The curve of a metric over each axis that the result has. defined: see `curve`."""
    axes = {**{name: result.metric(name) for name in AXES}, "steps": result.steps}
    return {name: curve(x, values, defined) for name, x in axes.items() if x is not None}


def curve(
    x: Float[np.ndarray, "S K"],
    values: Float[np.ndarray, "S K"],
    defined: Bool[np.ndarray, "S K"] | None = None,
) -> list[Line | None]:
    """Points on the axis, mean over seeds, and ends of its interval; None with a single seed.

    defined: whether a value means something; the curve has none where one of its seeds has none."""
    end = x[:, -1].min()
    points = np.unique(np.linspace(x[:, 0].min(), end, N_POINTS))
    if defined is not None and not defined.all():  # an evaluation between two gaps is shown, too
        points = np.union1d(points, x[0][(x[0] >= points[0]) & (x[0] <= end)])
    x = np.minimum(x, end)  # seeds with a few more steps keep their last evaluation
    band = aggregate_band(
        [np.array([np.interp(points, *seed) for seed in zip(x, values, strict=True)])], mean
    )
    ends = (band.low, band.high) if len(values) > 1 else (None, None)
    lines = [None if line is None else _rounded(line) for line in (points, band.estimate, *ends)]
    if defined is None or defined.all():
        return lines
    both = zip(x, defined.astype(float), strict=True)
    shares = np.array([np.interp(points, *seed) for seed in both])
    shown = (shares.min(axis=0) > 1 - 1e-9).tolist()
    masked = [
        line and [value if here else None for value, here in zip(line, shown, strict=True)]
        for line in lines[1:]
    ]
    return [lines[0], *masked]


def _rounded(line: Float[np.ndarray, "P"]) -> Line:
    return [float(f"{value:.{DIGITS}g}") for value in line]
