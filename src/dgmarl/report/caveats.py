"""Notes on comparing results: single seeds, unequal steps, uninformative graphs."""

from collections.abc import Sequence

import numpy as np

from dgmarl.config.yaml import dotted
from dgmarl.graphs.advice import uninformative
from dgmarl.report.results import COMPARABLE, Result, grouped
from dgmarl.report.style import uses_graph

NO_ENTROPY = 0.05
"""Entropy in nats below which policies are nearly deterministic, so that entropies carry no
information about influence."""

IN_USE = ("credit.reward_graph", "graph_model.sees")
"""Options that advice about a graph must not name if the run has them."""


def caveats(results: Sequence[Result]) -> list[str]:
    """Sentences for a page, those about single results first."""
    notes = [
        f"{result.env}, {result.method}: {note}"
        for result in results
        for note in [*result.facts.get("notes", []), *graph_warnings(result)]
    ]
    single = [result.method for result in results if len(result.final) < 2]
    if single:
        notes.append(
            f"With one seed the spread is unknown, so there is no interval for {', '.join(single)}."
        )
    for env, own in grouped(results, "env").items():
        if len({len(result.final) for result in own}) > 1:
            counts = ", ".join(f"{result.method} {len(result.final)}" for result in own)
            notes.append(f"Methods in {env} have different numbers of seeds: {counts}.")
        most = max(result.budget for result in own)
        fewer = [result for result in own if COMPARABLE * result.budget < most]
        if fewer:
            counts = ", ".join(f"{result.method} {result.budget:,}" for result in fewer)
            notes.append(f"In {env} some methods have fewer steps than {most:,}: {counts}.")
    return notes


def graph_warnings(result: Result) -> list[str]:
    """Warnings for a run with graph credit whose graph at the last evaluation, over all seeds, was
    empty, nearly complete, or inferred from nearly deterministic policies."""
    config = result.facts.get("config")
    graph = str(config.get("graph", "")) if isinstance(config, dict) else ""
    if not uses_graph(result.method) or not graph:
        return []
    warnings = []
    entropies = [result.metric(f"graph_{name}_entropy") for name in ("predictor", "pair")]
    known = [entropy[:, -1].mean() for entropy in entropies if entropy is not None]
    if known and max(known) < NO_ENTROPY:
        warnings.append(
            "The policy has become nearly deterministic, so both entropies of the learned graph "
            f"are near 0 (at most {max(known):.3f} nats) and their ratio is uninformative. Try "
            "--graph interventional:2, or a larger learner.entropy_coef."
        )
    density = result.metric("graph_density")
    if density is not None:
        values = dotted(config) if isinstance(config, dict) else {}
        reward_graph, sees = (str(values.get(name, "")) for name in IN_USE)
        last = float(np.mean(density[:, -1]))
        warnings.append(uninformative(last, graph, reward_graph=reward_graph, sees=sees))
    return [warning for warning in warnings if warning]
