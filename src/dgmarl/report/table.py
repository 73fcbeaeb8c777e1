"""Tables of final returns per method and scenario, and aggregated over scenarios."""

from collections.abc import Iterable
from math import isfinite
from typing import Any

from rich.table import Table
from rich.text import Text

from dgmarl.report.aggregate import Aggregates, over_scenarios
from dgmarl.report.results import SHARED_SCALE, Result, grouped, same_budget
from dgmarl.report.statistics import Interval, mean_interval

UNEQUAL = "Steps differ: methods with fewer steps may still improve."


def aggregates(results: Iterable[Result]) -> list[Aggregates]:
    """Aggregates over scenarios and seeds per benchmark, if scores share a scale (`SHARED_SCALE`).
    Only methods with a result in every chosen scenario are included."""
    pooled = [result for result in results if result.env.partition("/")[0] in SHARED_SCALE]
    found = map(over_scenarios, grouped(pooled, "benchmark").values())
    return [together for together in found if not together.reason]


def tables(results: list[Result]) -> list[Table]:
    """Terminal tables per benchmark: final returns, then aggregates, if there are any."""
    shown = []
    for benchmark, own in grouped(results, "benchmark").items():
        shown += [_final_returns(benchmark, own), *map(_over_scenarios, aggregates(own))]
    return shown


def as_json(results: list[Result]) -> dict[str, Any]:
    """The same numbers for JSON; ends of missing intervals are null."""
    cells = [
        {
            "benchmark": result.benchmark,
            "scenario": result.scenario,
            "method": result.method,
            "final_return": plain_interval(mean_interval(result.final)),
            "seeds": len(result.final),
            "steps": result.budget,
            **({"final_win_rate": plain_interval(won)} if (won := _won(result)) else {}),
        }
        for result in results
    ]
    pooled = [
        {
            "benchmark": together.benchmark,
            "method": method,
            "iqm": plain_interval(together.iqm(method)),
            "runs": together.runs(method),
            "steps": together.steps(method),
            "comparable": together.comparable(),
        }
        for together in aggregates(results)
        for method in together.of_method
    ]
    return {"cells": cells, "aggregates": pooled}


def interval_texts(interval: Interval) -> tuple[str, str]:
    """Estimate and ends as text."""
    values = [value for value in interval if isfinite(value)]
    decimals = n_decimals(values)
    estimate, low, high = (f"{value:.{decimals}f}" for value in interval)
    return estimate, f"[{low}, {high}]" if len(values) == 3 else "—"


def n_decimals(returns: Iterable[float]) -> int:
    """Decimals of returns that are shown together: three below 10, one for larger ones."""
    return 3 if max(map(abs, returns)) < 10 else 1


def _final_returns(benchmark: str, results: list[Result]) -> Table:
    wins = [_won(result) for result in results]
    numbers = ("mean", "95 %", *(("won", "95 %") if any(wins) else ()), "seeds", "steps")
    table = _table(f"{benchmark}: final return, mean over seeds", ("scenario", "method"), numbers)
    for before, result, won in zip([None, *results], results, wins, strict=False):
        repeated = before is not None and before.scenario == result.scenario
        if before is not None and not repeated:
            table.add_section()
        final, scenario = mean_interval(result.final), "" if repeated else result.scenario
        battles = () if not any(wins) else interval_texts(won) if won else ("", "")
        table.add_row(
            _literal(scenario),
            _literal(result.method),
            *interval_texts(final),
            *battles,
            str(len(result.final)),
            f"{result.budget:,}",
        )
    equal = all(map(same_budget, grouped(results, "scenario").values()))
    table.caption = None if equal else UNEQUAL
    return table


def _won(result: Result) -> Interval | None:
    """Share of battles won at the last evaluation; None if the environment has no battles."""
    rates = result.metric("final_battle_won")
    return None if rates is None else mean_interval(rates[:, -1])


def _over_scenarios(together: Aggregates) -> Table:
    title = f"{together.benchmark}: interquartile mean over scenarios and seeds"
    table = _table(title, ("method",), ("IQM", "95 %", "runs", "steps"))
    for method in together.of_method:
        counts = str(together.runs(method)), f"{together.steps(method):,}"
        table.add_row(_literal(method), *interval_texts(together.iqm(method)), *counts)
    table.caption = None if together.comparable() else UNEQUAL
    return table


def _table(title: str, words: Iterable[str], numbers: Iterable[str]) -> Table:
    table = Table(title=_literal(title), title_justify="left", caption_justify="left")
    for column in words:
        # Folded, because variants of a method differ at the end of their names.
        table.add_column(column, overflow="fold")
    for column in numbers:
        table.add_column(column, justify="right", no_wrap=True)
    return table


def _literal(name: str) -> Text:
    """A name from a file, without console markup or control characters."""
    return Text("".join(letter if letter.isprintable() else "\ufffd" for letter in name))


def plain_interval(interval: Interval) -> dict[str, float | None]:
    """Interval for JSON; missing ends are null."""
    return {name: value if isfinite(value) else None for name, value in interval._asdict().items()}
