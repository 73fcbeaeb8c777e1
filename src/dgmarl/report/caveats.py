"""What a reader must know before comparing results: missing seeds, unequal budgets, graphs without
information."""

from collections.abc import Sequence

import numpy as np

from dgmarl.report.results import Result
from dgmarl.report.style import uses_graph

DENSE = 0.9
"""Above this density a graph says little more than the complete one."""
NO_ENTROPY = 0.05
"""Nats. Below it actions are nearly certain, and their entropies carry no information about
influence."""
AS_ASKED = ("self", "complete", "random", "fixed")
"""Graph sources with the density that the user asked for; others look for influence."""


def caveats(results: Sequence[Result]) -> list[str]:
    """Sentences for a page, the most specific first."""
    notes = [
        f"{result.env}, {result.method}: {note}"
        for result in results
        for note in [*result.facts.get("notes", []), *graph_warnings(result)]
    ]
    single = [result.method for result in results if len(result.final) < 2]
    if single:
        notes.append(
            "One seed says nothing about the spread, so there is no interval for "
            f"{', '.join(single)}."
        )
    for env in dict.fromkeys(result.env for result in results):
        own = [result for result in results if result.env == env]
        if len({len(result.final) for result in own}) > 1:
            counts = ", ".join(f"{result.method} {len(result.final)}" for result in own)
            notes.append(f"Methods in {env} have different numbers of seeds: {counts}.")
        most = max(result.budget for result in own)
        fewer = [result for result in own if 1.1 * result.budget < most]
        if fewer:
            counts = ", ".join(f"{result.method} {result.budget:,}" for result in fewer)
            notes.append(f"In {env} some methods had fewer steps than {most:,}: {counts}.")
    return notes


def graph_warnings(result: Result) -> list[str]:
    """Of a run with graph credit: whether its graph at the last evaluation, over all seeds, was
    empty, nearly complete, or inferred from actions without entropy."""
    if not uses_graph(result.method) or not _inferred(result):
        return []
    warnings = []
    entropies = [result.metric(f"graph_{name}_entropy") for name in ("predictor", "pair")]
    known = [entropy[:, -1].mean() for entropy in entropies if entropy is not None]
    if known and max(known) < NO_ENTROPY:
        warnings.append(
            "The policy has become nearly deterministic, so both entropies of the learned graph "
            f"are near 0 (at most {max(known):.3f} nats) and their ratio says nothing. Try "
            "--graph interventional:2, or a larger learner.entropy_coef."
        )
    density = result.metric("graph_density")
    if density is None:
        return warnings
    last = float(np.mean(density[:, -1]))
    if last == 0:
        warnings.append(
            "The graph is empty (density 0), so this is local credit. If influence passes through "
            "a state that no agent calls its own, or through rewards only, try --graph "
            "interventional:2, a reward graph, or a `local_state` of the environment that holds "
            "what agents act on."
        )
    elif last > DENSE:
        warnings.append(
            f"The graph is nearly complete (density {last:.2f}), so this is close to global "
            "credit. Try --graph interventional:2, a smaller graph_model.threshold, or a "
            "`local_state` of the environment with each agent's own state alone."
        )
    return warnings


def _inferred(result: Result) -> bool:
    """Whether the graph comes from a source that looks for influence, as far as is known."""
    config = result.facts.get("config")
    graph = config.get("graph") if isinstance(config, dict) else None
    return not isinstance(graph, str) or graph.partition(":")[0] not in AS_ASKED
