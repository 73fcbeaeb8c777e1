"""Records episodes with a run's graph, the oracle graph and the interventional graph."""

from typing import Any

import numpy as np
from jaxtyping import Array

from dgmarl.graphs.comparison import references
from dgmarl.graphs.interventional import intervene_batch
from dgmarl.graphs.learned import LearnedSource
from dgmarl.graphs.sources import as_graphs
from dgmarl.rollout import Batch
from dgmarl.runs.reading import graph_tag
from dgmarl.runs.replays import UNLIMITED, Compared, make_replay

REFERENCES = ("oracle", "interventional")


def record_graphs(run: Any, key: Array, n_episodes: int, policy: str = "") -> Compared:
    """Episodes of a loaded run (`dgmarl.load`) with its own graph and those references that the
    environment offers.

    policy: name of the policy on the page; default: the method."""
    source = run.trainer.source
    own = own_graph(run)

    def infer(batch: Batch) -> dict[str, Array]:
        graphs = {}
        if "keys" in batch.extras:
            graphs["interventional"] = intervene_batch(run.env, batch).action_graph
        if "oracle" in batch.extras:
            graphs["oracle"] = batch.extras["oracle"]
        if own is not None and isinstance(source, LearnedSource):
            graphs[own] = source.ratios(run.graph.params, batch)
        elif own is not None:
            graphs[own] = as_graphs(source.infer(run.graph, batch, key)).edges > 0
        return graphs

    recording = run.recording(key, n_episodes, references(run.env), infer)
    recorded = {name: np.asarray(graph) for name, graph in recording.graph.items()}
    replay = make_replay(
        run.env,
        recording._replace(graph=None),
        policy or run.config.method,
        most_bytes=UNLIMITED,  # the graphs cover all episodes
    )
    graphs = {
        name: tuple(recorded[name][k, :length] for k, length in enumerate(recording.length))
        for name in ((own,) if own else ()) + REFERENCES
        if name in recorded
    }
    threshold = run.config.graph_model.threshold if isinstance(source, LearnedSource) else None
    return Compared(replay, graphs, threshold, _notes(run, own))


def own_graph(run: Any) -> str | None:
    """Short name of the run's own graph; None without one, or if it is a reference."""
    if not run.trainer.uses_graph or run.config.graph in REFERENCES:
        return None
    return graph_tag(run.config.graph)


def _notes(run: Any, own: str | None) -> tuple[str, ...]:
    notes, env = [], run.env.spec.name
    if not run.trainer.uses_graph:
        notes.append(f"This run was trained with {run.config.method}, without a graph.")
    elif own is None:
        notes.append(f"This run was trained with the {run.config.graph} graph itself.")
    if not run.env.offers("oracle_graph"):
        notes.append(
            f"{env} offers no oracle graph, so the interventional graph is the only reference."
        )
    if not run.env.offers("local_state"):
        notes.append(
            f"{env} offers no local_state: interventional edges are changes of observations."
        )
    return tuple(notes)
