"""Statistics of dependence graphs and meeting times. Self-loops are excluded throughout."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from dgmarl.graphs.reach import NEVER, Arrays


class Agreement(NamedTuple):
    """Agreement of predicted with true edges."""

    precision: Float[Array, ""]
    """Share of the predicted edges that are true; 1 if none is predicted."""
    recall: Float[Array, ""]
    """Share of the true edges that are predicted; 1 if there is none."""
    f1: Float[Array, ""]
    """Harmonic mean of the two; 1 if both graphs are empty."""


class Degrees(NamedTuple):
    """Edges per agent without self-loops."""

    outgoing: Int[Array, "*B N"]
    """Number of targets."""
    incoming: Int[Array, "*B N"]
    """Number of sources."""


class Gammas(NamedTuple):
    """The paper's coefficients of dependence between agents (section "Sample Complexity
    Analysis")."""

    pair: Float[Array, "N N"]
    """Gamma_j^i at [j, i]: the maximum over steps of the mean discount gamma^T_ji."""
    source: Float[Array, "N"]
    """Gamma_j, the sum over i; from 1 (isolated) to N."""
    total: Float[Array, ""]
    """Gamma, the sum over j and i; from N (disconnected) to N^2 (complete)."""


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


def degrees(graph: Bool[Arrays, "*B N N"]) -> Degrees:
    """Outgoing and incoming degrees of every agent."""
    edges = graph & ~jnp.eye(graph.shape[-1], dtype=bool)
    return Degrees(jnp.sum(edges, axis=-1), jnp.sum(edges, axis=-2))


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


def gamma_coefficients(
    lags: Int[Arrays, "T *B N N"], gamma: float, valid: Bool[Arrays, "T *B"] | None = None
) -> Gammas:
    """Estimates of Gamma_j^i = sup over steps k of E[gamma^{T_ji(s_k)}] and their sums, under the
    behaviour policy.

    lags: the paper's T_ji (`reward_lags(meeting_times(...))`), trajectories on the middle axes.
      The mean is over trajectories, the maximum over steps; the supremum over policies cannot be
      estimated from samples. With few trajectories the maximum is biased upwards; a finite rollout
      misses late meetings, which biases downwards."""
    trajectories = tuple(range(1, lags.ndim - 2))
    discount = jnp.where(lags >= NEVER, 0.0, jnp.power(gamma, lags))
    counted = jnp.ones(lags.shape[:-2], bool) if valid is None else valid
    weight = counted[..., None, None].astype(discount.dtype)
    mean = jnp.sum(discount * weight, axis=trajectories) / jnp.maximum(
        jnp.sum(weight, axis=trajectories), 1
    )
    pair = jnp.max(mean, axis=0)
    return Gammas(pair, pair.sum(-1), pair.sum())


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
