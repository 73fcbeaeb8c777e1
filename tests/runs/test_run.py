"""A trained run in a program's hands."""

import sys

import jax
import numpy as np
import pytest

import dgmarl
from dgmarl import UsageError
from dgmarl.config.resolve import resolve
from dgmarl.training import Trainer
from tests.tiny import GIFT, SMALL, WINDOWS


@pytest.fixture(scope="module")
def run(finished):
    return dgmarl.load(finished.path, seed=1, trust=True)


def test_a_loaded_run_has_the_curves_of_the_trained_one(finished, run):
    trained = finished.result
    np.testing.assert_array_equal(run.steps, trained.steps)
    np.testing.assert_allclose(run.returns, trained.returns)
    assert run.metrics.keys() >= trained.metrics.keys()
    for name, values in trained.metrics.items():
        np.testing.assert_allclose(run.metrics[name], values, rtol=1e-6)
    assert run.timing["steps_per_s"] > 0
    assert not run.interrupted
    assert len(repr(run)) < 200 + len(GIFT)


def test_the_frame_has_a_row_per_seed_and_evaluation(run):
    frame = run.frame()
    n_seeds, n_evaluations = run.steps.shape
    assert len(frame) == n_seeds * n_evaluations
    row = frame[(frame.seed == 1) & (frame.evaluation == 2)].iloc[0]
    assert row.step == run.steps[1, 2]
    assert row.return_mean == pytest.approx(run.returns[1, 2].mean())
    assert row.entropy == pytest.approx(run.metrics["entropy"][1, 2])


def test_the_policy_keeps_its_hidden_state(run):
    key, n = jax.random.key(3), 2
    _, observation = jax.vmap(run.env.reset)(jax.random.split(key, n))
    policy, hidden = dgmarl.runs.run.Policy(run, seed=5), run.init_hidden_state(n)
    own, is_first = jax.random.key(5), np.ones(n, bool)
    for _ in range(3):
        own, act_key = jax.random.split(own)
        expected, hidden = run.act(act_key, observation, hidden, is_first)
        np.testing.assert_array_equal(policy.act(observation), expected)
        is_first = np.zeros(n, bool)
    with pytest.raises(UsageError, match=r"acted for 2 environments and is given 1.*reset"):
        policy.act(np.asarray(observation.agents_view)[:1])
    policy.reset()
    assert policy.act(np.asarray(observation.agents_view)[0]).shape == (2,)


def test_recorded_episodes_are_arrays(run):
    episodes = run.record(2, seed=1)
    assert len(episodes) == 2
    for episode in episodes:
        length = len(episode.rewards)
        assert episode.actions.shape == (length, 2)
        assert episode.graph.shape == (length, 2, 2)
        assert episode.graph[:, [0, 1], [0, 1]].all()
    for graph, episode in zip(run.graphs(2, seed=1), episodes, strict=True):
        np.testing.assert_array_equal(graph, episode.graph)


def test_credits_are_the_weights_of_rewards(run):
    graph = np.ones((3, 2, 2), bool)
    graph[0, 0, 1] = False
    weights = run.credits(graph)
    decay = run.config.learner.gamma * run.config.learner.lambda_
    assert weights.shape == (3, 2, 3, 2)
    np.testing.assert_allclose(weights[0, 0, :, 0], decay ** np.arange(3), rtol=1e-6)
    assert weights[0, 0, 0, 1] == 0  # not reached yet
    assert weights[0, 0, 1, 1] > 0
    assert (weights[2, :, :2] == 0).all()  # no credit for the past


def test_what_needs_a_graph_says_so():
    trainer = Trainer(resolve(GIFT, "ippo-local", SMALL, steps=20))
    run = dgmarl.Run(trainer, jax.jit(jax.vmap(trainer.init))(jax.random.key(0)[None]))
    with pytest.raises(UsageError, match="ippo-local was trained without dependence graphs"):
        run.graphs()
    with pytest.raises(UsageError, match="without dependence graphs"):
        run.credits(np.ones((2, 2, 2), bool))


def test_training_goes_on_from_python(finished, monkeypatch):
    config, told = finished.config, {}
    given = {"overrides": WINDOWS, "seeds": 2, "graph": config.graph, "out": finished.path}
    monkeypatch.setattr(dgmarl.api, "_resume", lambda out, *_, **options: told.update(options))
    dgmarl.train(GIFT, "ippo-dg", resume=True, steps=900, **given)
    assert told["steps"] == 900
    given["overrides"] = {**WINDOWS, "learner.hidden": 16}
    with pytest.raises(UsageError, match=r"holds a run with learner.hidden = 8, not 16"):
        dgmarl.train(GIFT, "ippo-dg", resume=True, steps=900, **given)


def test_a_frame_without_pandas_names_the_extra(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(UsageError, match=r"pandas is not installed.*dgmarl\[frames\]"):
        run.frame()


def test_an_unknown_seed_is_refused(finished):
    with pytest.raises(UsageError, match="seeds 0 to 1, but not 7"):
        dgmarl.load(finished.path, seed=7, trust=True)
