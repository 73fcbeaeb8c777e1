"""Sweeps on a real Ray cluster of one head and two workers, which is this machine's loopback."""

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from threading import Event
from types import SimpleNamespace

import pytest

import dgmarl
from dgmarl.config.resolve import extend
from dgmarl.config.yaml import write_yaml
from dgmarl.errors import RunError
from dgmarl.report.results import gather
from dgmarl.runs.checkpoints import indices
from dgmarl.runs.folder import RunFolder
from dgmarl.sweeps import executor
from dgmarl.sweeps.archives import unpack
from dgmarl.sweeps.grid import Halving
from dgmarl.sweeps.halving import standings
from dgmarl.sweeps.plan import Plan, Resources, connected, execute_plan, resources_of
from dgmarl.sweeps.planned import PlannedRun
from dgmarl.sweeps.status import sweep_status
from tests.sweeps.test_executor import planned
from tests.tiny import GIFT, SMALL

ray = pytest.importorskip("ray")
ray_executor = pytest.importorskip("dgmarl.sweeps.ray_executor")

GRID = {
    **SMALL,
    "env": GIFT,
    "method": "ippo-local",
    "learner.learning_rate": [1e-3, 1e-2],
    "seeds": 1,
    "steps": 2000,
}
MANY = {
    **GRID,
    "method": ["ippo-local", "ippo-dg"],
    "learner.learning_rate": [1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2],
    "credit.reward_scaling": "none",
}
"""Twelve runs that share a program."""
NODE = {"num_cpus": 1, "object_store_memory": 80 << 20}
FORMAT_1 = Path(__file__).resolve().parents[1] / "data" / "format-1"
LAUNCH = [sys.executable, "-c", "from dgmarl.cli import main; main()", "sweep"]


@pytest.fixture(scope="module")
def cluster():
    """A head without cores, to which tests add workers."""
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        # The name is Ray's; on Linux it makes every node listen on loopback.
        patch.setenv("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
        patch.setattr("ray._private.ray_constants.ENABLE_RAY_CLUSTER", False)
        head = {**NODE, "num_cpus": 0, "include_dashboard": False}
        cluster = Cluster(initialize_head=True, head_node_args=head)
        yield cluster
        cluster.shutdown()


@pytest.fixture
def workers(cluster):
    """Two workers with a core each."""
    nodes = [cluster.add_node(**NODE) for _ in range(2)]
    yield nodes
    for node in nodes:
        if node in cluster.worker_nodes:
            cluster.remove_node(node, allow_graceful=False)


@pytest.fixture
def where(cluster, workers):
    return {"executor": "ray", "address": cluster.address}


class Heard(executor.Listener):
    """A listener that remembers how runs end, and does something at the first evaluation."""

    def __init__(self, at_first=lambda: None):
        self.ends, self.at_first, self.begun = [], at_first, False

    def on_steps(self, run, steps):
        if not self.begun:
            self.begun = True
            self.at_first()

    def on_end(self, run, outcome):
        self.ends.append((run.name, outcome.status))

    def count(self, status):
        return sum(end == status for _, end in self.ends)


def ctrl_c():
    raise KeyboardInterrupt


def numbers(runs) -> dict[str, tuple]:
    """All that was measured, by run."""
    found = {run.name: json.loads(run.result_file.read_text()) for run in runs}
    return {name: (facts["steps"], facts["return_mean"]) for name, facts in found.items()}


@pytest.mark.slow
def test_a_lost_worker_costs_time_and_changes_no_number(cluster, workers, where, tmp_path):
    heard = Heard(lambda: cluster.remove_node(workers[0], allow_graceful=False))
    plan = dgmarl.sweep(GRID, tmp_path / "ray", batched=1, listener=heard, **where)
    assert heard.count("published") == 2
    assert heard.count("retried") > 0
    assert numbers(plan.runs) == numbers(dgmarl.sweep(GRID, tmp_path / "local", batched=1).runs)
    again = Heard()
    dgmarl.sweep(GRID, tmp_path / "ray", listener=again, **where)
    assert again.ends == []
    assert not ray.is_initialized()


def test_a_worker_is_lost_only_so_often_without_getting_any_further(tmp_path, monkeypatch):
    monkeypatch.setattr(ray_executor, "LOSS_SECONDS", 0.0)
    reached = []

    class Losing(ray_executor.RayExecutor):
        def __init__(self):
            self.storage = None

        def _train(self, runs, stop, listener):
            listener.on_steps(runs[0], min(len(reached), 7))  # never beyond 7
            reached.append(runs[0])
            raise ray.exceptions.WorkerCrashedError

    heard = Heard()
    with pytest.raises(RunError, match="6 workers were lost"):
        Losing()([planned("ippo-local", tmp_path)], Event(), heard)
    assert len(reached) == 7 + ray_executor.MOST_LOSSES + 1
    assert heard.count("retried") == len(reached) - 1


BEFORE_JAX = """
import sys
from jax._src import xla_bridge
from dgmarl.cli import main
from dgmarl.sweeps import ray_executor

def connected(address):
    sys.exit(3 if xla_bridge.backends_are_initialized() else 7)

ray_executor.connected = connected
main(["sweep", sys.argv[1], "--executor", "ray"])
"""


def test_ray_is_there_before_jax_uses_a_device(tmp_path):
    write_yaml(tmp_path / "grid.yaml", {"env": "star-spread/3"})
    command = [sys.executable, "-c", BEFORE_JAX, str(tmp_path / "grid.yaml")]
    assert subprocess.run(command, timeout=120).returncode == 7


class Called:
    """Stands for an actor: what is called remotely is called at once."""

    def __init__(self, actor):
        self.actor = actor

    def __getattr__(self, name):
        return SimpleNamespace(remote=getattr(self.actor, name))


def in_a_task(run, train, monkeypatch, storage="", post=None) -> tuple[str, list]:
    """What a task on a machine without the launcher's disk returns and reports."""
    monkeypatch.setattr(ray_executor, "train_apart", train)
    monkeypatch.setattr(ray, "get", lambda reference: reference)
    post, resources = post or ray_executor.Post(None, []), Resources(storage=storage)
    values = [run.to_values()]
    job = ray_executor.Job("key", values, "no claim", [None], resources, bool(post.judge))
    return ray_executor.train_job(job, Called(post)), post.take("key")


def evaluated(run, step) -> None:
    """Write a checkpoint and an evaluation."""
    state = run.folder / "checkpoints" / f"{step:08d}" / "state"
    state.parent.mkdir(parents=True)
    state.write_text("")
    row = {"seed": 0, "evaluation": 0, "iteration": 1, "step": step, "wall_s": 1.0}
    row |= {"return_mean": 0.5, "return_std": 0.0, "length_mean": 1.0}
    (run.folder / "metrics.jsonl").write_text(json.dumps(row) + "\n")


@pytest.mark.parametrize("through", ["ray", "storage"])
def test_a_full_disk_of_a_worker_is_a_sentence_and_its_checkpoint_is_kept(
    tmp_path, monkeypatch, through
):
    run = planned("ippo-local", tmp_path)
    address = (tmp_path / "kept").as_uri() if through == "storage" else ""

    def train(runs, stop, listener, share):
        evaluated(runs[0], 20)
        listener.on_steps(runs[0], 20)
        assert not stop.is_set()
        raise RunError("metrics.jsonl cannot be written (No space left on device)")

    sentence, (report,) = in_a_task(run, train, monkeypatch, address)
    assert "No space left" in sentence
    sent = ray_executor.Storage(address).read(run) if address else report["archive"]
    unpack(sent, run)
    assert indices(run.folder / "checkpoints") == [20]
    assert bool(report["archive"]) == (not address)


def test_a_run_that_falls_behind_is_stopped_and_says_so(tmp_path, monkeypatch):
    pytest.importorskip("ray.tune")
    run = planned("ippo-local", tmp_path)

    def train(runs, stop, listener, share):
        evaluated(runs[0], 20)
        listener.on_steps(runs[0], 20)
        assert stop.is_set()
        listener.on_end(runs[0], executor.Outcome("interrupted", "interrupted"))

    evaluated(run, 20)
    better = standings(run)[0]._replace(run="better", score=0.6)
    post = ray_executor.Post(Halving(2, 1), [better])
    sentence, (_, end) = in_a_task(run, train, monkeypatch, post=post)
    assert (sentence, end["status"]) == ("", "stopped")
    assert end["message"] == "stopped early at 20 of 40 steps, with return 0.500"
    unpack(end["archive"], run)
    assert run.stopped_early
    assert run.state == "done"


@pytest.mark.slow
def test_twelve_runs_end_as_undisturbed_ones_although_a_worker_is_lost(
    cluster, workers, where, tmp_path
):
    heard = Heard(lambda: cluster.remove_node(workers[0], allow_graceful=False))
    plan = dgmarl.sweep(MANY, tmp_path / "ray", batched=3, listener=heard, **where)
    assert heard.count("published") == 12
    assert heard.count("retried") > 0
    assert numbers(plan.runs) == numbers(dgmarl.sweep(MANY, tmp_path / "local", batched=3).runs)


@pytest.mark.slow
def test_a_launcher_that_was_killed_goes_on(cluster, workers, tmp_path):
    """Finished runs are not trained again."""
    write_yaml(tmp_path / "grid.yaml", {**MANY, "method": "ippo-dg"})
    out = tmp_path / "out"
    options = ["--executor", "ray", "--address", cluster.address, "--batched", "2", "--trust"]
    command = [*LAUNCH, str(tmp_path / "grid.yaml"), "--out", str(out), *options]

    def finished() -> dict[str, int]:
        return {str(path): path.stat().st_mtime_ns for path in out.rglob("result.json")}

    launcher = subprocess.Popen(command)
    while not (before := finished()):
        assert launcher.poll() is None
        time.sleep(0.05)
    launcher.send_signal(signal.SIGKILL)
    launcher.wait()
    before |= finished()
    assert len(before) < 6
    assert subprocess.run(command, timeout=300).returncode == 0
    after = finished()
    assert len(after) == 6
    assert {path: after[path] for path in before} == before


@pytest.mark.slow
@pytest.mark.parametrize("through", ["ray", "storage"])
def test_runs_travel_where_no_disk_is_shared(where, tmp_path, monkeypatch, through):
    """Begun here, with the result outside of the run folder as in `reproduce`; stopped, resumed."""
    run = planned("ippo-local", tmp_path, steps=4000)
    stop = Event()
    stop.set()
    executor.train_batch([run], stop, executor.Listener())
    address = {"storage": (tmp_path / "kept").as_uri()} if through == "storage" else {}
    # As if the claim that the launcher reads were not on the disk of the workers.
    elsewhere = tmp_path / "owner"
    elsewhere.write_text("another claim")
    monkeypatch.setattr(ray_executor, "owner_path", lambda run: elsewhere)
    resources = resources_of(None, 8, 0, **where, cpus=1, gpus=0.0, **address)
    with connected(resources):
        with pytest.raises(KeyboardInterrupt):
            execute_plan(Plan([run], {}), resources, Heard(ctrl_c))
        first = max(indices(run.folder / "checkpoints"))
        heard = Heard()
        execute_plan(Plan([run], {}), resources, heard)
        assert max(indices(run.folder / "checkpoints")) > first > 0
        if through == "storage":
            assert (tmp_path / "kept" / "ippo-local.zip").exists()
            shutil.rmtree(tmp_path / "runs")
            run.result_file.unlink()
            execute_plan(Plan([run], {}), resources, heard)
            assert len(heard.ends) == 2
    assert {*heard.ends} == {("ippo-local", "published")}
    whole = planned("ippo-local", tmp_path / "whole", steps=4000)
    executor.execute([whole])
    assert numbers([run]) == numbers([whole])
    dgmarl.load(run.folder)


@pytest.mark.slow
def test_a_run_folder_of_an_older_version_is_resumed(where, tmp_path):
    def copied(name):
        folder = Path(shutil.copytree(FORMAT_1 / "mappo-dg-oracle", tmp_path / name / "run"))
        config = RunFolder(folder).config()
        config = extend(config, 2 * config.steps)
        return PlannedRun("old", config, tmp_path / name / "old.json", folder)

    there, here = copied("ray"), copied("local")
    resources = resources_of(None, 8, 0, **where)
    with connected(resources):
        execute_plan(Plan([there], {}), resources)
    executor.execute([here])
    assert numbers([there]) == numbers([here])
    assert min(map(max, numbers([here])["old"][0])) >= here.config.steps


@pytest.mark.slow
def test_halving_stops_runs_for_good_and_status_and_report_say_so(where, tmp_path):
    grid = {**GRID, "steps": 800, "learner.learning_rate": {"loguniform": [1e-5, 1e-1]}}
    grid |= {"samples": 6, "halving": 2, "rungs": 2}
    heard = Heard()
    plan = dgmarl.sweep(grid, tmp_path, listener=heard, **where)
    early = [run for run in plan.runs if run.stopped_early]
    assert 0 < len(early) == heard.count("stopped") == 6 - heard.count("published")
    notes = {one.name: one for one in sweep_status(tmp_path) if one.state == "stopped early"}
    assert set(notes) == {run.name for run in early}
    assert all(180 < one.steps < 800 and "with return" in one.note for one in notes.values())
    again = Heard()
    dgmarl.sweep(grid, tmp_path, listener=again, **where)
    assert again.ends == []
    results = gather([tmp_path])
    assert sum(result.facts["stopped_early"] for result in results) == len(early)
