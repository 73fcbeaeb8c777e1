"""Plan and train the paper's runs."""

import re
from collections.abc import Iterable
from pathlib import Path

from rich.console import Console

from dgmarl.config.ranges import check_number
from dgmarl.errors import UsageError, suggest
from dgmarl.files import refuse_unwritable
from dgmarl.paper.grids import GRIDS, Run
from dgmarl.sweeps.plan import (
    Plan,
    Resources,
    prepare_process,
    refuse_empty,
    train_plan,
    without_refused,
)
from dgmarl.sweeps.planned import PlannedRun


def make_plan(
    runs: Iterable[Run],
    results: Path,
    folders: Path | None,
    seeds: int | None = None,
    steps: int | None = None,
    *,
    build: bool = True,
) -> Plan:
    """Resolve runs, with other `seeds` and `steps` if given. Runs that cannot be trained are
    listed with the reason.

    results: root of the result files. folders: root of the run folders, if they are kept. build:
    also build the environments and graph sources, to find out whether runs can be trained."""
    plan = Plan([], {})
    for run in dict.fromkeys(runs):
        name = f"{run.benchmark}/{run.scenario} {run.label}"
        folder = None if folders is None else run.folder(folders)
        try:
            config = run.config(seeds, steps)
            plan.runs.append(PlannedRun(name, config, run.result(results), folder))
        except UsageError as error:
            plan.not_runnable[name] = str(error)
    return without_refused(plan) if build else plan


def print_runs(plan: Plan) -> None:
    """Print a line per run: state, seeds and steps."""
    for run in plan.runs:
        print(f"{run.state:<8} {run.name}: {run.config.seeds} x {run.config.steps:,} steps")
    for name, reason in plan.not_runnable.items():
        print(f"cannot   {name}: {reason}")


def _chosen(name: str, only: str) -> list[Run]:
    """Runs of a grid whose names match the regular expression `only`."""
    if name not in GRIDS:
        raise UsageError(f"{name!r} is not a grid; {suggest(name, GRIDS)}")
    try:
        chosen = [run for run in GRIDS[name] if re.search(only, run.name)]
    except re.error as error:
        raise UsageError(
            f"--only is {only!r}, which is not a regular expression ({error}): escape special "
            "characters with a backslash."
        ) from None
    if not chosen:
        raise UsageError(
            f"--only is {only!r}, which no run of {name} matches: its runs are named "
            f"SCENARIO__METHOD, such as {GRIDS[name][0].name}."
        )
    return chosen


def train_grid(
    name: str,
    out: Path,
    seeds: int | None = None,
    steps: int | None = None,
    only: str = "",
    folders: Path | None = None,
    resources: Resources | None = None,
    only_list: bool = False,
) -> None:
    """Train, or only list, the runs of a grid whose names match the regular expression `only` and
    that have no result file in `out`."""
    resources = resources or Resources()
    given = {"seeds": seeds, "steps": steps, **resources._asdict()}
    for option in ("seeds", "steps", "workers", "batched"):
        check_number(option, given[option], f"--{option}")
    chosen = _chosen(name, only)
    if only_list:
        print_runs(make_plan(chosen, out, folders, seeds, steps, build=False))
        return
    refuse_unwritable(out, folder=True)
    prepare_process(resources)
    plan = make_plan(chosen, out, folders, seeds, steps)
    refuse_empty(plan)
    train_plan(plan, resources)
    done = sum(run.state == "done" for run in plan.runs)
    summary = f"{done} of {len(chosen)} runs have their results in {out}"
    Console(stderr=True).print(summary, markup=False, soft_wrap=True)
