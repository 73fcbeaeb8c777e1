"""Advice for graphs without information. Does not import JAX, because reports use it."""

NOTHING, EVERYTHING, LEARNING = 0.001, 0.9, 0.2
"""Densities below and above which a graph is uninformative, and the share of the steps after which
a learned graph should be informative."""


def uninformative(density: float, graph: str, progress: float = 1.0) -> str:
    """A sentence about an uninformative graph, with what to try; empty for an informative one.

    graph: name of the source. progress: share of the training steps done."""
    kind = graph.partition(":")[0]
    if kind in ("self", "complete", "random", "fixed"):
        return ""  # the user's choice
    early = progress < LEARNING
    if density < NOTHING and not (early and kind in ("learned", "attention")):
        return (
            f"The {kind} graph has no edges (density {density:.3f}), so graph credit equals local "
            "credit: influence may act through a state (try --graph interventional:H with a larger "
            "H), through rewards only (--credit.reward-graph measured), or not be visible in "
            "local_state."
        )
    if kind == "learned" and density > EVERYTHING:
        return (
            f"The learned graph has nearly all edges (density {density:.2f}), so graph credit is "
            "close to team credit: the policy may have become deterministic, so that actions "
            "cannot be told apart (raise --learner.entropy-coef), or observations show all agents "
            "(try --graph-model.sees local_state, a lower --graph-model.threshold, or --graph "
            "interventional)."
        )
    if kind == "attention" and density > EVERYTHING and not early:
        return (
            f"The attention graph has nearly all edges (density {density:.2f}), so graph credit is "
            "close to team credit: this is always so with two agents; with more, raise the "
            "threshold (--graph attention:1), or try --graph interventional."
        )
    return ""
