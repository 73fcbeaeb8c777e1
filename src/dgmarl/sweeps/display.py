"""Progress display of a sweep in a terminal."""

from collections.abc import Sequence
from threading import Lock

from rich.console import Console
from rich.progress import Progress, TimeElapsedColumn

from dgmarl.sweeps.executor import Listener, Outcome
from dgmarl.sweeps.planned import PlannedRun


class SweepDisplay(Listener):
    """One progress bar over the environment steps of all runs, and a line for each finished run."""

    def __init__(self, runs: Sequence[PlannedRun]):
        self.runs = runs
        self.steps = {run: run.total_steps for run in runs if run.state == "done"}
        self.n_done = len(self.steps)
        console = Console(stderr=True)
        columns = (*Progress.get_default_columns(), TimeElapsedColumn())
        self.bar = Progress(*columns, console=console, disable=not console.is_terminal)
        self.task = self.bar.add_task("", total=sum(run.total_steps for run in runs))
        self.lock = Lock()
        self._update()

    def __enter__(self) -> "SweepDisplay":
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def on_steps(self, run: PlannedRun, steps: int) -> None:
        with self.lock:
            self.steps[run] = steps
            self._update()

    def on_end(self, run: PlannedRun, outcome: Outcome) -> None:
        with self.lock:
            if outcome.status in ("published", "stopped"):
                self.steps[run] = run.total_steps
                self.n_done += 1
            self._update()
        self.bar.console.print(
            f"{run.name}: {outcome.message}", markup=False, highlight=False, soft_wrap=True
        )

    def _update(self) -> None:
        self.bar.update(
            self.task,
            description=f"{self.n_done} of {len(self.runs)} runs",
            completed=sum(self.steps.values()),
        )
