"""Hyperparameter searches: settings and final returns of the runs of one environment."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from matplotlib.figure import Figure

from dgmarl.config.yaml import dotted
from dgmarl.report.figures import parallel_coordinates
from dgmarl.report.results import Result, grouped

FEWEST_RUNS = 4
"""Settings of fewer runs are in the table of differences."""
MOST_LINES, MOST_AXES = 300, 8
"""Maximum lines and axes of a plot."""
KIND = ("method", "graph")
"""Fields that determine which other fields exist."""


class Search(NamedTuple):
    """Runs of one environment, best first, and the fields in which they differ."""

    env: str
    runs: list[Result]
    settings: dict[str, list[Any]]
    """Values of each field, one per run."""

    def figure(self) -> Figure:
        """Parallel coordinates."""
        shown = [*self.settings][:MOST_AXES]
        columns = {name: self.settings[name][:MOST_LINES] for name in shown}
        columns["final return"] = [float(run.final.mean()) for run in self.runs[:MOST_LINES]]
        kept = ((self.runs, MOST_LINES, "best runs"), (self.settings, MOST_AXES, "first fields"))
        cuts = [f"the {most} {what} of {len(of)}" for of, most, what in kept if len(of) > most]
        only = f"; {' and '.join(cuts)}" if cuts else ""
        caption = f"{self.env}: a line per run, brighter for a higher final return{only}"
        return parallel_coordinates(columns, caption)


def searches(results: Sequence[Result]) -> Iterator[Search]:
    """One search per environment in which a method was trained with several settings."""
    for env, runs in grouped(results, "env").items():
        runs.sort(key=lambda result: -result.final.mean())
        configs = [dotted(run.facts.get("config", {})) for run in runs]
        fields = _searched(configs)
        if len(runs) >= FEWEST_RUNS and set(fields) - set(KIND):
            yield Search(env, runs, {name: [one[name] for one in configs] for name in fields})


def _searched(configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Fields of all runs that differ between runs of the same method and graph, and method and
    graph if they differ."""
    kinds: dict[str, list[Mapping[str, Any]]] = {}
    for config in configs:
        kinds.setdefault(_key([config.get(name) for name in KIND]), []).append(config)

    def differs(name: str) -> bool:
        groups = [configs] if name in KIND else kinds.values()
        return any(len({_key(one[name]) for one in group}) > 1 for group in groups)

    common = [name for name in configs[0] if all(name in config for config in configs)]
    return [name for name in common if name != "env" and differs(name)]


def _key(value: Any) -> str:
    return json.dumps(value, default=str)
