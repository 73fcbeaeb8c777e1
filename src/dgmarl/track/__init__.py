"""Callbacks that display or log a run: the terminal, TensorBoard, Weights & Biases."""

from dgmarl.optional import optional
from dgmarl.runs.callbacks import Callback

TRACKERS = {
    "tensorboard": ("dgmarl.track.tensorboard", "TensorBoard"),
    "wandb": ("dgmarl.track.wandb", "WeightsAndBiases"),
}
"""Module and class of each value of `--track`."""


def make_tracker(name: str) -> Callback:
    """A tracker that writes into the run folder."""
    module, attribute = TRACKERS[name]
    return getattr(optional(module, "track"), attribute)()
