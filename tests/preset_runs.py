"""Short runs on one and on several devices, for `tests/test_devices.py`; as a program, `python -m
tests.preset_runs FOLDER NAME...`, those named, on the eight devices that this process then has."""

import sys
from pathlib import Path
from signal import SIGINT, raise_signal
from typing import Any, NamedTuple

import jax
import numpy as np

from dgmarl import api
from dgmarl.config.resolve import resolve
from dgmarl.config.schema import TrainConfig
from dgmarl.device import mesh_for, use_all_cores
from dgmarl.runs.callbacks import TrainResult
from dgmarl.runs.recorder import Recorder
from dgmarl.sweeps.batched import train_all
from dgmarl.training import TrainState
from tests.tiny import GIFT, SMALL

GRU = {"learner.network": "gru"}
ROLLOUTS = {"rollout_length": 4, "learner.minibatches": 2, "env_options.stop": 0.3}
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
    seeds: int = 2
    seed: int = 0
    env: str = GIFT
    steps: int = 80

    def config(self) -> TrainConfig:
        sizes = {"learner.hidden": 4, "n_envs": 4, "evaluation.episodes": 4}
        overrides = SMALL | sizes | self.overrides
        numbers = {"seeds": self.seeds, "seed": self.seed, "steps": self.steps}
        return resolve(self.env, self.method, overrides, self.preset, **numbers)


RUNS = {
    "tuned ippo-dg fc": PresetRun("tuned", "ippo-dg", {}),
    "paper ippo-dg gru": PresetRun("paper", "ippo-dg", GRU),
    "fast ippo-dg fc": PresetRun("fast", "ippo-dg", ROLLOUTS),
    "fast ippo-dg gru": PresetRun("fast", "ippo-dg", ROLLOUTS | GRU),
    "tuned qmix fc": PresetRun("tuned", "qmix", REPLAY),
    "paper qmix gru": PresetRun("paper", "qmix", REPLAY | GRU),
    "tuned mappo-coma fc": PresetRun("tuned", "mappo-coma", {"learner.minibatches": 2}),
    "one seed": PresetRun("tuned", "ippo-dg", {}, seeds=1),
}
FORAGING = {"seeds": 8, "env": "lbf/5x5-2p-1f", "steps": 1200}
SEPARATE = {
    "separate ippo-dg": PresetRun("tuned", "ippo-dg", {"separate_seeds": True}),
    "separate foraging": PresetRun("tuned", "ippo-dg", {"separate_seeds": True}, **FORAGING),
    "separate qmix": PresetRun("tuned", "qmix", {"separate_seeds": True} | REPLAY, **FORAGING),
}
ALONE = 3
"""The seed that is also trained by itself."""
CREDITS = [
    resolve(GIFT, method, SMALL | {"credit.reward_scaling": "none"}, seeds=2, steps=100)
    for method in ("ippo-local", "ippo-dg")
]
"""Two runs that can be batched into one program."""


def numbers(result: TrainResult) -> dict[str, np.ndarray]:
    """What two runs are compared by."""
    params = [np.ravel(leaf) for leaf in jax.tree.leaves(result.state.learner.params)]
    mesh = getattr(result.state.step.sharding, "mesh", None)
    return {
        "steps": result.steps,
        "returns": result.returns,
        "params": np.concatenate(params),
        "bits": bits(result.state),
        "mesh": np.array([*mesh.shape.values()] if mesh else [1, 1]),
    }


def bits(state: TrainState) -> np.ndarray:
    """All leaves of a state as bytes, one row per seed."""

    def of_leaf(leaf: jax.Array) -> np.ndarray:
        is_key = jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        array = np.asarray(jax.random.key_data(leaf) if is_key else leaf)
        return np.stack([np.frombuffer(seed.tobytes(), np.uint8) for seed in array])

    return np.concatenate([of_leaf(leaf) for leaf in jax.tree.leaves(state)], axis=1)


def interrupted(config: TrainConfig, folder: Path, devices: Any = None) -> TrainResult:
    """A run that is stopped at its first evaluation."""

    def stop(_: Any) -> None:
        raise_signal(SIGINT)

    return api.train_config(config, folder, callbacks=[stop], devices=devices)


def main(folder: Path, names: list[str]) -> None:
    """Each run on one device, on two, on those that divide its seeds, or on all, or one seed of it
    alone. `credits`: two batched runs, and one that is stopped, to be resumed elsewhere."""
    use_all_cores()
    found: dict[str, np.ndarray] = {}

    def keep(name: str, result: TrainResult) -> None:
        found.update({f"{name} {part}": array for part, array in numbers(result).items()})

    for name in names:
        how, _, run = name.partition(": ")
        if how == "credits":
            for result in train_all([Recorder(config) for config in CREDITS]):
                keep(f"batched {result.config.method}", result)
            keep("stopped", interrupted(CREDITS[1], folder / "run", "all"))
            continue
        devices = {"two": 2, "seeds": None, "all": "all"}.get(how, 1)
        chosen = (RUNS | SEPARATE)[run]
        if how == "alone":
            chosen = chosen._replace(seed=ALONE, seeds=1)
        keep(name, api.train_config(chosen.config(), devices=devices))
    found["available"] = np.array(jax.local_device_count())
    found["default mesh"] = np.array([*mesh_for(CREDITS[0].seeds).shape.values()])
    np.savez(folder / "found.npz", **found)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
