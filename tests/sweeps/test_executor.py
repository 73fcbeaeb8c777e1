"""The sweep executor: finished runs are skipped, interrupted ones resumed, equal shapes batched."""

import json
import threading
import time
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from dgmarl.config.resolve import resolve
from dgmarl.errors import RunError, UsageError
from dgmarl.sweeps import executor
from dgmarl.sweeps.estimate import Speed, estimate_seconds
from dgmarl.sweeps.executor import Listener, apart, execute
from dgmarl.sweeps.planned import PlannedRun, batches
from tests.tiny import GIFT, SMALL, write_result


def planned(method, root, env=GIFT, steps=40, graph="oracle", **overrides):
    config = resolve(env, method, {**SMALL, **overrides}, seeds=1, steps=steps, graph=graph)
    return PlannedRun(method, config, root / "results" / f"{method}.json", root / "runs" / method)


class Heard(Listener):
    """A listener that remembers."""

    def __init__(self, on_steps=lambda run, steps: None):
        self.steps, self.ends, self.then = [], [], on_steps

    def on_steps(self, run, steps):
        self.steps.append((run.name, steps))
        self.then(run, steps)

    def on_end(self, run, outcome):
        self.ends.append((run.name, outcome.status))


def wait_for(events: list, count: int) -> None:
    """Wait until another thread has added so many; a thread that failed adds none."""
    for _ in range(60_000):
        if len(events) >= count:
            return
        time.sleep(0.001)
    raise AssertionError(f"{len(events)} of {count} events after a minute")


def fail(*_):
    raise AssertionError("nothing is to be trained")


def test_finished_runs_are_skipped_and_a_file_holds_every_seeds_curve(tmp_path, monkeypatch):
    runs = [planned("ippo-local", tmp_path), planned("ippo-dg", tmp_path)]
    execute(runs)
    facts = json.loads(runs[1].result_file.read_text())
    assert len(facts["return_mean"]) == 1
    assert len(facts["steps"][0]) == len(facts["return_mean"][0]) > 1
    assert "graph_density" in facts
    assert "graph_density" not in json.loads(runs[0].result_file.read_text())
    monkeypatch.setattr(executor, "train_all", fail)
    execute(runs)
    runs[0].result_file.unlink()
    with pytest.raises(AssertionError, match="nothing is to be trained"):
        execute(runs)


def test_a_result_of_fewer_steps_or_seeds_does_not_count(tmp_path):
    """More steps are trained from the run folder; fewer are there already."""
    run = planned("ippo-local", tmp_path, steps=40)
    execute([run])
    longer = replace(run, config=replace(run.config, steps=60))
    assert [longer.state, run.state] == ["begun", "done"]
    execute([longer])
    assert [longer.state, run.state] == ["done", "done"]
    assert json.loads(run.result_file.read_text())["steps"][0][0] < 60
    elsewhere = replace(run, config=replace(run.config, seeds=2), folder=None)
    assert elsewhere.state == "waiting"
    run.result_file.write_text("{")
    with pytest.raises(UsageError, match="is damaged"):  # neither done nor overwritten
        assert elsewhere.state


def test_ctrl_c_stops_what_runs_begins_nothing_more_and_publishes_nothing(tmp_path, monkeypatch):
    began, trained = threading.Event(), []

    def train_until_told(recorders):
        trained.extend(recorders)
        progress = SimpleNamespace(steps=np.array([1]))
        while not recorders[0].interrupted:
            began.set()
            recorders[0].callbacks[0].on_evaluation(progress)
        return [SimpleNamespace(interrupted=True) for _ in recorders]

    def ctrl_c(jobs):
        began.wait()
        raise KeyboardInterrupt

    monkeypatch.setattr(executor, "train_all", train_until_told)
    monkeypatch.setattr(executor, "as_completed", ctrl_c)
    runs = [planned("ippo-local", tmp_path), planned("mappo-local", tmp_path)]
    with pytest.raises(KeyboardInterrupt):
        execute(runs, workers=1, batched_runs=1)
    assert len(trained) == 1
    assert [path.suffix for path in tmp_path.rglob("*") if path.is_file()] == [".lock"]


def test_two_launchers_share_the_runs_and_train_none_twice(tmp_path, monkeypatch):
    runs = [planned(name, tmp_path) for name in ("ippo-local", "mappo-local", "qmix")]
    trained, heard, may_end = [], Heard(), threading.Event()

    def train(recorders):
        trained.append(recorders[0].config.method)
        if recorders[0].config.method != "qmix":
            may_end.wait()
        return [SimpleNamespace(interrupted=False, method=r.config.method) for r in recorders]

    def publish(run, result):
        write_result(run)
        return executor.Outcome("published", "")

    monkeypatch.setattr(executor, "train_all", train)
    monkeypatch.setattr(executor, "_finish", publish)
    monkeypatch.setattr(executor, "POLL_SECONDS", 0.01)
    first = threading.Thread(target=execute, args=(runs[:2],), kwargs={"workers": 2})
    first.start()
    wait_for(trained, 2)
    second = threading.Thread(target=execute, args=(runs, heard))
    second.start()
    wait_for(heard.ends, 3)
    may_end.set()
    first.join()
    second.join()
    assert [status for _, status in heard.ends].count("published") == 3
    assert sorted(trained) == ["ippo-local", "mappo-local", "qmix"]
    assert all(run.state == "done" for run in runs)
    assert not list(tmp_path.rglob("*.lock"))


def test_a_failure_is_raised_after_the_other_programs_have_ended(tmp_path, monkeypatch):
    real = executor.train_all

    def one_fails(recorders):
        if recorders[0].config.method == "ippo-local":
            raise RunError("value_loss became nan")
        return real(recorders)

    monkeypatch.setattr(executor, "train_all", one_fails)
    runs = [planned("ippo-local", tmp_path), planned("mappo-local", tmp_path)]
    heard = Heard()
    with pytest.raises(RunError, match="became nan"):
        execute(runs, heard)
    assert heard.ends == [("ippo-local", "failed"), ("mappo-local", "published")]
    assert [run.state for run in runs] == ["waiting", "done"]


def test_runs_that_were_begun_are_not_batched_with_new_ones(tmp_path):
    names = ("ippo-local", "ippo-global", "ippo-dg")
    runs = [planned(name, tmp_path, **{"credit.reward_scaling": "none"}) for name in names]
    assert batches(runs, 8) == [runs]
    assert batches(runs, 2) == [runs[:2], runs[2:]]
    runs[1].folder.mkdir(parents=True)
    (runs[1].folder / "config.yaml").write_text("")
    assert batches(runs, 8) == [[runs[1]], [runs[0], runs[2]]]
    write_result(runs[2])
    assert batches(runs, 8) == [[runs[1]], [runs[0]]]


@pytest.mark.slow
def test_a_program_apart_stops_with_a_checkpoint_and_is_resumed_to_the_same_result(tmp_path):
    def ctrl_c(run, steps):
        raise KeyboardInterrupt

    # Many evaluations, so that the process has not finished before it is told to stop.
    stopped = planned("ippo-local", tmp_path / "apart", steps=20_000)
    with pytest.raises(KeyboardInterrupt):
        execute([stopped], Heard(ctrl_c), train=apart(1))
    assert stopped.state == "begun"
    assert list((stopped.folder / "checkpoints").iterdir())
    done = len((stopped.folder / "metrics.jsonl").read_text().splitlines())
    heard = Heard()
    # What is left must fit in a test: the run is wanted for fewer steps than before.
    short = planned("ippo-local", tmp_path / "apart", steps=40 * (done + 2))
    execute([short], heard, train=apart(1))
    assert heard.ends[-1] == ("ippo-local", "published")
    whole = planned("ippo-local", tmp_path / "whole", steps=40 * (done + 2))
    execute([whole])
    ours, theirs = (json.loads(run.result_file.read_text()) for run in (short, whole))
    assert ours["steps"] == theirs["steps"]
    assert ours["return_mean"] == theirs["return_mean"]


def test_the_error_of_a_program_apart_is_reported_with_the_runs_it_concerns(tmp_path):
    run = planned("ippo-local", tmp_path, env=f"{__file__}:Absent")
    with pytest.raises(RunError, match=r"trained ippo-local ended with exit code 2:\n.*Absent"):
        execute([run], train=apart(1))
    assert not run.result_file.exists()


def test_a_learned_graph_is_tried_on_its_own(tmp_path, monkeypatch):
    tried = []
    monkeypatch.setattr(
        "dgmarl.sweeps.estimate.measure_speed",
        lambda config: tried.append((config.method, config.graph)) or Speed(0.0, 1.0),
    )
    methods = (
        ("ippo-local", "oracle"),
        ("ippo-dg", "oracle"),
        ("ippo-dg", "learned"),
        ("ippo-local", "learned"),
    )
    runs = [planned(method, tmp_path, graph=graph) for method, graph in methods]
    estimate_seconds(runs)
    assert tried == [("ippo-local", "oracle"), ("ippo-dg", "learned")]
