"""Asynchronous successive halving (Li et al. 2020), which stops poor runs early.

At each rung, a number of steps, a run continues if its return is among the best `1 / reduction` of
the runs that have reached the rung so far. Runs compete within one environment, method and graph.
Ray Tune's `AsyncHyperBandScheduler` makes the decisions."""

import json
from types import SimpleNamespace
from typing import Any, NamedTuple

from dgmarl.runs.reading import read_metrics
from dgmarl.sweeps.grid import Halving
from dgmarl.sweeps.planned import PlannedRun


class Standing(NamedTuple):
    """One evaluation of a run, averaged over seeds."""

    group: str
    """Equal for runs that compete."""
    run: str
    steps: float
    total: int
    score: float


def standings(run: PlannedRun) -> list[Standing]:
    """All evaluations of a run so far."""
    assert run.folder is not None
    evaluations: dict[int, list[Any]] = {}
    for row in read_metrics(run.folder):
        evaluations.setdefault(int(row["evaluation"]), []).append(row)
    names = ("env", "env_options", "method", "graph", "steps")
    group = json.dumps([getattr(run.config, name) for name in names], default=str)

    def mean(rows: list[Any], name: str) -> float:
        return sum(row[name] for row in rows) / len(rows)

    return [
        Standing(group, run.name, mean(rows, "step"), run.config.steps, mean(rows, "return_mean"))
        for rows in evaluations.values()
    ]


class Judge:
    """Decides which runs continue. history: evaluations that were judged before."""

    def __init__(self, halving: Halving, history: list[Standing]):
        self.halving = halving
        self.schedulers: dict[str, Any] = {}
        self.trials: dict[str, SimpleNamespace] = {}
        for standing in history:
            self.stops(standing)

    def stops(self, standing: Standing) -> bool:
        """Whether a run is to be stopped after this evaluation."""
        if standing.steps >= standing.total:
            return False
        scheduler = self._scheduler(standing)
        if standing.run not in self.trials:
            self.trials[standing.run] = SimpleNamespace(trial_id=standing.run)
            scheduler.on_trial_add(None, self.trials[standing.run])
        result = {"steps": standing.steps, "return": standing.score}
        return scheduler.on_trial_result(None, self.trials[standing.run], result) == "STOP"

    def _scheduler(self, standing: Standing) -> Any:
        from ray.tune.schedulers import AsyncHyperBandScheduler

        if standing.group not in self.schedulers:
            reduction, rungs = self.halving
            self.schedulers[standing.group] = AsyncHyperBandScheduler(
                time_attr="steps",
                metric="return",
                mode="max",
                max_t=standing.total,
                grace_period=standing.total / reduction**rungs,
                reduction_factor=reduction,
            )
        return self.schedulers[standing.group]
