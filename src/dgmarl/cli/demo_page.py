"""The demo: three kinds of credit on two tasks, trained for real in about two minutes on two cores,
and a page to look at.

In winner-take-all foraging a food takes two to lift and one of them is paid: with local reward the
other has no reason to come. In Star-Spread each leaf's share of the team's reward drowns in the
noise of all others: global reward is slow. Credit along the dependence graph is meant to be good in
both."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from html import escape
from pathlib import Path
from typing import Any

import jax

from dgmarl.config.resolve import resolve
from dgmarl.config.schema import TrainConfig
from dgmarl.files import write_atomic
from dgmarl.report.charts import charts_data, charts_html
from dgmarl.report.html import page, scripts
from dgmarl.report.replay_page import REPLAY, replay_data, replay_html
from dgmarl.report.results import Result
from dgmarl.report.style import CREDIT_NAMES
from dgmarl.rollout import record_episodes
from dgmarl.runs.recorder import Progress, Recorder, TrainResult
from dgmarl.training import Trainer, train

CREDITS = ("local", "global", "dg")


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
    (
        "A food takes both foragers to lift, and only one of them is paid. Watch what local reward "
        "makes of that."
    ),
    "lbf/7x7-2p-2f-coop",
    {"horizon": 25},
    120_000,
    {"collect": "windows", "learner.learning_rate": 1e-3},
)
SPREAD = Task(
    "Star-Spread, five agents",
    (
        "Leaves are paid for standing on any landmark, the hub for all being covered; every reward "
        "carries noise of its own."
    ),
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
    watch: Callable[[str, int], Callable[[Progress], None]] = lambda label, steps: lambda p: None,
) -> Path:
    """Train everything, two at a time, and write the page. `watch(label, steps)` gives a display
    for each run."""
    jobs = [(task, credit) for task in TASKS for credit in CREDITS]

    def one(job: tuple[Task, str]) -> TrainResult:
        task, credit = job
        config = task.config(credit, seeds, scale)
        return train(
            config,
            Recorder(config, on_progress=watch(f"{task.env} {CREDIT_NAMES[credit]}", config.steps)),
        )

    # Compiling keeps one core busy at most, so two runs side by side use both.
    with ThreadPoolExecutor(2) as pool:
        results = dict(zip(jobs, pool.map(one, jobs), strict=True))
    return write_atomic(out / "index.html", demo_page(results))


def demo_page(results: dict[tuple[Task, str], TrainResult]) -> str:
    """Two panels of curves, a table of final returns, and a replay of the foragers with graph
    credit."""
    panels = "".join(
        _panel(task, {credit: results[task, credit] for credit in CREDITS}) for task in TASKS
    )
    curves = {
        task.title: [_curves(task, credit, results[task, credit]) for credit in CREDITS]
        for task in TASKS
    }
    body = (
        "<h1>Who is credited with what?</h1>"
        '<p class="faint">Three kinds of credit, trained just now: local reward, global reward, and dependence graph (DG).</p>'
        f'{charts_html()}<div class="halves">{panels}</div>'
        "<h1>Foragers trained with dependence-graph credit</h1>"
        '<p class="faint">Arrows say who could influence whom at this step. Choose an agent below to see which later rewards '
        f"its present action is credited with.</p>{replay_html()}"
    )
    data = {**charts_data(curves), "replays": [_replay(results[FORAGING, "dg"])]}
    return page("dgmarl demo", body, scripts("charts", *REPLAY), data)


def _curves(task: Task, credit: str, result: TrainResult) -> Result:
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


def _panel(task: Task, results: dict[str, TrainResult]) -> str:
    rows = "".join(
        f'<tr><th>{CREDIT_NAMES[credit]}</th><td class="number">{_seeds(result.returns[:, -1].mean(axis=-1))}</td></tr>'
        for credit, result in results.items()
    )
    return (
        f'<div class="panel"><h2>{escape(task.title)}</h2><p class="faint">{escape(task.about)}</p>'
        f"<table><thead><tr><th>team return at the end</th><th></th></tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _seeds(finals: Iterable[float]) -> str:
    values = list(finals)
    return f"{sum(values) / len(values):.3g} &nbsp; (seeds: {', '.join(f'{value:.3g}' for value in values)})"


def _replay(result: TrainResult) -> dict[str, Any]:
    """Three episodes of the first seed."""
    trainer = Trainer(result.config)
    params = jax.tree.map(lambda leaf: leaf[0], result.state.learner.params)
    act = partial(trainer.learner.act, params)
    recording = record_episodes(
        trainer.env, act, jax.random.key(0), 3, trainer.learner.init_hidden_state(3)
    )
    note = f"In training they kept the weight {1 - result.config.learner.lambda_:.2g}."
    return replay_data(trainer.env, recording, "dependence-graph", note)
