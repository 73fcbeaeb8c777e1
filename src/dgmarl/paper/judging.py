"""Verdicts on the paper's claims, from comparisons of our results by 95 % intervals."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import isnan, sqrt
from typing import Literal, NamedTuple

import numpy as np
from scipy.special import stdtrit

from dgmarl.paper.grids import BACKBONES, LBF_STEPS, Run
from dgmarl.paper.tables import NEARLY, is_short
from dgmarl.report.aggregate import Aggregates
from dgmarl.report.results import Key, Result, by_key, on_grid, span
from dgmarl.report.statistics import (
    Interval,
    aggregate_interval,
    contrast_interval,
    iqm,
)

Answer = Literal["yes", "open", "no"]
Verdict = Literal[
    "agrees", "agrees so far", "agrees in part", "open", "does not agree", "not tested yet"
]
NOT_AGAINST = "not against it"
"""Name of comparisons by `not_below`."""
MANY_SEEDS = 100
"""Larger numbers of seeds are not estimated."""
Found = Mapping[Key, Result]
"""Results by benchmark, scenario and method."""


class Comparison(NamedTuple):
    """Whether an interval supports a claim."""

    answer: Answer
    interval: Interval | None = None
    """None if more steps are needed before seeds matter."""


class Claim(NamedTuple):
    """A claim of the paper, our comparisons, and the likely reason if they do not support it."""

    paper: str
    comparisons: Sequence[Comparison]
    reason: str = ""
    lacks: tuple[Run, ...] = ()
    """Missing runs with the paper's number of steps."""
    yes: str = "for it"
    """How the comparisons that do not speak against the claim are called."""
    steps: tuple[int, ...] = ()
    """Steps of the runs of open comparisons; empty: those of the benchmark."""
    benchmark: str = ""
    seeds: int = 0
    """Seeds of each compared run; 0: those of the benchmark."""
    most: bool = False
    """Whether the claim is about most cases, not all."""
    needed: str = ""
    """What would decide a claim without comparisons."""

    @property
    def answers(self) -> list[Answer]:
        """One per comparison."""
        return [one.answer for one in self.comparisons]

    @property
    def verdict(self) -> Verdict:
        """Summary of the comparisons' answers; `so far` if runs are missing."""
        if not self.answers:
            return "open" if self.needed else "not tested yet"
        enough = len(self.answers) / 2 if self.most else len(self.answers) - 0.5
        if self.answers.count("yes") > enough:
            return "agrees so far" if self.lacks else "agrees"
        if "yes" in self.answers:
            return "agrees in part"
        return "does not agree" if "no" in self.answers else "open"

    @property
    def is_doubted(self) -> bool:
        """Whether some comparison does not support the claim, or there are none."""
        return bool(self.needed) or any(answer != "yes" for answer in self.answers)

    def counted(self) -> str:
        """Number of comparisons per answer, as text."""
        words: dict[Answer, str] = {"yes": self.yes, "open": "open", "no": "against it"}
        counts = {word: self.answers.count(answer) for answer, word in words.items()}
        return ", ".join(f"{count} {word}" for word, count in counts.items() if count)

    def budget(self) -> str:
        """What would decide open comparisons, as text: missing runs, and seeds for each comparison
        unless another one is against the claim anyway."""
        open_ones = (one.interval for one in self.comparisons if one.answer == "open")
        unclear = [one for one in open_ones if one and not isnan(one.low)]
        if unclear and "no" not in self.answers:
            found = sorted(seeds_needed(one, self.seeds) for one in unclear)
            number = ", ".join(
                f"{n}" if n <= MANY_SEEDS else f"more than {MANY_SEEDS}"
                for n in dict.fromkeys(found)
            )
            seeds = f"Seeds of {span(n / 1e6 for n in self.steps)} million steps: {number}"
        else:
            seeds = ""
        return sentences(self._missing(), seeds, self.needed)

    def _missing(self) -> str:
        """Number and steps of the missing runs, as text."""
        if not self.lacks:
            return ""
        steps = sum(run.steps * run.seeds for run in self.lacks)
        each = span(run.steps / 1e6 for run in self.lacks)
        return (
            f"Missing or unfinished: {len(self.lacks)} run{'s' * (len(self.lacks) > 1)} of "
            f"{each} million steps in `results/{self.lacks[0].benchmark}` "
            f"({steps / 1e6:,.0f} million over all seeds)"
        )


class Trio(NamedTuple):
    """Results of local, global and graph credit with one backbone in one scenario."""

    scenario: str
    backbone: str
    local: Result
    globe: Result
    graph: Result

    @property
    def results(self) -> tuple[Result, Result, Result]:
        """Local, global, graph."""
        return self.local, self.globe, self.graph

    @property
    def better_baseline(self) -> Result:
        """Local or global, whichever has the higher mean; this choice favours the baseline."""
        return max((self.local, self.globe), key=lambda result: result.final.mean())

    @property
    def advantage(self) -> Interval:
        """Mean of graph credit minus that of the better baseline, after equally many steps."""
        equal = self.at_equal_steps()
        return difference(equal.graph, equal.better_baseline)

    def at_equal_steps(self) -> "Trio":
        """The three results up to the smallest of their numbers of steps."""
        local, globe, graph = at_equal_steps(*self.results)
        return self._replace(local=local, globe=globe, graph=graph)

    @property
    def late_advantage(self) -> Interval:
        """`advantage` of mean returns over the last fifth of training, of results with equally many
        steps."""
        local, globe, graph = (on_grid(one, 101)[:, 80:].mean(axis=1) for one in self.results)
        return contrast_interval([graph, max((local, globe), key=np.mean)], [1, -1])

    @property
    def n_agents(self) -> int:
        """N of a Star-Spread scenario."""
        return int(self.scenario.removeprefix("n"))


def trios(
    results: Iterable[Result], benchmark: str, graph_method: str, preset: str = ""
) -> list[Trio]:
    """All scenarios and backbones of a benchmark with results of all three kinds of credit.

    graph_method: `dg` or `dg-SOURCE`. preset: label suffix of presets other than the paper's."""
    found = by_key(result for result in results if result.benchmark == benchmark)
    groups = []
    for scenario in dict.fromkeys(scenario for _, scenario, _ in found):
        for backbone in BACKBONES:
            keys = [
                (benchmark, scenario, f"{backbone}-{credit}{preset}")
                for credit in ("local", "global", graph_method)
            ]
            if all(key in found for key in keys):
                groups.append(Trio(scenario, backbone, *(found[key] for key in keys)))
    return groups


def at_equal_steps(*results: Result) -> list[Result]:
    """Results up to the smallest of their numbers of steps."""
    cut = list(results)
    # Evaluations are at different steps: the second pass also cuts the shortest result.
    for _ in range(2):
        fewest = min(one.budget for one in cut)
        cut = [one.up_to(fewest) if one.budget > NEARLY * fewest else one for one in cut]
    return cut


def difference(first: Result, second: Result) -> Interval:
    """Difference of mean final returns, at the smaller of the two numbers of steps."""
    return contrast_interval([one.final for one in at_equal_steps(first, second)], [1, -1])


def speed_difference(first: Result, second: Result) -> Interval:
    """Difference of mean returns over the common steps; positive if the first learns faster."""
    last = min(first.budget, second.budget)
    return contrast_interval(
        [on_grid(one, last=last).mean(axis=1) for one in (first, second)], [1, -1]
    )


def spread_difference(first: Result, second: Result) -> Interval:
    """Difference of the spreads of seeds' mean returns over the common steps, measured by absolute
    deviations from the median (Brown and Forsythe)."""
    last = min(first.budget, second.budget)
    means = [on_grid(one, last=last).mean(axis=1) for one in (first, second)]
    return contrast_interval([np.abs(values - np.median(values)) for values in means], [1, -1])


def gap_change(before: Trio, after: Trio) -> Interval:
    """Increase of the gap between graph credit and global reward between two scenarios."""
    groups = [after.graph.final, after.globe.final, before.graph.final, before.globe.final]
    return contrast_interval(groups, [1, -1, -1, 1])


def iqm_contrast(
    together: Aggregates, methods: Sequence[str], combine: Callable[..., np.ndarray]
) -> Interval:
    """A function of several methods' IQMs, with runs resampled within their scenarios."""
    strata = [stratum for method in methods for stratum in together.finals(method)]
    n = len(together.scenarios)

    def estimator(groups: Sequence[np.ndarray]) -> np.ndarray:
        return combine(*(iqm(groups[k * n : (k + 1) * n]) for k in range(len(methods))))

    return aggregate_interval(strata, estimator)


def answer(interval: Interval) -> Comparison:
    """Whether a difference is above 0; open if its interval contains 0."""
    return Comparison(_sign(interval), interval)


def _sign(interval: Interval) -> Answer:
    return "yes" if interval.low > 0 else "no" if interval.high < 0 else "open"


def not_below(interval: Interval) -> Comparison:
    """Whether a difference is not below 0; open if there is no interval."""
    found = "no" if interval.high < 0 else "yes" if interval.high >= 0 else "open"
    return Comparison(found, interval)


def opposite(given: Comparison) -> Comparison:
    """Answer to the negated question."""
    answers: dict[Answer, Answer] = {"yes": "no", "open": "open", "no": "yes"}
    return given._replace(answer=answers[given.answer])


def is_above(result: Result, bound: float) -> Comparison:
    """Whether the final return in foraging is above a bound; open if it is below with clearly fewer
    steps than the paper's."""
    above = answer(distance(result, bound))
    too_early = above.answer == "no" and is_short(result, LBF_STEPS)
    return Comparison("open") if too_early else above


def distance(result: Result, bound: float) -> Interval:
    """Mean final return minus a bound."""
    return contrast_interval([result.final - bound], [1])


def sentences(*parts: str) -> str:
    """Sentences without their last full stop, joined; empty ones are left out."""
    return ". ".join(filter(None, parts))


def seeds_needed(unclear: Interval, seeds: int) -> int:
    """Smallest number of seeds whose interval would not contain 0 if means and spreads stayed as
    they are, from the interval of so many `seeds`; `MANY_SEEDS` + 1 if that is not enough.

    Widths are those of t intervals with n - 1 degrees of freedom, an approximation for others."""

    def width(n: int) -> float:
        return stdtrit(n - 1, 0.975) / sqrt(n)

    half = (unclear.high - unclear.low) / 2
    limit = abs(unclear.estimate) / half * width(seeds)
    larger = range(seeds, MANY_SEEDS + 1)
    return next((n for n in larger if width(n) < limit), MANY_SEEDS + 1)


def lacking(found: Found, runs: Iterable[Run]) -> tuple[Run, ...]:
    """Runs without a result, or with one of clearly fewer steps."""

    def has_result(run: Run) -> bool:
        result = found.get(run.key)
        return result is not None and not is_short(result, run.steps)

    return tuple(run for run in runs if not has_result(run))
