"""The commands for many runs: `sweep` and `sweep status`."""

import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from dgmarl.cli.common import (
    FLOAT,
    Count,
    OptionalCount,
    OptionalFolder,
    Trust,
    counted,
    left_out,
)
from dgmarl.cli.guard import AGAIN, EXIT_USAGE, printable
from dgmarl.config.yaml import read_yaml


@dataclass(frozen=True)
class Sweep:
    """Train every run of a grid that is not finished, runs of equal shape in one program; several
    launchers may share a folder."""

    grid: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="GRID.yaml")]]
    """A configuration in which a list is an axis and anything else is common."""
    out: OptionalFolder = None
    """The folder for the run folders; by default runs/GRID."""
    workers: OptionalCount = None
    """Programs at a time: by default one, with Ray as many as the cluster has room for."""
    batched: Count = 8
    """Runs of equal shape in one program."""
    retries: Count = 0
    """How often a run that fails is tried again."""
    executor: Literal["local", "ray"] = "local"
    """Train on this machine, or on those of a Ray cluster (pip install 'dgmarl[ray]')."""
    address: str = "local"
    """Of the Ray cluster: auto, ray://HOST:10001, HOST:PORT, or local, which starts one here."""
    cpus: Count = 1
    """Cores of each program, with Ray."""
    gpus: Annotated[float, FLOAT] = 0.0
    """GPUs of each program, with Ray; 0.25 is for four programs on a GPU."""
    storage: Annotated[str, left_out("URL")] = ""
    """Where runs are kept on the way if machines share no disk, instead of in Ray: s3://..."""
    trust: Trust = False
    """Execute environments and graph sources that the file names, even if they were never trained
    or checked here."""

    @property
    def folder(self) -> Path:
        """The folder for the run folders."""
        return self.out or Path("runs") / self.grid.stem

    def after_stop(self) -> str:
        """For whoever pressed Ctrl-C."""
        return f"what is finished or begun is kept: to go on, {AGAIN}"

    def run(self) -> int:
        """Train with one progress bar and say where the results are."""
        from dgmarl.sweeps import plan as sweeps

        values = read_yaml(self.grid)
        of_ray = {name: getattr(self, name) for name in ("address", "cpus", "gpus", "storage")}
        resources = sweeps.resources_of(
            self.workers, self.batched, self.retries, self.executor, **of_ray
        )
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
    """List the runs of a sweep: done, running and where, stopped, failed and why, or waiting; with
    their steps so far."""

    folder: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="DIR")]]
    """The folder of the sweep."""

    def run(self) -> int:
        """Print a table and a line of counts."""
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        from dgmarl.sweeps.status import sweep_status

        runs = sweep_status(self.folder)
        table = Table("run", "state")
        table.add_column("steps", justify="right")
        table.add_column("")
        for run in runs:
            steps = f"{run.steps:,} of {run.total:,}"
            table.add_row(Text(run.name), run.state, steps, Text(printable(run.note)))
        # In a file or a pipe nothing limits a line, so that every row stays one line.
        Console(width=None if sys.stdout.isatty() else 1000).print(table)
        counts = Counter(run.state for run in runs)
        print(", ".join(f"{n} {state}" for state, n in counts.items()))
        return 0
