"""Callbacks of a training run, and what they receive."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from dgmarl.config.schema import TrainConfig


class Start(NamedTuple):
    """A new or resumed run before its next evaluation."""

    config: TrainConfig
    folder: Path | None
    """The run folder, if there is one."""
    steps: Int[np.ndarray, "S"]
    """Environment steps of each seed so far; 0 in a new run."""


class Progress(NamedTuple):
    """One evaluation of all S seeds."""

    evaluation: int
    steps: Int[np.ndarray, "S"]
    returns: Float[np.ndarray, "S E"]
    metrics: dict[str, Float[np.ndarray, "S"]]
    steps_per_s: float
    """Environment steps per second of all seeds since the last evaluation, evaluation included."""
    seconds: float
    """Training time so far, without compilation."""


class Checkpoint(NamedTuple):
    """A checkpoint that has been written."""

    path: Path
    """Its folder."""
    evaluation: int
    """Number of evaluations so far."""


class TrainResult(NamedTuple):
    """A run as arrays. Seeds that finish before others repeat their last evaluation."""

    config: TrainConfig
    steps: Int[np.ndarray, "S K"]
    """Environment steps of each seed at each evaluation."""
    returns: Float[np.ndarray, "S K E"]
    """Team return of every evaluation episode."""
    metrics: dict[str, Float[np.ndarray, "S K"]]
    """Other metrics, averaged over the iterations before each evaluation."""
    timing: dict[str, Any]
    state: Any
    """The final TrainState, with a leading axis of seeds."""
    interrupted: bool
    """The run was stopped before its last step."""

    def __repr__(self) -> str:
        mean = self.returns[:, -1].mean()
        return (
            f"TrainResult({self.config.env!r}, {self.config.method!r}, seeds={len(self.steps)}, "
            f"steps={self.steps[:, -1].min()}, return {mean:.3f})"
        )


class Callback:
    """Base class of callbacks; every method is optional. An exception ends the run, which can be
    resumed."""

    def on_start(self, start: Start) -> None:
        """Called before anything is compiled."""

    def on_evaluation(self, progress: Progress) -> None:
        """Called after every evaluation."""

    def on_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Called after a checkpoint has been written."""

    def on_end(self, result: TrainResult) -> None:
        """Called after the last step, or after Ctrl-C."""


CallbackLike = Callback | Callable[[Progress], object]
"""A callback, or a function that is called after every evaluation."""


class _Function(Callback):
    def __init__(self, function: Callable[[Progress], object]):
        self.function = function

    def on_evaluation(self, progress: Progress) -> None:
        self.function(progress)


def as_callbacks(given: Iterable[CallbackLike]) -> list[Callback]:
    """Callbacks; a function becomes the `on_evaluation` of one."""
    return [each if isinstance(each, Callback) else _Function(each) for each in given]
