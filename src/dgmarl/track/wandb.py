"""Weights & Biases: one W&B run per seed, in one group."""

import os
from typing import Any

import wandb

from dgmarl.config.yaml import plain
from dgmarl.runs.callbacks import Callback, Progress, Start, TrainResult
from dgmarl.track import scalars


class WeightsAndBiases(Callback):
    """Logs all numbers of all seeds over environment steps. Project, entity and mode come from the
    environment variables of wandb: `WANDB_PROJECT`, `WANDB_ENTITY`, `WANDB_MODE=offline`."""

    def __init__(self, **options: Any):
        """options: arguments of `wandb.init`, for example `project="mine"`."""
        self.options = options
        self._runs: list[Any] = []

    def on_start(self, start: Start) -> None:
        """Begin one W&B run per seed; a resumed run begins new ones."""
        config = start.config
        group = start.folder.name if start.folder else f"{config.env} {config.method}"
        for k in range(len(start.steps)):
            given = {
                "project": os.environ.get("WANDB_PROJECT", "dgmarl"),
                "group": group,
                "name": f"{group} seed {config.seed + k}",
                "config": {**plain(config), "seed": config.seed + k},
                "dir": str(start.folder) if start.folder else None,
                **self.options,
            }
            run = wandb.init(reinit="create_new", **given)
            run.define_metric("*", step_metric="steps")
            self._runs.append(run)

    def on_evaluation(self, progress: Progress) -> None:
        for run, (steps, values) in zip(self._runs, scalars(progress), strict=True):
            run.log({"steps": steps, **values})

    def on_end(self, result: TrainResult) -> None:
        for run in self._runs:
            run.finish(exit_code=int(result.interrupted))
