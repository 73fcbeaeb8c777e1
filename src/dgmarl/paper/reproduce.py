"""`dgmarl reproduce`: train the cells of the paper's figures, and draw the figures from what is
there.

results/<benchmark>/<scenario>__<method>.json   finished cells, as published
runs/<benchmark>/<scenario>__<method>/          run folders: what an interrupted cell goes on from
figures/<figure>-*.svg, .png                    the figures
<figure>.md                                     its tables
index.html                                      one page of all results

A cell with its file is skipped, one with a run folder is resumed, to the identical result.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Literal, NamedTuple

import jax

from dgmarl.config.resolve import resolve
from dgmarl.config.schema import TrainConfig
from dgmarl.config.yaml import override
from dgmarl.device import devices_for
from dgmarl.envs.registry import make_env
from dgmarl.errors import UsageError
from dgmarl.files import write_atomic
from dgmarl.paper.grids import Cell, programs, published
from dgmarl.paper.plans import FIGURES, PaperFigure, Plan
from dgmarl.paper.tables import draw, table_page
from dgmarl.report.figures import save
from dgmarl.report.results import Result, read_result
from dgmarl.report.run_page import run_page
from dgmarl.runs.folder import RunFolder
from dgmarl.runs.recorder import Progress, Recorder, TrainResult
from dgmarl.sweeps.batched import train_all
from dgmarl.training import Trainer, train

POINTS = 10
"""At least so many evaluations on the way, also where a user asks for few steps."""
TRIAL_EPISODES = 100
"""Enough for Q-learning to have begun to learn."""
EVALUATION_STEP = 0.2
"""What a step of an evaluation costs, in steps of training: no gradients, but the same environment
and policy."""
SAME = ("env", "method", "graph", "seeds", "seed", "steps")
"""Fields that tell whether a result is of the cell that is wanted."""

State = Literal["done", "begun", "waiting"]


@dataclass(frozen=True, eq=False)
class Job:
    """A cell of the grid and where it stands."""

    cell: Cell
    state: State

    @property
    def steps(self) -> int:
        """Of all seeds together."""
        return self.cell.config.steps * self.cell.config.seeds


class Grid(NamedTuple):
    """All cells of one or several figures, each once."""

    jobs: list[Job]
    not_runnable: dict[Plan, str]
    """Cells that this version cannot run, and why."""


def figures_named(name: str) -> list[PaperFigure]:
    """`all`, or one figure."""
    if name != "all" and name not in FIGURES:
        raise UsageError(
            f"{name!r} is not a figure of the paper; allowed are all, {', '.join(FIGURES)}."
        )
    return list(FIGURES.values()) if name == "all" else [FIGURES[name]]


def make_grid(figures: Iterable[PaperFigure], out: Path, seeds: int, steps: int | None) -> Grid:
    """What there is to do below `out`; `steps` replaces the paper's number."""
    jobs, not_runnable = [], {}
    for plan in dict.fromkeys(plan for figure in figures for plan in figure.plans):
        try:
            cell = _cell(plan, seeds, steps)
        except UsageError as error:
            not_runnable[plan] = str(error)
            continue
        jobs.append(Job(cell, _state(cell, out)))
    return Grid(jobs, not_runnable)


def run(
    grid: Grid,
    out: Path,
    watch: Callable[[Job, int], None],
    finished: Callable[[Job, str], None],
    workers: int = 1,
    lanes: int = 8,
) -> None:
    """Train all cells that are not done; `watch(job, steps)` hears of every evaluation, `finished`
    of every cell's end.

    Up to `lanes` cells of equal shape are trained in one program, and `workers` programs at a time.
    Ctrl-C stops every running cell at its next evaluation, with a checkpoint."""
    stop = Event()
    with ThreadPoolExecutor(workers) as pool:
        left = {pool.submit(_train, jobs, out, stop, watch) for jobs in _programs(grid, lanes)}
        try:
            while left:
                done, left = wait(left, return_when=FIRST_COMPLETED)
                for job, words in (ended for program in done for ended in program.result()):
                    finished(job, words)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            stop.set()
            raise


def _programs(grid: Grid, lanes: int) -> list[list[Job]]:
    """Cells that are trained together; those that were begun together go on together, which keeps
    their rounding."""
    together = []
    for state in ("begun", "waiting"):
        jobs = {id(job.cell): job for job in grid.jobs if job.state == state}
        groups = programs([job.cell for job in jobs.values()], lanes)
        together += [[jobs[id(cell)] for cell in group] for group in groups]
    return together


def _train(
    jobs: list[Job], out: Path, stop: Event, watch: Callable[[Job, int], None]
) -> list[tuple[Job, str]]:
    """One program, and for each of its cells what came of it."""
    recorders = [_recorder(job, out, stop, watch) for job in jobs]
    return [
        (job, _publish(job.cell, result, out))
        for job, result in zip(jobs, train_all(recorders), strict=True)
    ]


def _recorder(job: Job, out: Path, stop: Event, watch: Callable[[Job, int], None]) -> Recorder:
    def report(progress: Progress) -> None:
        watch(job, int(progress.steps.clip(max=job.cell.config.steps).sum()))
        recorder.interrupted |= stop.is_set()

    recorder = Recorder(job.cell.config, _run_folder(job.cell, out), report)
    return recorder


def _publish(cell: Cell, result: TrainResult, out: Path) -> str:
    if result.interrupted:
        return "stopped; it will be resumed"
    write_atomic(cell.path(out / "results"), json.dumps(published(result)) + "\n")
    final = result.returns[:, -1].mean(axis=-1)
    return (
        f"return {final.mean():.3f}, {result.timing['compile_s'] + result.timing['train_s']:.0f} s"
    )


def write_figures(
    figures: Iterable[PaperFigure], results: Sequence[Result], out: Path
) -> list[Path]:
    """Draw what there are results for: figures, one page of tables each, and one page of
    everything."""
    written: list[Path] = []
    for figure in figures:
        chosen = figure.chosen(results)
        if chosen:
            drawn = draw(chosen)
            for kind, picture in drawn.items():
                written += save(picture, out / "figures" / f"{figure.name}-{kind}")
            text = table_page(
                figure, chosen, [f"figures/{figure.name}-{kind}.svg" for kind in drawn]
            )
            written.append(write_atomic(out / f"{figure.name}.md", text))
    if not written:
        raise UsageError(
            "There is no result of these figures yet: train some cells, or name results with "
            "--from."
        )
    return written


def write_page(figures: Iterable[PaperFigure], results: Sequence[Result], out: Path) -> Path:
    """One page of all results of these figures."""
    chosen = {id(result): result for figure in figures for result in figure.chosen(results)}
    return write_atomic(out / "index.html", run_page(list(chosen.values()), "The paper's figures"))


def results_of(grid: Grid, out: Path) -> list[Result]:
    """The results of the cells that are done, with their run folders, from which a page can play
    them."""
    results = []
    for job in grid.jobs:
        path, folder = job.cell.path(out / "results"), _run_folder(job.cell, out)
        if path.is_file():
            result = read_result(path)
            played = {"folder": folder.path} if (folder.path / "config.yaml").is_file() else {}
            results.append(result._replace(facts={**result.facts, **played}))
    return results


class Speed(NamedTuple):
    """How fast this machine is."""

    compile_s: float
    agent_steps_per_s: float
    """Of all seeds together; time is taken to grow in proportion to the number of agents."""


def estimate_seconds(grid: Grid) -> float:
    """For what is left to do, one cell after the other, from a short trial per benchmark, kind of
    learner and learned graph."""
    seconds = 0.0
    speeds: dict[tuple[str, type, bool], Speed] = {}
    for job in grid.jobs:
        if job.state == "done":
            continue
        config = job.cell.config
        kind = (
            job.cell.benchmark,
            type(config.learner),
            config.method.endswith("-dg") and config.graph == "learned",
        )
        if kind not in speeds:
            speeds[kind] = try_out(config)
        spec, evaluation = make_env(config.env, **config.env_options).spec, config.evaluation
        steps = job.steps * (
            1 + EVALUATION_STEP * evaluation.episodes * spec.horizon / evaluation.interval
        )
        seconds += speeds[kind].compile_s + steps * spec.n_agents / speeds[kind].agent_steps_per_s
    return seconds


def try_out(config: TrainConfig) -> Speed:
    """Train for a few episodes."""
    spec = make_env(config.env, **config.env_options).spec
    per_iteration = config.n_envs * spec.horizon
    steps = (
        per_iteration + TRIAL_EPISODES * spec.horizon
    )  # the first evaluation comes after one iteration
    # A core works on its seeds in turn, so that one for each tells the speed of all; elsewhere they
    # run side by side.
    seeds = devices_for(config.seeds) if jax.default_backend() == "cpu" else config.seeds
    trial = override(
        config,
        {"seeds": seeds, "steps": steps, "evaluation.interval": steps, "evaluation.episodes": 1},
    )
    timing = train(trial).timing
    return Speed(timing["compile_s"], timing["steps_per_s"] * spec.n_agents)


def _cell(plan: Plan, seeds: int, steps: int | None) -> Cell:
    config = resolve(
        plan.env,
        plan.method,
        None,
        "paper",
        graph=plan.graph,
        seeds=seeds,
        steps=steps or plan.steps,
    )
    if steps:
        config = override(
            config,
            {"evaluation.interval": min(config.evaluation.interval, max(steps // POINTS, 1))},
        )
    Trainer(config)  # refuses what this version cannot run
    return Cell(plan.benchmark, plan.scenario, plan.label, config)


def _state(cell: Cell, out: Path) -> State:
    """Whether a cell has its result or has been begun; with other options it is neither, but in the
    way."""
    path, folder = cell.path(out / "results"), _run_folder(cell, out)
    if path.is_file():
        _refuse_other(read_result(path).facts["config"], cell, path)
        return "done"
    if (folder.path / "config.yaml").is_file():
        _refuse_other(vars(folder.config()), cell, folder.path)
        return "begun"
    return "waiting"


def _refuse_other(found: dict, cell: Cell, path: Path) -> None:
    for name in SAME:
        wanted = getattr(cell.config, name)
        if found.get(name) != wanted:
            raise UsageError(
                f"{path} has {name} = {found.get(name)}, not {wanted}: give the same options, or "
                "another --out."
            )


def _run_folder(cell: Cell, out: Path) -> RunFolder:
    return RunFolder(out / "runs" / cell.benchmark / f"{cell.scenario}__{cell.method}")
