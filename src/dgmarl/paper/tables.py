"""Plots and tables of a figure of the paper, from the available results."""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from matplotlib.figure import Figure

from dgmarl.paper.grids import SIX
from dgmarl.paper.paper_figures import IQM_OF_PAPER, PaperFigure
from dgmarl.report.aggregate import Aggregates, over_scenarios
from dgmarl.report.figures import graph_panels, learning_curves, scenario_panels
from dgmarl.report.results import Result, budget_text, span
from dgmarl.report.statistics import Interval, mean_interval
from dgmarl.report.style import order, style, styles
from dgmarl.report.table import interval_texts, n_decimals

NEARLY = 1.02
"""Numbers of steps that differ by no more than this factor count as equal."""
NOTES = (
    "Plots leave out methods with results in fewer than half of the scenarios, unless there are no "
    "others. fast: the preset with 128 environments; tuned: tuned hyperparameters; "
    "interventional-sampledK: interventions with K random alternatives per agent and step; n5: "
    "Star-Spread with 5 agents. A DG without the name of a graph has the oracle graph."
)
"""Which methods `draw` plots, and what names mean."""


def is_short(result: Result, steps: int) -> bool:
    """Whether a result has clearly fewer steps."""
    return NEARLY * result.budget < steps


class Table(NamedTuple):
    """Column titles and rows of texts."""

    titles: tuple[str, ...]
    rows: list[tuple[str, ...]]

    def markdown(self) -> str:
        """The table in Markdown."""
        return markdown(self.titles, self.rows)


def draw(results: Sequence[Result]) -> dict[str, Figure]:
    """Plots by kind: learning curves, graphs over training, aggregates if returns share a scale.

    Methods with results in fewer than half of the scenarios are left out (`NOTES`)."""
    runs = Counter(result.method for result in results)
    enough = len({result.scenario for result in results}) / 2
    results = [one for one in results if runs[one.method] >= enough] or results
    looks = styles(result.method for result in results)
    drawn = {"curves": learning_curves(scenario_panels(results), looks)}
    if panels := graph_panels(results):
        metrics, titles = {panel.metric for panel in panels}, {panel.title for panel in panels}
        complete = len(panels) == len(metrics) * len(titles)  # one row per scenario
        drawn["graphs"] = learning_curves(panels, looks, max(2, len(metrics)) if complete else 2)
    together = over_scenarios(results)
    if len(together.scenarios) > 1:
        drawn |= together.figures(looks)
    return drawn


def table_page(figure: PaperFigure, results: Sequence[Result], pictures: Iterable[str]) -> str:
    """Markdown page: what the figure shows, its plots, and final returns with intervals."""
    shown = "\n\n".join(f"![{figure.name}, {Path(path).stem}]({path})" for path in pictures)
    together = over_scenarios(results)
    over_all = scope(together)
    if not together.reason:
        over_all = f"{over_all}\n\n{iqm_table(together).markdown()}"
    return f"""# {figure.name} (version {figure.version})

{figure.about}

Not stated in the paper, chosen here: {figure.choices}

{size(results)}

{shown}

{NOTES}

## Final returns

Means over seeds of the last evaluation, 95 % bootstrap over seeds.

{final_table(results).markdown()}

## Over scenarios

{over_all}
"""


def size(results: Sequence[Result]) -> str:
    """Seeds and steps of the results, as a sentence."""
    seeds = span(len(result.final) for result in results)
    return f"Results shown: {seeds} seeds, {budget_text(*results)} steps."


def scope(together: Aggregates) -> str:
    """What `iqm_table` shows and which methods it leaves out, or why there is none."""
    left_out = f" Left out: {together.lacking()}." if together.left_out else ""
    shown = f"Interquartile means over {', '.join(together.scenarios)}"
    return together.reason or f"{shown}, 95 % stratified bootstrap over runs.{left_out}"


def final_table(results: Sequence[Result]) -> Table:
    """Final returns with intervals, one row per scenario and one column per method. Methods with
    fewer steps than others in the same scenario state their number of steps."""
    methods = sorted({result.method for result in results}, key=order)
    rows = []
    for scenario in dict.fromkeys(result.scenario for result in results):
        own = {one.method: one for one in results if one.scenario == scenario}
        longest = max(result.budget for result in own.values())
        cells = [final_text(own.get(method), longest) for method in methods]
        seeds = span(len(result.final) for result in own.values())
        rows.append((f"`{scenario}`", *cells, seeds, f"{longest / 1e6:.2g} million"))
    names = (style(method).name for method in methods)
    return Table(("scenario", *names, "seeds", "steps"), rows)


def final_text(result: Result | None, full: int = 0) -> str:
    """Mean final return with its interval, and the steps if they are fewer than `full`; empty
    without a result."""
    if result is None:
        return ""
    fewer = f" after {budget_text(result)}" if is_short(result, full) else ""
    return text(mean_interval(result.final)) + fewer


def last_mean(result: Result, metric: str) -> str:
    """Mean of a metric over seeds at the last evaluation; empty if it was not measured."""
    values = result.metric(metric)
    return "" if values is None else f"{values[:, -1].mean():.2f}"


def iqm_table(together: Aggregates) -> Table:
    """IQM per method, and the paper's IQM if the scenarios are the paper's six."""
    whole = together.benchmark == "lbf" and set(together.scenarios) == set(SIX)
    of_paper = IQM_OF_PAPER if whole else {}
    worst = {
        method: min(values.mean() for values in together.finals(method))
        for method in together.of_method
    }
    decimals = n_decimals(worst.values())
    rows = []
    for method in together.of_method:
        paper = [f"{of_paper[method]:.2f}" if method in of_paper else ""] if of_paper else []
        steps = [] if together.comparable() else [budget_text(*together.of_method[method])]
        least, runs = f"{worst[method]:.{decimals}f}", together.runs(method)
        iqm = text(together.iqm(method))
        rows.append((style(method).name, iqm, *paper, least, str(runs), *steps))
    paper = ["the paper's IQM"] if of_paper else []
    steps = [] if together.comparable() else ["steps"]
    return Table(
        ("method", "IQM", *paper, "mean in its worst scenario", "seeds in all", *steps), rows
    )


def text(interval: Interval) -> str:
    """Estimate and interval as text."""
    return " ".join(interval_texts(interval))


def markdown(titles: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """Markdown table."""
    lines = [tuple(titles), *rows]
    lines.insert(1, ["---"] * len(lines[0]))
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)
