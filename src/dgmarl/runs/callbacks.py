"""What a run tells while it trains, and to whom: the terminal, a tracker, a user's function."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from dgmarl.config.schema import TrainConfig


class Start(NamedTuple):
    """A run before its first evaluation, or resumed before the next one."""

    config: TrainConfig
    folder: Path | None
    """The run folder, if there is one."""
    steps: Int[np.ndarray, "S"]
    """Environment steps of each seed so far; not 0 if the run is resumed."""


class Progress(NamedTuple):
    """One evaluation; `[S]` per seed."""

    evaluation: int
    steps: Int[np.ndarray, "S"]
    returns: Float[np.ndarray, "S E"]
    metrics: dict[str, Float[np.ndarray, "S"]]
    steps_per_s: float
    """Of all seeds together, since the last evaluation, evaluation included."""
    seconds: float
    """Of training so far, compilation excluded."""


class Checkpoint(NamedTuple):
    """A checkpoint that has been written."""

    path: Path
    """Its folder."""
    evaluation: int
    """Evaluations that the run has had."""


class TrainResult(NamedTuple):
    """A run as arrays. Seeds that were done earlier than others repeat their last evaluation."""

    config: TrainConfig
    steps: Int[np.ndarray, "S K"]
    """Environment steps of each seed at each evaluation."""
    returns: Float[np.ndarray, "S K E"]
    """Team return of every evaluation episode."""
    metrics: dict[str, Float[np.ndarray, "S K"]]
    """What else was measured, averaged over the iterations before each evaluation."""
    timing: dict[str, Any]
    state: Any
    """The last TrainState, seeds first."""
    interrupted: bool
    """Ctrl-C came before the steps were done."""

    def __repr__(self) -> str:
        mean = self.returns[:, -1].mean()
        return (
            f"TrainResult({self.config.env!r}, {self.config.method!r}, seeds={len(self.steps)}, "
            f"steps={self.steps[:, -1].min()}, return {mean:.3f})"
        )


class Callback:
    """Base class of listeners; every method may be left out. An error in one ends the run, which
    can be resumed."""

    def on_start(self, start: Start) -> None:
        """Before anything is compiled."""

    def on_evaluation(self, progress: Progress) -> None:
        """After every evaluation."""

    def on_checkpoint(self, checkpoint: Checkpoint) -> None:
        """After a checkpoint was written."""

    def on_end(self, result: TrainResult) -> None:
        """When the steps are done, or after Ctrl-C."""


CallbackLike = Callback | Callable[[Progress], object]
"""A callback, or a function that is called after every evaluation."""


class _Function(Callback):
    def __init__(self, function: Callable[[Progress], object]):
        self.function = function

    def on_evaluation(self, progress: Progress) -> None:
        self.function(progress)


def as_callbacks(listeners: Iterable[CallbackLike]) -> list[Callback]:
    """Callbacks; a function stands for its `on_evaluation`."""
    return [
        listener if isinstance(listener, Callback) else _Function(listener)
        for listener in listeners
    ]
