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
"""By column of the tables; precision, recall and the first F1 are against the oracle's edges."""


def graphs_section(results: Sequence[Result]) -> str:
    """Learned graphs held against the oracle's and the interventional one, beside the returns."""
    return f"""SMAClite, at the paper's steps, 5 seeds:

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
        # Where the oracle's graph is the only other one, methods do not name it.
        rivals = [
            [method.replace(LEARNED, "-dg-oracle"), method.replace(LEARNED, "-dg")],
            [method.replace(LEARNED, "-local")],
            [method.replace(LEARNED, "-global")],
        ]
        returns = [_first_final(found, scenario, names) for names in ([method], *rivals)]
        graph = (last_mean(result, metric) for metric in MEASURED.values())
        rows.append((f"`{scenario}`", style(method).name, *graph, *returns))
    return markdown(("", "", *MEASURED, "learned graph", "oracle's graph", "local", "global"), rows)


def _first_final(
    found: dict[tuple[str, str], Result], scenario: str, methods: Sequence[str]
) -> str:
    """The final return of the first of these methods that has a result."""
    finals = (found[scenario, name].final for name in methods if (scenario, name) in found)
    return next((text(mean_interval(final)) for final in finals), "")
