# /// script
# dependencies = ["torch==2.13.0", "benchmarl==1.5.2", "vmas==1.5.2"]
# ///
# pyright: reportMissingImports=false
"""BenchMARL's IPPO and MAPPO (PyTorch) in VMAS's simple spread, whose environments are batched."""

import time
from contextlib import suppress
from itertools import pairwise
from tempfile import mkdtemp
from typing import Any

from benchmarl.algorithms import IppoConfig, MappoConfig
from benchmarl.environments import VmasTask
from benchmarl.experiment import Callback, Experiment, ExperimentConfig
from benchmarl.models.mlp import MlpConfig
from timing import learned, serve, summary
from torch import nn

CHUNKS = 5
"""Parts of a run whose speeds are the repeats."""


class OutOfTimeError(Exception):
    """The run has had its seconds."""


class Watch(Callback):
    """Notes when each batch was there, and its mean reward."""

    def __init__(self, limit_s: float) -> None:
        super().__init__()
        self.limit_s = limit_s
        self.times: list[float] = []
        self.rewards: list[float] = []

    def on_batch_collected(self, batch: Any) -> None:
        """Called by BenchMARL."""
        self.times.append(time.perf_counter())
        self.rewards.append(float(batch["next", "agents", "reward"].mean()))
        if self.times[-1] - self.times[0] > self.limit_s:
            raise OutOfTimeError


def train(
    algorithm: str, settings: dict[str, Any], steps: int, goal: float, limit_s: float
) -> dict[str, Any]:
    """One run, stopped after `limit_s` seconds. settings, goal: as of `ours.learn`."""
    per_update = settings["n_envs"] * settings["length"]
    task: Any = VmasTask.SIMPLE_SPREAD.get_from_yaml()
    task.config["max_steps"] = settings["length"]
    kinds: dict[str, Any] = {"ippo": IppoConfig, "mappo": MappoConfig}
    rule = kinds[algorithm].get_from_yaml()
    rule.entropy_coef, rule.lmbda = settings["entropy"], 0.95
    model = MlpConfig(
        num_cells=[settings["hidden"]] * 2, layer_class=nn.Linear, activation_class=nn.ReLU
    )
    config: Any = ExperimentConfig.get_from_yaml()
    for name, value in {
        "prefer_continuous_actions": False,
        "lr": settings["learning_rate"],
        "clip_grad_val": settings["max_grad_norm"],
        "on_policy_n_envs_per_worker": settings["n_envs"],
        "on_policy_collected_frames_per_batch": per_update,
        "on_policy_n_minibatch_iters": settings["epochs"],
        "on_policy_minibatch_size": per_update // settings["minibatches"],
        "max_n_frames": steps,
        "evaluation": False,
        "loggers": [],
        "create_json": False,
        "save_folder": mkdtemp(),
    }.items():
        setattr(config, name, value)
    watch = Watch(limit_s)
    experiment = Experiment(task, rule, model, 0, config, model, callbacks=[watch])
    with suppress(OutOfTimeError):
        experiment.run()
    if len(watch.times) < 2:
        return {"error": f"fewer than two updates in {limit_s:g} s"}
    size = -(-(len(watch.times) - 1) // CHUNKS)
    ends = watch.times[::size]
    rates = [size * per_update / (b - a) for a, b in pairwise(ends)]
    # VMAS pays each agent twice the sum of what JaxMARL pays all.
    returns = [reward * settings["length"] / 2 for reward in watch.rewards]
    per_batch = (watch.times[-1] - watch.times[0]) / (len(watch.times) - 1)
    return {**summary(rates), **learned([(returns, per_batch)], goal)}


if __name__ == "__main__":
    serve({"train": train}, ("benchmarl", "torch", "vmas"))
