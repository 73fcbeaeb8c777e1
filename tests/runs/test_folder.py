"""The run folder: one writer, nothing overwritten, every mistake and misfortune in one sentence
with earlier data intact."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import yaml

from dgmarl import api
from dgmarl.cli import main
from dgmarl.config.resolve import resolve
from dgmarl.config.schema import FORMAT_VERSION, TrainConfig
from dgmarl.config.yaml import build, override, read_yaml, write_yaml
from dgmarl.errors import RunError, UsageError
from dgmarl.rollout import Evaluation
from dgmarl.runs.checkpoints import indices, save_checkpoint
from dgmarl.runs.folder import RunFolder
from dgmarl.runs.reading import metrics_of, read_returns
from dgmarl.runs.recorder import Recorder
from dgmarl.training import Advanced
from tests.tiny import GIFT, SMALL


def run(capsys, *arguments: object) -> tuple[int, str]:
    """Exit code and what was said on stderr, which is one line at most."""
    with pytest.raises(SystemExit) as stop:
        main([str(argument) for argument in arguments])
    said = capsys.readouterr().err.strip()
    assert len(said.splitlines()) <= 1
    return int(stop.value.code or 0), said


def digest(folder: Path) -> dict[str, str]:
    """Every file's content, but for the lock's."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
    }


@pytest.fixture
def copy(finished, tmp_path) -> Path:
    return Path(shutil.copytree(finished.path, tmp_path / "copy"))


@pytest.fixture
def unfinished(copy) -> Path:
    """As if the run had been killed before its last evaluation was saved."""
    shutil.rmtree(copy / "checkpoints" / f"{indices(copy / 'checkpoints')[-1]:08d}")
    return copy


def test_everything_that_was_promised_is_there(finished):
    path, config, result = finished.path, finished.config, finished.result
    assert RunFolder(path).config() == build(TrainConfig, read_yaml(path / "config.yaml")) == config
    steps, returns = read_returns(path)
    np.testing.assert_array_equal(steps, result.steps)
    np.testing.assert_array_equal(returns, result.returns)
    rows = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    assert len(rows) == result.steps.size
    for row in rows:
        assert row["step"] == steps[row["seed"], row["evaluation"]]
        np.testing.assert_allclose(
            row["return_mean"], returns[row["seed"], row["evaluation"]].mean(), rtol=1e-6
        )
        assert {
            "iteration",
            "wall_s",
            "return_std",
            "length_mean",
            "graph_density",
            "value_loss",
        } <= row.keys()
    timing = json.loads((path / "timing.json").read_text())
    assert {
        "compile_s",
        "train_s",
        "steps_per_s",
        "peak_memory_mib",
        "device",
        "python",
        "jax",
        "dgmarl",
    } <= timing.keys()


def test_a_second_writer_is_refused_while_the_first_is_at_work(finished, copy):
    before = digest(copy)
    second = [
        "-c",
        "import sys; from dgmarl.cli import main; main(['train', '--resume', sys.argv[1]])",
        str(copy),
    ]
    with RunFolder(copy).lock():
        refused = by_itself([sys.executable, *second])
        assert refused.returncode == 2
        assert "another process" in refused.stderr
        assert len(refused.stderr.strip().splitlines()) == 1
        with pytest.raises(UsageError, match="another process"):
            api.resume(copy)
    assert digest(copy) == before
    api.resume(copy)


def test_a_folder_that_holds_a_run_is_not_overwritten(finished, copy):
    before = digest(copy)
    with pytest.raises(UsageError, match=r"already holds a run.*--resume"):
        api.train_config(finished.config, copy)
    (copy / "config.yaml").unlink()
    with pytest.raises(UsageError, match="already holds a run"):
        api.train_config(finished.config, copy)
    before.pop("config.yaml")
    assert digest(copy) == before


def test_a_place_below_a_regular_file_is_refused(finished, tmp_path, capsys):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UsageError, match="cannot be written"):
        api.train_config(finished.config, tmp_path / "file" / "run")
    code, said = run(
        capsys,
        "train",
        "--config",
        finished.path / "config.yaml",
        "--out",
        tmp_path / "file" / "run",
    )
    assert code == 2
    assert "is a file, not a folder" in said
    assert (tmp_path / "file").read_text() == "mine"


LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]),) * 2)
from dgmarl.cli import main
main(["train", *sys.argv[2:]])
"""


def train_on_a_full_disk(limit: int, *arguments: object) -> subprocess.CompletedProcess:
    command = [sys.executable, "-c", LIMITED, str(limit), *map(str, arguments)]
    return by_itself(command)


def by_itself(command: list[str]) -> subprocess.CompletedProcess:
    """It adds nothing to the compiled programs that tests share: where it cannot write, JAX would
    say so on stderr."""
    alone = {**os.environ, "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "1000000"}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=alone)


@pytest.mark.parametrize("limit", [20_000, pytest.param(60_000, marks=pytest.mark.slow)])
@pytest.mark.slow
def test_a_full_disk_is_told_and_what_was_there_is_intact(finished, unfinished, limit):
    """20 000 bytes are too few for the metrics, 60 000 for the next checkpoint only."""
    before = digest(unfinished)
    metrics = (unfinished / "metrics.jsonl").read_text().splitlines()
    assert 20_000 < (unfinished / "metrics.jsonl").stat().st_size < 60_000
    failed = train_on_a_full_disk(limit, "--resume", unfinished)
    assert failed.returncode == 1
    assert "File too large" in failed.stderr
    assert len(failed.stderr.strip().splitlines()) == 1
    after = digest(unfinished)
    changed = {name for name in before if after.get(name) != before[name]}
    assert changed <= {"metrics.jsonl", "returns.npz", "timing.json"}
    for old, new in zip(
        metrics, (unfinished / "metrics.jsonl").read_text().splitlines(), strict=False
    ):
        if json.loads(old)["evaluation"] < len(finished.result.steps.T) - 1:
            assert json.loads(old) == json.loads(new)
    # With room again, it goes on as if nothing had happened.
    np.testing.assert_array_equal(api.resume(unfinished).returns, finished.result.returns)


def test_a_disk_that_is_full_from_the_start_is_told_too(finished, tmp_path):
    failed = train_on_a_full_disk(
        1_000, "--config", finished.path / "config.yaml", "--out", tmp_path / "new"
    )
    assert failed.returncode == 1
    assert "File too large" in failed.stderr
    assert len(failed.stderr.strip().splitlines()) == 1
    with pytest.raises(UsageError, match="not a run folder"):
        RunFolder(tmp_path / "new").config()


def test_too_little_room_for_a_checkpoint_is_noticed_before_anything_is_written(
    tmp_path, monkeypatch
):
    save_checkpoint(tmp_path, 0, {"a": np.zeros(3, np.float32)})
    before = digest(tmp_path)
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1000))
    with pytest.raises(RunError, match=r"00000001 cannot be written \(No space left on device\)"):
        save_checkpoint(tmp_path, 1, {"a": np.zeros(3, np.float32)})
    assert digest(tmp_path) == before


def test_numbers_that_are_none_stop_the_run_and_name_the_last_good_checkpoint(
    finished, unfinished, capsys
):
    last = indices(unfinished / "checkpoints")[-1]
    state = api.load(unfinished).state
    broken = state._replace(
        learner=state.learner._replace(
            params=jax.tree.map(lambda leaf: leaf.at[1].set(jnp.nan), state.learner.params)
        )
    )
    RunFolder(unfinished).save(last, broken)
    step = int(state.step[1])
    with pytest.raises(
        RunError,
        match=rf"of seed 1 became nan between step {step} and \d+; the last checkpoint is "
        rf"number {last}",
    ):
        api.resume(unfinished)
    assert indices(unfinished / "checkpoints")[-1] == last
    assert "NaN" not in (unfinished / "metrics.jsonl").read_text()
    code, said = run(capsys, "train", "--resume", unfinished, "--quiet")
    assert code == 1
    assert f"number {last}" in said


def test_what_is_no_run_folder_is_refused(tmp_path, capsys):
    for arguments in (
        ["train", "--resume", tmp_path / "none"],
        ["evaluate", tmp_path],
        ["watch", tmp_path, "--out", tmp_path / "page.html"],
    ):
        code, said = run(capsys, *arguments)
        assert code == 2
        assert "not a run folder" in said
    assert list(tmp_path.iterdir()) == []


def test_a_newer_format_is_refused(copy, capsys):
    write_yaml(
        copy / "config.yaml",
        {
            **read_yaml(copy / "config.yaml"),
            "format": FORMAT_VERSION + 1,
            "something_new": 1,
        },
    )
    for arguments in (["train", "--resume", copy], ["evaluate", copy]):
        code, said = run(capsys, *arguments)
        assert code == 2
        assert f"format is {FORMAT_VERSION + 1}" in said
        assert "update dgmarl" in said


@pytest.mark.parametrize(
    "changes",
    [
        {"learner.hidden": 4},
        {"learner.network": "fc"},
        {"learner.share_parameters": False},
        {"rollout_length": 0},
        {"seeds": 1},
    ],
)
def test_a_checkpoint_of_another_configuration_is_refused(finished, copy, capsys, changes):
    write_yaml(copy / "config.yaml", override(finished.config, changes))
    code, said = run(capsys, "evaluate", copy)
    assert code == 2
    assert "another configuration" in said


def test_a_damaged_record_is_restored_and_a_damaged_configuration_refused(finished, copy, capsys):
    (copy / "returns.npz").write_bytes(b"PK no zip file")
    code, said = run(capsys, "train", "--resume", copy)
    assert code == 0
    assert "both are restored from the checkpoint" in said
    np.testing.assert_array_equal(read_returns(copy)[1], finished.result.returns)
    (copy / "config.yaml").write_text("env: [\n")
    code, said = run(capsys, "train", "--resume", copy)
    assert code == 2
    assert "config.yaml" in said


class Trap:
    def __reduce__(self):
        return (os.mkdir, ("trapped",))


def test_loading_executes_nothing(copy, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    np.savez(
        copy / "returns.npz",
        steps=np.array([Trap()], dtype=object),
        returns=np.array([Trap()], dtype=object),
    )
    with pytest.raises(UsageError, match="damaged"):
        read_returns(copy)
    (copy / "config.yaml").write_text(yaml.dump({"env": Trap()}))
    code, said = run(capsys, "evaluate", copy)
    assert code == 2
    assert "python/object" in said
    assert not (tmp_path / "trapped").exists()


class Counters(NamedTuple):
    """What a recorder reads of a state."""

    step: np.ndarray
    iteration: np.ndarray


def test_a_run_of_an_older_version_goes_on_with_metrics_it_did_not_have(tmp_path):
    config = resolve(GIFT, "ippo-dg", SMALL, seeds=2, steps=100)
    row = {"evaluation": 0, "iteration": 1, "step": 10, "old": 1.0}
    folder = RunFolder(tmp_path / "run")
    recorder = Recorder(config, folder)
    with recorder:
        first = [{"seed": seed, **row} for seed in (0, 1)]
        second = [{"seed": seed, **row, "evaluation": 1, "new": 2.0} for seed in (0, 1)]
        recorder.metrics = [metrics_of(first), metrics_of(second)]
        recorder.steps, recorder.returns = [np.array([10, 10])] * 2, [np.zeros((2, 3))] * 2
        recorder.compiled(0.0)
        state = Counters(step=np.array([20, 20]), iteration=np.array([2, 2]))
        evaluation = Evaluation(jnp.zeros((2, 3)), jnp.ones((2, 3)), {})
        metrics = {"old": np.ones(2), "new": np.ones(2), "newest": np.ones(2)}
        recorder.record(Advanced(state, metrics, evaluation, np.array([True, True])))
        assert set(recorder.finish(state).metrics) == {"old"}
        assert recorder.metrics[-1]["newest"].tolist() == [1, 1]
