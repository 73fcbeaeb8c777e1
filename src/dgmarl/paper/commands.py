"""Commands for the paper's experiments, in the entry-point group `dgmarl.commands`."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from dgmarl.cli.common import (
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
    """Run each program in its own process, so that several share a GPU under CUDA MPS."""

    def after_stop(self) -> str:
        return f"finished runs and run folders are kept: to continue, {AGAIN}"


@dataclass(frozen=True)
class Reproduce(Programs):
    """Train the unfinished runs of a figure of the paper and draw it, or draw it from published
    results."""

    figure: tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="FIGURE|all")]]
    """motivation, random-graphs, mpe, lbf, smaclite, or all."""
    out: OutputFolder = Path("reproduction")
    """Folder for results, run folders, figures, tables and a page: index.html, or FIGURE.html."""
    seeds: OptionalCount = None
    """Seeds per run. Default: 5 on SMAClite, else 10."""
    steps: OptionalCount = None
    """Environment steps per seed. Default: the paper's."""
    dry_run: bool = False
    """Only list the runs and estimate the time on this machine from a short trial."""
    from_: Annotated[Path | None, left_out("DIR", "from")] = None
    """Draw from published results below this folder, such as results, without training."""

    def run(self) -> int:
        from dgmarl.paper import reproduce
        from dgmarl.report.results import read_results
        from dgmarl.sweeps.plan import connected, prepare_process, refuse_empty, train_plan

        if self.from_ is not None:
            self._refuse_options_of_training()
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
        print(f"{counted(len(written), 'file')} of figures and tables in {self.out}")
        if missing := [one.name for one in figures if not one.chosen(results)]:
            print(f"Without results, hence not drawn: {', '.join(missing)}")
        print(f"Open {written[-1].absolute().as_uri()}")
        return 0

    def _refuse_options_of_training(self) -> None:
        given = {"--dry-run": self.dry_run, "--seeds": self.seeds, "--steps": self.steps}
        if training := [name for name, value in given.items() if value]:
            raise UsageError(
                f"{training[0]} is about training, but --from draws published results: give one "
                "of them."
            )


def _print_plan(plan: "Plan") -> int:
    """Print a line per run, the total number of steps and an estimate of the time."""
    from dgmarl.paper.training_plan import print_runs
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
    """Train one of the paper's grids or ablations and write one result file per run; runs that have
    a file are skipped."""

    name: tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="NAME")]]
    """star-spread, lbf, lbf-oracle, lbf-values, lbf-ablations, lbf-models, lbf-credit, lbf-anneal,
    star-spread-credit, star-spread-unscaled or smaclite."""
    out: OutputFolder = Path("results")
    """Folder for results, OUT/BENCHMARK/SCENARIO__METHOD.json."""
    seeds: OptionalCount = None
    """Seeds per run. Default: the grid's."""
    steps: OptionalCount = None
    """Environment steps per seed. Default: the grid's."""
    only: Annotated[str, left_out("PATTERN")] = ""
    """Only runs whose SCENARIO__METHOD this regular expression matches."""
    runs: OptionalFolder = None
    """Also keep run folders here, from which interrupted runs resume."""
    list: bool = False
    """Only list the runs with their state, seeds and steps."""

    def run(self) -> int:
        from dgmarl.paper.training_plan import train_grid
        from dgmarl.sweeps.plan import connected

        resources = self.resources()._replace(apart=self.apart)
        chosen = (self.name, self.out, self.seeds, self.steps, self.only, self.runs)
        with connected(resources):
            train_grid(*chosen, resources, self.list)
        return 0


@dataclass(frozen=True)
class Theory:
    """Check the paper's theoretical claims by exact computation on random networked MDPs; write a
    page and a table of verdicts."""

    out: OutputFolder = Path("theory")
    """Folder for theory.html and theory.json."""
    seed: int = 0
    """Seed of the random MDPs."""
    quick: bool = False
    """Use fewer and smaller MDPs: seconds instead of minutes."""

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
