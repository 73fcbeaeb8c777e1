"""Policy-gradient estimators over sampled trajectories: GPOMDP and its dependence-graph version.

The paper's equations gpomdp and grad_graph have two discounts, gamma^t for the score and gamma^k
for the reward. The gradient of J = E sum_k gamma^k r_k has only the second, with k counted from the
start of the trajectory, and so does the paper's proof (the single-trajectory estimate before
equation boundK); with both, later steps are discounted twice and the estimate is biased. This
module uses gamma^k only. Two more corrections: the score in equation gpomdp is agent j's (printed
with a^i, s^i), and T_ji^H is a lag after t (printed as an absolute time, but added to t)."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from dgmarl.credit.gae import discounted_sums, require_floats, require_fractions
from dgmarl.credit.graph_gae import meeting_tails
from dgmarl.graphs.reach import Arrays, require_graph


def gpomdp(
    scores: PyTree[Float[Arrays, "m T N ..."]],
    reward: Float[Arrays, "m T N"],
    gamma: float | Float[Arrays, ""],
    *,
    per_trajectory: bool = False,
) -> PyTree[Float[Array, "N ..."]]:
    """The gradient of the team return with respect to each agent's parameters (equation gpomdp,
    summed over the targets i).

        g_j = mean over trajectories of  sum_t score_j[t] * sum_{k >= t} gamma^k * sum_i r^i_k

    scores: grad log pi_j(a^j_t | s^j_t), an array or a pytree of arrays [m, T, N, ...] (agent j on
      axis 2).
    reward: m trajectories of T steps, padded with zeros. For the gradient of one target's return,
      zero the rewards of the others.
    per_trajectory: return the m single-trajectory estimates [m, N, ...] instead of their mean, for
      second moments.

    >>> gpomdp(jnp.ones((1, 2, 1, 1)), jnp.ones((1, 2, 1)), gamma=0.5)
    Array([[2.]], dtype=float32)
    """
    (reward,) = require_floats(reward=reward)
    _check(scores, reward, gamma)
    return _mean_gradient(scores, _returns(reward, gamma), per_trajectory)


def graph_gpomdp(
    scores: PyTree[Float[Arrays, "m T N ..."]],
    reward: Float[Arrays, "m T N"],
    graph: Bool[Arrays, "m T N N"],
    gamma: float | Float[Arrays, ""],
    *,
    per_trajectory: bool = False,
) -> PyTree[Float[Array, "N ..."]]:
    """`gpomdp` with only the rewards that j can influence (equation grad_graph, summed over the
    targets i).

        g_j = mean over trajectories of
              sum_t score_j[t] * sum_i sum_{k >= t + T_ji} gamma^k * r^i_k

    graph: A[., t, j, i], Boolean, row = source, column = target. T_ji is the reward lag: 0 for
      j = i, else one more than the meeting time (`reward_lags`)."""
    (reward,) = require_floats(reward=reward)
    _check(scores, reward, gamma)
    graph = require_graph(graph)
    if graph.shape != (*reward.shape, reward.shape[-1]):
        raise ValueError(
            f"graph must have the shape {(*reward.shape, reward.shape[-1])}, got {graph.shape}"
        )
    return _mean_gradient(scores, _graph_returns(reward, graph, gamma), per_trajectory)


@jax.jit
def _returns(reward, gamma):
    """Entry [m, t, 0]: the team rewards from t on, discounted from the start."""
    team = jnp.swapaxes(reward.sum(-1, keepdims=True), 0, 1)
    continues = jnp.ones(team.shape[:-1], bool)
    return jnp.swapaxes(_from_start(discounted_sums(team, continues, gamma), gamma), 0, 1)


@jax.jit
def _graph_returns(reward, graph, gamma):
    """Entry [m, t, j]: the rewards from t on that j can influence, discounted from the start."""
    reward, graph = jnp.swapaxes(reward, 0, 1), jnp.swapaxes(graph, 0, 1)
    gamma = jnp.asarray(gamma, reward.dtype)
    loops = jnp.eye(graph.shape[-1], dtype=bool)
    continues = jnp.ones(reward.shape[:-1], bool)
    to_go = discounted_sums(reward, continues, gamma)
    credit = meeting_tails(
        to_go, gamma, graph, ~continues, lambda _: loops, lambda _, tail: tail.sum(-1)
    )
    return jnp.swapaxes(_from_start(credit, gamma), 0, 1)


def _from_start(credit, gamma):
    """Convert credit [T, ...] discounted from its own step to discounting from the start."""
    steps = jnp.arange(credit.shape[0], dtype=credit.dtype).reshape(-1, *(1,) * (credit.ndim - 1))
    return jnp.asarray(gamma, credit.dtype) ** steps * credit


@partial(jax.jit, static_argnums=2)
def _mean_gradient(scores, credit, per_trajectory):
    def gradient(score):
        weight = jnp.broadcast_to(credit, score.shape[:3])
        per_sample = jnp.einsum("mtj...,mtj->mj...", score, weight)
        return per_sample if per_trajectory else per_sample.mean(0)

    return jax.tree.map(gradient, scores)


def _check(scores: Any, reward: Array, gamma: Any) -> None:
    require_fractions(gamma=gamma)
    if reward.ndim != 3:
        raise ValueError(f"reward must have the shape [m, T, N], got {reward.shape}")
    for leaf in jax.tree.leaves(scores):
        if jnp.shape(leaf)[:3] != reward.shape:
            raise ValueError(
                f"scores must have the shape [m, T, N, ...] with {reward.shape} in front, got "
                f"{jnp.shape(leaf)}"
            )
