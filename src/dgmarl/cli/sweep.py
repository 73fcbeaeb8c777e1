"""The commands for many runs: `sweep` and `sweep status`."""

import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from dgmarl.cli.common import Execution, OptionalFolder, Trust, counted
from dgmarl.cli.guard import AGAIN, EXIT_USAGE, printable
from dgmarl.config.yaml import read_yaml


@dataclass(frozen=True)
class Sweep(Execution):
    """Train all unfinished runs of a grid, with runs of equal shape batched into one program.
    Several processes and machines may train the same sweep in a shared folder."""

    grid: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="GRID.yaml")]]
    """Configuration file in which every list is an axis of the grid."""
    out: OptionalFolder = None
    """Folder for the run folders; default: runs/GRID."""
    retries: int = 0
    """Number of times that a failed run is retried."""
    trust: Trust = False
    """Execute code that the grid names, even if never trained or checked on this machine."""

    @property
    def folder(self) -> Path:
        """Folder for the run folders."""
        return self.out or Path("runs") / self.grid.stem

    def after_stop(self) -> str:
        return f"finished and partial runs are kept: to continue, {AGAIN}"

    def run(self) -> int:
        from dgmarl.sweeps import plan as sweeps

        values = read_yaml(self.grid)
        resources = self.resources(self.retries)
        with sweeps.connected(resources):
            sweeps.prepare_process(resources)
            plan = sweeps.begin_sweep(
                values, self.folder, str(self.grid), self.trust, self.executor
            )
            sweeps.train_plan(plan, resources)
        print(f"{counted(len(plan.runs), 'run')} in {self.folder}")
        print(f"Compare them with: dgmarl report {self.folder}")
        if plan.not_runnable:
            print(f"{counted(len(plan.not_runnable), 'run')} could not be trained", file=sys.stderr)
            return EXIT_USAGE
        return 0


@dataclass(frozen=True)
class SweepStatus:
    """List the runs of a sweep with state (done, running, stopped, failed, waiting) and steps so
    far, and where they run or why they failed."""

    folder: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="DIR")]]
    """Folder of the sweep."""

    def run(self) -> int:
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        from dgmarl.sweeps.status import sweep_status

        runs = sweep_status(self.folder)
        table = Table("run", "state")
        table.add_column("steps", justify="right")
        has_notes = any(run.note for run in runs)
        if has_notes:
            table.add_column("process or reason")
        for run in runs:
            steps = f"{run.steps:,} of {run.total:,}"
            notes = [Text(printable(run.note))] * has_notes
            table.add_row(Text(run.name), run.state, steps, *notes)
        # Keep every row on one line in files and pipes.
        Console(width=None if sys.stdout.isatty() else 1000).print(table)
        counts = Counter(run.state for run in runs)
        print(", ".join(f"{n} {state}" for state, n in counts.items()))
        return 0
