"""The graph page: a run's dependence graph against the oracle's and the interventional one, step by
step and over training.

A learned graph comes as entropy ratios, from which the page makes edges at whatever threshold its
reader chooses."""

from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float, Int

from dgmarl import api
from dgmarl.errors import UsageError
from dgmarl.graphs.comparison import references
from dgmarl.graphs.interventional import intervene_batch
from dgmarl.graphs.learned import LearnedSource
from dgmarl.report.charts import charts_html, curve
from dgmarl.report.html import asset, page, scripts
from dgmarl.report.replay_page import replay_data
from dgmarl.report.results import Result, graph_tag, read_run
from dgmarl.report.style import AXES, GRAPHS, OTHER_GRAPH
from dgmarl.rollout import Batch, Recording

REFERENCES = ("oracle", "interventional")
UNIT = 1000
"""Thresholds are whole thousandths, so that page and Python agree on every edge."""
HIGHEST_THRESHOLD = 1200
"""Thousandths to which the page's threshold goes, unless the run's own is higher."""
HIGHEST_RATIO = 10_000
"""Thousandths; a ratio above that is no edge at any threshold one would choose."""
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


class Compared(NamedTuple):
    """Episodes, and by name the graphs of their steps, [E, T, N, N]."""

    recording: Recording
    graphs: dict[str, np.ndarray]
    """The run's own first, if it has one that is no reference; a learned one as entropy ratios,
    others as edges."""
    threshold: float | None
    """At which the learned graph has its edges in training."""


def graph_page(
    folder: Path,
    n_episodes: int = 3,
    seed: int = 0,
    trained_seed: int | None = None,
    trust: bool = False,
) -> str:
    """One self-contained HTML page about the graph of a run folder; `seed` plays, `trained_seed`
    says which policy does. trust: see `dgmarl.load`."""
    run = api.load(folder, trained_seed, trust=trust)
    compared = record_graphs(run, jax.random.key(seed), n_episodes)
    notes = _notes(run, compared)
    charts: list[dict[str, Any]] = []
    try:
        charts = over_training(read_run(folder))
    except UsageError as error:
        notes.append(f"There are no curves over training: {error}")
    policy = (
        f"{run.config.method} (seed {run.config.seed if trained_seed is None else trained_seed})"
    )
    told = "".join(f'<p class="note">{escape(note)}</p>' for note in notes)
    curves = f"<section><h2>Over training</h2>{charts_html()}</section>" if charts else ""
    body = f"<h1>Who influences whom?</h1>{told}{asset('player.html')}{asset('graph.html')}{curves}"
    data = {
        "replays": [replay_data(run.env, compared.recording, policy)],
        "graphs": graphs_data(compared),
        **{"axes": AXES, "metrics": {"value": "value"}, "charts": charts},
    }
    names = ("player", "graph", "charts") if charts else ("player", "graph")
    return page(f"{run.env.spec.name}: graphs", body, scripts(*names), data)


def record_graphs(run: api.Run, key: Array, n_episodes: int) -> Compared:
    """Episodes of the run's policy with its own graph, the oracle's and the interventional one, as
    far as there are such."""
    source = run.trainer.source
    own = (
        [graph_tag(run.config.graph)]
        if run.trainer.uses_graph and run.config.graph not in REFERENCES
        else []
    )

    def infer(batch: Batch) -> dict[str, Array]:
        graphs = {"interventional": intervene_batch(run.env, batch).action_graph}
        if "oracle" in batch.extras:
            graphs["oracle"] = batch.extras["oracle"]
        for name in own:
            if isinstance(source, LearnedSource):
                graphs[name] = source.ratios(run.graph.params, batch)
            else:
                graphs[name] = source.infer(run.graph, batch, key)
        return graphs

    recording = run.record(key, n_episodes, references(run.env), infer)
    graphs = {
        name: np.asarray(recording.graph[name])
        for name in (*own, *REFERENCES)
        if name in recording.graph
    }
    threshold = run.config.graph_model.threshold if isinstance(source, LearnedSource) else None
    return Compared(recording._replace(graph=None), graphs, threshold)


def graphs_data(compared: Compared) -> dict[str, Any]:
    """What `graph.js` shows: by name the graphs of every episode and step, ratios in thousandths or
    edges as 0 and 1."""
    threshold = None if compared.threshold is None else round(UNIT * compared.threshold)
    lengths = np.asarray(compared.recording.length)
    return {
        "names": list(compared.graphs),
        "colours": {name: GRAPHS.get(name, OTHER_GRAPH) for name in compared.graphs},
        "threshold": threshold,
        "highest": max(HIGHEST_THRESHOLD, threshold or 0),
        "episodes": [
            {
                name: [_written(matrix) for matrix in graph[k, :length]]
                for name, graph in compared.graphs.items()
            }
            for k, length in enumerate(lengths)
        ],
    }


def thousandths(ratios: Float[np.ndarray, "*B"]) -> Int[np.ndarray, "*B"]:
    """The largest k for which a ratio is not below the threshold k / 1000, compared in single
    precision as in training."""
    thresholds = (np.arange(HIGHEST_RATIO + 1) / UNIT).astype(np.float32)
    return np.searchsorted(thresholds, ratios, side="right") - 1


def over_training(result: Result) -> list[dict[str, Any]]:
    """Charts for `charts.js`: agreement with each reference beside the density, and the models'
    entropies; seeds averaged."""
    groups: dict[str, dict[str, tuple[str, str, str]]] = {
        f"against the {name} graph": {
            f"graph_{measure}_{name}": drawn for measure, drawn in DRAWN.items()
        }
        for name in REFERENCES
        if result.metric(f"graph_f1_{name}") is not None
    }
    groups = groups or {"the graph": {}}
    groups = {title: {**metrics, "graph_density": DENSITY} for title, metrics in groups.items()} | {
        "the models": MODELS
    }
    charts = [
        {"title": title, "series": _series(result, metrics)} for title, metrics in groups.items()
    ]
    return [chart for chart in charts if chart["series"]]


def _series(result: Result, metrics: Mapping[str, tuple[str, str, str]]) -> list[dict[str, Any]]:
    axes = {name: result.steps if name == "steps" else result.metric(name) for name in AXES}
    return [
        {
            **{"name": name, "colour": colour, "dash": dash, "seeds": len(result.steps)},
            "curves": {
                "value": {axis: curve(x, values) for axis, x in axes.items() if x is not None}
            },
        }
        for metric, (name, colour, dash) in metrics.items()
        if (values := result.metric(metric)) is not None
    ]


def _notes(run: api.Run, compared: Compared) -> list[str]:
    """What a reader must know about this run's graphs."""
    notes, config = [], run.config
    if not run.trainer.uses_graph:
        notes.append(f"This run was trained with {config.learner.credit} credit, without a graph.")
    elif set(compared.graphs) <= set(REFERENCES):
        notes.append(f"This run was trained with the {config.graph} graph itself.")
    if compared.threshold is not None and run.graph.n_updates < config.graph_model.warm_up:
        notes.append(
            "This run is still warming up: its own graphs have no edges yet, whatever the ratios "
            "say."
        )
    if not run.env.offers("oracle_graph"):
        notes.append(
            f"{run.env.spec.name} offers no oracle graph, so what the simulator shows is all "
            "there is to compare with."
        )
    if not run.env.offers("local_state"):
        notes.append(
            f"{run.env.spec.name} offers no local_state: interventional edges are changes of "
            "observations."
        )
    return notes


def _written(matrix: np.ndarray) -> str | list[int]:
    """Row after row: a digit per edge, or a number per ratio."""
    flat = matrix.ravel()
    return (
        "".join("01"[edge] for edge in flat.astype(int))
        if flat.dtype == bool
        else thousandths(flat).tolist()
    )
