"""From a grid, or another list of runs, to what is trained: bad configurations are left out with
their sentence, and the others are executed with one progress bar.

A sweep's folder holds `sweep.yaml`, the grid, and one run folder per run, with the published result
of a finished run as `result.json`."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax

from dgmarl.config.yaml import read_yaml, write_yaml
from dgmarl.device import require_determinism, use_all_cores
from dgmarl.envs.base import Environment
from dgmarl.envs.registry import with_wrapped_preset
from dgmarl.errors import UsageError
from dgmarl.graphs.sources import GraphSource
from dgmarl.sweeps.display import SweepDisplay
from dgmarl.sweeps.executor import BATCHED_RUNS, Listener, execute
from dgmarl.sweeps.grid import config_of, expand
from dgmarl.sweeps.planned import PlannedRun
from dgmarl.training import Trainer
from dgmarl.trust import is_code, require_trust

GRID = "sweep.yaml"


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
    retries: int = 0
    """How often a run that fails is tried again."""


def plan_grid(grid: Mapping[str, Any], out: Path, trusted: bool = False) -> Plan:
    """The runs of a grid with folders below `out`.

    trusted: execute the files of environments, for the presets of what they wrap; else none is
      built."""
    plan = Plan([], {})
    for name, values in expand(grid).items():
        folder, resolved = out / name, partial(config_of, values)
        try:
            config = with_wrapped_preset(resolved) if trusted else resolved()
            plan.runs.append(PlannedRun(name, config, folder / "result.json", folder))
        except UsageError as error:
            plan.not_runnable[name] = str(error)
    return plan


def begin_sweep(grid: Mapping[str, Any], out: Path, origin: str = "", trust: bool = False) -> Plan:
    """The runs of a grid that can be trained; the grid is kept in `out`, to which a grid that
    differs is admitted only with the same runs and further ones.

    origin: the file that names the grid's environments, if it was not the user himself."""
    planned = plan_grid(grid, out)
    for run in planned.runs if origin else ():
        require_trust(origin, env=run.config.env, graph=run.config.graph, trust=trust)
    if any(is_code(run.config.env) for run in planned.runs):
        planned = plan_grid(grid, out, trusted=True)
    if (out / GRID).exists():
        _refuse_other(expand(read_yaml(out / GRID)), expand(grid), out)
    if any(run.config.deterministic for run in planned.runs):
        require_determinism()
    plan = without_refused(planned)
    refuse_empty(plan)
    write_yaml(out / GRID, dict(grid))
    for run in planned.runs:
        if run.name in plan.not_runnable:
            run.note_failure(plan.not_runnable[run.name])
    return plan


def _refuse_other(before: dict[str, Any], now: dict[str, Any], out: Path) -> None:
    for name, values in before.items():
        if now.get(name) != values:
            raise UsageError(
                f"{out} holds the sweep of another grid, whose run {name} this one "
                f"{'changes' if name in now else 'lacks'}: give that grid with further values, "
                "or choose another folder."
            )


def without_refused(plan: Plan) -> Plan:
    """Without runs that the environment rules out, such as those that need an oracle graph where
    there is none."""
    checked = Plan([], dict(plan.not_runnable))
    for run in plan.runs:
        try:
            if run.state != "done":
                trainer = Trainer(run.config)
                jax.eval_shape(partial(_begin, trainer.source, trainer.env))
        except UsageError as error:
            checked.not_runnable[run.name] = str(error)
        else:
            checked.runs.append(run)
    return checked


def _begin(source: GraphSource, env: Environment) -> None:
    """Raises what a graph source lacks; without computing anything, if it is only traced."""
    source.init(jax.random.key(0), env)


def refuse_empty(plan: Plan) -> None:
    """Say why, if none of the runs can be trained."""
    if not plan.runs:
        raise UsageError(next(iter(plan.not_runnable.values())))


def prepare_process(resources: Resources) -> None:
    """Before JAX's first computation: all cores, and no place on the GPU for a process that leaves
    the training to others."""
    if resources.apart:
        jax.config.update("jax_platforms", "cpu")
    use_all_cores()


def train_plan(plan: Plan, resources: Resources) -> None:
    """Train what has no result yet, with one progress bar."""
    with SweepDisplay(plan.runs) as display:
        for name, reason in plan.not_runnable.items():
            display.bar.console.print(
                f"left out: {name}: {reason}", markup=False, highlight=False, soft_wrap=True
            )
        execute_plan(plan, resources, display)


def execute_plan(plan: Plan, resources: Resources, listener: Listener | None = None) -> None:
    """Train what has no result yet."""
    execute(
        plan.runs,
        listener,
        workers=resources.workers,
        batched_runs=resources.batched,
        apart=resources.apart,
        retries=resources.retries,
    )
