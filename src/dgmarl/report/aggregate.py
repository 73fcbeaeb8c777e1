"""Aggregates over a benchmark's scenarios: estimates, profiles, sample efficiency, improvement."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure

from dgmarl.report import figures
from dgmarl.report.results import SHARED_SCALE, Result, budget_text, on_grid, same_budget, span
from dgmarl.report.statistics import (
    ESTIMATORS,
    Interval,
    aggregate_band,
    aggregate_interval,
    optimality_gap,
    performance_profile,
    probability_of_improvement,
)
from dgmarl.report.style import Looks, order, same_learner, style, styles, uses_graph

N_THRESHOLDS = 101


class Aggregates(NamedTuple):
    """Methods that have a result in each of the scenarios."""

    benchmark: str
    scenarios: tuple[str, ...]
    of_method: dict[str, list[Result]]
    """By method, one result per scenario, in the order of `scenarios`."""
    highest: float | None
    """Reference return of the environment family (`SHARED_SCALE`), if it has one."""
    left_out: dict[str, tuple[str, ...]]
    """Missing scenarios of methods that are left out."""
    reason: str = ""
    """Why there are no scenarios and methods, if results cannot be aggregated."""

    def lacking(self) -> str:
        """Methods that are left out, with their missing scenarios, as text."""
        return "; ".join(
            f"{style(method).name} (lacks {', '.join(names)})"
            for method, names in self.left_out.items()
        )

    def finals(self, method: str) -> list[np.ndarray]:
        """Final returns, one stratum per scenario."""
        return [result.final for result in self.of_method[method]]

    def runs(self, method: str) -> int:
        """Number of runs in all scenarios together."""
        return sum(map(len, self.finals(method)))

    def steps(self, method: str) -> int:
        """Smallest number of steps over scenarios."""
        return min(result.budget for result in self.of_method[method])

    def comparable(self) -> bool:
        """Whether all methods have about the same number of steps in each scenario."""
        return all(map(same_budget, zip(*self.of_method.values(), strict=True)))

    def iqm(self, method: str) -> Interval:
        """Interquartile mean over scenarios and seeds."""
        return aggregate_interval(self.finals(method))

    def estimates(self) -> dict[str, dict[str, Interval]]:
        """Intervals by kind and method; the optimality gap only with a reference return."""
        kinds = dict(ESTIMATORS)
        if (highest := self.highest) is not None:
            kinds[f"gap to {highest:g}"] = lambda strata: optimality_gap(strata, highest)
        return {
            kind: {
                method: aggregate_interval(self.finals(method), estimator)
                for method in self.of_method
            }
            for kind, estimator in kinds.items()
        }

    def improvements(self) -> dict[tuple[str, str], Interval]:
        """Probability of improvement of each method with graph credit over each one without it that
        has the same learner."""
        return {
            (first, second): probability_of_improvement(self.finals(first), self.finals(second))
            for first in self.of_method
            for second in self.of_method
            if uses_graph(first) and not uses_graph(second) and same_learner(first, second)
        }

    def figures(self, looks: Looks | None = None) -> dict[str, Figure]:
        """By file name: intervals, profiles, sample efficiency and probability of improvement."""
        looks = looks or styles(self.of_method)
        bars = self._caption("bars")
        drawn = {
            "intervals": figures.intervals(self.estimates(), bars, looks),
            "profiles": self._profiles(looks),
            "sample-efficiency": self._sample_efficiency(looks),
        }
        if chances := self.improvements():
            drawn["improvement"] = figures.improvement(chances, bars, looks)
        return drawn

    def _profiles(self, looks: Looks) -> Figure:
        finals = np.concatenate(
            [values for method in self.of_method for values in self.finals(method)]
        )
        thresholds = np.linspace(
            min(finals.min(), 0 if self.highest else np.inf),
            self.highest or finals.max(),
            N_THRESHOLDS,
        )
        bands = {
            method: performance_profile(self.finals(method), thresholds)
            for method in self.of_method
        }
        return figures.profiles(bands, thresholds, self._caption("bands"), looks)

    def _sample_efficiency(self, looks: Looks) -> Figure:
        last = {method: self.steps(method) for method in self.of_method}
        bands = {
            method: aggregate_band(
                [on_grid(result, figures.N_POINTS, last[method]) for result in results]
            )
            for method, results in self.of_method.items()
        }
        return figures.sample_efficiency(bands, last, self._caption("bands"), looks)

    def _budgets(self) -> str:
        """Steps of most methods, then of the others by name, as text."""
        of_budget: dict[str, list[str]] = {}
        for method, results in self.of_method.items():
            of_budget.setdefault(budget_text(*results), []).append(style(method).name)
        most, *fewer = sorted(of_budget, key=lambda text: -len(of_budget[text]))
        return "; ".join([most, *(f"{', '.join(of_budget[text])}: {text}" for text in fewer)])

    def _caption(self, marks: str) -> str:
        runs = span(map(self.runs, self.of_method))
        scenarios = "1 scenario" if len(self.scenarios) == 1 else f"{len(self.scenarios)} scenarios"
        steps = "" if self.comparable() else f", different numbers of steps ({self._budgets()})"
        return (
            f"{runs} runs per method, {scenarios}{steps}; {marks}: 95 % stratified bootstrap over "
            "runs"
        )


def over_scenarios(results: Sequence[Result]) -> Aggregates:
    """Aggregates of one benchmark's results, empty with a reason if they cannot be aggregated.

    If methods lack scenarios, the scenarios of one method and all methods that have these are used:
    the choice that keeps the most results."""
    families = sorted({result.env.partition("/")[0] for result in results})
    scenarios = tuple(dict.fromkeys(result.scenario for result in results))
    reason = ""
    if not results:
        reason = "There are no results."
    elif len(families) > 1:
        reason = (
            f"Runs of {' and '.join(families)} are not aggregated: their returns have different "
            "meanings."
        )
    elif len(scenarios) > 1 and families[0] not in SHARED_SCALE:
        reason = (
            "Returns of these scenarios have different scales, so they are not aggregated over "
            "scenarios."
        )
    if reason:
        return Aggregates("", (), {}, None, {}, reason)
    found: dict[str, dict[str, Result]] = {}
    for result in sorted(results, key=lambda result: order(result.method)):
        found.setdefault(result.method, {})[result.scenario] = result
    chosen = max(
        (own.keys() for own in found.values()), key=lambda names: (_kept(found, names), len(names))
    )
    chosen = tuple(name for name in scenarios if name in chosen)
    complete = {
        method: [own[name] for name in chosen]
        for method, own in found.items()
        if own.keys() >= set(chosen)
    }
    lacking = {
        method: tuple(name for name in chosen if name not in own)
        for method, own in found.items()
        if method not in complete
    }
    return Aggregates(
        results[0].benchmark, chosen, complete, SHARED_SCALE.get(families[0]), lacking
    )


def _kept(found: dict[str, dict[str, Result]], scenarios: Collection[str]) -> int:
    """Number of results of methods that have all these scenarios."""
    return len(scenarios) * sum(own.keys() >= set(scenarios) for own in found.values())
