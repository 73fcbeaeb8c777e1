"""The demo: trains three credit rules on two tasks and writes a page.

In winner-take-all foraging it takes two agents to lift a food and one of them is rewarded: with
local reward the other has no reason to come. In Star-Spread a leaf's share of the team reward is
small beside the noise of all others: global reward learns slowly. Graph credit should do well in
both."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from dgmarl.api import train_config
from dgmarl.config.resolve import resolve
from dgmarl.config.schema import TrainConfig
from dgmarl.files import write_atomic
from dgmarl.report.charts import charts_data
from dgmarl.report.html import render
from dgmarl.report.replay_page import REPLAY, replay_data
from dgmarl.report.results import Result
from dgmarl.runs.callbacks import Callback, CallbackLike
from dgmarl.runs.replays import Episode
from dgmarl.runs.run import Run

CREDIT_NAMES = {"local": "local reward", "global": "global reward", "dg": "dependence graph"}
CREDITS = tuple(CREDIT_NAMES)
STEPS = 120_000
"""Training steps per seed at scale 1."""


@dataclass(frozen=True, eq=False)
class Task:
    """One panel of the page."""

    title: str
    about: str
    env: str
    overrides: dict[str, Any]

    def config(self, credit: str, seeds: int, scale: float) -> TrainConfig:
        """Configuration of the run with one credit rule."""
        steps = max(int(STEPS * scale), 2000)
        evaluation = {"evaluation.episodes": 32, "evaluation.interval": steps // 10}
        overrides = {**evaluation, **self.overrides}
        return resolve(self.env, f"ippo-{credit}", overrides, "paper", seeds=seeds, steps=steps)


FORAGING = Task(
    "Foraging, winner takes all",
    "Lifting a food takes both foragers, but only one of them is rewarded: with local reward the "
    "other has no reason to help.",
    "lbf/7x7-2p-2f-coop",
    {"env_options.horizon": 25, "rollout_length": 25, "learner.learning_rate": 1e-3},
)
SPREAD = Task(
    "Star-Spread, five agents",
    "A leaf is rewarded for being near any landmark, the hub for the coverage of all landmarks; "
    "every reward has independent noise.",
    "star-spread/5",
    {},
)
TASKS = (FORAGING, SPREAD)


def run_demo(
    out: Path,
    seeds: int = 3,
    scale: float = 1.0,
    watch: Callable[[str, int], CallbackLike] = lambda label, steps: Callback(),
) -> Path:
    """Train all runs, two at a time, and write the page. watch: makes the callback of a run."""
    jobs = [(task, credit) for task in TASKS for credit in CREDITS]

    def one(job: tuple[Task, str]) -> Run:
        task, credit = job
        config = task.config(credit, seeds, scale)
        display = watch(f"{task.env} {CREDIT_NAMES[credit]}", config.steps)
        return train_config(config, callbacks=[display])

    # Compilation uses at most one core, so two runs in parallel use both.
    with ThreadPoolExecutor(2) as pool:
        results = dict(zip(jobs, pool.map(one, jobs), strict=True))
    return write_atomic(out / "index.html", demo_page(results))


def demo_page(results: dict[tuple[Task, str], Run]) -> str:
    """A page with the curves and a description of each task, and a replay of graph credit."""
    curves = {
        task.title: [_curves(task, credit, results[task, credit]) for credit in CREDITS]
        for task in TASKS
    }
    replay = results[FORAGING, "dg"].replay(jax.random.key(0), n_episodes=3)
    data = {**charts_data(curves), "replays": [replay_data(replay)]}
    options = {"title": "dgmarl demo", "tasks": TASKS, "first": first_edge(replay.episodes[0])}
    return render("demo_page.html", ("charts", *REPLAY), data, **options)


def first_edge(episode: Episode) -> int | None:
    """The first step with an edge between two agents; None if there is none."""
    if episode.graph is None:
        return None
    edges = episode.graph & ~np.eye(episode.graph.shape[-1], dtype=bool)
    steps = np.flatnonzero(edges.any(axis=(1, 2)))
    return int(steps[0]) if steps.size else None


def _curves(task: Task, credit: str, result: Run) -> Result:
    density = {name: result.metrics[name] for name in ("graph_density",) if name in result.metrics}
    curves = result.steps, result.returns.mean(axis=-1), density
    return Result("demo", task.title, f"ippo-{credit}", task.env, *curves)
