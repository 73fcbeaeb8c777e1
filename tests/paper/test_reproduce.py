"""`dgmarl reproduce` on a grid small enough to train: cells are skipped, resumed to the identical
result, listed and drawn."""

import json
import re
import shutil
from pathlib import Path

import pytest

from dgmarl.cli import main
from dgmarl.errors import UsageError
from dgmarl.paper import reproduce
from dgmarl.paper.plans import FIGURES, SIX, PaperFigure, Plan
from dgmarl.paper.reproduce import (
    Speed,
    estimate_seconds,
    make_grid,
    results_of,
    run,
    write_figures,
)
from tests.tiny import GIFT

ROOT = Path(__file__).parents[2]
CELLS = (
    ("ippo-local", "ippo-local", "oracle"),
    ("ippo-dg", "ippo-dg", "oracle"),
    ("ippo-dg-complete", "ippo-dg", "complete"),
)
"""The last two are of equal shape: they share a program."""
TINY = PaperFigure(
    "tiny",
    1,
    "Gifts.",
    "Everything.",
    tuple(Plan("own", "gift", label, GIFT, *method, 250) for label, *method in CELLS),
)


def quiet(*_: object) -> None:
    pass


def command(*arguments: str) -> int:
    with pytest.raises(SystemExit) as stop:
        main(["reproduce", *arguments])
    return int(stop.value.code or 0)


def curves(out: Path) -> dict[str, tuple]:
    files = sorted((out / "results").rglob("*.json"))
    facts = {path.name: json.loads(path.read_text()) for path in files}
    return {
        name: (found["steps"], found["return_mean"], found["return_std"])
        for name, found in facts.items()
    }


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """The grid trained without interruption, and drawn."""
    out = tmp_path_factory.mktemp("whole")
    grid = make_grid([TINY], out, 2, 250)
    run(grid, out, quiet, quiet)
    write_figures([TINY], results_of(grid, out), out)
    return out


def test_an_interrupted_grid_goes_on_to_the_same_results_and_figures(whole, tmp_path):
    def crash(job, steps):
        if job.cell.method == "ippo-dg-complete" and steps >= 200:
            raise KeyboardInterrupt  # as if killed in the middle of the second program

    with pytest.raises(KeyboardInterrupt):
        run(make_grid([TINY], tmp_path, 2, 250), tmp_path, crash, quiet)
    grid = make_grid([TINY], tmp_path, 2, 250)
    assert [job.state for job in grid.jobs] == ["done", "begun", "begun"]
    run(grid, tmp_path, quiet, quiet)
    assert curves(tmp_path) == curves(whole)
    write_figures([TINY], results_of(grid, tmp_path), tmp_path)
    for path in whole.rglob("*.svg"):
        assert (tmp_path / path.relative_to(whole)).read_text() == path.read_text()


def test_progress_is_in_steps_of_the_whole_grid(whole, tmp_path):
    shutil.copytree(whole / "results", tmp_path / "results")
    next((tmp_path / "results").rglob("*local.json")).unlink()
    grid, heard, ended = make_grid([TINY], tmp_path, 2, 250), [], []
    run(
        grid,
        tmp_path,
        lambda job, steps: heard.append(steps),
        lambda job, words: ended.append(job.cell.method),
        workers=2,
    )
    assert heard == sorted(heard)
    assert heard[-1] == 500
    assert ended == ["ippo-local"]


def test_finished_cells_are_not_trained_again(whole, monkeypatch):
    monkeypatch.setattr(reproduce, "train", None)
    grid = make_grid([TINY], whole, 2, 250)
    assert [job.state for job in grid.jobs] == ["done"] * 3
    run(grid, whole, quiet, quiet)


@pytest.mark.parametrize(
    ("seeds", "steps", "words"), [(3, 250, "seeds = 2, not 3"), (2, 300, "steps = 250, not 300")]
)
def test_results_of_other_options_are_not_mixed(whole, seeds, steps, words):
    with pytest.raises(UsageError, match=words):
        make_grid([TINY], whole, seeds, steps)


def test_cells_that_cannot_run_are_listed_with_the_reason(tmp_path):
    plan = Plan("nowhere", "x", "ippo-dg-learned", "nowhere/x", "ippo-dg", "oracle", 1000)
    grid = make_grid([PaperFigure("none", 1, "", "", (plan,))], tmp_path, 2, None)
    assert "not a known environment" in grid.not_runnable[plan]


def test_every_figure_is_a_grid_of_distinct_cells():
    counts = {name: len(set(figure.plans)) for name, figure in FIGURES.items()}
    assert counts == {"motivation": 6, "random-graphs": 54, "mpe": 24, "lbf": 48, "smaclite": 30}
    assert all(
        len({(p.scenario, p.label) for p in figure.plans}) == len(figure.plans)
        for figure in FIGURES.values()
    )
    plans = {(plan.scenario, plan.label): plan for plan in FIGURES["random-graphs"].plans}
    assert plans["8x8-2p-4f-coop", "mappo-dg-random0.3"].graph == "random:0.3"
    assert plans["8x8-2p-4f-coop", "mappo-dg-learned"].graph == "learned"
    assert plans["8x8-2p-4f-coop", "mappo-dg-learned"].method == "mappo-dg"
    assert {plan.scenario for plan in FIGURES["lbf"].plans} == set(SIX)
    assert ("smaclite/MMM", "qplex") in {
        (plan.env, plan.method) for plan in FIGURES["smaclite"].plans
    }


def test_a_dry_run_lists_cells_and_estimates(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(reproduce, "try_out", lambda config: Speed(10.0, 1000.0))
    assert (
        command(
            "motivation",
            "--seeds",
            "2",
            "--steps",
            "2e4",
            "--dry-run",
            "--out",
            str(tmp_path / "out"),
        )
        == 0
    )
    out = capsys.readouterr().out
    assert len(re.findall("^waiting  lbf/", out, re.MULTILINE)) == 6
    # Per cell 10 s, and 40,000 steps of 4 or 2 agents, each with half a step of evaluation (20 % of
    # 5,000 per 2,000).
    seconds = 60 + 3 * 40_000 * (4 + 2) * 1.5 / 1000
    assert f"6 cells to run, 240,000 environment steps: about {seconds / 60:.0f} minutes" in out
    assert not (tmp_path / "out").exists()


def test_a_learned_graph_is_tried_on_its_own(tmp_path, monkeypatch):
    tried = []
    monkeypatch.setattr(
        reproduce,
        "try_out",
        lambda config: tried.append((config.method, config.graph)) or Speed(0.0, 1.0),
    )
    methods = (
        ("ippo-local", "oracle"),
        ("ippo-dg", "oracle"),
        ("ippo-dg", "learned"),
        ("ippo-local", "learned"),
    )
    plans = tuple(Plan("own", "gift", "-".join(method), GIFT, *method, 250) for method in methods)
    estimate_seconds(make_grid([PaperFigure("tiny", 1, "", "", plans)], tmp_path, 2, 250))
    assert tried == [("ippo-local", "oracle"), ("ippo-dg", "learned")]


def test_figures_and_tables_come_from_published_results_without_training(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(reproduce, "train", None)
    for path in (ROOT / "results" / "lbf").glob("8x8*.json"):
        (tmp_path / "given" / "lbf").mkdir(parents=True, exist_ok=True)
        shutil.copy(path, tmp_path / "given" / "lbf" / path.name)
    given = tmp_path / "given" / "lbf"
    shutil.copy(
        given / "8x8-2p-4f-coop__ippo-dg-oracle.json",
        given / "8x8-2p-4f-coop__mappo-dg-random0.3.json",
    )
    assert command("all", "--from", str(tmp_path / "given"), "--out", str(tmp_path / "out")) == 0
    written = {
        path.relative_to(tmp_path / "out").as_posix()
        for path in (tmp_path / "out").rglob("*")
        if path.is_file()
    }
    assert {
        "lbf.md",
        "random-graphs.md",
        "figures/lbf-curves.svg",
        "figures/lbf-curves.png",
        "index.html",
    } <= written
    assert not any(name.startswith(("mpe", "smaclite", "runs", "results")) for name in written)
    table = (tmp_path / "out" / "lbf.md").read_text()
    assert "| `8x8-2p-4f-coop` | 0.055 [0.037, 0.073] | 0.964 [0.913, 0.991] |" in table
    for picture in re.findall(r"\]\((figures/[^)]+)\)", table):
        assert (tmp_path / "out" / picture).is_file()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["figure-3"], "not a figure of the paper"),
        (["motivation", "--seeds", "0"], "--seeds is 0"),
        (["motivation", "--workers", "0"], "--workers is 0"),
        (["motivation", "--lanes", "0"], "--lanes is 0"),
        (["motivation", "--steps", "10"], "steps is 10"),
        (["motivation", "--from", "nowhere"], "nowhere is not a folder"),
        (["motivation", "--from", "nowhere", "--dry-run"], "give one of them"),
    ],
)
def test_mistakes_are_named_and_nothing_is_written(capsys, monkeypatch, tmp_path, arguments, words):
    monkeypatch.chdir(tmp_path)
    assert command(*arguments) == 2
    assert words in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_nothing_to_draw_is_said(tmp_path):
    with pytest.raises(UsageError, match="no result of these figures"):
        write_figures([TINY], [], tmp_path)
