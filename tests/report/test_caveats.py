"""A graph that carries no information is named on the pages, with what to try."""

import json

import numpy as np
import pytest

from dgmarl.graphs.advice import uninformative
from dgmarl.report.caveats import caveats, graph_warnings
from dgmarl.report.results import Result, read_run
from tests.report.fake_runs import write_run


def result(path, graph: str = "learned", method: str = "ippo-dg", **metrics):
    """A run whose metrics have these values at every evaluation."""
    values = {"graph": graph} if method.endswith("-dg") else {}
    folder = write_run(path / "run", method, **values)
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    lines = [json.dumps({**row, **metrics}) + "\n" for row in rows]
    (folder / "metrics.jsonl").write_text("".join(lines))
    return read_run(folder)


@pytest.mark.parametrize(
    ("graph", "metrics", "words"),
    [
        ("interventional", {"graph_density": 0.0}, "has no edges"),
        ("oracle", {"graph_density": 0.0}, "has no edges"),
        ("attention:0.5", {"graph_density": 1.0}, "raise the threshold"),
        ("learned", {"graph_density": 0.95}, "nearly all edges"),
        (
            "learned",
            {"graph_density": 0.5, "graph_predictor_entropy": 0.01, "graph_pair_entropy": 0.002},
            "nearly deterministic",
        ),
    ],
)
def test_a_graph_that_says_nothing_is_named(tmp_path, graph, metrics, words):
    found = result(tmp_path, graph, **metrics)
    (warning,) = graph_warnings(found)
    assert words in warning
    assert "--graph interventional" in warning
    assert any(warning in note for note in caveats([found]))


@pytest.mark.parametrize("kind", ["measured", "oracle"])
def test_a_reward_graph_needs_no_edges(tmp_path, kind):
    folder = write_run(
        tmp_path / "run",
        "ippo-dg",
        graph="oracle",
        overrides={"credit.reward_graph": kind},
        metrics={"graph_density": 0.0},
    )
    assert graph_warnings(read_run(folder)) == []


@pytest.mark.parametrize(
    ("arguments", "said", "unsaid"),
    [
        ((0.0, "interventional:3"), "interventional:H with H larger than 3", "hardly"),
        ((0.0, "interventional:3:2"), "with H larger than 3)", "hardly"),
        ((0.0, "interventional"), "with H larger than 1)", "hardly"),
        ((0.0, "oracle"), "with H of 2 or more)", "hardly"),
        ((0.00096, "oracle"), "hardly any edges (density 0.00096), so graph credit nearly", "no e"),
        ((0.95, "learned"), "--graph-model.sees local_state, a lower", "density 0.001"),
        ((0.95, "learned", 1.0, "none", "local_state"), "a lower", "sees local_state"),
        ((1.0, "attention"), "(--graph attention:1)", "larger"),
        ((1.0, "attention:1"), "attention:C with C larger than 1)", "attention:1)"),
    ],
)
def test_advice_names_nothing_that_is_in_use(arguments, said, unsaid):
    sentence = uninformative(*arguments)
    assert said in sentence
    assert unsaid not in sentence
    assert uninformative(0.0, "oracle", 1.0, "measured") == ""


@pytest.mark.parametrize(
    ("graph", "method", "metrics"),
    [
        ("learned", "ippo-dg", {"graph_density": 0.3, "graph_predictor_entropy": 1.5}),
        ("self", "ippo-dg", {"graph_density": 0.0}),
        ("complete", "ippo-dg", {"graph_density": 1.0}),
        ("random:1.0", "ippo-dg", {"graph_density": 1.0}),
        ("oracle", "ippo-local", {"graph_density": 0.0}),
    ],
)
def test_other_graphs_are_not(tmp_path, graph, method, metrics):
    assert graph_warnings(result(tmp_path, graph, method, **metrics)) == []


def test_only_those_with_fewer_steps_are_named():
    budgets = {"ippo-local": 5_000_100, "ippo-dg-oracle": 5_000_000, "qmix": 1_000_000}
    results = [
        Result("lbf", "a", method, "lbf/a", np.full((2, 1), steps), np.zeros((2, 1)), {})
        for method, steps in budgets.items()
    ]
    assert caveats(results) == [
        "In lbf/a some methods have fewer steps than 5,000,100: qmix 1,000,000."
    ]
