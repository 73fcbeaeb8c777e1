"""The demo: three kinds of credit on two tasks, trained for real in two to four minutes on two
cores, and a page to look at.

In winner-take-all foraging a food takes two to lift and one of them is paid: with local reward the
other has no reason to come. In Star-Spread each leaf's share of the team's reward drowns in the
noise of all others: global reward is slow. Credit along the dependence graph is meant to be good in
both."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax

from dgmarl.api import train_config
from dgmarl.config.resolve import resolve
from dgmarl.config.schema import TrainConfig
from dgmarl.files import write_atomic
from dgmarl.report.charts import charts_data
from dgmarl.report.html import render
from dgmarl.report.replay_page import REPLAY, replay_data
from dgmarl.report.results import Result
from dgmarl.runs.callbacks import Callback, CallbackLike
from dgmarl.runs.run import Run

CREDIT_NAMES = {"local": "local reward", "global": "global reward", "dg": "dependence graph"}
CREDITS = tuple(CREDIT_NAMES)


@dataclass(frozen=True, eq=False)
class Task:
    """One panel of the page."""

    title: str
    about: str
    env: str
    options: dict[str, Any]
    steps: int
    overrides: dict[str, Any]

    def config(self, credit: str, seeds: int, scale: float) -> TrainConfig:
        """The run of one kind of credit."""
        steps = max(int(self.steps * scale), 2000)
        overrides = {
            "evaluation.episodes": 32,
            "evaluation.interval": max(steps // 10, 1),
            **self.overrides,
        }
        values = {"seeds": seeds, "steps": steps, "env_options": self.options}
        return resolve(self.env, f"ippo-{credit}", overrides, "paper", **values)


FORAGING = Task(
    "Foraging, winner takes all",
    "A food takes both foragers to lift, and only one of them is paid. Watch what local reward "
    "makes of that.",
    "lbf/7x7-2p-2f-coop",
    {"horizon": 25},
    120_000,
    {"rollout_length": 25, "learner.learning_rate": 1e-3},
)
SPREAD = Task(
    "Star-Spread, five agents",
    "Leaves are paid for standing on any landmark, the hub for all being covered; every reward "
    "carries noise of its own.",
    "star-spread/5",
    {},
    120_000,
    {},
)
TASKS = (FORAGING, SPREAD)


def run_demo(
    out: Path,
    seeds: int = 3,
    scale: float = 1.0,
    watch: Callable[[str, int], CallbackLike] = lambda label, steps: Callback(),
) -> Path:
    """Train everything, two at a time, and write the page. watch: gives a display for each run."""
    jobs = [(task, credit) for task in TASKS for credit in CREDITS]

    def one(job: tuple[Task, str]) -> Run:
        task, credit = job
        config = task.config(credit, seeds, scale)
        display = watch(f"{task.env} {CREDIT_NAMES[credit]}", config.steps)
        return train_config(config, callbacks=[display])

    # Compiling keeps one core busy at most, so two runs side by side use both.
    with ThreadPoolExecutor(2) as pool:
        results = dict(zip(jobs, pool.map(one, jobs), strict=True))
    return write_atomic(out / "index.html", demo_page(results))


def demo_page(results: dict[tuple[Task, str], Run]) -> str:
    """Two panels of curves, what the tasks are, and a replay of the foragers with graph credit."""
    curves = {
        task.title: [_curves(task, credit, results[task, credit]) for credit in CREDITS]
        for task in TASKS
    }
    replay = results[FORAGING, "dg"].replay(jax.random.key(0), n_episodes=3)
    data = {**charts_data(curves), "replays": [replay_data(replay)]}
    return render("demo_page.html", ("charts", *REPLAY), data, title="dgmarl demo", tasks=TASKS)


def _curves(task: Task, credit: str, result: Run) -> Result:
    density = {name: result.metrics[name] for name in ("graph_density",) if name in result.metrics}
    return Result(
        "demo",
        task.title,
        f"ippo-{credit}",
        task.env,
        result.steps,
        result.returns.mean(axis=-1),
        density,
    )
