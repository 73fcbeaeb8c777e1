"""Plan and train lists of the paper's runs."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import jax
from rich.console import Console

from dgmarl.config.ranges import check_number
from dgmarl.device import use_all_cores
from dgmarl.errors import UsageError, suggest
from dgmarl.files import refuse_unwritable
from dgmarl.paper.grids import GRIDS, Run
from dgmarl.sweeps.display import SweepDisplay
from dgmarl.sweeps.executor import BATCHED_RUNS, execute
from dgmarl.sweeps.planned import PlannedRun
from dgmarl.training import Trainer


class Plan(NamedTuple):
    """Runs with their configurations and output locations, each once."""

    runs: list[PlannedRun]
    not_runnable: dict[str, str]
    """Runs that this version cannot train, by name, and why."""


class Resources(NamedTuple):
    """How a plan is executed."""

    workers: int = 1
    """Programs at a time."""
    batched: int = BATCHED_RUNS
    """Runs of equal shape in one program."""
    apart: bool = False
    """Each program in its own process."""


def make_plan(
    runs: Iterable[Run],
    results: Path,
    folders: Path | None,
    seeds: int | None = None,
    steps: int | None = None,
) -> Plan:
    """Resolve runs; `seeds` and `steps` replace their own numbers.

    results: root of the published files. folders: root of the run folders, if they are kept."""
    plan = Plan([], {})
    for run in dict.fromkeys(runs):
        name = f"{run.benchmark}/{run.scenario} {run.label}"
        try:
            config = run.config(seeds, steps)
            Trainer(config)  # raises what only the environment can tell, such as a missing oracle
        except UsageError as error:
            plan.not_runnable[name] = str(error)
            continue
        folder = None if folders is None else run.folder(folders)
        plan.runs.append(PlannedRun(name, config, run.result(results), folder))
    return plan


def refuse_empty(plan: Plan) -> None:
    """Say why, if none of the runs can be trained."""
    if not plan.runs:
        raise UsageError(next(iter(plan.not_runnable.values())))


def train_plan(plan: Plan, resources: Resources) -> None:
    """Train what has no result yet, with one progress bar."""
    with SweepDisplay(plan.runs) as display:
        for name, reason in plan.not_runnable.items():
            display.bar.console.print(
                f"left out: {name}: {reason}", markup=False, highlight=False, soft_wrap=True
            )
        execute(
            plan.runs,
            display,
            workers=resources.workers,
            batched_runs=resources.batched,
            apart=resources.apart,
        )


def train_grid(
    name: str,
    out: Path,
    seeds: int | None = None,
    steps: int | None = None,
    only: str = "",
    folders: Path | None = None,
    resources: Resources | None = None,
) -> None:
    """Train the runs of a grid whose names match the regular expression `only` and that have no
    file below `out` yet."""
    resources = resources or Resources()
    if name not in GRIDS:
        raise UsageError(f"{name!r} is not a grid; {suggest(name, GRIDS)}")
    given = {"seeds": seeds, "steps": steps, **resources._asdict()}
    for option in ("seeds", "steps", "workers", "batched"):
        check_number(option, given[option], f"--{option}")
    grid = GRIDS[name]
    try:
        chosen = [run for run in grid.runs if re.search(only, run.name)]
    except re.error as error:
        raise UsageError(
            f"--only is {only!r}, which is not a regular expression ({error}): escape special "
            "characters with a backslash."
        ) from None
    if not chosen:
        raise UsageError(
            f"--only is {only!r}, which no run of {name} matches: its runs are named "
            f"SCENARIO__METHOD, such as {grid.runs[0].name}."
        )
    refuse_unwritable(out, folder=True)
    if resources.apart:
        # This process trains nothing; it must not reserve a place on the GPU.
        jax.config.update("jax_platforms", "cpu")
    use_all_cores()
    seeds = grid.seeds if seeds is None else seeds
    steps = grid.steps if steps is None else steps
    plan = make_plan(chosen, out, folders, seeds, steps)
    refuse_empty(plan)
    train_plan(plan, resources)
    done = sum(run.state == "done" for run in plan.runs)
    console = Console(stderr=True)
    console.print(
        f"{done} of {len(chosen)} runs have their results in {out}", markup=False, soft_wrap=True
    )
