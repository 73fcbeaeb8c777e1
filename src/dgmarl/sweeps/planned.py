"""Planned runs: configuration, output files and state."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

from dgmarl.config.schema import TrainConfig
from dgmarl.config.yaml import plain
from dgmarl.errors import UsageError
from dgmarl.files import from_json, read_bytes, write_atomic
from dgmarl.runs.folder import RunFolder
from dgmarl.runs.reading import STOPPED_EARLY
from dgmarl.sweeps.batched import shape

FAILURE = "failed.txt"
State = Literal["done", "begun", "waiting"]


@dataclass(frozen=True, eq=False)
class PlannedRun:
    """A configuration and its output files."""

    name: str
    """Name shown to the user."""
    config: TrainConfig
    result_file: Path
    """JSON file, written when the run is finished."""
    folder: Path | None = None
    """Run folder with checkpoints; without one an interrupted run starts again."""

    @property
    def state(self) -> State:
        """`done`: stopped early, or with a result of as many steps and seeds; `begun`: with a run
        folder to resume."""
        if self.stopped_early or self._is_published:
            return "done"
        begun = self.folder is not None and (self.folder / "config.yaml").is_file()
        return "begun" if begun else "waiting"

    @property
    def _is_published(self) -> bool:
        if not self.result_file.is_file():
            return False
        steps, seeds = _extent(self.result_file, self.result_file.stat().st_mtime_ns)
        return steps >= self.config.steps and seeds >= self.config.seeds

    @property
    def total_steps(self) -> int:
        """Environment steps of all seeds."""
        return self.config.steps * self.config.seeds

    @property
    def stopped_early(self) -> bool:
        """Whether successive halving has stopped the run."""
        return self.folder is not None and (self.folder / STOPPED_EARLY).is_file()

    def note_failure(self, sentence: str) -> None:
        """Store why the run failed, for `sweep status`; an empty sentence removes it."""
        if self.folder is not None and sentence:
            write_atomic(self.folder / FAILURE, sentence + "\n")
        elif self.folder is not None:
            (self.folder / FAILURE).unlink(missing_ok=True)

    def run_folder(self) -> RunFolder | None:
        return None if self.folder is None else RunFolder(self.folder)

    def to_values(self) -> dict[str, Any]:
        """The run as JSON values, from which `build` makes it in another process."""
        folder = self.folder and self.folder.absolute()
        return plain(replace(self, result_file=self.result_file.absolute(), folder=folder))


@cache
def _extent(result_file: Path, changed: int) -> tuple[float, float]:
    """Steps and seeds of a published result; a damaged one is refused, and thus neither counted nor
    overwritten. changed: time of the last change, so that changed files are read again."""
    try:
        config = from_json(read_bytes(result_file))["config"]
        return float(config["steps"]), float(config["seeds"])
    except (ValueError, TypeError, KeyError):
        raise UsageError(
            f"{result_file} is damaged, it has no configuration with steps and seeds: move it away "
            "to train its run again."
        ) from None


def batches(runs: Iterable[PlannedRun], batched_runs: int) -> list[list[PlannedRun]]:
    """Group the runs that are not done by equal `shape`, at most `batched_runs` to a group.

    Resumed and new runs are separated, because they are not evaluated at the same steps; runs begun
    together are resumed together, which preserves rounding."""
    groups: dict[tuple[bool, str], list[PlannedRun]] = {}
    for run in runs:
        state = run.state
        if state != "done":
            groups.setdefault((state == "waiting", shape(run.config)), []).append(run)
    ordered = sorted(groups.items(), key=lambda item: item[0][0])
    return [
        group[k : k + batched_runs]
        for _, group in ordered
        for k in range(0, len(group), batched_runs)
    ]
