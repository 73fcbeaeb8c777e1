"""Reads the files of a run folder as plain values. Imports neither JAX nor an environment, so that
reports can use it on folders of unknown origin."""

import contextlib
import json
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import BadZipFile

import numpy as np
from jaxtyping import Float, Int

from dgmarl.errors import UsageError

ROW_FIELDS = (
    "seed",
    "evaluation",
    "iteration",
    "step",
    "wall_s",
    "return_mean",
    "return_std",
    "length_mean",
)
"""What every line of metrics.jsonl begins with; the learner's and the graph source's own metrics
follow."""


class Returns(NamedTuple):
    """Content of returns.npz."""

    steps: Int[np.ndarray, "S K"]
    returns: Float[np.ndarray, "S K E"]


def read_metrics(folder: Path) -> list[Any]:
    """All whole lines of metrics.jsonl; a last line that a crash cut short is left out."""
    path = folder / "metrics.jsonl"
    rows = []
    for line in (
        path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []
    ):
        with contextlib.suppress(ValueError, RecursionError):
            rows.append(json.loads(line))
    return rows


def read_returns(folder: Path) -> Returns:
    """Evaluation returns per episode, and the steps at which they were measured."""
    try:
        with np.load(folder / "returns.npz", allow_pickle=False) as stored:
            return Returns(stored["steps"], stored["returns"])
    except (OSError, ValueError, KeyError, EOFError, BadZipFile):
        raise UsageError(
            f"{folder / 'returns.npz'} is missing or damaged: start the run again in a new folder."
        ) from None


def read_timing(folder: Path) -> dict[str, Any]:
    """Seconds, speed, memory and host of a run; empty if timing.json does not exist yet."""
    path = folder / "timing.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def graph_tag(graph: str) -> str:
    """A graph source in a method's name: `random0.3` for random:0.3, `Source` for
    path/to/file.py:Source, `fixed`."""
    name, _, option = graph.partition(":")
    if name == "fixed" or not option:
        return name
    return option if "." in name or "/" in name else name + option
