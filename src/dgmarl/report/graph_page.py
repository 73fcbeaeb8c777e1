"""The graph page: a run's dependence graph compared with the oracle and interventional graphs, per
step and over training.

A learned graph is stored as entropy ratios; the page computes its edges for a selectable threshold.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from dgmarl.report.caveats import graph_warnings
from dgmarl.report.charts import over_axes
from dgmarl.report.html import render
from dgmarl.report.replay_page import replay_data
from dgmarl.report.results import Result
from dgmarl.report.style import AXES, GRAPHS, OTHER
from dgmarl.runs.replays import Compared

UNIT = 1000
"""Thresholds are multiples of 1 / UNIT, so that the page and Python agree on every edge."""
HIGHEST_THRESHOLD = 1200
"""Maximum of the page's threshold in thousandths, unless the run's threshold is higher."""
HIGHEST_RATIO = 10_000
"""Maximum of stored ratios in thousandths, far above any useful threshold."""
REFERENCES = ("oracle", "interventional")
DRAWN = {
    "f1": ("F1", "#0072B2", ""),
    "precision": ("precision", "#E69F00", "7 3"),
    "recall": ("recall", "#009E73", "2 2.5"),
}
DENSITY = ("density", "#8B6F00", "9 3 2 3")
MODELS = {
    "graph_ratio": ("entropy ratio", "#CC79A7", ""),
    "graph_pair_entropy": ("entropy knowing the pair, nats", "#D55E00", "7 3"),
    "graph_predictor_entropy": ("entropy knowing the agent alone, nats", "#56B4E9", "2 2.5"),
}


def graph_page(compared: Compared, result: Result | str) -> str:
    """Self-contained HTML page about the graphs of recorded episodes.

    result: the run's metrics over training (`read_run`), or the reason why there are none."""
    notes, charts = list(compared.notes), []
    if isinstance(result, str):
        notes.append(f"There are no curves over training: {result}")
    else:
        notes += graph_warnings(result)
        charts = over_training(result)
    replay = compared.replay
    data = {
        "replays": [replay_data(replay)],
        "graphs": graphs_data(compared),
        **{"axes": AXES, "metrics": {"value": "value"}, "charts": charts},
    }
    scripts = ("player", "graph", "charts") if charts else ("player", "graph")
    return render(
        "graph_page.html",
        scripts,
        data,
        title=f"{replay.env}: graphs",
        notes=notes,
        curves=bool(charts),
        both_references=set(REFERENCES) <= set(compared.graphs),
    )


def graphs_data(compared: Compared) -> dict[str, Any]:
    """Data for `graph.js`: the graphs of every step by name, as ratios in thousandths or edges."""
    threshold = None if compared.threshold is None else round(UNIT * compared.threshold)
    return {
        "names": list(compared.graphs),
        "colours": {name: GRAPHS.get(name, OTHER) for name in compared.graphs},
        "threshold": threshold,
        "highest": max(HIGHEST_THRESHOLD, threshold or 0),
        "episodes": [
            {
                name: [_encoded(matrix) for matrix in graphs[k]]
                for name, graphs in compared.graphs.items()
            }
            for k in range(len(compared.replay.episodes))
        ],
    }


def thousandths(ratios: Float[np.ndarray, "*B"]) -> Int[np.ndarray, "*B"]:
    """The largest k with ratio >= k / 1000, compared in single precision as in training."""
    thresholds = (np.arange(HIGHEST_RATIO + 1) / UNIT).astype(np.float32)
    return np.searchsorted(thresholds, ratios, side="right") - 1


def over_training(result: Result) -> list[dict[str, Any]]:
    """Charts for `charts.js`: agreement with each reference, density, entropies of the models."""
    groups: dict[str, dict[str, tuple[str, str, str]]] = {
        f"against the {name} graph": {
            f"graph_{measure}_{name}": drawn for measure, drawn in DRAWN.items()
        }
        for name in REFERENCES
        if result.metric(f"graph_f1_{name}") is not None
    } or {"the graph": {}}
    groups = {title: {**metrics, "graph_density": DENSITY} for title, metrics in groups.items()}
    groups["the models"] = MODELS
    charts = [
        {"title": title, "series": _series(result, metrics)} for title, metrics in groups.items()
    ]
    return [chart for chart in charts if chart["series"]]


def _series(result: Result, metrics: Mapping[str, tuple[str, str, str]]) -> list[dict[str, Any]]:
    return [
        {
            **{"name": name, "colour": colour, "dash": dash, "seeds": len(result.steps)},
            "curves": {"value": over_axes(result, values, _defined(result, metric, values))},
        }
        for metric, (name, colour, dash) in metrics.items()
        if (values := result.metric(metric)) is not None
    ]


def _defined(
    result: Result, metric: str, values: Float[np.ndarray, "S K"]
) -> Bool[np.ndarray, "S K"] | None:
    """Where precision or recall is not 0 / 0, which is stored as 1.

    It is if F1 is 0: with an edge to find and a hit, both are above 0. (If both graphs are empty,
    F1 is 1 as well, which cannot be told from perfect agreement.)"""
    _, measure, reference = [*metric.split("_", 2), "", ""][:3]
    f1 = result.metric(f"graph_f1_{reference}")
    if measure not in ("precision", "recall") or f1 is None:
        return None
    return (values < 1) | (f1 > 0)


def _encoded(matrix: np.ndarray) -> str | list[int]:
    """Matrix in row order: a string with a digit per edge, or a list of ratios."""
    flat = matrix.ravel()
    if flat.dtype == bool:
        return "".join("01"[edge] for edge in flat.astype(int))
    return thousandths(flat).tolist()
