"""The section of `docs/learned-graphs.md` on Star-Spread and SMAClite, computed from `results/`."""

from collections.abc import Sequence

from dgmarl.paper.tables import final_text, last_mean, markdown
from dgmarl.report.results import Result, by_key
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
    found = by_key(one for one in results if one.benchmark == benchmark)
    rows = []
    for (_, scenario, method), result in found.items():
        if LEARNED not in method:
            continue
        learned, oracle, unnamed, local, globe = (
            found.get((benchmark, scenario, method.replace(LEARNED, credit)))
            for credit in (LEARNED, "-dg-oracle", "-dg", "-local", "-global")
        )
        # Star-Spread's runs with the oracle graph are labelled without the graph's name.
        returns = map(final_text, (learned, oracle or unnamed, local, globe))
        graph = (last_mean(result, metric) for metric in MEASURED.values())
        rows.append((f"`{scenario}`", style(method).name, *graph, *returns))
    return markdown(("", "", *MEASURED, "learned graph", "oracle's graph", "local", "global"), rows)
