"""One short run of each preset and kind of learner, for `tests/test_devices.py`; as a program,
`python -m tests.preset_runs FOLDER`, all of them on the devices that this process has."""

import json
import sys
import traceback
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from dgmarl.config.resolve import resolve
from dgmarl.config.schema import TrainConfig
from dgmarl.device import use_all_cores
from dgmarl.runs.callbacks import TrainResult
from dgmarl.runs.folder import RunFolder
from dgmarl.runs.recorder import Recorder
from dgmarl.sweeps.batched import train_all
from tests.tiny import GIFT, SMALL

GRU = {"learner.network": "gru"}
ROLLOUTS = {"n_envs": 4, "rollout_length": 4, "learner.minibatches": 2}
"""The structure of `fast` at a size for tests: rollouts of a fixed length, several minibatches."""
REPLAY = {
    "learner.batch_size": 4,
    "learner.buffer_size": 8,
    "learner.mixer_embedding": 4,
    "learner.mixer_hidden": 4,
}


class PresetRun(NamedTuple):
    preset: str
    method: str
    overrides: dict[str, Any]

    def config(self) -> TrainConfig:
        overrides = SMALL | {"learner.hidden": 4} | self.overrides
        return resolve(GIFT, self.method, overrides, self.preset, seeds=2, steps=40)


RUNS = {
    "tuned ippo-dg fc": PresetRun("tuned", "ippo-dg", {}),
    "paper ippo-dg gru": PresetRun("paper", "ippo-dg", GRU),
    "fast ippo-dg fc": PresetRun("fast", "ippo-dg", ROLLOUTS),
    "fast ippo-dg gru": PresetRun("fast", "ippo-dg", ROLLOUTS | GRU),
    "tuned qmix fc": PresetRun("tuned", "qmix", REPLAY),
    "paper qmix gru": PresetRun("paper", "qmix", REPLAY | GRU),
}
CREDITS = [
    resolve(GIFT, method, SMALL | {"credit.reward_scaling": "none"}, seeds=2, steps=100)
    for method in ("ippo-local", "ippo-dg")
]
"""Two runs that can be batched into one program."""


def alone(config: TrainConfig, folder: Path | None = None) -> TrainResult:
    """A run that is not batched; one that was begun in the folder is resumed."""
    return train_all([Recorder(config, RunFolder(folder) if folder else None)])[0]


def interrupted(config: TrainConfig, folder: Path) -> TrainResult:
    """The same, stopped at its first evaluation."""
    recorder = Recorder(
        config, RunFolder(folder), [lambda _: setattr(recorder, "interrupted", True)]
    )
    return train_all([recorder])[0]


def main(folder: Path) -> None:
    use_all_cores()
    problems, arrays = {}, {}
    for name, run in RUNS.items():
        try:
            result = alone(run.config())
            arrays[f"{name} returns"], arrays[f"{name} steps"] = result.returns, result.steps
        except Exception:
            problems[name] = traceback.format_exc()
    whole = alone(CREDITS[1])
    arrays["devices"] = np.array(len(whole.state.step.sharding.device_set))
    arrays["whole"], arrays["steps"] = whole.metrics["value_loss"], whole.steps
    arrays["whole returns"] = whole.returns
    arrays["interrupted"] = np.array(interrupted(CREDITS[1], folder / "run").interrupted)
    arrays["resumed returns"] = alone(CREDITS[1], folder / "run").returns
    batched = train_all([Recorder(config) for config in CREDITS])
    arrays["batched"] = batched[1].metrics["value_loss"]
    arrays["available"] = np.array(jax.local_device_count())
    np.savez(folder / "found.npz", **arrays)
    (folder / "problems.json").write_text(json.dumps(problems))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
