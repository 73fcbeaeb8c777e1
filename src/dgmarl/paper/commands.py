"""The commands of the paper, listed under the entry-point group `dgmarl.commands`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from dgmarl.cli.common import Count, counted, status
from dgmarl.errors import UsageError
from dgmarl.files import refuse_unwritable


@dataclass(frozen=True)
class Reproduce:
    """Train the cells of a figure of the paper, those that are not done, and draw it; or draw it
    from published results."""

    figure: tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="FIGURE|all")]]
    """motivation, random-graphs, mpe, lbf, smaclite, or all."""
    out: Path = Path("reproduction")
    """The folder for results, run folders, figures, tables and index.html."""
    seeds: Count = 10
    """Seeds per cell."""
    steps: Count | None = None
    """Environment steps per seed. Default: the paper's."""
    workers: Count = 1
    """Programs at a time; more than one uses idle cores while others compile."""
    lanes: Count = 8
    """Cells of equal shape in one program."""
    dry_run: bool = False
    """Only list the cells and estimate the time on this machine, from a short trial."""
    from_: Annotated[Path | None, tyro.conf.arg(name="from", metavar="DIR")] = None
    """Train nothing: draw from the published results below this folder, such as results."""

    def run(self) -> int:
        """Plan, train with one bar for the whole grid, draw, and say where it is."""
        from dgmarl.device import use_all_cores
        from dgmarl.paper import reproduce
        from dgmarl.report.results import read_results

        for name in ("seeds", "workers", "lanes"):
            if getattr(self, name) < 1:
                raise UsageError(f"--{name} is {getattr(self, name)}, but must be at least 1.")
        if self.dry_run and self.from_ is not None:
            raise UsageError(
                "--dry-run plans training and --from trains nothing: give one of them."
            )
        use_all_cores()
        figures = reproduce.figures_named(self.figure)
        refuse_unwritable(self.out / "index.html")
        if self.from_ is not None:
            results = read_results(self.from_)
        else:
            grid = reproduce.make_grid(figures, self.out, self.seeds, self.steps)
            if self.dry_run:
                return _print_plan(grid)
            _run_grid(grid, self.out, self.workers, self.lanes)
            results = reproduce.results_of(grid, self.out)
        with status("drawing"):
            written = reproduce.write_figures(figures, results, self.out)
            page = reproduce.write_page(figures, results, self.out)
        print(f"{counted(len(written), 'file')} of figures and tables in {self.out}")
        print(f"Open {page.absolute().as_uri()}")
        return 0


def _print_plan(grid) -> int:
    """A line per cell, then the sum and how long it may take here."""
    from dgmarl.paper.reproduce import estimate_seconds

    for job in grid.jobs:
        cell, config = job.cell, job.cell.config
        print(
            f"{job.state:<8} {cell.benchmark}/{cell.scenario} {cell.method}: {config.seeds} x "
            f"{config.steps:,} steps"
        )
    for plan, reason in grid.not_runnable.items():
        print(f"cannot   {plan.benchmark}/{plan.scenario} {plan.label}: {reason}")
    left = [job for job in grid.jobs if job.state != "done"]
    steps = sum(job.steps for job in left)
    with status("a short trial of each benchmark"):
        hours = estimate_seconds(grid) / 3600
    time = f"{hours:.1f} hours" if hours > 1 else f"{60 * hours:.0f} minutes"
    print(
        f"{counted(len(left), 'cell')} to run, {steps:,} environment steps: about {time} on this "
        "machine, one at a time."
    )
    return 0


def _run_grid(grid, out: Path, workers: int, lanes: int) -> None:
    """Train with one bar for the whole grid, in environment steps of all cells."""
    from rich.console import Console
    from rich.progress import Progress

    from dgmarl.paper.reproduce import run

    console = Console(stderr=True)
    for plan, reason in grid.not_runnable.items():
        console.print(
            f"left out: {plan.benchmark}/{plan.scenario} {plan.label}: {reason}", markup=False
        )
    had = {job: job.steps for job in grid.jobs if job.state == "done"}
    with Progress(console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task(
            f"{len(had)} of {counted(len(grid.jobs), 'cell')}",
            total=sum(job.steps for job in grid.jobs),
        )

        def watch(job, steps: int) -> None:
            had[job] = steps
            bar.update(task, completed=sum(had.values()))

        def finished(job, words: str) -> None:
            watch(job, job.steps)
            done = sum(had[one] >= one.steps for one in had)
            bar.update(task, description=f"{done} of {counted(len(grid.jobs), 'cell')}")
            console.print(
                f"{job.cell.scenario} {job.cell.method}: {words}", markup=False, highlight=False
            )

        run(grid, out, watch, finished, workers, lanes)


@dataclass(frozen=True)
class Theory:
    """Check the paper's claims by exact computation on random networked MDPs; a page and a table of
    what holds."""

    out: Path = Path("theory")
    """The folder for theory.html and theory.json."""
    seed: int = 0
    """Seed of the random MDPs."""
    quick: bool = False
    """Fewer and smaller MDPs: seconds instead of a minute or two."""

    def run(self) -> int:
        """Run all checks with a progress bar and print the verdicts."""
        refuse_unwritable(self.out / "theory.html")
        from rich.console import Console
        from rich.progress import Progress

        from dgmarl.paper.theory.laboratory import run_laboratory

        console = Console(stderr=True)
        with Progress(console=console, disable=not console.is_terminal) as bar:
            task = bar.add_task("theory", total=1.0)
            show = lambda what, share: bar.update(task, description=what, completed=share)  # noqa: E731
            claims = run_laboratory(self.out, seed=self.seed, quick=self.quick, progress=show)
        for claim in claims:
            print(f"{claim.holds:<11}  {claim.name}")
        print(f"Open {(self.out / 'theory.html').absolute().as_uri()}")
        return 0
