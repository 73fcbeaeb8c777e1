"""What to try where a graph tells nothing. No JAX: reports say it, too."""

NOTHING, EVERYTHING, LEARNING = 0.001, 0.9, 0.2
"""Densities below and above which a graph tells nothing, and the share of the steps after which a
learned graph is expected to."""


def uninformative(density: float, graph: str, progress: float = 1.0) -> str:
    """A sentence about a graph that says nothing, with what to try; empty if it says something.

    graph: the source's name. progress: share of the steps that are done."""
    kind = graph.partition(":")[0]
    if kind in ("self", "complete", "random", "fixed"):
        return ""  # what the user asked for
    early = progress < LEARNING
    if density < NOTHING and not (early and kind in ("learned", "attention")):
        return (
            f"The {kind} graph has no edges (density {density:.3f}), so graph credit equals local "
            "credit: influence may pass through a state (try --graph interventional:2), through "
            "rewards only (--credit.reward-graph measured), or not show in local_state."
        )
    if kind == "learned" and density > EVERYTHING:
        return (
            f"The learned graph has nearly all edges (density {density:.2f}), so graph credit is "
            "close to team credit: a policy that has become deterministic leaves nothing to tell "
            "apart (raise --learner.entropy-coef), or observations show everybody (try "
            "--graph-model.sees local_state, a lower --graph-model.threshold, or --graph "
            "interventional)."
        )
    if kind == "attention" and density > EVERYTHING and not early:
        return (
            f"The attention graph has nearly all edges (density {density:.2f}), so graph credit is "
            "close to team credit: with two agents it always has; with more, raise the threshold "
            "(--graph attention:1), or try --graph interventional."
        )
    return ""
