"""What docs/adapters.md says of learning through the adapters holds in the published files."""

import json
from pathlib import Path

import numpy as np
import pytest

from dgmarl.report.results import read_result
from dgmarl.report.statistics import mean_interval

RESULTS = Path(__file__).resolve().parents[2] / "results"


def published(name: str):
    return read_result(RESULTS / "adapters" / f"{name}.json")


METHODS = ("ippo-local", "ippo-global")


@pytest.mark.parametrize("scenario", ["jaxmarl-mpe-spread", "pettingzoo-mpe-spread"])
@pytest.mark.parametrize("method", METHODS)
def test_simple_spread_is_learned(scenario, method):
    played = json.loads((RESULTS / "benchmarks" / "adapters-random.json").read_text())["rows"]
    by_scenario = {row["scenario"]: row for row in played}
    random = by_scenario[scenario]
    learned = mean_interval(published(f"{scenario}__{method}").final)
    assert learned.low > random["return_mean"] + random["half_width"]


@pytest.mark.parametrize("method", METHODS)
def test_simple_spread_is_the_same_through_both_doors(method):
    """After as many steps, with the same numbers."""
    runs = [published(f"{adapter}-mpe-spread__{method}") for adapter in ("jaxmarl", "pettingzoo")]
    a, b = (mean_interval(run.final) for run in runs)
    assert a.low <= b.high
    assert b.low <= a.high
    np.testing.assert_array_equal(runs[0].steps, runs[1].steps)


def test_smax_is_won():
    won = np.asarray(published("jaxmarl-2s3z__mappo-global").metric("final_battle_won"))
    assert won.shape[0] == 5
    assert won[:, 0].max() < 0.1
    assert won[:, -1].min() > 0.95


def test_jumanjis_foraging_and_ours_have_one_learning_curve():
    """At every evaluation the intervals overlap, also where the curves rise."""
    ours, theirs = (
        published(f"{name}-8x8-2p-2f-coop__ippo-local") for name in ("lbf", "jumanji-lbf")
    )
    np.testing.assert_array_equal(ours.steps, theirs.steps)
    bands = [
        (mean_interval(a), mean_interval(b))
        for a, b in zip(ours.returns.T, theirs.returns.T, strict=True)
    ]
    assert all(a.low <= b.high and b.low <= a.high for a, b in bands)
    assert bands[0][0].high < 0.05
    assert bands[-1][0].low > 0.95
