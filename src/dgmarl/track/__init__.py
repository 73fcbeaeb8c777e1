"""Callbacks that display or log a run: the terminal, TensorBoard, Weights & Biases."""

from collections.abc import Iterator

from dgmarl.optional import optional
from dgmarl.runs.callbacks import Callback, Progress

TRACKERS = {
    "tensorboard": ("dgmarl.track.tensorboard", "TensorBoard"),
    "wandb": ("dgmarl.track.wandb", "WeightsAndBiases"),
}
"""Module and class of each value of `--track`."""


def make_tracker(name: str) -> Callback:
    """A tracker that writes into the run folder."""
    module, attribute = TRACKERS[name]
    return getattr(optional(module, "track"), attribute)()


def scalars(progress: Progress) -> Iterator[tuple[int, dict[str, float]]]:
    """Environment steps, and the numbers that trackers log by name, for each seed."""
    for k, (steps, returns) in enumerate(zip(progress.steps, progress.returns, strict=True)):
        numbers = {
            "evaluation/return_mean": float(returns.mean()),
            "evaluation/return_std": float(returns.std()),
            **{f"train/{name}": float(value[k]) for name, value in progress.metrics.items()},
            "time/seconds": progress.seconds,
            "time/steps_per_s": progress.steps_per_s,
        }
        yield int(steps), numbers
