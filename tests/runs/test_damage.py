"""Files that are other than what was written: never a traceback, and never other numbers without a
word. Few trials by default, many with `make test-slow`."""

import json
import os
import random
import shutil
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dgmarl.cli import main
from dgmarl.errors import UsageError
from dgmarl.graphs.reach import check_graph
from dgmarl.graphs.sources import fixed_source
from dgmarl.report.results import gather, read_run
from dgmarl.runs.checkpoints import _checksums, indices, load_latest, save_checkpoint
from dgmarl.runs.folder import RunFolder
from dgmarl.runs.reading import by_evaluation
from dgmarl.runs.recorder import Recorder
from dgmarl.runs.replays import Episode, Replay, read_replay, write_replay
from tests.runs.damage import damage_arrays, damage_bytes, damage_lines, damage_values

chances = st.integers(0, 2**32).map(random.Random)
PUBLISHED = {
    "config": {"env": "lbf/8x8-2p-2f", "method": "ippo-dg", "learner": {"gamma": 0.9}},
    "seeds": [0, 1],
    "episodes_per_evaluation": 3,
    "steps": [[10, 20, 30], [10, 21, 32]],
    "return_mean": [[0.1, 0.2, 0.3], [0.2, 0.3, 0.5]],
    "return_std": [[0.1, 0.2, 0.3], [0.2, 0.3, 0.5]],
    "graph_density": [[0.1, 0.2, 0.3], [0.2, 0.3, 0.5]],
    "timing": {"train_s": 3.0, "device": "cpu"},
    "notes": ["a note"],
}
SEED = {
    **{f"step_{k}": {"step_count": 10 * k, "return": [0.1, 0.2]} for k in (1, 2, 3)},
    "absolute_metrics": {"return": [0.1]},
}
MARL_EVAL = {"lbf": {"8x8-2p-2f": {"QMIX": {"seed_0": SEED, "seed_1": SEED}}}}


def trials(few: int, many: int):
    """A decorator of a test of one random damage: the same test with few examples, and slow with
    many."""

    def decorate(test):
        options = {"deadline": None, "suppress_health_check": list(HealthCheck)}

        @pytest.mark.parametrize(
            "count", [few, pytest.param(many, marks=pytest.mark.slow)], ids=["few", "many"]
        )
        def repeated(count, damaged):
            settings(max_examples=count, database=None, **options)(
                given(chances)(lambda chance: test(damaged, chance))
            )()

        return repeated

    return decorate


def ask(capsys, *arguments: object) -> tuple[int, str, str]:
    """Exit code, output and errors of a command; an exception other than SystemExit fails."""
    with pytest.raises(SystemExit) as stop:
        main([str(argument) for argument in arguments])
    return int(stop.value.code or 0), *capsys.readouterr()


def sentence(call: Callable[[], Any]) -> str:
    """What a call refuses in one line; empty if it does not refuse."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            call()
    except UsageError as error:
        said = str(error)
    else:
        return ""
    assert "\n" not in said
    return said


class Damaged:
    """A place for damaged files, and a run to damage."""

    def __init__(self, path: Path, finished, capsys):
        self.path, self.finished, self.capsys = path, finished, capsys
        self.table = self.ask_table(finished.path)[1]

    def copy(self) -> Path:
        shutil.rmtree(self.path / "run", ignore_errors=True)
        return Path(shutil.copytree(self.finished.path, self.path / "run"))

    def ask_table(self, path: Path) -> tuple[int, str, str]:
        code, out, err = ask(self.capsys, "table", path, "--json")
        assert code == 0 or (code == 2 and len(err.strip().splitlines()) == 1), err
        return code, out, err


@pytest.fixture
def damaged(tmp_path, finished, capsys) -> Damaged:
    return Damaged(tmp_path, finished, capsys)


def check_published(damaged: Damaged, name: str, content: bytes) -> None:
    path = damaged.path / name
    path.write_bytes(content)
    code, out, _ = damaged.ask_table(path)
    if code == 2:
        return
    json.loads(out, parse_constant=pytest.fail)
    for result in gather([path]):
        assert result.steps.dtype == int
        assert result.steps.shape == result.returns.shape
        assert (result.steps >= 0).all()
        assert (np.diff(result.steps) >= 0).all()
        assert (np.abs(result.returns) < 1e30).all()
    assert ask(damaged.capsys, "table", path)[0] == 0


@trials(60, 800)
def test_published_results(damaged, chance):
    values = json.dumps(damage_values(PUBLISHED, chance)).encode()
    content = chance.choice((values, values, damage_bytes(values, chance)))
    check_published(damaged, "a__ippo-dg.json", content)


@trials(60, 800)
def test_marl_eval_files(damaged, chance):
    values = json.dumps(damage_values(MARL_EVAL, chance)).encode()
    content = chance.choice((values, values, damage_bytes(values, chance)))
    check_published(damaged, "theirs.json", content)


def damage_run(run: Path, chance: random.Random) -> str:
    """Damage one file of a run folder that numbers are read from; its name."""
    last = f"checkpoints/{indices(run / 'checkpoints')[-1]:08d}"
    name = chance.choice(("metrics.jsonl", "returns.npz", "timing.json", "run.json", last))
    if name == last:
        files = sorted(path for path in (run / last).rglob("*") if path.is_file())
        name = str(chance.choice(files).relative_to(run))
    path = run / name
    kind = chance.randrange(4)
    if kind == 0:
        path.unlink()
    elif kind == 1 or not name.endswith((".jsonl", ".npz")):
        path.write_bytes(damage_bytes(path.read_bytes(), chance))
    elif name.endswith(".jsonl"):
        path.write_bytes(damage_lines(path.read_bytes(), chance))
    else:
        damage_arrays(path, chance)
    return name


@trials(30, 400)
def test_the_table_of_a_run(damaged, chance):
    """Refused, or the same numbers; or fewer of them, and said so."""
    run = damaged.copy()
    name = damage_run(run, chance)
    code, out, err = damaged.ask_table(run)
    assert code == 2 or out == damaged.table or "of 800 steps" in err, name


@trials(15, 200)
def test_a_resumed_run(damaged, chance):
    """Refused, or restored to the same numbers."""
    run, finished = damaged.copy(), damaged.finished
    name = damage_run(run, chance)
    recorder, states = Recorder(finished.config, RunFolder(run), resume=True), []

    def resume() -> None:
        with recorder:
            states.append(recorder.start(finished.result.state))

    if sentence(resume):
        return
    n = len(recorder.steps)
    assert n >= finished.result.steps.shape[1] - 1, name
    np.testing.assert_array_equal(np.stack(recorder.steps, 1), finished.result.steps[:, :n])
    np.testing.assert_array_equal(np.stack(recorder.returns, 1), finished.result.returns[:, :n])
    for metric, values in finished.result.metrics.items():
        found = np.stack([metrics[metric] for metrics in recorder.metrics], 1)
        np.testing.assert_array_equal(found, values[:, :n])
    np.testing.assert_array_equal(states[0].step, finished.result.steps[:, n - 1])
    assert len(read_run(run).steps.T) == n


@trials(15, 200)
def test_configurations(damaged, chance):
    run = damaged.copy()
    config = run / "config.yaml"
    config.write_bytes(damage_bytes(config.read_bytes(), chance))
    damaged.ask_table(run)
    sentence(RunFolder(run).config)


@trials(30, 400)
def test_replays_and_fixed_graphs(damaged, chance):
    drawn = Episode(("<svg/>",) * 3, 1, np.zeros((2, 2), np.float32), True)
    path = write_replay(damaged.path / "replay.npz", Replay("a", 2, "b", "", (drawn,)))
    if chance.random() < 0.5:
        damage_arrays(path, chance)
    else:
        path.write_bytes(damage_bytes(path.read_bytes(), chance))
    sentence(lambda: read_replay(path))
    graph = damaged.path / chance.choice(("graph.npy", "graph.txt"))
    if graph.suffix == ".npy":
        np.save(graph, np.eye(3))
    else:
        np.savetxt(graph, np.eye(3))
    graph.write_bytes(damage_bytes(graph.read_bytes(), chance))
    sentence(lambda: check_graph(fixed_source(str(graph)).matrix(3)))


@pytest.fixture
def copy(finished, tmp_path) -> Path:
    return Path(shutil.copytree(finished.path, tmp_path / "copy"))


def test_lost_lines_of_a_finished_run_are_told_and_restored(finished, copy, capsys):
    metrics = copy / "metrics.jsonl"
    whole = metrics.read_bytes()
    metrics.write_bytes(b"".join(whole.splitlines(keepends=True)[:-3]))
    code, _, said = ask(capsys, "table", copy)
    assert code == 2
    assert "metrics.jsonl" in said
    recorder = Recorder(finished.config, RunFolder(copy), resume=True)
    with recorder, pytest.warns(UserWarning, match="both are restored from the checkpoint"):
        recorder.start(finished.result.state)
    assert metrics.read_bytes() == whole
    assert ask(capsys, "table", copy)[0] == 0


def test_a_run_of_checkpoints_without_a_copy_is_checked_against_its_own_files(finished, copy):
    for checkpoint in (copy / "checkpoints").iterdir():
        for name in ("about.json", "metrics.jsonl", "returns.npz"):
            (checkpoint / name).unlink()
        rewrite_checksums(checkpoint)
    (copy / "run.json").unlink()
    recorder = Recorder(finished.config, RunFolder(copy), resume=True)
    with recorder:
        recorder.start(finished.result.state)
    np.testing.assert_array_equal(np.stack(recorder.returns, 1), finished.result.returns)
    lines = (copy / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    for damaged, words in (
        (lines[:-3], "but 34 were saved"),
        ([lines[0].replace(b'"step": 8', b'"step": 7'), *lines[1:]], "step differs"),
    ):
        (copy / "metrics.jsonl").write_bytes(b"".join(damaged))
        with recorder, pytest.raises(UsageError, match=words):
            recorder.start(finished.result.state)


def test_a_seed_that_was_done_repeats_its_last_row_also_when_the_run_is_extended():
    places = [(0, 0, 5), (0, 1, 5), (1, 0, 10), (1, 1, 9), (2, 1, 12), (3, 0, 15), (3, 1, 16)]
    rows: list = [{"evaluation": k, "seed": seed, "step": step} for k, seed, step in places]
    assert len(by_evaluation(rows, (0, 1), steps=20)) == 2, "evaluation 2 lacks a seed"
    saved = np.array([[5, 10, 10, 15], [5, 9, 12, 16]])
    found = by_evaluation(rows, (0, 1), steps=20, saved=saved)
    assert [[row["step"] for row in here] for here in found] == saved.T.tolist()
    assert by_evaluation(rows[:5], (0, 1), steps=10) == found[:3]


def test_a_run_that_has_not_had_its_steps_says_so(finished, copy, capsys):
    lines = (copy / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    (copy / "metrics.jsonl").write_bytes(b"".join(lines[:4]))
    (copy / "returns.npz").unlink()
    shutil.rmtree(copy / "checkpoints")
    code, _, said = ask(capsys, "table", copy)
    assert code == 0
    assert "of 800 steps" in said


def test_checkpoints_in_the_wrong_place_are_told(finished, copy, tmp_path):
    folder, template = RunFolder(copy), finished.result.state
    before, last = (copy / "checkpoints" / f"{k:08d}" for k in indices(copy / "checkpoints"))
    shutil.rmtree(last)
    shutil.copytree(before, last)
    with pytest.warns(UserWarning, match=f"is a copy of number {int(before.name)}"):
        assert load_latest(folder.checkpoints, template, folder.run_id)[0] == int(before.name)
    (copy / "run.json").write_text('{"id": "another"}')
    with (
        pytest.warns(UserWarning, match="belongs to another run"),
        pytest.raises(UsageError, match="belongs to another run"),
    ):
        load_latest(folder.checkpoints, template, folder.run_id)


def rewrite_checksums(checkpoint: Path) -> None:
    (checkpoint / "checksums.json").write_text(json.dumps(_checksums(checkpoint)))


def test_content_that_does_not_fit_is_told_although_its_checksums_do(tmp_path):
    state = {"step": np.array([4, 5], np.int32), "a": np.ones(3, np.float32)}
    path = save_checkpoint(tmp_path, 1, state)
    for other in (np.ones(3, np.int32), np.ones(4, np.float32)):
        with pytest.raises(UsageError, match="a does not fit"):
            load_latest(tmp_path, {**state, "a": other})
    about = json.loads((path / "about.json").read_text())
    (path / "about.json").write_text(json.dumps({**about, "step": [4, 6]}))
    rewrite_checksums(path)
    assert "holds the state of another checkpoint" in sentence(lambda: load_latest(tmp_path, state))
    for file in (path / "state").rglob("*"):
        if file.is_file():
            file.write_bytes(b"{}")
    rewrite_checksums(path)
    assert "cannot be read" in sentence(lambda: load_latest(tmp_path, state))


def test_the_lock_follows_no_link(tmp_path):
    (tmp_path / "mine").write_text("precious")
    folder = RunFolder(tmp_path / "run")
    folder.path.mkdir()
    for link in (os.symlink, os.link):
        link(tmp_path / "mine", folder.path / ".lock")
        with pytest.raises(UsageError, match=r"\.lock is a link instead of a file"), folder.lock():
            pass
        (folder.path / ".lock").unlink()
    assert (tmp_path / "mine").read_text() == "precious"


def test_the_next_writer_removes_what_a_killed_one_left(tmp_path):
    folder = RunFolder(tmp_path)
    (tmp_path / ".metrics.jsonl.x1.tmp").touch()
    (folder.checkpoints / "00000003.writing" / "state").mkdir(parents=True)
    with folder.lock():
        left = sorted(path.name for path in tmp_path.rglob("*"))
    assert left == [".lock", "checkpoints"]


@pytest.mark.parametrize("jump", [1e6, -1e6])
def test_the_clock_may_be_set_while_a_checkpoint_is_written(tmp_path, monkeypatch, jump):
    clock, calls, state = time.time, [], {"a": np.ones(3, np.float32)}
    save_checkpoint(tmp_path, 0, state)
    for moment in (1, 2, 4, 8, 16, 32, 64):
        calls.clear()

        def set_clock(moment=moment):
            calls.append(None)
            return clock() + jump * (len(calls) > moment)

        monkeypatch.setattr(time, "time", set_clock)
        save_checkpoint(tmp_path, moment, state)
        assert load_latest(tmp_path, state)[0] == moment
    assert jax.tree.leaves(load_latest(tmp_path, state)[1])[0].tolist() == [1, 1, 1]


def test_threads_write_checkpoints_at_the_same_time(tmp_path):
    arrays = {f"w{k}": np.full((8, 8), k, np.float32) for k in range(40)}
    state = {"step": np.arange(3, dtype=np.int32), **arrays}

    def write(name: int) -> tuple[int, Any]:
        folder = tmp_path / str(name)
        for index in range(10):
            save_checkpoint(folder, index, state)
        return load_latest(folder, state)

    with ThreadPoolExecutor(4) as pool:
        for index, found in pool.map(write, range(4)):
            assert index == 9
            jax.tree.map(np.testing.assert_array_equal, found, state)
