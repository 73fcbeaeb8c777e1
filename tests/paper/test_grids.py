"""The paper's runs: distinct files, grids in batches, what the command refuses."""

import json
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from dgmarl.config.convert import upgrade
from dgmarl.config.methods import find_method
from dgmarl.config.schema import TrainConfig
from dgmarl.config.yaml import build, plain
from dgmarl.errors import RunError, UsageError
from dgmarl.paper.__main__ import main
from dgmarl.paper.grids import GRIDS, RUNS, SMACLITE_STEPS
from dgmarl.paper.training_plan import make_plan, train_grid
from dgmarl.report.results import read_results
from dgmarl.runs.recorder import Recorder
from dgmarl.sweeps.plan import Plan, Resources
from dgmarl.sweeps.planned import PlannedRun, batches

ROOT = Path(__file__).parents[2]


def planned(name: str, root: Path) -> list[PlannedRun]:
    """The grid without building environments, which `make_plan` does to check them."""
    return [PlannedRun(run.name, run.config(), run.result(root)) for run in GRIDS[name]]


@pytest.mark.parametrize("name", GRIDS)
def test_every_grid_has_one_file_per_run_and_batches_hold_all_of_them(name, tmp_path):
    runs = planned(name, tmp_path)
    assert len({run.result_file for run in runs}) == len(runs)
    together = batches(runs, 8)
    assert sum(map(len, together)) == len(runs)
    assert max(map(len, together)) <= 8


def test_published_files_are_of_the_defined_runs():
    """Their configurations, converted to today's format, are those that would be trained now, but
    for seeds and steps. Options that were removed since have no definition, nor have the runs of
    the tutorial and of other libraries' environments, nor have those that were stopped when
    sampled interventions replaced them."""
    removed = ("adapt_cross_weight", "edge_strength", "fade", "replay", "warm_up", "keep", "mask_")
    elsewhere = ("adapters", "junction")
    stopped = [
        ("smaclite", name, "mappo-dg-interventional-fast")
        for name in ("25m_vs_30m", "corridor", "3s5z_vs_3s6z")
    ]
    for result in read_results(ROOT / "results"):
        if result.benchmark in elsewhere:
            continue
        key = result.key
        gone = key in stopped or any(option in result.method for option in removed)
        assert (key in RUNS) != gone, key
        if not gone:
            used = build(TrainConfig, upgrade(result.facts["config"]))
            assert compared(used) == compared(RUNS[key].config()), key


def compared(config: TrainConfig) -> dict:
    """Without what the method does not use."""
    values = plain(config)
    for name in ("seeds", "steps"):
        del values[name]
    if not find_method(config.method).uses_graph:
        del values["graph"]
    if values.get("graph") != "learned":
        del values["graph_model"]
    return values


def test_battles_have_the_papers_steps_and_kinds_of_credit_share_a_program(tmp_path):
    runs = planned("smaclite", tmp_path)
    assert {run.config.env: run.config.steps for run in runs} == {
        f"smaclite/{name}": steps for name, steps in SMACLITE_STEPS.items()
    }
    assert {run.config.seeds for run in runs} == {5}
    names = [
        [run.name.removeprefix("MMM__") for run in batch]
        for batch in batches(runs, 8)
        if batch[0].name.startswith("MMM__")
    ]
    # A learned graph has networks of its own, and MAPPO-DG's critic one head per agent.
    assert names == [
        ["mappo-local-fast", "mappo-global-fast"],
        ["mappo-dg-learned-fast"],
        ["mappo-dg-oracle-fast"],
        ["mappo-dg-interventional-fast"],
        ["mappo-dg-interventional-sampled2-fast"],
        ["qmix"],
        ["qplex"],
        ["mappo-local", "mappo-global"],
        ["mappo-dg-learned"],
    ]


def test_a_grid_is_listed_without_building_anything(tmp_path, capsys):
    done = tmp_path / "star-spread" / "n7__ippo-dg.json"
    done.parent.mkdir()
    done.write_text('{"config": {"steps": 1000000, "seeds": 10}}')
    arguments = ["star-spread", "--only", "n7__ippo-dg", "--out", str(tmp_path), "--list"]
    assert main(arguments) == 0
    assert capsys.readouterr().out.splitlines() == [
        "done     star-spread/n7 ippo-dg: 10 x 1,000,000 steps",
        "waiting  star-spread/n7 ippo-dg-learned: 10 x 1,000,000 steps",
    ]


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"config": {"steps": "many"}}', '{"config"'])
@pytest.mark.parametrize("more", [["--list"], []])
def test_a_damaged_result_is_neither_done_nor_overwritten(tmp_path, capsys, content, more):
    path = tmp_path / "star-spread" / "n7__ippo-dg.json"
    path.parent.mkdir()
    path.write_text(content)
    assert main(["star-spread", "--only", "n7__ippo-dg$", "--out", str(tmp_path), *more]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{path} is damaged" in line
    assert path.read_text() == content


def test_few_steps_still_give_ten_evaluations(tmp_path):
    run = RUNS["star-spread", "n5", "ippo-dg"]
    assert run.config().evaluation.interval == 20_000
    assert run.config(steps=100_000).evaluation.interval == 10_000
    plan = make_plan([run, run], tmp_path, None, seeds=2, steps=100_000)
    assert [(one.config.seeds, one.config.steps) for one in plan.runs] == [(2, 100_000)]


def test_a_grid_trains_the_chosen_runs_with_the_given_numbers(tmp_path, monkeypatch):
    trained: list[tuple[Plan, Resources]] = []
    monkeypatch.setattr(
        "dgmarl.paper.training_plan.train_plan", lambda plan, how: trained.append((plan, how))
    )
    out, runs = tmp_path / "results", tmp_path / "runs"
    arguments = ["lbf", "--only", "^15x15-4p-3f__ippo-(local|global)$", "--out", str(out)]
    arguments += ["--steps", "1e6", "--seeds", "3", "--workers", "2", "--runs", str(runs)]
    assert main(arguments) == 0
    ((plan, how),) = trained
    assert how == Resources(workers=2, batched=8, apart=False)
    assert [(run.config.method, run.config.steps, run.config.seeds) for run in plan.runs] == [
        ("ippo-local", 1_000_000, 3),
        ("ippo-global", 1_000_000, 3),
    ]
    assert plan.runs[0].result_file == out / "lbf" / "15x15-4p-3f__ippo-local.json"
    assert plan.runs[0].folder == runs / "lbf" / "15x15-4p-3f__ippo-local"


@pytest.mark.slow
def test_a_grid_that_was_cut_off_goes_on_to_the_numbers_of_an_undisturbed_one(
    tmp_path, monkeypatch
):
    """It ends as a killed process does: after an evaluation was written, before its checkpoint."""
    saves = []

    class CutOff(Recorder):
        def save(self, state):
            saves.append(len(self.steps))
            if len(saves) == 4:
                raise RunError("the machine is gone")
            super().save(state)

    def train(out: str) -> dict:
        arguments = {"seeds": 2, "steps": 5000, "only": "^n5__ippo-dg$"}
        train_grid("star-spread", tmp_path / out, **arguments, folders=tmp_path / f"{out}-runs")
        return json.loads((tmp_path / out / "star-spread" / "n5__ippo-dg.json").read_text())

    undisturbed = train("whole")
    monkeypatch.setattr("dgmarl.sweeps.executor.Recorder", partial(CutOff, checkpoint_seconds=0.0))
    with pytest.raises(RunError, match="is gone"):
        train("cut")
    assert not list((tmp_path / "cut").rglob("*.json"))
    assert train("cut") == undisturbed
    assert saves[4] == 4  # went on after the third evaluation


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["lbf-oracel"], "did you mean lbf-oracle"),
        (["lbf", "--seeds", "0"], "--seeds is 0"),
        (["lbf", "--seeds", "many"], "--seeds is 'many'"),
        (["lbf", "--workers", "0"], "--workers is 0"),
        (["lbf", "--steps", "0"], "steps is 0"),
        (["lbf", "--only", "("], "not a regular expression"),
        (["lbf", "--only", "nothing"], "no run of lbf matches"),
    ],
)
def test_mistakes_are_named_and_nothing_is_written(tmp_path, monkeypatch, capsys, arguments, words):
    monkeypatch.chdir(tmp_path)
    only = [] if "--only" in arguments else ["--only", "^8x8-2p-4f-coop__ippo-local$"]
    assert main([*arguments, *only]) == 2
    assert words in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_unknown_grids_are_refused_from_python(tmp_path):
    with pytest.raises(UsageError, match="is not a grid"):
        train_grid("nothing", tmp_path)


def test_the_module_needs_no_tyro_and_no_matplotlib():
    code = (
        "import sys; sys.modules.update(tyro=None, matplotlib=None); "
        "from dgmarl.paper.__main__ import main; sys.exit(main(['lbf', '--only', 'nothing']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 2
    assert "no run of lbf matches" in done.stderr
