"""Plans and trains the runs of a grid or of another list: invalid configurations are skipped with
a message, the others are executed with one progress bar.

The folder of a sweep holds the grid as `sweep.yaml` and one run folder per run, with the published
result of a finished run as `result.json`."""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax

from dgmarl.config.yaml import read_yaml, write_yaml
from dgmarl.device import require_determinism, use_all_cores
from dgmarl.envs.base import Environment
from dgmarl.envs.registry import with_wrapped_preset
from dgmarl.errors import UnknownNameError, UsageError
from dgmarl.graphs.sources import GraphSource
from dgmarl.optional import optional
from dgmarl.sweeps.display import SweepDisplay
from dgmarl.sweeps.executor import BATCHED_RUNS, Listener, apart, execute, train_batch
from dgmarl.sweeps.grid import Halving, config_of, expand, halving_of, shown_name
from dgmarl.sweeps.planned import PlannedRun
from dgmarl.training import Trainer
from dgmarl.trust import is_code, require_trust

GRID = "sweep.yaml"


class Plan(NamedTuple):
    """Runs with their configurations and output locations."""

    runs: list[PlannedRun]
    not_runnable: dict[str, str]
    """Reasons why runs cannot be trained, by name."""
    halving: Halving | None = None
    """Successive halving of the runs."""


class Resources(NamedTuple):
    """How a plan is executed."""

    workers: int = 1
    """Programs at a time."""
    batched: int = BATCHED_RUNS
    """Runs of equal shape in one program."""
    apart: bool = False
    """Run each program in its own process."""
    retries: int = 0
    """Number of times that a failed run is retried."""
    executor: Literal["local", "ray"] = "local"
    """Train on this machine or on a Ray cluster."""
    address: str = "local"
    """Address of the Ray cluster: `auto` for that of this machine, `ray://HOST:PORT`, or `local` to
    start one."""
    cpus: int = 1
    """CPU cores per program, with Ray."""
    gpus: float = 0.0
    """GPUs per program, possibly a fraction, with Ray."""
    storage: str = ""
    """fsspec URL to which runs are sent instead of to the launcher, for machines without a shared
    disk, with Ray."""


RAY_TASKS = 100
"""Default number of programs submitted to Ray at a time."""


def resources_of(
    workers: int | None,
    batched: int,
    retries: int,
    executor: Literal["local", "ray"],
    **of_ray: Any,
) -> Resources:
    """Validated resources of a sweep. workers: default: one program at a time, with Ray as many as
    the cluster has room for."""
    if executor not in ("local", "ray"):
        raise UsageError(f"executor is {executor!r}, but must be 'local' or 'ray'.")
    n_programs = workers or (RAY_TASKS if executor == "ray" else 1)
    alone = n_programs > 1 and executor == "local"
    resources = Resources(n_programs, batched, alone, retries, executor, **of_ray)
    for name, value in of_ray.items():
        if executor == "local" and value != Resources._field_defaults[name]:
            raise UsageError(
                f"{name} is {value}, which only applies to a Ray cluster: give --executor ray as "
                "well, or leave it out."
            )
    if resources.gpus > 1 and resources.gpus % 1:
        raise UsageError(
            f"gpus is {resources.gpus:g}, but a program uses a fraction of one GPU or several "
            "whole GPUs: give a number up to 1, or a whole number."
        )
    return resources


def connected(resources: Resources) -> AbstractContextManager[None]:
    """Connect to the Ray cluster, if one is used; to be called before JAX computes anything."""
    if resources.executor == "local":
        return nullcontext()
    return optional("dgmarl.sweeps.ray_executor", "ray").connected(resources.address)


def plan_grid(
    grid: Mapping[str, Any], out: Path, trusted: bool = False, strict: bool = False
) -> Plan:
    """The runs of a grid with folders below `out`.

    trusted: build custom environments, to use the presets of the environments that they wrap.
    strict: see `_reason`."""
    plan = Plan([], {}, halving_of(grid))
    for name, values in expand(grid).items():
        folder, resolved = out / name, partial(config_of, values)
        try:
            config = with_wrapped_preset(resolved) if trusted else resolved()
            shown = shown_name(name, config)
            plan.runs.append(PlannedRun(shown, config, folder / "result.json", folder))
        except UsageError as error:
            plan.not_runnable[name] = _reason(error, strict)
    return plan


def _reason(error: UsageError, strict: bool) -> str:
    """Why a run is left out. strict: a name that does not exist is a mistake, so it is raised."""
    if strict and isinstance(error, UnknownNameError):
        raise error
    return str(error)


def begin_sweep(
    grid: Mapping[str, Any],
    out: Path,
    origin: str = "",
    trust: bool = False,
    executor: str = "local",
) -> Plan:
    """The runs of a grid that can be trained. The grid is written to `out`; an earlier grid there
    must be a subset of it. A name that does not exist refuses the whole grid.

    origin: the file that the grid comes from, whose code needs trust; empty: the user's program."""
    planned = plan_grid(grid, out, strict=True)
    if planned.halving and executor == "local":
        raise UsageError(
            "The grid has successive halving, which needs Ray Tune: give --executor ray, or leave "
            "out halving and rungs."
        )
    for run in planned.runs if origin else ():
        require_trust(origin, trust=trust, **run.config.names)
    if any(is_code(run.config.env) for run in planned.runs):
        planned = plan_grid(grid, out, trusted=True, strict=True)
    if (out / GRID).exists():
        _refuse_other(expand(read_yaml(out / GRID)), expand(grid), out)
    if any(run.config.deterministic for run in planned.runs):
        require_determinism()
    plan = without_refused(planned, strict=True)
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
                f"{'changes' if name in now else 'lacks'}: add values to that grid, or choose "
                "another folder."
            )


def without_refused(plan: Plan, strict: bool = False) -> Plan:
    """Drop runs that the environment does not support, for example without an oracle graph.
    strict: see `_reason`."""
    checked = Plan([], dict(plan.not_runnable), plan.halving)
    for run in plan.runs:
        try:
            if run.state != "done":
                trainer = Trainer(run.config)
                jax.eval_shape(partial(_begin, trainer.source, trainer.env))
        except UsageError as error:
            checked.not_runnable[run.name] = _reason(error, strict)
        else:
            checked.runs.append(run)
    return checked


def _begin(source: GraphSource, env: Environment) -> None:
    """Raise UsageError if a graph source cannot be used; tracing this computes nothing."""
    source.init(jax.random.key(0), env)


def refuse_empty(plan: Plan) -> None:
    """Raise UsageError if none of the runs can be trained."""
    if not plan.runs:
        raise UsageError(next(iter(plan.not_runnable.values())))


def prepare_process(resources: Resources) -> None:
    """Use all cores, and no GPU if other processes train; call before JAX computes anything."""
    if resources.apart or resources.executor == "ray":
        jax.config.update("jax_platforms", "cpu")
    use_all_cores()


def train_plan(plan: Plan, resources: Resources) -> None:
    """Train the runs without a result, with one progress bar."""
    with SweepDisplay(plan.runs) as display:
        for name, reason in plan.not_runnable.items():
            display.bar.console.print(
                f"skipped: {name}: {reason}", markup=False, highlight=False, soft_wrap=True
            )
        execute_plan(plan, resources, display)


def execute_plan(plan: Plan, resources: Resources, listener: Listener | None = None) -> None:
    """Train the runs without a result."""
    if resources.executor == "ray":
        from dgmarl.sweeps.ray_executor import RayExecutor

        train = RayExecutor(resources, plan.runs, plan.halving)
    else:
        train = apart(resources.workers) if resources.apart else train_batch
    execute(
        plan.runs,
        listener,
        workers=resources.workers,
        # A program lasts as long as its longest run.
        batched_runs=1 if plan.halving else resources.batched,
        retries=resources.retries,
        train=train,
    )
