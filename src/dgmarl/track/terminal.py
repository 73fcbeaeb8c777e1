"""Progress display in a terminal; silent elsewhere."""

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from dgmarl.runs import callbacks


class TrainingDisplay(callbacks.Callback):
    """Shows steps of the slowest seed, speed, return and its spread, graph density, time left."""

    def __init__(self, label: str, steps: int, quiet: bool):
        self.label, self.steps = label, steps
        self.evaluations = 0
        console = Console(stderr=True)
        # Narrow enough for 80 columns: the label is printed on a separate line.
        columns = (
            BarColumn(bar_width=12),
            TaskProgressColumn(),
            TextColumn("{task.fields[facts]}", markup=False),
            TimeRemainingColumn(),
        )
        self.bar = Progress(*columns, console=console, disable=quiet or not console.is_terminal)
        self.task = self.bar.add_task("", total=steps, facts="compiling…")

    def __enter__(self) -> "TrainingDisplay":
        if not self.bar.disable:
            # A label may contain brackets, which are not markup.
            self.bar.console.print(self.label, markup=False)
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def on_evaluation(self, progress: callbacks.Progress) -> None:
        self.evaluations += 1
        means = progress.returns.mean(axis=1)
        speed = f"{progress.steps_per_s:,.0f} steps/s"
        facts = f"{speed} · return {means.mean():.3g} ± {means.std():.2g}"
        if "graph_density" in progress.metrics:
            facts += f" · density {progress.metrics['graph_density'].mean():.2f}"
        done = min(int(progress.steps.min()), self.steps)
        self.bar.update(self.task, completed=done, facts=facts)
