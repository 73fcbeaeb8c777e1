"""The policy-gradient estimators against explicit sums and an exact gradient."""

import doctest
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dgmarl.credit.gpomdp as module
from dgmarl.credit.gpomdp import gpomdp, graph_gpomdp

GAMMA = 0.9


@pytest.fixture(scope="module")
def sample():
    """Scores [m, T, N, P], rewards [m, T, N] and graphs [m, T, N, N] of five trajectories."""
    rng = np.random.default_rng(0)
    graph = (rng.random((5, 7, 3, 3)) < 0.2) | np.eye(3, dtype=bool)
    return (
        rng.normal(size=(5, 7, 3, 2)).astype(np.float32),
        rng.normal(size=(5, 7, 3)).astype(np.float32),
        graph,
    )


def by_loop(scores, reward, counts):
    """mean over m of sum over t, i, k >= t with counts(m, t, k)[j, i] of score_j[t] * gamma^k *
    r^i_k."""
    n_trajectories, n_steps, n_agents, _ = scores.shape
    gradient = np.zeros((n_agents, scores.shape[-1]))
    for m, t in np.ndindex(n_trajectories, n_steps):
        for k in range(t, n_steps):
            credit = (counts(m, t, k) * GAMMA**k * reward[m, k]).sum(-1)
            gradient += scores[m, t] * credit[:, None]
    return gradient / n_trajectories


def reached(graph, m, t, k):
    """[j, n]: has (t, j) reached n's state at k?"""
    paths = np.eye(graph.shape[-1], dtype=int)
    for step in range(t, k):
        paths = (paths @ graph[m, step]).clip(0, 1)
    return paths


def test_standard_estimator_is_the_explicit_sum(sample):
    scores, reward, _ = sample
    expected = by_loop(scores, reward, lambda m, t, k: np.ones((3, 3)))
    np.testing.assert_allclose(gpomdp(scores, reward, GAMMA), expected, rtol=1e-5, atol=1e-5)


def test_graph_estimator_counts_rewards_of_reached_states(sample):
    scores, reward, graph = sample
    expected = by_loop(scores, reward, lambda m, t, k: reached(graph, m, t, k))
    np.testing.assert_allclose(
        graph_gpomdp(scores, reward, graph, GAMMA), expected, rtol=1e-5, atol=1e-5
    )


def test_one_discount_gives_the_exact_gradient():
    """All trajectories of a two-step coin: their probability-weighted estimates sum to the
    derivative of J."""
    prize, logit = jnp.array([1.0, 3.0]), 0.4

    def objective(theta):
        return sum(GAMMA**k * prize[k] for k in range(2)) * jax.nn.sigmoid(theta)

    heads = np.array(list(product([0, 1], repeat=2)), np.float32)
    p = float(jax.nn.sigmoid(logit))
    probability = np.prod(np.where(heads == 1, p, 1 - p), axis=1)
    scores = (heads - p)[:, :, None, None]
    estimates = gpomdp(scores, (heads * prize)[:, :, None], GAMMA, per_trajectory=True)
    np.testing.assert_allclose(
        (probability[:, None, None] * estimates).sum(), jax.grad(objective)(logit), rtol=1e-5
    )


def test_pytrees_of_scores_and_single_trajectories(sample):
    scores, reward, graph = sample
    tree = {"weight": scores, "bias": scores[..., 0]}
    gradient = graph_gpomdp(tree, reward, graph, GAMMA)
    np.testing.assert_allclose(gradient["bias"], gradient["weight"][..., 0], rtol=1e-5, atol=1e-6)
    single = graph_gpomdp(scores, reward, graph, GAMMA, per_trajectory=True)
    assert single.shape == (5, 3, 2)
    np.testing.assert_allclose(single.mean(0), gradient["weight"], rtol=1e-5, atol=1e-6)


def test_float64(sample):
    scores, reward, graph = sample
    with jax.enable_x64(True):
        ours = graph_gpomdp(scores.astype(float), reward.astype(float), graph, GAMMA)
        expected = by_loop(
            scores.astype(float), reward.astype(float), lambda m, t, k: reached(graph, m, t, k)
        )
        np.testing.assert_allclose(ours, expected, rtol=1e-10, atol=1e-10)


def test_bad_input_is_refused(sample):
    scores, reward, graph = sample
    with pytest.raises(ValueError, match=r"scores must have the shape \[m, T, N, ...\]"):
        gpomdp(scores[:, :3], reward, GAMMA)
    with pytest.raises(ValueError, match=r"reward must have the shape \[m, T, N\]"):
        gpomdp(scores[0], reward[0], GAMMA)
    with pytest.raises(ValueError, match="gamma must lie"):
        gpomdp(scores, reward, 1.1)
    with pytest.raises(ValueError, match="graph must have the shape"):
        graph_gpomdp(scores, reward, graph[:, :3], GAMMA)


def test_examples_in_the_documentation():
    assert doctest.testmod(module).failed == 0
