"""Density of dependence graphs, and agreement of two. Self-loops are excluded throughout."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from dgmarl.graphs.reach import Arrays, require_per_step


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
    different = jnp.broadcast_to(~jnp.eye(matrices.shape[-1], dtype=bool), matrices.shape)
    if valid is None:
        return different
    return different & require_per_step("valid", valid, matrices.shape[:-2])[..., None, None]


def _share(part: Array, whole: Array, if_none: float) -> Float[Array, ""]:
    return jnp.where(whole > 0, part / jnp.maximum(whole, 1), if_none)
