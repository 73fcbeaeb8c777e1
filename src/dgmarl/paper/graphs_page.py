"""The section of `docs/learned-graphs.md` on Star-Spread and SMAClite, computed from `results/`."""

from collections.abc import Sequence

from dgmarl.paper.result_sections import last_mean
from dgmarl.paper.tables import markdown, text
from dgmarl.report.results import Result
from dgmarl.report.statistics import mean_interval
from dgmarl.report.style import style

LEARNED = "-dg-learned"
MEASURED = {
    "density": "graph_density",
    "precision": "graph_precision_oracle",
    "recall": "graph_recall_oracle",
    "F1": "graph_f1_oracle",
    "F1, interventional": "graph_f1_interventional",
}
"""Metric per column; precision, recall and the first F1 compare with the oracle graph."""


def graphs_section(results: Sequence[Result]) -> str:
    """Tables that compare learned graphs with oracle and interventional ones, with returns."""
    return f"""SMAClite, the paper's number of steps, 5 seeds:

{_table(results, "smaclite")}

Star-Spread, 1 million steps, 10 seeds:

{_table(results, "star-spread")}"""


def _table(results: Sequence[Result], benchmark: str) -> str:
    """One row per learned graph."""
    found = {(one.scenario, one.method): one for one in results if one.benchmark == benchmark}
    rows = []
    for (scenario, method), result in found.items():
        if LEARNED not in method:
            continue
        # Star-Spread's runs with the oracle graph are labelled `-dg`, without the graph's name.
        baselines = [
            [method.replace(LEARNED, "-dg-oracle"), method.replace(LEARNED, "-dg")],
            [method.replace(LEARNED, "-local")],
            [method.replace(LEARNED, "-global")],
        ]
        returns = [_first_final(found, scenario, names) for names in ([method], *baselines)]
        graph = (last_mean(result, metric) for metric in MEASURED.values())
        rows.append((f"`{scenario}`", style(method).name, *graph, *returns))
    return markdown(("", "", *MEASURED, "learned graph", "oracle's graph", "local", "global"), rows)


def _first_final(
    found: dict[tuple[str, str], Result], scenario: str, methods: Sequence[str]
) -> str:
    """Final return of the first of these methods with a result; empty without any."""
    finals = (found[scenario, name].final for name in methods if (scenario, name) in found)
    return next((text(mean_interval(final)) for final in finals), "")
