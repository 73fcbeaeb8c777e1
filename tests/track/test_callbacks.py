"""Who listens to a run: functions, callbacks, TensorBoard and Weights & Biases."""

import json
import struct
import sys

import numpy as np
import pytest

from dgmarl import Callback, UsageError, api
from dgmarl.config.resolve import resolve
from dgmarl.runs.callbacks import Progress, Start
from dgmarl.track import make_tracker, scalars
from dgmarl.track.tensorboard import TensorBoard
from tests.tiny import GIFT, SMALL


class Diary(Callback):
    """Keeps what it is told, in order."""

    def __init__(self):
        self.told = []

    def on_start(self, start):
        self.told.append(("start", start))

    def on_evaluation(self, progress):
        self.told.append(("evaluation", progress))

    def on_checkpoint(self, checkpoint):
        self.told.append(("checkpoint", checkpoint))

    def on_end(self, result):
        self.told.append(("end", result))


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """A run with every kind of listener, and the same trained on."""
    patch = pytest.MonkeyPatch()
    patch.setenv("WANDB_MODE", "offline")
    patch.setenv("WANDB_SILENT", "true")
    folder, progress = tmp_path_factory.mktemp("track") / "run", []
    first, second = Diary(), Diary()
    config = resolve(GIFT, "ippo-local", SMALL, seeds=2, seed=7, steps=60)
    listeners = [first, progress.append, make_tracker("tensorboard"), make_tracker("wandb")]
    api.train_config(config, folder, callbacks=listeners, checkpoint_seconds=0)
    api.resume(folder, [second, TensorBoard()], steps=80, trust=True)
    patch.undo()
    return folder, progress, first.told, second.told


def test_callbacks_hear_start_evaluations_checkpoints_and_end(told):
    folder, progress, first, _ = told
    kinds = [kind for kind, _ in first]
    assert kinds[0] == "start"
    assert kinds[-1] == "end"
    assert kinds.count("evaluation") == len(progress) >= 2
    assert kinds.count("checkpoint") >= 2
    start, end = first[0][1], first[-1][1]
    assert start.folder == folder
    assert start.config == end.config
    assert start.steps.tolist() == [0, 0]
    np.testing.assert_array_equal(np.stack([each.returns for each in progress], 1), end.returns)
    last = [what for kind, what in first if kind == "checkpoint"][-1]
    assert last.evaluation == len(progress)
    assert any(last.path.iterdir())


def test_a_resumed_run_starts_where_it_goes_on(told):
    _, progress, _, second = told
    assert second[0][1].steps.tolist() == progress[-1].steps.tolist()
    assert [kind for kind, _ in second].count("evaluation") == second[-1][1].steps.shape[1] - len(
        progress
    )


def test_tensorboard_reads_every_number_of_every_seed(told):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    folder, *_ = told
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    for seed in (7, 8):
        reader = EventAccumulator(str(folder / "tensorboard" / f"seed-{seed}"))
        reader.Reload()
        own = [line for line in lines if line["seed"] == seed]
        for name in ("return_mean", "return_std", "entropy", "value_loss", "advantage_std"):
            tag = f"evaluation/{name}" if name.startswith("return") else f"train/{name}"
            events = [(event.step, event.value) for event in reader.Scalars(tag)]
            expected = [(line["step"], line[name]) for line in own]
            np.testing.assert_allclose(events, expected, rtol=1e-6)
        measured = own[0].keys() - {"seed", "evaluation", "iteration", "step", "wall_s"}
        assert len(reader.Tags()["scalars"]) >= len(measured)


def test_wandb_keeps_one_offline_run_per_seed_in_one_group(told):
    folder, progress, *_ = told
    found = {}
    for path in (folder / "wandb").glob("offline-run-*/run-*.wandb"):
        run, history = _records(path)
        assert run.run_group == "run"
        found[run.display_name] = history
    assert sorted(found) == ["run seed 7", "run seed 8"]
    for k, name in enumerate(sorted(found)):
        history, expected = found[name], [list(scalars(each))[k] for each in progress]
        assert [row["steps"] for row in history] == [steps for steps, _ in expected]
        for row, (_, values) in zip(history, expected, strict=True):
            assert {name: row[name] for name in values} == pytest.approx(values)


def _records(path):
    """The run and the history of a .wandb file, which `wandb sync` reads: a log of LevelDB."""
    from wandb.proto import wandb_internal_pb2

    run, history = None, []
    for data in _log(path.read_bytes()):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        if record.WhichOneof("record_type") == "run":
            run = record.run
        if record.WhichOneof("record_type") == "history":
            items = record.history.item
            row = {item.key or "/".join(item.nested_key): item.value_json for item in items}
            history.append({name: json.loads(value) for name, value in row.items()})
    return run, history


def _log(content, block=1 << 15):
    """Records of a LevelDB log after a header of 7 bytes: checksum, length, kind, content."""
    place, parts = 7, b""
    while place + 7 <= len(content):
        left = block - place % block
        if left < 7:
            place += left
            continue
        _, length, kind = struct.unpack_from("<IHB", content, place)
        parts += content[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # whole, or the last part
            yield parts
            parts = b""


def test_a_run_that_was_cut_off_does_not_show_a_step_twice(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    config = resolve(GIFT, "ippo-local", SMALL, steps=60)

    def write(steps, *values):
        tracker = TensorBoard(tmp_path)
        tracker.on_start(Start(config, None, np.array([steps])))
        for k, value in enumerate(values, 1):
            at, value = np.array([steps + 20 * k]), np.array([[value]])
            tracker.on_evaluation(Progress(k, at, value, {}, 1.0, 1.0))
        tracker.close()

    write(0, 1.0, 2.0)  # cut off after a checkpoint at 20
    write(20, 3.0)
    reader = EventAccumulator(str(tmp_path / "seed-0"))
    reader.Reload()
    events = reader.Scalars("evaluation/return_mean")
    assert [(event.step, event.value) for event in events] == [(20, 1.0), (40, 3.0)]


def test_a_tracker_without_its_package_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    monkeypatch.delitem(sys.modules, "dgmarl.track.tensorboard")
    with pytest.raises(UsageError, match=r"tensorboardX is not installed.*dgmarl\[track\]"):
        make_tracker("tensorboard")


def test_tensorboard_without_a_folder_is_refused():
    config = resolve(GIFT, "ippo-local", SMALL, steps=60)
    with pytest.raises(UsageError, match="needs a folder"):
        TensorBoard().on_start(Start(config, None, np.zeros(1, int)))


def test_options_of_wandb_win(monkeypatch):
    import wandb

    from dgmarl.track.wandb import WeightsAndBiases

    given = {}
    monkeypatch.setattr(wandb, "init", lambda **options: given.update(options) or _Silent())
    config = resolve(GIFT, "ippo-local", SMALL, steps=60)
    WeightsAndBiases(project="mine").on_start(Start(config, None, np.zeros(1, int)))
    assert given["project"] == "mine"
    assert given["config"]["learner"]["hidden"] == 8


class _Silent:
    def define_metric(self, *_, **__):
        pass
