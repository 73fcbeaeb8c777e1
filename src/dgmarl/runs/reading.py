"""Reads the files of a run folder as plain values; damaged files raise UsageError. Imports neither
JAX nor an environment, so that reports can use it on folders of unknown origin.

metrics.jsonl and returns.npz hold the same steps and mean returns, and every checkpoint keeps a
copy of both, so a file that contradicts the others can be detected."""

import difflib
import zipfile
from collections.abc import Sequence
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from dgmarl.errors import UsageError
from dgmarl.files import DAMAGE, MOST_BYTES, from_json, is_count, is_number, read_bytes

METRICS, RETURNS, TIMING = "metrics.jsonl", "returns.npz", "timing.json"
STOPPED_EARLY = "stopped_early.txt"
"""Written if successive halving stopped the run; says when and why."""
COUNTERS = ("seed", "evaluation", "iteration", "step")
ROW_FIELDS = (*COUNTERS, "wall_s", "return_mean", "return_std", "length_mean")
"""First fields of every line of metrics.jsonl; metrics of learner and graph source follow."""
Row = dict[str, int | float]
"""A line of metrics.jsonl."""


class History(NamedTuple):
    """Metrics and returns up to some evaluation."""

    evaluations: list[list[Row]]
    """Rows of all seeds, per evaluation; a finished seed repeats its last row."""
    steps: Int[np.ndarray, "S K"]
    returns: Float[np.ndarray, "S K E"]

    @property
    def rows(self) -> list[Row]:
        """The lines of metrics.jsonl."""
        pairs = enumerate(self.evaluations)
        return [row for k, found in pairs for row in found if row["evaluation"] == k]

    @property
    def metrics(self) -> dict[str, Float[np.ndarray, "S K"]]:
        """Metrics other than the returns, at every evaluation."""
        return stacked([metrics_of(found) for found in self.evaluations])

    def same_as(self, other: "History") -> bool:
        """Whether all numbers are equal."""
        pairs = zip(self[1:], other[1:], strict=True)
        return self.rows == other.rows and all(np.array_equal(*pair) for pair in pairs)


def require_run_folder(path: Path) -> None:
    """Raise UsageError for a folder without a configuration."""
    if not (path / "config.yaml").is_file():
        raise UsageError(
            f"{path} is not a run folder (it has no config.yaml): name the folder that "
            f"`dgmarl train` wrote{similar_run(path) or '.'}"
        )


def similar_run(path: Path) -> str:
    """End of a sentence about a folder that does not exist: the run folder beside it with the most
    similar name; empty if there is none."""
    if path.exists() or not path.parent.is_dir():
        return ""
    runs = [found.parent.name for found in path.parent.glob("*/config.yaml")]
    close = difflib.get_close_matches(path.name, runs, n=1, cutoff=0.6)
    return f"; did you mean {path.parent / close[0]}?" if close else ""


def metrics_of(rows: list[Row]) -> dict[str, Float[np.ndarray, "S"]]:
    """The metrics of one evaluation that all seeds have."""
    names = [name for name in rows[0] if all(name in row for row in rows)]
    own = [name for name in names if name not in ROW_FIELDS]
    return {name: np.array([row[name] for row in rows], float) for name in own}


def stacked(
    evaluations: Sequence[dict[str, Float[np.ndarray, "S"]]],
) -> dict[str, Float[np.ndarray, "S K"]]:
    """The metrics that every evaluation has."""
    first = evaluations[0] if evaluations else {}
    names = [name for name in first if all(name in values for values in evaluations)]
    return {name: np.stack([values[name] for values in evaluations], 1) for name in names}


def read_metrics(folder: Path) -> list[Row]:
    """The rows of metrics.jsonl, sorted by evaluation and seed, without an incomplete last line."""
    path = folder / METRICS
    lines = read_bytes(path).split(b"\n") if path.exists() else []
    rows: dict[tuple[int, int], Row] = {}
    for number, line in enumerate(lines, 1):
        try:
            row = from_json(line)
        except ValueError as error:
            if number == len(lines):  # after the last newline: incomplete or empty
                break
            raise _damaged(path, f"line {number} is not JSON: {error}") from None
        if problem := _row_problem(row):
            raise _damaged(path, f"line {number} {problem}")
        if (place := (row["evaluation"], row["seed"])) in rows:
            raise _damaged(path, f"line {number} repeats evaluation and seed of an earlier one")
        rows[place] = row
    found, steps = [rows[place] for place in sorted(rows)], {}
    for row in found:
        if row["step"] < steps.setdefault(row["seed"], 0):
            raise _damaged(path, f"the steps of seed {row['seed']} decrease")
        steps[row["seed"]] = row["step"]
    return found


def by_evaluation(
    rows: list[Row], seeds: Sequence[int], steps: int, saved: Int[np.ndarray, "S K"] | None = None
) -> list[list[Row]]:
    """Rows of all seeds per evaluation, up to the first evaluation that lacks one. A seed repeats
    its last row after `steps`, or where `saved`, the steps in returns.npz, repeats them (as in a
    run that was extended later)."""
    by_place = {(row["evaluation"], row["seed"]): row for row in rows}
    complete: list[list[Row]] = []
    n_saved = 0 if saved is None or len(saved) != len(seeds) else saved.shape[1]

    def find(k: int, seed: int) -> Row | None:
        n, last = len(complete), complete[-1][k] if complete else None
        if (found := by_place.get((n, seed))) or last is None:
            return found
        again = n < n_saved and saved is not None and saved[k, n] == last["step"]
        return last if again or last["step"] >= steps else None

    while len(seeds) <= len(rows):
        here = [find(k, seed) for k, seed in enumerate(seeds)]
        found = [row for row in here if row is not None]
        # Without a new row every seed has finished.
        if len(found) < len(here) or not any(row["evaluation"] == len(complete) for row in found):
            break
        complete.append(found)
    return complete


def read_returns(folder: Path) -> tuple[Int[np.ndarray, "S K"], Float[np.ndarray, "S K E"]]:
    """The steps of each evaluation and its returns per episode, in returns.npz."""
    path = folder / RETURNS
    try:
        stored = read_arrays(path)
        steps, returns = stored["steps"], stored["returns"]
        shape = steps.shape
        if len(shape) != 2 or returns.ndim != 3 or shape != returns.shape[:2] or not returns.size:
            raise ValueError(f"steps are {shape} and returns {returns.shape}")
        if steps.dtype.kind != "i" or returns.dtype.kind != "f" or not np.isfinite(returns).all():
            raise ValueError("steps must be whole and returns finite numbers")
        if (steps < 0).any() or (np.diff(steps, axis=1) < 0).any():
            raise ValueError("steps decrease")
    except UsageError:
        raise
    except DAMAGE as error:
        reason = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
        raise _damaged(path, reason) from None
    return steps, returns


def read_timing(folder: Path) -> dict[str, Any]:
    """Numbers and texts in timing.json; empty if it is missing or damaged."""
    with suppress(UsageError, ValueError):
        return scalars(from_json(read_bytes(folder / TIMING)))
    return {}


def scalars(values: Any) -> dict[str, Any]:
    """Numbers and texts in a mapping; empty for anything else."""
    found = values.items() if isinstance(values, dict) else ()
    return {name: value for name, value in found if isinstance(value, str) or is_number(value)}


def read_history(folder: Path, seeds: Sequence[int], steps: int, n: int | None = None) -> History:
    """The first `n` evaluations in metrics.jsonl and returns.npz, by default all of the latter;
    UsageError if the two differ."""
    saved_steps, returns = read_returns(folder)
    rows = read_metrics(folder)  # read last, because the writer appends to it first
    n = int(saved_steps.shape[1]) if n is None else n
    found = by_evaluation(rows, seeds, steps, saved_steps)[:n]
    path = folder / METRICS
    if len(found) < n:
        raise _damaged(path, f"it holds {len(found)} complete evaluations, but {n} were saved")
    history = History(found, saved_steps[:, :n], returns[:, :n])
    means = history.returns.mean(axis=-1)
    for name, other in (("step", history.steps), ("return_mean", means)):
        values = np.array([[row[name] for row in rows] for rows in found], float).T
        if values.shape != other.shape or not np.allclose(values, other, rtol=1e-4, atol=1e-6):
            raise _damaged(path, f"its {name} differs from that in {RETURNS}")
    return history


def read_curves(folder: Path, seeds: Sequence[int], steps: int) -> list[list[Row]]:
    """The complete evaluations of a run that may still be training; UsageError if they contradict
    returns.npz or the newest checkpoint's copy."""
    path = folder / METRICS
    copies = sorted(folder.glob(f"checkpoints/*[0-9]/{METRICS}"))
    kept = read_metrics(copies[-1].parent) if copies else []
    saved = None
    if (folder / RETURNS).exists():
        saved = read_history(folder, seeds, steps).steps
    rows = read_metrics(folder)
    by_place = {(row["evaluation"], row["seed"]): row for row in rows}
    if any(by_place.get((row["evaluation"], row["seed"])) != row for row in kept):
        raise _damaged(path, f"it differs from its copy in the checkpoint {copies[-1].parent.name}")
    found = by_evaluation(rows, seeds, steps, saved)
    for row in rows:
        if row["seed"] not in seeds:
            raise _damaged(path, f"it names the seed {row['seed']}, which is not one of this run")
        if row["evaluation"] > len(found):
            raise _damaged(path, f"evaluation {len(found)} lacks a seed")
    return found


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays of an .npz file, without objects and of limited size, compressed or not. A damaged
    file raises one of `DAMAGE`."""
    content = BytesIO(read_bytes(path))
    with zipfile.ZipFile(content) as archive:
        size = sum(member.file_size for member in archive.infolist())
    if size > MOST_BYTES:
        raise ValueError(f"it would take {size / 1e6:.0f} MB")
    with np.load(content, allow_pickle=False) as stored:
        return {name: stored[name] for name in stored.files}


def graph_tag(graph: str) -> str:
    """Suffix of a method's name for a graph source: `random0.3` for random:0.3, `Source` for
    path/to/file.py:Source, `fixed`, `interventional-sampled2` for interventional:1:2."""
    name, _, option = graph.partition(":")
    if name == "fixed" or not option:
        return name
    horizon, _, sampled = option.partition(":")
    if name == "interventional" and sampled:
        return f"{name}{horizon * (horizon != '1')}-sampled{sampled}"
    return option if "." in name or "/" in name else name + option


def _row_problem(row: Any) -> str:
    """The problem with a line of metrics.jsonl; empty if it is valid."""
    if not isinstance(row, dict):
        return f"is not a mapping of {', '.join(ROW_FIELDS)}"
    for name in (*ROW_FIELDS, *row):
        if name not in row:
            return f"lacks {name}"
        if not is_number(row[name]):
            return f"has {name} = {str(row[name])[:40]!r}, which is not a finite number"
        if name in COUNTERS and not is_count(row[name]):
            return f"has {name} = {row[name]!r}, which is not a count"
    return ""


def _damaged(path: Path, reason: str) -> UsageError:
    return UsageError(
        f"{path} is damaged ({reason}): resume the run, which restores it from its last "
        "checkpoint, or start it again in a new folder."
    )
