"""A run that was killed, at any moment and more than once, ends with the identical numbers."""

import random
import shutil
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import jax
import numpy as np
import pytest

from dgmarl import api
from dgmarl.config.resolve import resolve
from dgmarl.config.yaml import write_yaml
from dgmarl.errors import UsageError
from dgmarl.runs.checkpoints import indices, load_latest, save_checkpoint
from dgmarl.runs.reading import read_metrics, read_returns
from tests.tiny import GIFT, WINDOWS

START = """
import sys
from pathlib import Path
from dgmarl import api
from dgmarl.config.yaml import build, read_yaml
from dgmarl.config.schema import TrainConfig

out, config = map(Path, sys.argv[1:])
if (out / "config.yaml").exists():
    api.resume(out, checkpoint_seconds=0)
else:
    api.train_config(build(TrainConfig, read_yaml(config)), out, checkpoint_seconds=0)
"""


def numbers(path: Path) -> list[dict]:
    """All that was measured, but for the time it took."""
    return [
        {name: value for name, value in row.items() if name != "wall_s"}
        for row in read_metrics(path)
    ]


def assert_identical(path: Path, finished) -> None:
    assert numbers(path) == numbers(finished.path)
    for found, expected in zip(read_returns(path), read_returns(finished.path), strict=True):
        np.testing.assert_array_equal(found, expected)
    states = [api.load(folder).state for folder in (path, finished.path)]
    for found, expected in zip(
        *(jax.tree.leaves(state._replace(key=jax.random.key_data(state.key))) for state in states),
        strict=True,
    ):
        np.testing.assert_array_equal(found, expected)


def n_lines(path: Path) -> int:
    return (
        (path / "metrics.jsonl").read_bytes().count(b"\n")
        if (path / "metrics.jsonl").exists()
        else 0
    )


# The first is killed as soon as there is a folder to go on from, the others somewhere in the middle
# of their work.
@pytest.mark.parametrize(
    "kills", [(8,), pytest.param((0, 8, 24), marks=pytest.mark.slow)], ids=["once", "thrice"]
)
def test_a_run_killed_at_random_moments_ends_with_identical_numbers(kills, finished, tmp_path):
    out, config, chance = tmp_path / "killed", tmp_path / "config.yaml", random.Random(0)
    write_yaml(config, finished.config)
    cut_short = 0
    for wanted in (*kills, None):
        process = subprocess.Popen(
            [sys.executable, "-c", START, str(out), str(config)], stderr=subprocess.PIPE, text=True
        )
        if wanted is not None:
            while process.poll() is None and not (
                (out / "config.yaml").exists() and n_lines(out) >= wanted
            ):
                time.sleep(0.002)
            time.sleep(chance.uniform(0, 0.3))
            process.kill()
        _, errors = process.communicate()
        assert process.returncode == (0 if wanted is None else -9), errors
        cut_short += 0 < n_lines(out) < len(finished.result.steps.T) * 2
    assert cut_short >= len([kill for kill in kills if kill])
    assert_identical(out, finished)
    assert not list(out.glob("checkpoints/*.writing"))


def cut_file(checkpoint: Path) -> None:
    largest = max(
        (path for path in checkpoint.rglob("*") if path.is_file()),
        key=lambda path: path.stat().st_size,
    )
    largest.write_bytes(largest.read_bytes()[:-7])


def flip_bit(checkpoint: Path) -> None:
    path = max((checkpoint / "state" / "d").iterdir())
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))


def lose_file(checkpoint: Path) -> None:
    max((checkpoint / "state" / "d").iterdir()).unlink()


def lose_checksums(checkpoint: Path) -> None:
    (checkpoint / "checksums.json").unlink()


def break_checksums(checkpoint: Path) -> None:
    (checkpoint / "checksums.json").write_text('{"state')


@pytest.fixture
def copy(finished, tmp_path) -> Path:
    return Path(shutil.copytree(finished.path, tmp_path / "copy"))


@pytest.mark.parametrize("damage", [cut_file, flip_bit, lose_file, lose_checksums, break_checksums])
def test_a_damaged_checkpoint_is_passed_over_for_the_one_before_with_a_warning(
    finished, copy, damage
):
    before, last = indices(copy / "checkpoints")
    template = finished.result.state
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert load_latest(copy / "checkpoints", template)[0] == last
    damage(copy / "checkpoints" / f"{last:08d}")
    with pytest.warns(UserWarning, match=f"{last:08d} is damaged"):
        assert load_latest(copy / "checkpoints", template)[0] == before
    damage(copy / "checkpoints" / f"{before:08d}")
    with (
        pytest.warns(UserWarning, match="damaged"),
        pytest.raises(UsageError, match="no intact checkpoint"),
    ):
        load_latest(copy / "checkpoints", template)


def test_a_run_goes_on_from_before_the_damage_and_loses_nothing(finished, copy):
    cut_file(copy / "checkpoints" / f"{indices(copy / 'checkpoints')[-1]:08d}")
    with pytest.warns(UserWarning, match="damaged"):
        api.resume(copy)
    assert_identical(copy, finished)


def test_a_metrics_line_that_a_crash_cut_short_is_written_again(finished, copy):
    shutil.rmtree(copy / "checkpoints" / f"{indices(copy / 'checkpoints')[-1]:08d}")
    metrics = copy / "metrics.jsonl"
    metrics.write_bytes(metrics.read_bytes()[:-40])
    result = api.resume(copy)
    assert_identical(copy, finished)
    np.testing.assert_array_equal(result.returns, finished.result.returns)
    np.testing.assert_array_equal(result.steps, finished.result.steps)


def test_a_finished_run_is_returned_as_it_is(finished, copy):
    before = {path: path.stat().st_mtime_ns for path in copy.glob("checkpoints/*")}
    result = api.resume(copy)
    np.testing.assert_array_equal(result.returns, finished.result.returns)
    assert not result.interrupted
    assert result.timing["compile_s"] == 0
    assert {path: path.stat().st_mtime_ns for path in copy.glob("checkpoints/*")} == before
    assert_identical(copy, finished)


def test_ctrl_c_stops_at_the_next_evaluation_and_the_run_can_go_on(finished, tmp_path):
    def press(progress):
        if progress.evaluation == 4:
            signal.raise_signal(signal.SIGINT)

    handler = signal.getsignal(signal.SIGINT)
    stopped = api.train_config(finished.config, tmp_path / "run", callbacks=[press])
    assert stopped.interrupted
    assert stopped.steps.shape[1] == 5
    assert signal.getsignal(signal.SIGINT) is handler
    assert indices(tmp_path / "run" / "checkpoints") == [0, 5]
    assert not api.resume(tmp_path / "run").interrupted
    assert_identical(tmp_path / "run", finished)


def test_the_last_two_checkpoints_stay_and_every_kth(tmp_path):
    for index in range(8):
        save_checkpoint(tmp_path, index, {"a": np.full(3, index, np.int32)}, keep_every=3)
    assert indices(tmp_path) == [0, 3, 6, 7]
    assert load_latest(tmp_path, {"a": np.zeros(3, np.int32)})[1]["a"].tolist() == [7, 7, 7]


def test_remnants_of_a_checkpoint_that_was_being_written_are_ignored_and_cleared(tmp_path):
    save_checkpoint(tmp_path, 1, {"a": np.ones(3, np.float32)})
    (tmp_path / "00000002.writing" / "state").mkdir(parents=True)
    assert load_latest(tmp_path, {"a": np.zeros(3, np.float32)})[0] == 1
    save_checkpoint(tmp_path, 3, {"a": np.ones(3, np.float32)})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["00000001", "00000003"]


@pytest.mark.slow
def test_a_learned_graph_goes_on_where_it_stopped(tmp_path):
    changing = {"graph_model.gradient_steps": 2, "graph_model.pair_fraction": 0.5}
    config = resolve(GIFT, "ippo-dg", {**WINDOWS, **changing}, seeds=1, steps=60, graph="learned")
    whole = api.train_config(config)

    def press(progress):
        if progress.evaluation == 1:
            signal.raise_signal(signal.SIGINT)

    assert api.train_config(config, tmp_path / "run", callbacks=[press]).interrupted
    resumed = api.resume(tmp_path / "run")
    np.testing.assert_array_equal(resumed.returns, whole.returns)
    for part in ("graph_state", "credit_state", "learner"):
        parts = (getattr(result.state, part) for result in (resumed, whole))
        jax.tree.map(np.testing.assert_array_equal, *parts)
