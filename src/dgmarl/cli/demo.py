"""`dgmarl demo`."""

from dataclasses import dataclass
from pathlib import Path

from dgmarl.cli.common import OutputFolder


@dataclass(frozen=True)
class Demo:
    """Train local, global and graph credit on two small tasks and write a page with curves and a
    replay (two to four minutes on two cores)."""

    out: OutputFolder = Path("demo")
    """Folder for index.html."""
    seeds: int = 4
    """Seeds per credit rule."""
    scale: float = 1.0
    """Factor for the number of training steps."""

    def run(self) -> int:
        from rich.console import Console
        from rich.progress import Progress, TextColumn

        from dgmarl.cli.demo_page import run_demo
        from dgmarl.device import use_all_cores

        use_all_cores()
        console = Console(stderr=True)
        columns = (*Progress.get_default_columns(), TextColumn("{task.fields[state]}"))
        with Progress(*columns, console=console, disable=not console.is_terminal) as bar:

            def watch(label: str, steps: int):
                task = bar.add_task(label, total=steps, state="compiling…")
                return lambda progress: bar.update(
                    task, completed=min(int(progress.steps.min()), steps), state=""
                )

            path = run_demo(self.out, self.seeds, self.scale, watch)
        print(f"Open {path.absolute().as_uri()}")
        return 0
