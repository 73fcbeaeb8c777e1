"""Results as tables: what each method reached in each scenario, and over all of them."""

from collections.abc import Iterable
from math import isfinite
from typing import Any, NamedTuple

from rich.table import Table
from rich.text import Text

from dgmarl.report.aggregate import Aggregates, over_scenarios
from dgmarl.report.results import SHARED_SCALE, Result, same_budget
from dgmarl.report.statistics import Interval, mean_interval

UNEQUAL = "Steps differ: what had fewer of them might have reached more."


class Aggregate(NamedTuple):
    """One method over all scenarios of a benchmark."""

    benchmark: str
    method: str
    iqm: Interval
    runs: int
    steps: int
    """The fewest that a scenario was trained for."""
    comparable: bool
    """Whether all methods that are listed had about as many steps."""


def aggregates(results: Iterable[Result]) -> list[Aggregate]:
    """Interquartile mean of each method over scenarios and seeds, where scores share a scale
    (`SHARED_SCALE`).

    Only methods with a result in every scenario that is taken are listed: over different scenarios
    nothing compares."""
    pooled = [result for result in results if result.env.partition("/")[0] in SHARED_SCALE]
    found = []
    for benchmark in dict.fromkeys(result.benchmark for result in pooled):
        together = over_scenarios([result for result in pooled if result.benchmark == benchmark])
        if isinstance(together, Aggregates):
            comparable = together.comparable()
            found += [
                Aggregate(
                    benchmark,
                    one,
                    together.iqm(one),
                    together.runs(one),
                    min(r.budget for r in own),
                    comparable,
                )
                for one, own in together.of_method.items()
            ]
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
            "steps": result.budget,
            **({"final_win_rate": _plain(won)} if (won := _won(result)) else {}),
        }
        for result in results
    ]
    pooled = [
        {**aggregate._asdict(), "iqm": _plain(aggregate.iqm)} for aggregate in aggregates(results)
    ]
    return {"cells": cells, "aggregates": pooled}


def interval_texts(interval: Interval) -> tuple[str, str]:
    """Estimate and ends as text: three decimals for returns that are fractions, one for large
    ones."""
    values = [value for value in interval if isfinite(value)]
    decimals = 3 if max(map(abs, values)) < 10 else 1
    estimate, low, high = (f"{value:.{decimals}f}" for value in interval)
    return estimate, f"[{low}, {high}]" if len(values) == 3 else "—"


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
    scenarios = dict.fromkeys(result.scenario for result in results)
    of_each = (
        [result for result in results if result.scenario == scenario] for scenario in scenarios
    )
    table.caption = None if all(map(same_budget, of_each)) else UNEQUAL
    return table


def _won(result: Result) -> Interval | None:
    """The share of battles won at the last evaluation, where there are battles to win."""
    rates = result.metric("final_battle_won")
    return None if rates is None else mean_interval(rates[:, -1])


def _over_scenarios(benchmark: str, over_all: list[Aggregate]) -> Table:
    table = _table(
        f"{benchmark}: interquartile mean over scenarios and seeds",
        ("method",),
        ("IQM", "95 %", "runs", "steps"),
    )
    for aggregate in over_all:
        table.add_row(
            _literal(aggregate.method),
            *interval_texts(aggregate.iqm),
            str(aggregate.runs),
            f"{aggregate.steps:,}",
        )
    table.caption = None if over_all[0].comparable else UNEQUAL
    return table


def _table(title: str, words: Iterable[str], numbers: Iterable[str]) -> Table:
    table = Table(title=_literal(title), title_justify="left", caption_justify="left")
    for column in words:
        # Folded, because the end of a name tells variants of a method apart.
        table.add_column(column, overflow="fold")
    for column in numbers:
        table.add_column(column, justify="right", no_wrap=True)
    return table


def _literal(name: str) -> Text:
    """A name from a file: not console markup, and without characters that control a terminal."""
    return Text("".join(letter if letter.isprintable() else "\ufffd" for letter in name))


def _plain(interval: Interval) -> dict[str, float | None]:
    return {name: value if isfinite(value) else None for name, value in interval._asdict().items()}
