"""The section of `docs/credit.md` that compares the credit rules, computed from `results/`."""

from collections.abc import Sequence
from typing import Any

from dgmarl.paper.grids import BACKBONES, RIVALS, SIX, SIZES
from dgmarl.paper.judging import Trio, trios
from dgmarl.paper.result_sections import judged
from dgmarl.paper.tables import final_text, markdown, text
from dgmarl.report.aggregate import over_scenarios
from dgmarl.report.results import Result, by_key
from dgmarl.report.style import style

FORAGING, STAR_SPREAD, ANNEALED = "lbf-credit", "star-spread-credit", "lbf-anneal"
DEFAULT = "dg-interventional"
"""Graph credit in the comparison: the interventional graph with the default weights."""
BASELINES = tuple(f"{backbone}-{kind}" for backbone in BACKBONES for kind in ("local", "global"))


def credit_section(results: Sequence[Result], speeds: Sequence[dict[str, Any]]) -> str:
    """Final returns of all rules with their cost, and graph credit against the better of local and
    global credit.

    speeds: rows of `results/benchmarks/train-cpu-rules.json`."""
    foraging = _foraging(results)
    return f"""Final returns (mean over 10 seeds of the last evaluation, 95 % interval) after 5
million steps of foraging; local and global credit are the published runs, which use the default
hyperparameters. *Cost* is the time per environment step relative to local credit with the same
backbone (one seed, two CPU cores, `10x10-3p-3f`).

{_foraging_table(foraging, _costs(speeds))}

Graph credit with the interventional graph against the better of local and global credit; *better*
and *worse* mean that the interval of the difference excludes 0.

{_against_baselines(trios(foraging, "lbf", DEFAULT))}

Star-Spread, 1 million steps, with the oracle graph:

{_star_spread_table(results)}

Learning rate annealed to 0 (`--learner.anneal-lr`), foraging with two players:

{_annealed_table(results)}"""


def _foraging(results: Sequence[Result]) -> list[Result]:
    """Runs of all rules, and of local and global credit, as one benchmark."""
    return [
        result._replace(benchmark="lbf")
        for result in results
        if result.benchmark == FORAGING
        or (result.benchmark == "lbf" and result.method in BASELINES)
    ]


def _costs(speeds: Sequence[dict[str, Any]]) -> dict[str, str]:
    """Time per step relative to local credit with the same backbone, by label."""
    steps = {row["method"].replace(" ", "-"): row["steps_per_s"] for row in speeds}
    return {
        label: f"{steps[f'{backbone}-local'] / speed:.1f}"
        for label, speed in steps.items()
        for backbone in BACKBONES
        if label.startswith(f"{backbone}-") and f"{backbone}-local" in steps
    }


def _foraging_table(foraging: Sequence[Result], costs: dict[str, str]) -> str:
    together = over_scenarios(foraging)
    rows = []
    rivals = ("-".join(filter(None, (rival.method, rival.graph))) for rival in RIVALS)
    for label in (*BASELINES, *rivals):
        cells = _finals(foraging, SIX, label)
        iqm = text(together.iqm(label)) if label in together.of_method else ""
        rows.append((style(label).name, *cells, iqm, costs.get(label, "")))
    return markdown(("credit", *(f"`{name}`" for name in SIX), "IQM", "cost"), rows)


def _finals(results: Sequence[Result], scenarios: Sequence[str], label: str) -> list[str]:
    found = {result.scenario: result for result in results if result.method == label}
    return [final_text(found.get(name)) for name in scenarios]


def _against_baselines(found: Sequence[Trio]) -> str:
    rows = [
        (
            BACKBONES[trio.backbone],
            f"`{trio.scenario}`",
            style(trio.better_baseline.method).name,
            *judged(trio.advantage),
        )
        for trio in found
    ]
    titles = ("backbone", "scenario", "better baseline", "graph minus baseline", "")
    return markdown(titles, rows)


def _star_spread_table(results: Sequence[Result]) -> str:
    own = [result for result in results if result.benchmark == STAR_SPREAD]
    labels = dict.fromkeys((*BASELINES, *(result.method for result in own)))
    rows = [(style(label).name, *_finals(own, SIZES, label)) for label in labels]
    return markdown(("credit", *(f"N = {size.removeprefix('n')}" for size in SIZES)), rows)


def _annealed_table(results: Sequence[Result]) -> str:
    """Runs with an annealed learning rate beside those with a constant one."""
    found = by_key(_foraging(results))
    rows = []
    for result in results:
        constant = found.get(("lbf", result.scenario, result.method))
        if result.benchmark == ANNEALED and constant:
            name = (style(result.method).name, f"`{result.scenario}`")
            rows.append((*name, final_text(constant), final_text(result)))
    return markdown(("credit", "scenario", "constant", "annealed"), rows)
