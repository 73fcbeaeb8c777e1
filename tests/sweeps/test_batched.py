"""Runs of equal shape, batched into one program, give what each gives alone."""

import numpy as np
import pytest

from dgmarl import api
from dgmarl.config.resolve import resolve
from dgmarl.runs.callbacks import as_callbacks
from dgmarl.runs.folder import RunFolder
from dgmarl.runs.recorder import Recorder
from dgmarl.runs.replays import read_replay
from dgmarl.sweeps.batched import shape, train_all
from tests.tiny import GIFT, SMALL

PLAIN = {**SMALL, "credit.reward_scaling": "none"}
SCALED = {"credit.reward_scaling": "scale"}
STANDARDISED = {"credit.reward_scaling": "standardise"}


def config(method, graph="oracle", **overrides):
    return resolve(GIFT, method, {**PLAIN, **overrides}, graph=graph, seeds=2, steps=100)


RUNS = {
    "local": config("ippo-local"),
    "global": config("ippo-global"),
    "oracle": config("ippo-dg"),
    "random": config(
        "ippo-dg", "random:0.5", **{"credit.cross_weight": 0.3, "credit.unreached_weight": 0.05}
    ),
}


@pytest.fixture(scope="module")
def together():
    return dict(zip(RUNS, train_all([Recorder(run) for run in RUNS.values()]), strict=True))


@pytest.mark.parametrize(
    "name",
    [
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("local", "global")),
        pytest.param("oracle", marks=pytest.mark.slow),
        "random",
    ],
)
def test_a_batched_run_is_the_run_alone(together, name):
    alone, batched = api.train_config(RUNS[name]), together[name]
    assert batched.config == RUNS[name]
    np.testing.assert_array_equal(batched.steps, alone.steps)
    np.testing.assert_allclose(
        batched.metrics["policy_loss"], alone.metrics["policy_loss"], atol=1e-4
    )
    np.testing.assert_allclose(
        batched.metrics["value_loss"], alone.metrics["value_loss"], atol=1e-4
    )


def test_batched_runs_differ(together):
    losses = [result.metrics["policy_loss"][:, -1].tolist() for result in together.values()]
    assert len({tuple(loss) for loss in losses}) == len(RUNS)


@pytest.mark.slow
def test_batched_runs_of_learned_graphs_differ_by_their_threshold():
    thresholds = [0.0, 10.0]
    runs = [config("ippo-dg", "learned", **{"graph_model.threshold": c}) for c in thresholds]
    densities = [
        result.metrics["graph_density"].mean()
        for result in train_all([Recorder(run) for run in runs])
    ]
    assert densities == [*thresholds[:1], 1.0]


@pytest.mark.slow
def test_batched_runs_of_one_rule_standardise_rewards_as_it_does():
    """Local credit has statistics for each agent, which graph credit has not."""
    rates = (1e-3, 2e-3)
    runs = [
        config("ippo-local", **STANDARDISED, **{"learner.learning_rate": rate}) for rate in rates
    ]
    assert shape(runs[0]) == shape(runs[1])
    batched = train_all([Recorder(run) for run in runs])[1]
    alone = api.train_config(runs[1])
    assert alone.state.credit_state.mean.shape == (2, 2), "seeds and agents"
    np.testing.assert_allclose(
        batched.metrics["value_loss"], alone.metrics["value_loss"], atol=1e-4
    )
    np.testing.assert_allclose(
        batched.state.credit_state.mean, alone.state.credit_state.mean, atol=1e-5
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["local", "global", "graph"])
def test_batched_runs_of_different_rules_scale_rewards_alike(scaled_together, name):
    """One statistic for all rules, so runs whose rewards are scaled can be batched too."""
    run, batched = scaled_together[name]
    alone = api.train_config(run)
    np.testing.assert_array_equal(batched.steps, alone.steps)
    for metric in ("policy_loss", "value_loss"):
        np.testing.assert_allclose(batched.metrics[metric], alone.metrics[metric], atol=1e-4)
    for found, expected in zip(batched.state.credit_state, alone.state.credit_state, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4)


@pytest.fixture(scope="module")
def scaled_together():
    methods = {"local": "ippo-local", "global": "ippo-global", "graph": "ippo-dg"}
    runs = {name: config(method, **SCALED) for name, method in methods.items()}
    assert len({shape(run) for run in runs.values()}) == 1
    results = train_all([Recorder(run) for run in runs.values()])
    return dict(zip(runs, zip(runs.values(), results, strict=True), strict=True))


def test_what_changes_shapes_is_not_batched():
    oracle = shape(RUNS["oracle"])
    assert oracle == shape(RUNS["local"]) == shape(RUNS["random"])
    others = (
        config("mappo-dg"),
        config("ippo-dg", "learned"),
        config("ippo-dg", **{"learner.hidden": 9}),
    )
    assert all(shape(other) != oracle for other in others)
    assert shape(config("ippo-local", **STANDARDISED)) != shape(config("ippo-dg", **STANDARDISED))
    assert shape(config("ippo-dg", "mine.py:Source")) != oracle, "a user's own source may learn"
    separate = [config(method, separate_seeds=True) for method in ("ippo-local", "ippo-dg")]
    assert shape(separate[0]) != shape(separate[1]), "batched runs are not identical to one alone"


def _assert_same_replay(batched, alone, graph):
    assert batched[:4] == alone[:4]
    assert (batched.weights is None) == (alone.weights is None)
    for first, second in zip(batched.episodes, alone.episodes, strict=True):
        np.testing.assert_array_equal(first.actions, second.actions)
        np.testing.assert_array_equal(first.rewards, second.rewards)
        if not graph.startswith("random"):
            np.testing.assert_array_equal(first.graph, second.graph)


@pytest.mark.slow
def test_batched_runs_that_were_cut_off_go_on_to_the_same_result(together, tmp_path):
    recorders = [Recorder(run, RunFolder(tmp_path / name)) for name, run in RUNS.items()]
    recorders[1].callbacks += as_callbacks(
        [lambda progress: setattr(recorders[1], "interrupted", progress.evaluation == 1)]
    )
    assert all(result.interrupted for result in train_all(recorders))
    assert not list(tmp_path.rglob("replay.npz"))
    again = train_all([Recorder(run, RunFolder(tmp_path / name)) for name, run in RUNS.items()])
    for result, whole in zip(again, together.values(), strict=True):
        np.testing.assert_array_equal(result.returns, whole.returns)
        np.testing.assert_array_equal(result.steps, whole.steps)
    for name, run in RUNS.items():
        replay = read_replay(tmp_path / name / "replay.npz")
        alone = api.resume(tmp_path / name, trust=True)
        _assert_same_replay(replay, read_replay(tmp_path / name / "replay.npz"), run.graph)
        np.testing.assert_array_equal(
            alone.returns, together[name].returns, "a batched run's folder is that of the run alone"
        )
