"""The theory laboratory: exact gradients, Proposition 1 and what breaks it, bounds, estimators, and
the page."""

import json
import math

import jax.numpy as jnp
import numpy as np
import pytest

from dgmarl.credit.gpomdp import gpomdp, graph_gpomdp
from dgmarl.errors import UsageError
from dgmarl.paper.theory import bounds, moments
from dgmarl.paper.theory import expected_gradient as eg
from dgmarl.paper.theory import networked_mdp as nm
from dgmarl.paper.theory.complexity import predicted_samples, samples_to_stationary
from dgmarl.paper.theory.laboratory import run_laboratory
from dgmarl.paper.theory.page import mathematics
from dgmarl.paper.theory.sampling import Trajectories, sample_trajectories, sampled_gradients
from dgmarl.paper.theory.verdicts import GradientErrors, bias_claim, bound_claim, identity_claim
from dgmarl.paper.theory.voter import (
    TOPOLOGIES,
    VoterNetwork,
    fixed_graph_lags,
    random_voter,
    sample_voter,
    topology,
    voter_gradient,
)


def drawn(seed: int, n_agents: int, **options) -> tuple[nm.NetworkedMDP, np.ndarray]:
    rng = np.random.default_rng(seed)
    mdp = nm.random_mdp(rng, nm.linked_graph(rng, n_agents), **options)
    return mdp, nm.random_logits(rng, mdp)


def chain(seed: int) -> tuple[nm.NetworkedMDP, np.ndarray]:
    rng = np.random.default_rng(seed)
    mdp = nm.random_mdp(rng, nm.static_graph(topology("chain", 3), 2))
    return mdp, nm.random_logits(rng, mdp)


def as_tables(voter: VoterNetwork) -> nm.NetworkedMDP:
    """A voter network written out over joint states."""
    states = actions = nm.digits(voter.n_agents, 2)
    up = np.stack([voter.up[k][states[:, k]][:, actions[:, k]] for k in range(voter.n_agents)])
    to_one = np.einsum("ki,ksa->isa", voter.listen, up)
    reward = np.stack(
        [voter.reward[i][states[:, i]][:, actions[:, i]] for i in range(voter.n_agents)]
    )
    graph = nm.static_graph(voter.edges, 2)
    own = nm.static_graph(np.eye(voter.n_agents, dtype=bool), 2)
    start = np.full(len(states), 1 / len(states))
    return nm.NetworkedMDP(
        np.stack([1 - to_one, to_one], axis=-1), reward, start, voter.gamma, graph, own
    )


# Networked MDPs


def test_kernels_are_laws_and_obey_the_graph():
    mdp, _ = drawn(0, 3)
    np.testing.assert_allclose(mdp.kernel.sum(axis=-1), 1)
    for s, a, i, k in np.ndindex(8, 8, 3, 3):
        if mdp.graph[s, k, i]:
            continue
        other_action = a ^ (1 << (2 - k))
        np.testing.assert_array_equal(
            mdp.local_kernel[i, s, a], mdp.local_kernel[i, s, other_action]
        )


def test_own_state_graphs_depend_on_the_targets_state_alone():
    graph = nm.own_state_graph(np.random.default_rng(3), 3, 2, 0.5)
    states = nm.digits(3, 2)
    for i, x in np.ndindex(3, 2):
        columns = graph[states[:, i] == x, :, i]
        assert (columns == columns[0]).all()
    assert graph[:, range(3), range(3)].all()


def test_exact_gradient_is_the_slope_of_the_exact_return():
    mdp, logits = drawn(1, 3)
    gradient = nm.exact_gradient(mdp, logits)
    step = 1e-5
    for j, x, a in np.ndindex(*logits.shape):
        shift = np.zeros_like(logits)
        shift[j, x, a] = step
        gained = nm.values(mdp, logits + shift) - nm.values(mdp, logits - shift)
        slope = gained @ mdp.start / (2 * step)
        np.testing.assert_allclose(gradient[j, :, x, a], slope, atol=1e-8)


# Expected gradients


@pytest.mark.parametrize(("n_agents", "seed"), [(2, 0), (2, 1), (3, 2), (3, 3), (4, 4)])
def test_proposition_1(n_agents, seed):
    mdp, logits = drawn(seed, n_agents)
    np.testing.assert_allclose(
        eg.dependence_graph_gradient(mdp, logits), nm.exact_gradient(mdp, logits), atol=1e-8
    )


@pytest.mark.parametrize("seed", range(4))
def test_proposition_1_with_reward_graphs(seed):
    rng = np.random.default_rng(seed)
    mdp = nm.random_mdp(rng, nm.linked_graph(rng, 3), reward_graph=nm.linked_graph(rng, 3))
    logits = nm.random_logits(rng, mdp)
    exact = nm.exact_gradient(mdp, logits)
    np.testing.assert_allclose(eg.dependence_graph_gradient(mdp, logits), exact, atol=1e-8)
    own_only = nm.static_graph(np.eye(3, dtype=bool), 2)
    assert (
        np.abs(eg.dependence_graph_gradient(mdp, logits, reward_graph=own_only) - exact).max()
        > 1e-4
    )


@pytest.mark.parametrize("seed", range(5))
def test_a_planted_wrong_graph_breaks_it(seed):
    mdp, logits = drawn(seed, 3)
    wrong = bounds.without_edge(np.random.default_rng(seed), mdp)
    assert wrong is not None
    assert (mdp.graph & ~wrong).any()
    assert not (wrong & ~mdp.graph).any()
    assert (
        np.abs(
            eg.dependence_graph_gradient(mdp, logits, wrong) - nm.exact_gradient(mdp, logits)
        ).max()
        > 1e-6
    )


def test_too_many_edges_do_no_harm():
    mdp, logits = drawn(7, 3)
    complete = np.ones_like(mdp.graph)
    np.testing.assert_allclose(
        eg.dependence_graph_gradient(mdp, logits, complete),
        nm.exact_gradient(mdp, logits),
        atol=1e-8,
    )


def test_joint_state_graphs_are_biased():
    rng = np.random.default_rng(0)
    mdp = nm.random_mdp(rng, nm.contact_graph(3, 2))
    logits = nm.random_logits(rng, mdp)
    assert (
        eg.relative_error(eg.dependence_graph_gradient(mdp, logits), nm.exact_gradient(mdp, logits))
        > 1e-3
    )


def test_orientation_on_the_chain():
    mdp, logits = chain(0)
    signal = eg.credited_values(
        mdp, logits, mdp.graph, np.ones_like(mdp.reward), eg.reward_weight(mdp.reward_graph), 0.5
    )
    discounts = np.array(
        [[2, 1, 0.5], [0, 2, 1], [0, 0, 2]]
    )  # from lag 0, 1 or 2 on; never backwards
    np.testing.assert_allclose(signal, np.broadcast_to(discounts[:, :, None, None], signal.shape))


@pytest.mark.parametrize("seed", range(3))
def test_td_form_on_the_chain_keeps_two_hop_credit_only_with_own_state_critics(seed):
    mdp, logits = chain(seed)
    exact = nm.exact_gradient(mdp, logits)
    own = eg.td_form_gradient(mdp, logits, eg.own_state_critic(mdp, logits))
    full = eg.td_form_gradient(mdp, logits, nm.values(mdp, logits))
    np.testing.assert_allclose(own, exact, atol=1e-8)
    assert np.linalg.norm(full[0, 2]) < 1e-6 * np.linalg.norm(exact[0, 2])
    np.testing.assert_allclose(full[0, 1], exact[0, 1], atol=1e-8)


@pytest.mark.parametrize("lambda_", [1.0, 0.9, 0.0])
def test_return_form_is_unbiased_with_full_state_critics(lambda_):
    mdp, logits = drawn(11, 3)
    form = eg.return_form_gradient(mdp, logits, nm.values(mdp, logits), lambda_)
    np.testing.assert_allclose(form, nm.exact_gradient(mdp, logits), atol=1e-8)


def test_weighted_td_is_a_mixture_of_plain_td_and_ordinary_gae():
    mdp, logits = drawn(12, 3)
    critic = eg.own_state_critic(mdp, logits)
    weighted = eg.td_form_gradient(mdp, logits, critic, 0.8, eg.td_weight(0.8, weighted=True))
    plain = eg.td_form_gradient(mdp, logits, critic, 0.8)
    ordinary = eg.ungraphed_gae_gradient(mdp, logits, critic, 0.8)
    np.testing.assert_allclose(weighted, 0.8 * plain + 0.2 * ordinary, atol=1e-10)
    np.testing.assert_allclose(
        plain, ordinary, atol=1e-8
    )  # an own-state critic: dropped TD errors carry no expected credit


# Bounds and proof steps


def test_best_kernel_is_nearest():
    mdp, logits = drawn(5, 3)
    wrong = bounds.without_edge(np.random.default_rng(0), mdp)
    assert wrong is not None
    best = bounds.kernel_distance(mdp, bounds.best_kernel(mdp, wrong))
    assert 0 < best <= bounds.kernel_distance(mdp, bounds.marginal_kernel(mdp, logits, wrong))
    assert bounds.kernel_distance(mdp, bounds.best_kernel(mdp, mdp.graph)) < 1e-12
    error, epsilon, unit = bounds.graph_lemma(mdp, logits, wrong)
    assert epsilon == best
    assert 0 < error < 3 * unit


def test_long_memory_family_agrees_with_the_general_solver():
    reach, gamma, epsilon = 2, 0.9, 1e-3
    size = 2 * reach + 1
    states, actions = nm.digits(2, size), nm.digits(2, 2)
    kernel = np.zeros((2, size**2, 4, size))
    for (s, (walker, copier)), (a, (push, _)) in (
        (x, y) for x in enumerate(states) for y in enumerate(actions)
    ):
        kernel[0, s, a, np.clip(walker + 2 * push - 1, 0, size - 1)] = 1
        keeps = 1 - epsilon
        kernel[1, s, a, min(copier, 1)] += keeps
        kernel[1, s, a, int(walker > reach)] += epsilon
    reward = np.zeros((2, size**2, 4))
    reward[1] = (states[:, 1] == 1)[:, None]
    start = ((states[:, 0] == reach) & (states[:, 1] == 0)).astype(float)
    edge, own = (nm.static_graph(np.array([[0, linked], [0, 0]], bool), size) for linked in (1, 0))
    mdp = nm.NetworkedMDP(kernel, reward, start, gamma, edge, own)
    gradient = nm.exact_gradient(mdp, np.zeros((2, size, 2)))[0, 1, :, 1].sum()
    slope = bounds.long_memory_ratio(gamma, reach) * 0.5 / (1 - gamma)
    np.testing.assert_allclose(
        gradient, gamma * epsilon / (1 - gamma * (1 - epsilon)) * slope, rtol=1e-10
    )


def test_the_lemmas_bound_fails_for_long_memories():
    assert bounds.long_memory_ratio(0.9) < 3 < bounds.long_memory_ratio(0.999)


def test_information_bound_holds_and_vanishes_on_the_true_graph():
    mdp, logits = drawn(6, 3)
    other = nm.own_state_graph(np.random.default_rng(1), 3, 2, 0.2)
    distance, bound = bounds.information_bound(mdp, logits, other).T
    assert distance.max() > 0
    assert (distance <= bound + 1e-12).all()
    assert bounds.information_bound(mdp, logits, mdp.graph)[:, 0].max() < 1e-12


def test_proof_steps():
    mdp, logits = drawn(8, 3)
    assert bounds.score_given_next_state(mdp, logits, 0) > 0.01
    assert bounds.cross_term(mdp, logits) < 1e-12
    assert bounds.off_diagonal_share(mdp, logits) > 1e-3
    assert bounds.recursion_gap(mdp, logits) > 1e-3
    alone = nm.random_mdp(np.random.default_rng(0), nm.static_graph(np.eye(2, dtype=bool), 2))
    assert (
        bounds.off_diagonal_share(alone, nm.random_logits(np.random.default_rng(1), alone)) < 1e-6
    )
    complete = random_voter(np.random.default_rng(0), topology("complete", 6), 0.9)
    assert 5 < bounds.sum_of_squares_ratio(complete, 100) <= 6


# Estimators and laws in N


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_voter_networks_agree_with_the_joint_tables(name):
    rng = np.random.default_rng(2)
    voter = random_voter(rng, topology(name, 3), 0.9)
    logits, tables = rng.normal(size=(3, 2, 2)), as_tables(voter)
    np.testing.assert_allclose(
        voter_gradient(voter, logits), nm.exact_gradient(tables, logits).sum(axis=1), atol=1e-10
    )


def test_fixed_graph_lags():
    lags = fixed_graph_lags(topology("chain", 3))
    np.testing.assert_array_equal(lags, [[0, 1, 2], [np.inf, 0, 1], [np.inf, np.inf, 0]])
    np.testing.assert_array_equal(fixed_graph_lags(topology("star", 3))[1:, 0], [1, 1])


def test_fixed_graph_shortcut_is_the_librarys_estimator():
    rng = np.random.default_rng(4)
    voter = random_voter(rng, topology("ring", 4), 0.8)
    logits = rng.normal(size=(4, 2, 2))
    states, actions = sample_voter(rng, voter, logits, 9, 5)
    rewards, policy = voter.reward[np.arange(4), states, actions], nm.softmax(logits)
    scores = (
        np.eye(2)[states][..., None]
        * (np.eye(2)[actions] - policy[np.arange(4), states])[..., None, :]
    )
    by_score, by_reward = (jnp.asarray(np.swapaxes(x, 0, 1)) for x in (scores, rewards))
    graph = jnp.broadcast_to(jnp.asarray(voter.edges), (5, 9, 4, 4))
    for lags, expected in (
        (voter.lags, graph_gpomdp(by_score, by_reward, graph, 0.8, per_trajectory=True)),
        (np.zeros((4, 4)), gpomdp(by_score, by_reward, 0.8, per_trajectory=True)),
    ):
        short = moments.trajectory_gradients(voter, lags, states, actions, policy)
        np.testing.assert_allclose(short, np.asarray(expected), atol=1e-5)


def test_sampled_estimators_agree_with_the_exact_expectation_also_on_a_wrong_graph():
    mdp, logits = drawn(9, 3, gamma=0.7)
    rng = np.random.default_rng(0)
    trajectories = sample_trajectories(rng, mdp, logits, 6000, 30)
    exact = nm.exact_gradient(mdp, logits).sum(axis=1)
    none = nm.static_graph(np.eye(3, dtype=bool), 2)
    wrong = eg.dependence_graph_gradient(mdp, logits, none).sum(axis=1)
    sampled = sampled_gradients(trajectories, mdp.gamma)
    isolated = Trajectories(
        trajectories.scores,
        trajectories.reward,
        np.broadcast_to(np.eye(3, dtype=bool), trajectories.graph.shape),
    )
    pairs = [
        (sampled["graph"], exact),
        (sampled["standard"], exact),
        (sampled_gradients(isolated, mdp.gamma)["graph"], wrong),
    ]
    for estimates, truth in pairs:
        error = estimates.std(axis=0) / np.sqrt(len(estimates))
        assert (np.abs(estimates.mean(axis=0) - truth) < 4.5 * error).all()
    assert sampled["graph"].var(axis=0).sum() < sampled["standard"].var(axis=0).sum()


def test_second_moment_with_constant_rewards_is_exact():
    rng = np.random.default_rng(1)
    edges = topology("chain", 3)
    voter = VoterNetwork(edges, rng.uniform(0.1, 0.9, (3, 2, 2)), np.ones((3, 2, 2)), 0.8)
    measured = moments.measure_second_moment(rng, voter, "chain", 8000)
    assert abs(measured.graph - measured.constant_graph) < 5 * measured.graph_error
    assert abs(measured.standard - measured.constant_standard) < 5 * measured.standard_error
    assert measured.constant_graph <= measured.proved_graph_bound


def test_papers_second_moment_bounds_fail_and_mended_ones_hold_on_a_large_complete_graph():
    lags, gamma = fixed_graph_lags(topology("complete", 16)), 0.9
    moment = moments.constant_reward_moment(lags, gamma, 88, 0.5)
    assert moment > 0.5 * (gamma**lags).sum() / (1 - gamma) ** 3
    assert moment < moments.pair_bound(gamma**lags, gamma, 0.5)


def test_samples_to_stationary_favours_the_graph():
    counts = {
        estimator: np.mean(
            samples_to_stationary(
                np.random.default_rng(0),
                "disconnected",
                4,
                estimator,
                epsilon=0.2,
                gamma=0.5,
                n_seeds=2,
            ).samples
        )
        for estimator in ("graph", "standard")
    }
    assert counts["graph"] < counts["standard"]
    predicted = predicted_samples("disconnected", 4, epsilon=0.2, gamma=0.5)
    assert predicted["standard"] / predicted["graph"] == pytest.approx(4)


# Table and page


def test_verdicts_follow_the_numbers():
    good, bad = (
        GradientErrors(np.array([1e-12]), np.array([1e-12])),
        GradientErrors(np.array([0.1]), np.array([0.1])),
    )
    assert identity_claim("", "", good, "").holds == "yes"
    assert identity_claim("", "", bad, "").holds == "no"
    assert bias_claim(bad, "", "", "", claimed=False).holds == "not claimed"
    assert bound_claim("", "", "", np.array([0.5, 1.5]), "").holds == "no"


def test_mathematics():
    assert mathematics("T_ji <= gamma^2") == "T<sub>ji</sub> ≤ γ<sup>2</sup>"
    assert (
        mathematics("E ||g||^2 grows like N^1.5.")
        == "E ‖g‖<sup>2</sup> grows like N<sup>1.5</sup>."
    )
    assert (
        mathematics("|| P^i_G' ||_1 and grad_graph")
        == "‖ P<sup>i</sup><sub>G'</sub> ‖<sub>1</sub> and grad_graph"
    )
    assert mathematics("s_{t+1} & est_joint_grad_var") == "s<sub>t+1</sub> &amp; est_joint_grad_var"


def test_laboratory_writes_a_page_and_a_table(tmp_path):
    heard = []
    claims = run_laboratory(
        tmp_path / "new", quick=True, progress=lambda what, fraction: heard.append(fraction)
    )
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == [
        "theory.html",
        "theory.json",
    ]
    assert heard == sorted(heard)
    assert heard[-1] == 1
    for claim in claims:
        assert claim.numbers, claim.name
        assert all(math.isfinite(value) for value in claim.numbers.values()), claim.name
    verdicts = {claim.name: claim.holds for claim in claims}
    assert verdicts["The expected dependence-graph gradient is the policy gradient"] == "yes"
    assert verdicts["E || sum_i g_j^i ||^2 <= sum_i E || g_j^i ||^2"] == "no"
    document = json.loads((tmp_path / "new" / "theory.json").read_text())
    assert sum(len(section["claims"]) for section in document["sections"]) == len(claims)
    page = (tmp_path / "new" / "theory.html").read_text()
    assert page.count("<tr><td>") == len(claims)
    assert "src=" not in page
    assert "url(http" not in page


def test_a_negative_seed_is_refused_and_nothing_is_written(tmp_path):
    with pytest.raises(UsageError, match="seed is -1"):
        run_laboratory(tmp_path / "new", seed=-1)
    assert not (tmp_path / "new").exists()
