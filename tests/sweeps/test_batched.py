"""Lanes: cells of equal shape in one program give what each gives alone."""

import numpy as np
import pytest

from dgmarl.config.resolve import resolve
from dgmarl.runs.folder import RunFolder
from dgmarl.runs.recorder import Recorder
from dgmarl.sweeps.batched import shape, train_lanes
from dgmarl.training import train
from tests.tiny import GIFT, SMALL

PLAIN = {**SMALL, "learner.standardise_reward": False}


def config(method, graph="oracle", **overrides):
    return resolve(GIFT, method, {**PLAIN, **overrides}, graph=graph, seeds=2, steps=100)


CELLS = {
    "local": config("ippo-local"),
    "global": config("ippo-global"),
    "oracle": config("ippo-dg"),
    "random": config(
        "ippo-dg", "random:0.5", **{"learner.cross_weight": 0.3, "learner.weighted": False}
    ),
}


@pytest.fixture(scope="module")
def together():
    return dict(zip(CELLS, train_lanes([Recorder(cell) for cell in CELLS.values()]), strict=True))


@pytest.mark.parametrize("name", CELLS)
def test_a_lane_is_the_run_alone(together, name):
    alone, lane = train(CELLS[name]), together[name]
    assert lane.config == CELLS[name]
    np.testing.assert_array_equal(lane.steps, alone.steps)
    np.testing.assert_allclose(lane.metrics["policy_loss"], alone.metrics["policy_loss"], atol=1e-4)
    np.testing.assert_allclose(lane.metrics["value_loss"], alone.metrics["value_loss"], atol=1e-4)


def test_lanes_differ(together):
    losses = [result.metrics["policy_loss"][:, -1].tolist() for result in together.values()]
    assert len({tuple(loss) for loss in losses}) == len(CELLS)


@pytest.mark.slow
def test_learned_lanes_differ_by_their_threshold():
    thresholds = [0.0, 10.0]
    cells = [config("ippo-dg", "learned", **{"graph_model.threshold": c}) for c in thresholds]
    densities = [
        result.metrics["graph_density"].mean()
        for result in train_lanes([Recorder(cell) for cell in cells])
    ]
    assert densities == [*thresholds[:1], 1.0]


def test_lanes_of_one_credit_scale_rewards_as_it_does():
    """Local credit has statistics for each agent, which graph credit has not."""
    rates = (1e-3, 2e-3)
    scaled = [
        config("ippo-local", **{"learner.standardise_reward": True, "learner.learning_rate": rate})
        for rate in rates
    ]
    assert shape(scaled[0]) == shape(scaled[1])
    lane, alone = train_lanes([Recorder(cell) for cell in scaled])[1], train(scaled[1])
    np.testing.assert_allclose(lane.metrics["value_loss"], alone.metrics["value_loss"], atol=1e-4)
    np.testing.assert_allclose(
        lane.state.learner.statistics.mean, alone.state.learner.statistics.mean, atol=1e-5
    )


def test_what_changes_shapes_is_no_lane():
    oracle = shape(CELLS["oracle"])
    assert oracle == shape(CELLS["local"]) == shape(CELLS["random"])
    others = (
        config("mappo-dg"),
        config("ippo-dg", "learned"),
        config("ippo-dg", **{"learner.hidden": 9}),
    )
    assert all(shape(other) != oracle for other in others)
    scaled = {"learner.standardise_reward": True}
    assert shape(config("ippo-local", **scaled)) != shape(config("ippo-dg", **scaled))
    assert shape(config("ippo-dg", "mine.py:Source")) != oracle, "a user's own source may learn"


def test_lanes_that_were_cut_off_go_on_to_the_same_result(together, tmp_path):
    recorders = [Recorder(cell, RunFolder(tmp_path / name)) for name, cell in CELLS.items()]
    recorders[1].on_progress = lambda progress: setattr(
        recorders[1], "interrupted", progress.evaluation == 1
    )
    assert all(result.interrupted for result in train_lanes(recorders))
    again = train_lanes(
        [Recorder(cell, RunFolder(tmp_path / name)) for name, cell in CELLS.items()]
    )
    for result, whole in zip(again, together.values(), strict=True):
        np.testing.assert_array_equal(result.returns, whole.returns)
        np.testing.assert_array_equal(result.steps, whole.steps)
    for name, cell in CELLS.items():
        alone = train(cell, Recorder(cell, RunFolder(tmp_path / name)), resume=True)
        np.testing.assert_array_equal(
            alone.returns, together[name].returns, "a lane's folder is that of the run alone"
        )
