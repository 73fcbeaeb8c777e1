"""The commands of the paper, listed under the entry-point group `dgmarl.commands`."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from dgmarl.cli.common import (
    Count,
    Execution,
    OptionalCount,
    OptionalFolder,
    OutputFolder,
    counted,
    left_out,
    status,
)
from dgmarl.cli.guard import AGAIN
from dgmarl.errors import UsageError

if TYPE_CHECKING:
    from dgmarl.sweeps.plan import Plan


@dataclass(frozen=True, kw_only=True)
class Programs(Execution):
    """Options of commands that train runs of the paper."""

    apart: bool = False
    """Each program in its own process: under CUDA MPS several then share a GPU."""

    def after_stop(self) -> str:
        return f"what is finished or has a run folder is kept: to go on, {AGAIN}"


@dataclass(frozen=True)
class Reproduce(Programs):
    """Train the runs of a figure of the paper that are not finished, and draw it; or draw it from
    published results."""

    figure: tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="FIGURE|all")]]
    """motivation, random-graphs, mpe, lbf, smaclite, or all."""
    out: OutputFolder = Path("reproduction")
    """The folder for results, run folders, figures, tables and index.html."""
    seeds: Count = 10
    """Seeds per run."""
    steps: OptionalCount = None
    """Environment steps per seed. Default: the paper's."""
    dry_run: bool = False
    """Only list the runs and estimate the time on this machine, from a short trial."""
    from_: Annotated[Path | None, left_out("DIR", "from")] = None
    """Train nothing: draw from the published results below this folder, such as results."""

    def run(self) -> int:
        from dgmarl.paper import reproduce
        from dgmarl.report.results import read_results
        from dgmarl.sweeps.plan import connected, prepare_process, refuse_empty, train_plan

        if self.dry_run and self.from_ is not None:
            raise UsageError(
                "--dry-run plans training and --from trains nothing: give one of them."
            )
        figures = reproduce.figures_named(self.figure)
        if self.from_ is not None:
            results = read_results(self.from_)
        else:
            resources = self.resources()._replace(apart=self.apart and not self.dry_run)
            with connected(resources):
                prepare_process(resources)
                plan = reproduce.plan_figures(figures, self.out, self.seeds, self.steps)
                refuse_empty(plan)
                if self.dry_run:
                    return _print_plan(plan)
                train_plan(plan, resources)
            results = reproduce.results_of(plan)
        with status("drawing"):
            written = reproduce.write_figures(figures, results, self.out)
            page = reproduce.write_page(figures, results, self.out)
        print(f"{counted(len(written), 'file')} of figures and tables in {self.out}")
        print(f"Open {page.absolute().as_uri()}")
        return 0


def _print_plan(plan: "Plan") -> int:
    """A line per run, then the number of steps and an estimate of the time."""
    from dgmarl.paper.sweep import print_runs
    from dgmarl.sweeps.estimate import estimate_seconds

    print_runs(plan)
    left = [run for run in plan.runs if run.state != "done"]
    steps = sum(run.total_steps for run in left)
    with status("a short trial of each benchmark"):
        hours = estimate_seconds(left) / 3600
    time = f"{hours:.1f} hours" if hours > 1 else f"{60 * hours:.0f} minutes"
    print(
        f"{counted(len(left), 'run')} to train, {steps:,} environment steps: about {time} on this "
        "machine, one at a time."
    )
    return 0


@dataclass(frozen=True)
class Grid(Programs):
    """Train one of the paper's grids or ablations and publish one file per run; runs that have
    their file are skipped."""

    name: tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="NAME")]]
    """star-spread, lbf, lbf-oracle, lbf-values, lbf-ablations, lbf-models, lbf-credit, lbf-anneal,
    star-spread-credit, star-spread-unscaled or smaclite."""
    out: OutputFolder = Path("results")
    """The folder for results, OUT/BENCHMARK/SCENARIO__METHOD.json."""
    seeds: OptionalCount = None
    """Seeds per run. Default: the grid's."""
    steps: OptionalCount = None
    """Environment steps per seed. Default: the grid's."""
    only: Annotated[str, left_out("PATTERN")] = ""
    """Only runs whose SCENARIO__METHOD this regular expression matches."""
    runs: OptionalFolder = None
    """Also keep run folders here, from which interrupted runs resume."""
    list: bool = False
    """Only list the runs, with their seeds and steps and whether they are done."""

    def run(self) -> int:
        from dgmarl.paper.sweep import train_grid
        from dgmarl.sweeps.plan import connected

        resources = self.resources()._replace(apart=self.apart)
        chosen = (self.name, self.out, self.seeds, self.steps, self.only, self.runs)
        with connected(resources):
            train_grid(*chosen, resources, self.list)
        return 0


@dataclass(frozen=True)
class Theory:
    """Check the paper's claims by exact computation on random networked MDPs; write a page and a
    table of verdicts."""

    out: OutputFolder = Path("theory")
    """The folder for theory.html and theory.json."""
    seed: int = 0
    """Seed of the random MDPs."""
    quick: bool = False
    """Fewer and smaller MDPs: seconds instead of a minute or two."""

    def run(self) -> int:
        from rich.console import Console
        from rich.progress import Progress

        from dgmarl.paper.theory.laboratory import run_laboratory

        console = Console(stderr=True)
        with Progress(console=console, disable=not console.is_terminal) as bar:
            task = bar.add_task("theory", total=1.0)

            def show(what: str, share: float) -> None:
                bar.update(task, description=what, completed=share)

            claims = run_laboratory(self.out, seed=self.seed, quick=self.quick, progress=show)
        for claim in claims:
            print(f"{claim.holds:<11}  {claim.name}")
        print(f"Open {(self.out / 'theory.html').absolute().as_uri()}")
        return 0
