"""The state of the runs of a sweep, from the files in its folder; executes none of its code."""

from contextlib import suppress
from pathlib import Path
from typing import Literal, NamedTuple

from dgmarl.config.yaml import read_yaml
from dgmarl.errors import UsageError
from dgmarl.files import read_bytes
from dgmarl.runs.reading import STOPPED_EARLY, read_metrics
from dgmarl.sweeps.plan import GRID, plan_grid
from dgmarl.sweeps.planned import FAILURE, PlannedRun
from dgmarl.sweeps.run_locks import owner_of


class RunStatus(NamedTuple):
    """One run of a sweep."""

    name: str
    state: Literal["done", "stopped early", "running", "stopped", "failed", "waiting"]
    """`stopped`: will be resumed by the next launch."""
    steps: int
    """Environment steps of all seeds so far."""
    total: int
    note: str
    """Which process trains it, or why it failed."""


def sweep_status(out: Path) -> list[RunStatus]:
    """The status of every run of the sweep in a folder."""
    if not (out / GRID).is_file():
        raise UsageError(
            f"{out} is not the folder of a sweep (it has no {GRID}): name a folder that "
            "`dgmarl sweep` has written."
        )
    plan = plan_grid(read_yaml(out / GRID), out)
    refused = [RunStatus(name, "failed", 0, 0, why) for name, why in plan.not_runnable.items()]
    return [*map(_status, plan.runs), *refused]


def _status(run: PlannedRun) -> RunStatus:
    total, state, folder = run.total_steps, run.state, run.folder
    assert folder is not None
    if state == "done" and not run.stopped_early:
        return RunStatus(run.name, "done", total, total, "")
    steps = _steps(folder, run.config.steps)
    if run.stopped_early:
        return RunStatus(run.name, "stopped early", steps, total, _text(folder / STOPPED_EARLY))
    if owner := owner_of(run):
        return RunStatus(run.name, "running", steps, total, owner)
    if (folder / FAILURE).is_file():
        return RunStatus(run.name, "failed", steps, total, _text(folder / FAILURE))
    return RunStatus(run.name, "stopped" if state == "begun" else "waiting", steps, total, "")


def _text(path: Path) -> str:
    return read_bytes(path).decode(errors="replace").strip()


def _steps(folder: Path, most: int) -> int:
    """Steps of all seeds so far, at most `most` of each."""
    last: dict[float, float] = {}
    with suppress(UsageError):  # damaged: training restores it
        last = {row["seed"]: row["step"] for row in read_metrics(folder)}
    return int(sum(min(step, most) for step in last.values()))
