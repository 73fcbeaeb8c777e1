"""Published results as tables: what each method reached in each scenario, and over all of them.

A published result is one file `<benchmark>/<scenario>__<method>.json` with the evaluations of every seed
(`dgmarl.experiments.grid` writes them). The final return of a seed is its last evaluation, never its best.
"""

import json
import re
from collections.abc import Iterable
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int
from rich.table import Table

from dgmarl.errors import UsageError
from dgmarl.report.statistics import Interval, aggregate_interval, mean_interval

# Families of environments whose returns mean the same in every scenario, so that runs of several scenarios may be pooled:
# foraging pays 1 for all the food, whereas Star-Spread's returns grow with the number of agents.
SHARED_SCALE = ("lbf",)


class Result(NamedTuple):
    """One method in one scenario, all seeds."""

    benchmark: str
    """Name of the folder."""
    scenario: str
    method: str
    env: str
    """Id of the environment."""
    steps: Int[np.ndarray, "S K"]
    returns: Float[np.ndarray, "S K"]
    facts: dict[str, Any]
    """Everything the file says."""

    @property
    def final(self) -> Float[np.ndarray, "S"]:
        """The last evaluation of each seed."""
        return self.returns[:, -1]


class Aggregate(NamedTuple):
    """One method over all scenarios of a benchmark."""

    benchmark: str
    method: str
    iqm: Interval
    runs: int


def read_results(folder: Path) -> list[Result]:
    """All published results below a folder, by benchmark, scenario (numbers in numerical order) and method."""
    if not folder.is_dir():
        raise UsageError(f"{folder} is not a folder: name one with files SCENARIO__METHOD.json, for example results/lbf.")
    paths = [path for path in folder.rglob("*__*.json") if not path.name.startswith(".")]
    if not paths:
        raise UsageError(f"{folder} holds no file SCENARIO__METHOD.json: name a folder of published results, such as results.")
    return sorted(map(read_result, paths), key=_order)


def read_result(path: Path) -> Result:
    """One published result; a damaged file is refused."""
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
        steps, returns = np.array(facts["steps"], int), np.array(facts["return_mean"], float)
        env = str(facts["config"]["env"])
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}): check that it is a readable file.") from None
    except (ValueError, TypeError, KeyError) as error:
        reason = f"lacks {error}" if isinstance(error, KeyError) else f"is damaged ({error})"
        raise UsageError(f"{path} {reason}, so it is no published result: delete it and run its cell again.") from None
    if returns.ndim != 2 or not returns.size or steps.shape != returns.shape or not np.isfinite(returns).all():
        raise UsageError(
            f"{path} has steps of shape {steps.shape} and returns of shape {returns.shape}, but both must be finite numbers "
            "[seeds, evaluations]: delete it and run its cell again."
        )
    scenario, _, method = path.stem.partition("__")
    return Result(path.absolute().parent.name, scenario, method, env, steps, returns, facts)


def aggregates(results: Iterable[Result]) -> list[Aggregate]:
    """Interquartile mean of each method over scenarios and seeds, where scores share a scale (`SHARED_SCALE`).

    Only methods with a result in every scenario of their benchmark are listed: over different scenarios nothing compares.
    """
    pooled = [result for result in results if result.env.partition("/")[0] in SHARED_SCALE]
    found = []
    for benchmark, method in dict.fromkeys((result.benchmark, result.method) for result in pooled):
        scenarios = {result.scenario for result in pooled if result.benchmark == benchmark}
        finals = [result.final for result in pooled if (result.benchmark, result.method) == (benchmark, method)]
        if len(finals) == len(scenarios):
            found.append(Aggregate(benchmark, method, aggregate_interval(finals), sum(map(len, finals))))
    return found


def tables(results: list[Result]) -> list[Table]:
    """For a terminal: per benchmark the final returns, then the aggregates, if there are any."""
    shown = []
    pooled = aggregates(results)
    for benchmark in dict.fromkeys(result.benchmark for result in results):
        own = [result for result in results if result.benchmark == benchmark]
        shown.append(_final_returns(benchmark, own))
        over_all = [aggregate for aggregate in pooled if aggregate.benchmark == benchmark]
        if over_all:
            shown.append(_over_scenarios(benchmark, over_all))
    return shown


def as_json(results: list[Result]) -> dict[str, Any]:
    """The same numbers for a program; ends of an interval that does not exist are null."""
    cells = [
        {
            "benchmark": result.benchmark,
            "scenario": result.scenario,
            "method": result.method,
            "final_return": _plain(mean_interval(result.final)),
            "seeds": len(result.final),
            "steps": int(result.steps[:, -1].min()),
        }
        for result in results
    ]
    pooled = [{**aggregate._asdict(), "iqm": _plain(aggregate.iqm)} for aggregate in aggregates(results)]
    return {"cells": cells, "aggregates": pooled}


def interval_texts(interval: Interval) -> tuple[str, str]:
    """Estimate and ends as text: three decimals for returns that are fractions, one for large ones."""
    values = [value for value in interval if isfinite(value)]
    decimals = 3 if max(map(abs, values)) < 10 else 1
    estimate, low, high = (f"{value:.{decimals}f}" for value in interval)
    return estimate, f"[{low}, {high}]" if len(values) == 3 else "—"


def _final_returns(benchmark: str, results: list[Result]) -> Table:
    table = _table(f"{benchmark}: final return, mean over seeds", ("scenario", "method"), ("mean", "95 %", "seeds", "steps"))
    for before, result in zip([None, *results], results, strict=False):
        repeated = before is not None and before.scenario == result.scenario
        if before is not None and not repeated:
            table.add_section()
        final, steps = mean_interval(result.final), int(result.steps[:, -1].min())
        scenario = "" if repeated else result.scenario
        table.add_row(scenario, result.method, *interval_texts(final), str(len(result.final)), f"{steps:,}")
    return table


def _over_scenarios(benchmark: str, over_all: list[Aggregate]) -> Table:
    table = _table(f"{benchmark}: interquartile mean over scenarios and seeds", ("method",), ("IQM", "95 %", "runs"))
    for aggregate in over_all:
        table.add_row(aggregate.method, *interval_texts(aggregate.iqm), str(aggregate.runs))
    return table


def _table(title: str, words: Iterable[str], numbers: Iterable[str]) -> Table:
    table = Table(title=title, title_justify="left")
    for column in words:
        table.add_column(column)
    for column in numbers:
        table.add_column(column, justify="right")
    return table


def _order(result: Result) -> tuple:
    digits = [int(part) if part.isdigit() else -1 for part in re.split(r"(\d+)", result.scenario)]
    return result.benchmark, digits, result.scenario, result.method


def _plain(interval: Interval) -> dict[str, float | None]:
    return {name: value if isfinite(value) else None for name, value in interval._asdict().items()}
