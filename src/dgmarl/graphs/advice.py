"""Advice for graphs without information. Does not import JAX, because reports use it."""

NOTHING, EVERYTHING, LEARNING = 0.001, 0.9, 0.2
"""Densities below and above which a graph is uninformative, and the share of the steps after which
a learned graph should be informative."""


def uninformative(
    density: float,
    graph: str,
    progress: float = 1.0,
    reward_graph: str = "none",
    sees: str = "observation",
) -> str:
    """A sentence about an uninformative graph, with what to try; empty for an informative one.

    graph: name of the source. progress: share of the training steps done. reward_graph, sees:
    `credit.reward_graph` and `graph_model.sees` of the run, so that advice names neither."""
    kind, _, argument = graph.partition(":")
    if kind in ("self", "complete", "random", "fixed"):
        return ""  # the user's choice
    early = progress < LEARNING
    if density < NOTHING and not (early and kind in ("learned", "attention")):
        # Credit across agents does not need edges between local states then.
        return "" if reward_graph in ("measured", "oracle") else _without_edges(density, graph)
    if kind == "learned" and density > EVERYTHING:
        return (
            f"The learned graph has nearly all edges (density {density:.2f}), so graph credit is "
            "close to team credit: the policy may have become deterministic, so that actions "
            "cannot be told apart (raise --learner.entropy-coef), or "
            + ("local states" if sees == "local_state" else "observations")
            + " show all agents (try "
            + ("" if sees == "local_state" else "--graph-model.sees local_state, ")
            + "a lower --graph-model.threshold, or --graph interventional)."
        )
    if kind == "attention" and density > EVERYTHING and not early:
        higher = f"C with C larger than {argument}" if argument else "1"
        return (
            f"The attention graph has nearly all edges (density {density:.2f}), so graph credit is "
            "close to team credit: this is always so with two agents; with more, raise the "
            f"threshold (--graph attention:{higher}), or try --graph interventional."
        )
    return ""


def _without_edges(density: float, graph: str) -> str:
    """The sentence about a graph with no or hardly any edges."""
    kind, _, argument = graph.partition(":")
    steps = argument.partition(":")[0] or "1"
    least = f"H larger than {steps}" if kind == "interventional" else "H of 2 or more"
    edges = f"hardly any edges (density {density:.2g})" if density else "no edges (density 0.000)"
    return (
        f"The {kind} graph has {edges}, so graph credit {'nearly ' if density else ''}equals local "
        f"credit: influence may act through a state (try --graph interventional:H with {least}), "
        "through rewards only (--credit.reward-graph measured), or not be visible in local_state."
    )
