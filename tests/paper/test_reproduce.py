"""`dgmarl reproduce` on runs small enough to train: skipped, resumed, listed and drawn."""

import json
import re
import shutil
from collections import defaultdict
from pathlib import Path

import pytest

from dgmarl import cli
from dgmarl.errors import UsageError
from dgmarl.paper.grids import SIX, Run
from dgmarl.paper.paper_figures import FIGURES, PaperFigure
from dgmarl.paper.reproduce import plan_figures, results_of, write_figures
from dgmarl.paper.training_plan import make_plan
from dgmarl.sweeps import executor
from dgmarl.sweeps.estimate import Speed
from dgmarl.sweeps.executor import Listener, execute
from tests.tiny import GIFT

ROOT = Path(__file__).parents[2]
METHODS = (
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
    tuple(Run("own", "gift", label, GIFT, method, 250, graph) for label, method, graph in METHODS),
)


def nothing_is_trained(*_: object, **options: object) -> None:
    raise AssertionError("a run was trained")


@pytest.fixture
def command(monkeypatch):
    """`dgmarl reproduce ...`, also where the package's entry points are not installed."""
    monkeypatch.setitem(cli.COMMANDS, "reproduce", "dgmarl.paper.commands:Reproduce")
    cli.commands.cache_clear()

    def run(*arguments: str) -> int:
        with pytest.raises(SystemExit) as stop:
            cli.main(["reproduce", *arguments])
        return int(stop.value.code or 0)

    yield run
    cli.commands.cache_clear()


def curves(out: Path) -> dict[str, tuple]:
    files = sorted((out / "results").rglob("*.json"))
    facts = {path.name: json.loads(path.read_text()) for path in files}
    return {
        name: (found["steps"], found["return_mean"], found["return_std"])
        for name, found in facts.items()
    }


@pytest.fixture(scope="module")
def heard():
    """What a listener to the runs of `whole` is told."""
    return Listen()


@pytest.fixture(scope="module")
def whole(tmp_path_factory, heard) -> Path:
    """All runs trained without interruption, and drawn."""
    out = tmp_path_factory.mktemp("whole")
    plan = plan_figures([TINY], out, 2, 250)
    execute(plan.runs, heard, workers=2)
    write_figures([TINY], results_of(plan), out)
    return out


class Crash(Listener):
    """Ends as if killed in the middle of the second program."""

    def on_steps(self, run, steps):
        if run.name.endswith("ippo-dg-complete") and steps >= 200:
            raise KeyboardInterrupt


@pytest.mark.slow
def test_interrupted_runs_are_resumed_to_the_same_results_and_figures(whole, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        execute(plan_figures([TINY], tmp_path, 2, 250).runs, Crash())
    plan = plan_figures([TINY], tmp_path, 2, 250)
    assert [run.state for run in plan.runs] == ["done", "begun", "begun"]
    execute(plan.runs)
    assert curves(tmp_path) == curves(whole)
    write_figures([TINY], results_of(plan), tmp_path)
    for path in whole.rglob("*.svg"):
        assert (tmp_path / path.relative_to(whole)).read_text() == path.read_text()


class Listen(Listener):
    """Remembers steps and ends."""

    def __init__(self):
        self.steps, self.ended = defaultdict(list), {}

    def on_steps(self, run, steps):
        self.steps[run.name].append(steps)

    def on_end(self, run, outcome):
        self.ended[run.name] = outcome.status


def test_progress_is_in_steps_of_all_seeds(whole, heard):
    assert len(heard.ended) == len(heard.steps) == 3
    assert set(heard.ended.values()) == {"published"}
    for steps in heard.steps.values():
        assert steps == sorted(steps)
        assert steps[-1] == 500


def test_finished_runs_are_not_trained_again(whole, tmp_path, monkeypatch):
    shutil.copytree(whole / "results", tmp_path / "results")
    monkeypatch.setattr(executor, "train_all", nothing_is_trained)
    plan = plan_figures([TINY], tmp_path, 2, 250)
    assert [run.state for run in plan.runs] == ["done"] * 3
    execute(plan.runs)
    plan.runs[0].result_file.unlink()
    with pytest.raises(AssertionError, match="was trained"):
        execute(plan.runs)


@pytest.mark.parametrize(
    ("seeds", "steps", "words"), [(3, 250, "seeds = 2, not 3"), (2, 300, "steps = 250, not 300")]
)
def test_results_of_other_options_are_not_mixed(whole, seeds, steps, words):
    with pytest.raises(UsageError, match=words):
        plan_figures([TINY], whole, seeds, steps)


def test_runs_that_cannot_be_trained_are_listed_with_the_reason(tmp_path):
    run = Run("nowhere", "x", "ippo-dg-learned", "nowhere/x", "ippo-dg", 1000)
    plan = make_plan([run], tmp_path, None)
    assert "not a known environment" in plan.not_runnable["nowhere/x ippo-dg-learned"]


def test_every_figure_is_a_choice_of_distinct_runs():
    counts = {name: len(set(figure.runs)) for name, figure in FIGURES.items()}
    assert counts == {"motivation": 6, "random-graphs": 54, "mpe": 36, "lbf": 48, "smaclite": 30}
    runs = {(run.scenario, run.label): run for run in FIGURES["random-graphs"].runs}
    assert runs["8x8-2p-4f-coop", "mappo-dg-random0.3"].graph == "random:0.3"
    assert runs["8x8-2p-4f-coop", "mappo-dg-learned"].graph == "learned"
    assert runs["8x8-2p-4f-coop", "mappo-dg-learned"].method == "mappo-dg"
    assert {run.scenario for run in FIGURES["lbf"].runs} == set(SIX)
    assert ("smaclite/MMM", "qplex") in {(run.env, run.method) for run in FIGURES["smaclite"].runs}
    # Figures show the paper's settings; other presets join through results only.
    assert {run.preset for figure in FIGURES.values() for run in figure.runs} == {"paper"}


def test_seeds_are_those_of_the_figure(tmp_path):
    plan = plan_figures([FIGURES["smaclite"], FIGURES["motivation"]], tmp_path)
    found = {(run.config.env.partition("/")[0], run.config.seeds) for run in plan.runs}
    assert found == {("smaclite", 5), ("lbf", 10)}


def test_a_dry_run_lists_runs_and_estimates(command, tmp_path, capsys, monkeypatch):
    speed = Speed(10.0, 1000.0)
    monkeypatch.setattr("dgmarl.sweeps.estimate.measure_speed", lambda config: speed)
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
    # Per run 10 s, and 40,000 steps of 4 or 2 agents, each with half a step of evaluation (20 % of
    # 5,000 per 2,000).
    seconds = 60 + 3 * 40_000 * (4 + 2) * 1.5 / 1000
    assert f"6 runs to train, 240,000 environment steps: about {seconds / 60:.0f} minutes" in out
    assert not (tmp_path / "out").exists()


def test_figures_and_tables_come_from_published_results_without_training(
    command, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr("dgmarl.sweeps.plan.execute", nothing_is_trained)
    with pytest.raises(AssertionError, match="was trained"):  # without --from
        cli.main(["reproduce", "motivation", "--steps", "2e4", "--out", str(tmp_path / "trained")])
    for path in (ROOT / "results" / "lbf").glob("8x8*.json"):
        (tmp_path / "given" / "lbf").mkdir(parents=True, exist_ok=True)
        shutil.copy(path, tmp_path / "given" / "lbf" / path.name)
    given = tmp_path / "given" / "lbf"
    shutil.copy(
        given / "8x8-2p-4f-coop__ippo-dg-oracle.json",
        given / "8x8-2p-4f-coop__mappo-dg-random0.3.json",
    )
    assert command("all", "--from", str(tmp_path / "given"), "--out", str(tmp_path / "out")) == 0
    assert "Without results, hence not drawn: mpe, smaclite\n" in capsys.readouterr().out
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
    page = (tmp_path / "out" / "index.html").read_text()
    assert page.count("<svg") == sum(name.endswith(".svg") for name in written)
    assert "Results shown: 10 seeds, 5 million steps." in page
    assert command("lbf", "--from", str(tmp_path / "given"), "--out", str(tmp_path / "out")) == 0
    assert (tmp_path / "out" / "index.html").read_text() == page
    assert "random-graphs" not in (tmp_path / "out" / "lbf.html").read_text()
    assert "<td>0.055 [0.037, 0.073]</td><td>0.964 [0.913, 0.991]</td>" in page
    for picture in re.findall(r"\]\((figures/[^)]+)\)", table):
        assert (tmp_path / "out" / picture).is_file()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["figure-3"], "not a figure of the paper"),
        (["motivation", "--seeds", "0"], "--seeds is 0"),
        (["motivation", "--workers", "0"], "--workers is 0"),
        (["motivation", "--batched", "0"], "--batched is 0"),
        (["motivation", "--steps", "10"], "steps is 10"),
        (["motivation", "--from", "nowhere"], "nowhere is not a folder"),
        (["motivation", "--from", "nowhere", "--dry-run"], "--dry-run is about training"),
        (["motivation", "--from", "nowhere", "--steps", "100"], "--steps is about training"),
        (["motivation", "--from", "nowhere", "--seeds", "2"], "--seeds is about training"),
    ],
)
def test_mistakes_are_named_and_nothing_is_written(
    command, capsys, monkeypatch, tmp_path, arguments, words
):
    monkeypatch.chdir(tmp_path)
    assert command(*arguments) == 2
    assert words in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_nothing_to_draw_is_said(tmp_path):
    with pytest.raises(UsageError, match="no result of these figures"):
        write_figures([TINY], [], tmp_path)
