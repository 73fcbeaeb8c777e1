"""Records episodes with a run's graph, the oracle graph and the interventional graph."""

from typing import Any

import numpy as np
from jaxtyping import Array

from dgmarl.graphs.comparison import references
from dgmarl.graphs.interventional import intervene_batch
from dgmarl.graphs.learned import LearnedSource
from dgmarl.rollout import Batch
from dgmarl.runs.playing import infer_edges
from dgmarl.runs.reading import graph_tag
from dgmarl.runs.replays import UNLIMITED, Compared, make_replay

REFERENCES = ("oracle", "interventional")


def record_graphs(run: Any, key: Array, n_episodes: int, policy: str = "") -> Compared:
    """Episodes of a loaded run (`dgmarl.load`) with its own graph and those references that the
    environment offers.

    policy: name of the policy on the page; default: the method."""
    source, name = run.trainer.source, run.config.graph
    own = graph_tag(name) if run.trainer.uses_graph and name not in REFERENCES else None

    def infer(batch: Batch) -> dict[str, Array]:
        graphs = {}
        if "keys" in batch.extras:
            graphs["interventional"] = intervene_batch(run.env, batch).action_graph
        if "oracle" in batch.extras:
            graphs["oracle"] = batch.extras["oracle"]
        if own is not None and isinstance(source, LearnedSource):
            graphs[own] = source.ratios(run.graph.params, batch)
        elif own is not None:
            graphs[own] = infer_edges(run.trainer, run.graph, key, batch)
        return graphs

    recording = run.recording(key, n_episodes, references(run.env), infer)
    recorded = {name: np.asarray(graph) for name, graph in recording.graph.items()}
    shown = policy or run.config.method
    # Without a size limit, because the graphs cover all episodes.
    replay = make_replay(run.env, recording._replace(graph=None), shown, most_bytes=UNLIMITED)
    graphs = {
        name: tuple(recorded[name][k, :length] for k, length in enumerate(recording.length))
        for name in ((own,) if own else ()) + REFERENCES
        if name in recorded
    }
    threshold = run.config.graph_model.threshold if isinstance(source, LearnedSource) else None
    return Compared(replay, graphs, threshold, _notes(run, own))


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
