"""Sweeps: bad runs fail alone, launchers share a folder, failures are tried again, and the status
is that of the files."""

import json
import os
import signal
import subprocess
import sys
import time
from glob import glob
from pathlib import Path
from types import SimpleNamespace

import pytest

import dgmarl
from dgmarl import cli
from dgmarl.config.yaml import write_yaml
from dgmarl.errors import RunError, UsageError
from dgmarl.sweeps import executor
from dgmarl.sweeps.plan import begin_sweep, plan_grid
from dgmarl.sweeps.run_locks import claimed
from dgmarl.sweeps.status import sweep_status
from tests.tiny import GIFT, SMALL, write_result

GRID = {**SMALL, "env": GIFT, "method": ["ippo-local", "ippo-dg"], "seeds": 1, "steps": 40}
LAUNCH = [sys.executable, "-c", "from dgmarl.cli import main; main()", "sweep"]


@pytest.fixture
def trained(monkeypatch):
    """Methods in the order in which they were trained, by nothing but a result file."""
    methods = []

    def train(recorders):
        methods.append([recorder.config.method for recorder in recorders])
        return [SimpleNamespace(interrupted=False) for _ in recorders]

    def finish(run, result):
        write_result(run)
        return executor.Outcome("published", "")

    monkeypatch.setattr(executor, "train_all", train)
    monkeypatch.setattr(executor, "_finish", finish)
    return methods


def states(out) -> dict[str, str]:
    return {run.name: run.state for run in sweep_status(out)}


def test_a_run_with_a_bad_configuration_fails_alone(tmp_path, trained):
    grid = {**GRID, "env": GIFT.replace(":Gift", ":NoOracle"), "learner.gamma": [0.9, 7]}
    plan = dgmarl.sweep(grid, tmp_path)
    assert trained == [["ippo-local"]]
    assert [run.name for run in plan.runs] == ["ippo-local/gamma=0.9"]
    assert "learner.gamma is 7" in plan.not_runnable["ippo-local/gamma=7"]
    assert "oracle" in plan.not_runnable["ippo-dg/gamma=0.9"]
    notes = {run.name: (run.state, run.note) for run in sweep_status(tmp_path)}
    assert notes.pop("ippo-local/gamma=0.9") == ("done", "")
    assert notes == {name: ("failed", why) for name, why in plan.not_runnable.items()}
    assert "\n" not in "".join(plan.not_runnable.values())
    dgmarl.sweep(grid, tmp_path)
    assert len(trained) == 1


NO_CLASS = GIFT.replace(":Gift", ":Gifts")


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"method": ["ippo-local", "ipo"]}, "method is 'ipo', but allowed are"),
        ({"graph": ["complete", "orackle"]}, "did you mean oracle?"),
        ({"env": [GIFT, "gift"]}, "'gift' is not a known environment"),
        ({"env": [GIFT, "matrix/chess"]}, "matrix/chess is not a known game"),
        ({"env": [GIFT, "lbf/big"]}, "there is no game lbf/big"),
        ({"env": [GIFT, "star-spread/x"]}, "star-spread/x needs a number"),
        ({"env": [GIFT, "smaclite/3n"]}, "smaclite/3n is not known"),
        ({"env": [GIFT, NO_CLASS]}, "has no Gifts; name the class"),
        ({"env": [GIFT, "none.py:Gift"]}, "there is no file none.py"),
    ],
)
def test_a_name_that_does_not_exist_refuses_the_whole_grid(tmp_path, trained, wrong, words):
    with pytest.raises(UsageError) as refusal:
        dgmarl.sweep({**GRID, "method": ["ippo-local", "ippo-dg"], **wrong}, tmp_path / "out")
    assert words in str(refusal.value)
    assert trained == []
    assert not list(tmp_path.iterdir())


def test_nothing_is_written_if_no_run_can_be_trained(tmp_path, trained):
    with pytest.raises(UsageError, match=r"learner\.gamma is 7"):
        dgmarl.sweep({**GRID, "learner.gamma": 7}, tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_a_folder_takes_further_runs_of_the_same_grid_and_no_other_grid(tmp_path, trained):
    dgmarl.sweep(GRID, tmp_path)
    with pytest.raises(UsageError, match=r"another grid, whose run ippo-local this one changes"):
        dgmarl.sweep({**GRID, "steps": 80}, tmp_path)
    with pytest.raises(UsageError, match=r"another grid, whose run ippo-local this one lacks"):
        dgmarl.sweep({**GRID, "method": "ippo-dg"}, tmp_path)
    dgmarl.sweep({**GRID, "method": ("ippo-local", "ippo-dg", "ippo-global")}, tmp_path)
    assert trained[1:] == [["ippo-global"]]
    assert list(states(tmp_path).values()) == ["done"] * 3


NETWORK = f"{Path(__file__).parents[1]}/outside/my_net.py:Same"


@pytest.mark.parametrize(
    "named", [{"env": GIFT}, {"env": "matrix/climbing", "learner.network": NETWORK}]
)
def test_code_that_a_grid_file_names_needs_trust(tmp_path, trained, monkeypatch, capsys, named):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    write_yaml("grid.yaml", {**GRID, "method": ["ippo-local", "ippo-global"], **named})
    for arguments, code in (([], 2), (["--trust"], 0)):
        with pytest.raises(SystemExit) as stop:
            cli.main(["sweep", "grid.yaml", *arguments])
        assert stop.value.code == code
        assert (tmp_path / "runs" / "grid").exists() == (code == 0)
    out, err = capsys.readouterr()
    assert "grid.yaml names" in err
    assert "2 runs in runs/grid" in out


def test_a_failed_program_is_tried_again_run_by_run(tmp_path, trained, monkeypatch):
    fake = executor.train_all

    def one_fails(recorders):
        results = fake(recorders)
        if any(recorder.config.method == "ippo-dg" for recorder in recorders):
            raise RunError("value_loss became nan")
        return results

    monkeypatch.setattr(executor, "train_all", one_fails)
    grid = {**GRID, "credit.reward_scaling": "none"}
    with pytest.raises(RunError, match="became nan"):
        dgmarl.sweep(grid, tmp_path, retries=2)
    assert trained == [["ippo-local", "ippo-dg"], ["ippo-local"], ["ippo-dg"], ["ippo-dg"]]
    assert states(tmp_path) == {"ippo-local": "done", "ippo-dg": "failed"}
    monkeypatch.setattr(executor, "train_all", fake)
    dgmarl.sweep(grid, tmp_path)
    assert trained[4:] == [["ippo-dg"]]
    assert not list(tmp_path.rglob("failed.txt"))


def test_status_names_who_trains_what_and_counts_steps(tmp_path, trained, capsys):
    first, second = begin_sweep(GRID, tmp_path).runs
    assert list(states(tmp_path).values()) == ["waiting", "waiting"]
    second.folder.mkdir(parents=True, exist_ok=True)
    (second.folder / "config.yaml").write_text("")
    row = {"seed": 0, "evaluation": 0, "iteration": 1, "step": 20, "wall_s": 1.0}
    row |= {"return_mean": 0.0, "return_std": 0.0, "length_mean": 1.0}
    (second.folder / "metrics.jsonl").write_text(json.dumps(row) + "\n")
    with claimed([first]) as mine:
        assert mine == [first]
        running, stopped = sweep_status(tmp_path)
        assert (running.state, stopped.state, stopped.steps) == ("running", "stopped", 20)
        assert running.note.endswith(f", process {os.getpid()}")
        with pytest.raises(SystemExit):
            cli.main(["sweep", "status", str(tmp_path)])
    out = capsys.readouterr().out
    assert "20 of 40" in out
    assert "1 running, 1 stopped" in out
    assert "process or reason" in out
    assert list(states(tmp_path).values()) == ["waiting", "stopped"]


def test_the_run_of_a_grid_without_an_axis_is_named_by_environment_and_method(
    tmp_path, trained, capsys
):
    (run,) = dgmarl.sweep({**GRID, "method": "ippo-local"}, tmp_path).runs
    assert run.folder == tmp_path / "run"
    with pytest.raises(SystemExit):
        cli.main(["sweep", "status", str(tmp_path)])
    out = capsys.readouterr().out
    assert [line.split()[1:6:2] for line in out.splitlines() if "40 of 40" in line] == [
        ["Gift__ippo-local", "done", "40"]
    ]
    assert "process or reason" not in out
    titles = next(line for line in out.splitlines() if "state" in line)
    assert titles.replace("┃", " ").split() == ["run", "state", "steps"]


def test_a_folder_without_a_sweep_has_no_status(tmp_path, capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(["sweep", "status", str(tmp_path)])
    assert stop.value.code == 2
    assert "not the folder of a sweep" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("grid", "arguments", "words"),
    [
        (None, [], "grid.yaml cannot be read"),
        ("- a\n- b", [], "holds a list"),
        ("env: &a star-spread/3\nmethod: *a", [], "an alias or anchor"),
        ("method: ippo-dg", [], "names no env"),
        ("env: star-spread/3\nlearner.hiden: [1, 2]", [], "did you mean hidden"),
        ("env: star-spread/3\ntrust: true", [], "trust is not a field"),
        ("env: star-spread/3", ["--retries", "-1"], "--retries is -1"),
        ("env: star-spread/3", ["--workers", "many"], "--workers is 'many'"),
        ("env: star-spread/3", ["--gpus", "1"], "give --executor ray"),
        ("env: star-spread/3", ["--executor", "ray", "--gpus", "1.5"], "fraction of one GPU"),
        ("env: star-spread/3", ["--executor", "ray", "--address", "a:b:c"], "no Ray cluster"),
        ("env: star-spread/3\nhalving: 3", [], "give --executor ray"),
        ("env: star-spread/3\nrungs: 3", [], "halving is None"),
    ],
)
def test_mistakes_are_one_sentence_and_nothing_is_written(
    tmp_path, monkeypatch, capsys, grid, arguments, words
):
    monkeypatch.chdir(tmp_path)
    if grid is not None:
        Path("grid.yaml").write_text(grid)
    with pytest.raises(SystemExit) as stop:
        cli.main(["sweep", "grid.yaml", "--out", "out", *arguments])
    err = capsys.readouterr().err
    assert stop.value.code == 2
    assert words in err
    assert len(err.splitlines()) == 1
    assert not Path("out").exists()


def test_a_machine_without_ray_is_told_which_extra_it_lacks(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delitem(sys.modules, "dgmarl.sweeps.ray_executor", raising=False)
    with pytest.raises(UsageError, match=r"pip install 'dgmarl\[ray\]'"):
        dgmarl.sweep(GRID, tmp_path / "out", executor="ray")
    assert not list(tmp_path.iterdir())


def results(out) -> dict[str, int]:
    """Finished runs and when they were."""
    return {path.parent.name: path.stat().st_mtime_ns for path in out.rglob("result.json")}


@pytest.mark.slow
def test_launchers_share_a_folder_and_a_killed_one_loses_nothing(tmp_path):
    methods = ["ippo-local", "ippo-dg", "mappo-local", "mappo-dg"]
    grid = {**GRID, "method": methods, "steps": 400}
    write_yaml(tmp_path / "grid.yaml", grid)
    out = tmp_path / "out"
    command = [*LAUNCH, str(tmp_path / "grid.yaml"), "--out", str(out), "--trust", "--batched", "1"]

    def launch(name: str) -> subprocess.Popen:
        return subprocess.Popen(command, stderr=(tmp_path / name).open("w"))

    def published(name: str) -> list[str]:
        lines = (tmp_path / name).read_text().splitlines()
        return [line.partition(":")[0] for line in lines if ": return " in line]

    killed, other = launch("killed"), launch("other")
    while not (before := results(out)):
        assert killed.poll() is None or other.poll() is None
        time.sleep(0.05)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    assert other.wait() == 0
    after = results(out)
    assert after.keys() == set(methods)
    assert {name: after[name] for name in before} == before
    trained = published("killed") + published("other")
    # The killed launcher may have written a result without saying so.
    assert len(trained) == len(set(trained)) >= len(methods) - 1
    assert launch("again").wait() == 0
    assert published("again") == []
    assert results(out) == after
    assert plan_grid(grid, out).runs[0].state == "done"
    # Results are those of undisturbed runs.
    alone = dgmarl.sweep({**grid, "method": methods[0]}, tmp_path / "alone").runs[0]
    ours, theirs = (
        json.loads(path.read_text())["return_mean"]
        for path in (out / methods[0] / "result.json", alone.result_file)
    )
    assert ours == theirs


@pytest.mark.slow
def test_a_killed_worker_costs_nothing_but_time(tmp_path):
    killed, ends = [], []

    class Killer(executor.Listener):
        def on_steps(self, run, steps):
            if not killed:
                children = f"/proc/{os.getpid()}/task/*/children"
                found = [pid for path in glob(children) for pid in Path(path).read_text().split()]
                killed.append(next(int(pid) for pid in found if _is_worker(pid)))
                os.kill(killed[0], signal.SIGKILL)

        def on_end(self, run, outcome):
            ends.append(outcome.status)

    grid = {**GRID, "method": "ippo-dg", "steps": 4000}
    (run,) = dgmarl.sweep(grid, tmp_path / "killed", workers=2, retries=1, listener=Killer()).runs
    assert ends == ["retried", "published"]
    (undisturbed,) = dgmarl.sweep(grid, tmp_path / "whole", workers=2).runs
    ours, theirs = (json.loads(one.result_file.read_text()) for one in (run, undisturbed))
    assert ours["return_mean"] == theirs["return_mean"]
    assert ours["steps"] == theirs["steps"]


def _is_worker(pid: str) -> bool:
    return b"dgmarl.sweeps.worker" in Path(f"/proc/{pid}/cmdline").read_bytes()
