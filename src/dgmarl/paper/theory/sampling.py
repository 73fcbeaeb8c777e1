"""Sampled trajectories of tabular networked MDPs, and the estimators of `dgmarl.credit.gpomdp`."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float
from numpy.random import Generator

from dgmarl.credit.gpomdp import gpomdp, graph_gpomdp
from dgmarl.paper.theory.networked_mdp import (
    Array,
    Logits,
    NetworkedMDP,
    agent_scores,
    joint_policy,
)


class Trajectories(NamedTuple):
    """Inputs of the estimators of `dgmarl.credit.gpomdp`."""

    scores: Float[Array, "m T N S A"]
    reward: Float[Array, "m T N"]
    graph: Bool[Array, "m T N N"]


def _draw(rng: Generator, law: Float[Array, "m K"]) -> Array:
    """Sample one index per row; the last index absorbs rounding errors."""
    return np.minimum(
        (rng.random((len(law), 1)) > np.cumsum(law, axis=1)).sum(axis=1), law.shape[1] - 1
    )


def sample_trajectories(
    rng: Generator, mdp: NetworkedMDP, logits: Logits, n_trajectories: int, n_steps: int
) -> Trajectories:
    """Independent trajectories from the start distribution."""
    policy = joint_policy(mdp, logits)
    scores = np.stack([agent_scores(mdp, logits, j) for j in range(mdp.n_agents)], axis=2)
    state = _draw(rng, np.repeat(mdp.start[None], n_trajectories, axis=0))
    states, actions = [], []
    for _ in range(n_steps):
        action = _draw(rng, policy[state])
        states.append(state)
        actions.append(action)
        state = _draw(rng, mdp.kernel[state, action])
    s, a = np.stack(states, axis=1), np.stack(actions, axis=1)
    return Trajectories(scores[s, a], np.moveaxis(mdp.reward[:, s, a], 0, -1), mdp.graph[s])


def sampled_gradients(
    trajectories: Trajectories, gamma: float
) -> dict[str, Float[Array, "m N S A"]]:
    """Single-trajectory estimates of both estimators."""
    scores, reward, graph = (jnp.asarray(part) for part in trajectories)
    return {
        "graph": np.asarray(graph_gpomdp(scores, reward, graph, gamma, per_trajectory=True)),
        "standard": np.asarray(gpomdp(scores, reward, gamma, per_trajectory=True)),
    }
