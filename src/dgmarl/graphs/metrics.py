"""Statistics of dependence graphs and meeting times. Self-loops are excluded throughout."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from dgmarl.graphs.reach import Arrays


class Agreement(NamedTuple):
    """Agreement of predicted with true edges."""

    precision: Float[Array, ""]
    """Share of the predicted edges that are true; 1 if none is predicted."""
    recall: Float[Array, ""]
    """Share of the true edges that are predicted; 1 if there is none."""
    f1: Float[Array, ""]
    """Harmonic mean of the two; 1 if both graphs are empty."""


def density(
    graph: Bool[Arrays, "*B N N"], valid: Bool[Arrays, "*B"] | None = None
) -> Float[Array, ""]:
    """The share of ordered pairs of different agents with an edge; 0 for a single agent or no valid
    step.

    >>> density(jnp.array([[True, True], [False, True]]))
    Array(0.5, dtype=float32)
    """
    pairs = _counted_pairs(graph, valid)
    return _share(jnp.sum(graph & pairs), jnp.sum(pairs), if_none=0.0)


def agreement(
    predicted: Bool[Arrays, "*B N N"],
    truth: Bool[Arrays, "*B N N"],
    valid: Bool[Arrays, "*B"] | None = None,
) -> Agreement:
    """Precision, recall and F1 of the predicted edges, pooled over all valid steps."""
    if predicted.shape != truth.shape:
        raise ValueError(
            f"both graphs must have one shape, got {predicted.shape} and {truth.shape}"
        )
    pairs = _counted_pairs(predicted, valid)
    hits = jnp.sum(predicted & truth & pairs)
    n_predicted, n_true = jnp.sum(predicted & pairs), jnp.sum(truth & pairs)
    return Agreement(
        precision=_share(hits, n_predicted, if_none=1.0),
        recall=_share(hits, n_true, if_none=1.0),
        f1=_share(2 * hits, n_predicted + n_true, if_none=1.0),
    )


def _counted_pairs(matrices: Arrays, valid: Arrays | None) -> Bool[Array, "*B N N"]:
    """Pairs of different agents at valid steps."""
    if valid is not None and valid.shape != matrices.shape[:-2]:
        raise ValueError(f"valid must have the shape {matrices.shape[:-2]}, got {valid.shape}")
    different = jnp.broadcast_to(~jnp.eye(matrices.shape[-1], dtype=bool), matrices.shape)
    return different if valid is None else different & valid[..., None, None]


def _share(part: Array, whole: Array, if_none: float) -> Float[Array, ""]:
    return jnp.where(whole > 0, part / jnp.maximum(whole, 1), if_none)


NOTHING, EVERYTHING, LEARNING = 0.001, 0.9, 0.2
"""Densities below and above which a graph tells nothing, and the share of the steps after which a
learned graph is expected to."""


def uninformative(density: float, graph: str, progress: float) -> str:
    """A sentence about a graph that says nothing, with what to try; empty if it says something.

    graph: the source's name. progress: share of the steps that are done.
    """
    learned, attention = (graph.startswith(name) for name in ("learned", "attention"))
    if graph.partition(":")[0] in ("self", "complete", "random", "fixed"):
        return ""  # what the user asked for
    if density < NOTHING and (not (learned or attention) or progress >= LEARNING):
        return (
            f"The {graph} graph has no edges (density {density:.3f}), so graph credit equals local "
            "credit: influence may pass through a state (try --graph interventional:2), through "
            "rewards only (--credit.reward-graph measured), or not show in local_state."
        )
    if learned and density > EVERYTHING:
        return (
            f"The learned graph has nearly all edges (density {density:.2f}), so graph credit is "
            "close to team credit: a policy that has become deterministic leaves nothing to tell "
            "apart (raise --learner.entropy-coef), or observations show everybody (try "
            "--graph-model.sees local_state, a lower --graph-model.threshold, or --graph "
            "interventional)."
        )
    if attention and density > EVERYTHING and progress >= LEARNING:
        return (
            f"The {graph} graph has nearly all edges (density {density:.2f}), so graph credit is "
            "close to team credit: raise the threshold (--graph attention:1; with two agents it "
            "is complete), or try --graph interventional."
        )
    return ""
