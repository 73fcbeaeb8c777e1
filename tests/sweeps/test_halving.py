"""Successive halving: which runs go on."""

import json

import pytest

from dgmarl.errors import UsageError
from dgmarl.sweeps.grid import Halving, expand, halving_of
from dgmarl.sweeps.halving import Judge, Standing, standings
from dgmarl.sweeps.plan import plan_grid

GRID = {"env": "star-spread/3", "learner.hidden": [8, 16], "seeds": 2, "steps": 900}


@pytest.mark.parametrize(
    ("given", "halving"),
    [
        ({}, None),
        ({"halving": 3}, Halving(3, 3)),
        ({"halving": 2, "rungs": 1}, Halving(2, 1)),
    ],
)
def test_halving_is_part_of_a_grid_and_no_field_of_its_runs(tmp_path, given, halving):
    assert halving_of({**GRID, **given}) == halving
    assert expand({**GRID, **given}) == expand(GRID)
    assert plan_grid({**GRID, **given}, tmp_path).halving == halving


@pytest.mark.parametrize(
    "given", [{"halving": 1}, {"rungs": 3}, {"halving": 3, "rungs": 0}, {"halving": [2, 3]}]
)
def test_other_numbers_are_refused(given):
    with pytest.raises(UsageError, match="halving"):
        expand({**GRID, **given})


def test_a_run_goes_on_if_it_is_among_the_best_so_far():
    pytest.importorskip("ray.tune")

    def at(steps, run, score, group="a"):
        return Standing(group, run, steps, 900, score)

    judge = Judge(Halving(3, 2), [at(100, "first", 5.0), at(300, "first", 6.0)])
    assert not judge.stops(at(50, "second", 0.0))  # before the first rung
    assert judge.stops(at(110, "second", 4.0))
    assert not judge.stops(at(110, "third", 7.0))
    assert not judge.stops(at(200, "third", 0.0))  # once in a rung
    assert judge.stops(at(310, "third", 5.0))
    assert not judge.stops(at(900, "first", 0.0))  # finished
    assert not judge.stops(at(110, "other", 0.0, group="b"))


def test_what_is_judged_is_the_mean_over_seeds(tmp_path):
    run = plan_grid(GRID, tmp_path).runs[0]
    assert standings(run) == []
    row = {"iteration": 1, "wall_s": 1.0, "return_std": 0.0, "length_mean": 1.0}
    rows = [
        {
            **row,
            "seed": seed,
            "evaluation": k,
            "step": 100 * k + seed,
            "return_mean": k + 2.0 * seed,
        }
        for k in range(2)
        for seed in range(2)
    ]
    elsewhere = plan_grid({**GRID, "env": "star-spread/5"}, tmp_path / "other").runs[0]
    for one in (run, elsewhere):
        one.folder.mkdir(parents=True)
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (one.folder / "metrics.jsonl").write_text(text)
    assert [(one.steps, one.score) for one in standings(run)] == [(0.5, 1.0), (100.5, 2.0)]
    assert standings(run)[0].group != standings(elsewhere)[0].group
