"""Grid files: every combination once, under a name of its own; mistakes in one sentence."""

from contextlib import suppress
from pathlib import PurePosixPath

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dgmarl.config.schema import TrainConfig
from dgmarl.config.yaml import dotted, plain
from dgmarl.errors import UsageError
from dgmarl.sweeps.grid import MOST_RUNS, config_of, expand

EXAMPLE = {
    "env": ["lbf/5x5-2p-1f", "star-spread/3"],
    "method": ["ippo-local", "ippo-dg"],
    "learner.hidden": [32, 64],
    "seeds": 2,
    "steps": "2e3",
}
FIELDS = {
    "env": ["lbf/5x5-2p-1f", "lbf/8x8-2p-4f-coop", "star-spread/3"],
    "method": ["ippo-dg", "mappo-dg"],
    "graph": ["oracle", "learned", "random:0.3", "random:0.4"],
    "seed": [0, 10, 20],
    "steps": [1000, 2000],
    "learner.hidden": [8, 16, 32],
    "learner.learning_rate": [1e-4, 3e-4, 0.001],
    "credit.cross_weight": [0.5, 1.0],
    "evaluation.greedy": [True, False],
}
axes = st.fixed_dictionaries(
    {"env": st.lists(st.sampled_from(FIELDS["env"]), min_size=1, unique=True)},
    optional={
        name: st.lists(st.sampled_from(values), min_size=1, unique=True)
        for name, values in FIELDS.items()
        if name != "env"
    },
)
hostile = st.sampled_from(["..", "../../x", "/", "~"])
scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | hostile
names = (
    st.sampled_from([*FIELDS, "learner", "env_options", "samples", "preset"]) | st.text() | hostile
)
junk = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=5) | st.sampled_from(["uniform", "choice"]), inner)
    ),
    max_leaves=5,
)


def test_the_example_has_every_combination():
    runs = expand(EXAMPLE)
    assert len(runs) == 8
    config = config_of(runs["lbf_5x5-2p-1f__ippo-dg/hidden=64"])
    assert (config.env, config.method, config.learner.hidden) == ("lbf/5x5-2p-1f", "ippo-dg", 64)
    assert (config.seeds, config.steps) == (2, 2000)


@given(axes)
@settings(max_examples=50, deadline=None)
def test_every_combination_is_one_run_with_its_own_name(grid):
    runs = expand(grid)
    size = 1
    for values in grid.values():
        size *= len(values)
    assert len(runs) == len({repr(values) for values in runs.values()}) == size
    for name, values in runs.items():
        assert values.keys() == grid.keys()
        resolved = dotted(plain(config_of(values)))
        assert {field: resolved[field] for field in values} == values
        constant = [field.rpartition(".")[2] for field in grid if len(grid[field]) == 1]
        assert not any(f"{field}=" in name for field in constant)
    # Axes of one value are the same as values.
    single = {field: v[0] if len(v) == 1 else v for field, v in grid.items()}
    assert expand(single) == runs


@given(st.dictionaries(names, junk, max_size=5), st.booleans())
@settings(max_examples=200, deadline=None)
def test_whatever_a_file_holds_is_a_sentence_or_runs_below_the_folder(grid, with_env):
    grid = {**({"env": "lbf/5x5-2p-1f"} if with_env else {}), **grid}
    try:
        runs = expand(grid)
    except UsageError:
        return
    assert len({name.casefold() for name in runs}) == len(runs) <= MOST_RUNS
    for name, values in runs.items():
        parts = PurePosixPath(name).parts
        assert 1 <= len(parts) <= 2
        assert all(part.isprintable() and part[0] not in "./-" for part in parts)
        assert len(name) < 200
        with suppress(UsageError):
            assert isinstance(config_of(values), TrainConfig)


def test_sections_may_be_nested():
    assert expand({"env": "a", "learner": {"hidden": [8, 16], "gamma": 0.9}}) == expand(
        {"env": "a", "learner.hidden": [8, 16], "learner.gamma": 0.9}
    )


def test_a_method_without_a_graph_is_trained_once():
    graphs = ["oracle", "random:0.3"]
    runs = expand({"env": "a", "method": ["ippo-local", "ippo-dg"], "graph": graphs})
    assert [*runs] == ["ippo-local", "ippo-dg__oracle", "ippo-dg__random0.3"]


def test_names_that_would_be_equal_are_told_apart():
    runs = expand({"env": ["x.py:Env", "y.py:Env"], "seed": 1})
    assert len(runs) == 2
    assert all(name.startswith("Env-") for name in runs)
    assert "learner.x=1__credit.x=1" in expand(
        {"env": "a", "learner.x": [1, 2], "credit.x": [1, 2]}
    )
    (name, other) = expand({"env": ["a" * 300, "b"]})
    assert len(name) < 200
    assert other == "b"


SEARCH = {
    "env": "star-spread/3",
    "method": ["ippo-local", "ippo-dg"],
    "learner.learning_rate": {"loguniform": ["1e-4", "1e-2"]},
    "learner.gamma": {"uniform": [0.9, 1]},
    "learner.hidden": {"choice": [16, 32]},
    "samples": 20,
}


def test_random_points_are_the_same_for_all_methods_and_begin_the_same():
    runs = [*expand(SEARCH).values()]
    assert len(runs) == 40
    for run in runs:
        assert 1e-4 <= run["learner.learning_rate"] < 1e-2
        assert 0.9 <= run["learner.gamma"] < 1
        assert run["learner.hidden"] in (16, 32)
        assert config_of(run).learner.gamma == run["learner.gamma"]
    points = [{k: v for k, v in run.items() if k != "method"} for run in runs]
    assert points[:20] == points[20:]
    assert len({repr(point) for point in points}) == 20
    # On a logarithmic scale the middle is 1e-3.
    assert 5 <= sum(run["learner.learning_rate"] < 1e-3 for run in runs[:20]) <= 15
    fewer = [*expand({**SEARCH, "samples": 3, "method": "ippo-dg"}).values()]
    assert [{**run, "method": "ippo-local"} for run in fewer] == runs[:3]
    assert [*expand({**SEARCH, "search_seed": 1}).values()] != runs


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"env": []}, "at least one value"),
        ({"seed": [1, 1]}, "seed lists 1 2 times"),
        ({"samples": 3}, "give both or neither"),
        ({"learner.gamma": {"uniform": [0, 1]}}, "give both or neither"),
        ({"learner.gamma": {"uniform": [1, 0]}, "samples": 2}, "smaller one first"),
        ({"learner.gamma": {"loguniform": [0, 1]}, "samples": 2}, "two numbers above 0"),
        ({"learner.gamma": {"uniform": ["a", 1]}, "samples": 2}, "'a', but must be a number"),
        ({"learner.gamma": {"choice": 3}, "samples": 2}, "needs a list"),
        ({"learner.gamma": 0.9, "learner": {"gamma": 0.8}}, "learner.gamma is given twice"),
        ({7: 1}, "7 is not a field"),
        ({"seed": list(range(500)), "steps": list(range(500))}, "250,000 runs"),
    ],
)
def test_mistakes_of_the_whole_grid(change, words):
    with pytest.raises(UsageError, match=words):
        expand({"env": "star-spread/3", **change})


def test_a_grid_needs_an_environment():
    with pytest.raises(UsageError, match="names no env"):
        expand({"method": "ippo-dg"})


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"env": "star-spread/3", "learner.hiden": 3}, "did you mean hidden"),
        ({"env": "star-spread/3", "method": "ippo"}, "ippo"),
        ({"env": 3}, "env is 3"),
        ({"env": "star-spread/3", "preset": "best"}, "tuned, paper or fast"),
        ({"env": "star-spread/3", "steps": 2.5}, "whole number"),
    ],
)
def test_mistakes_of_one_run(values, words):
    with pytest.raises(UsageError, match=words):
        config_of(values)
