"""The report page of one or many runs: curves, tables, aggregates, timing, differences, graphs, and
replays with credit.

It is made from files only: results, and the replays that training recorded. The page is one file of
at most 5 MB without network access; replays use the remaining space."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup
from matplotlib.figure import Figure

from dgmarl.config.yaml import dotted
from dgmarl.errors import UsageError
from dgmarl.report import figures
from dgmarl.report.aggregate import over_scenarios
from dgmarl.report.caveats import caveats
from dgmarl.report.charts import charts_data
from dgmarl.report.html import render
from dgmarl.report.replay_page import REPLAY, replay_data
from dgmarl.report.results import Result, grouped, place, span
from dgmarl.report.search import Search, searches
from dgmarl.report.statistics import mean_interval
from dgmarl.report.style import Looks, Style, env_names, order, styles, uses_graph
from dgmarl.report.table import interval_texts
from dgmarl.runs.replays import FILE_NAME, read_replay

LARGEST = 5_000_000
"""Maximum size of the page in bytes."""
MOST_REPLAYS = 6
MOST_SEARCHED = 40
"""Runs of a search that are shown outside its table of best settings."""
MOST_BEST = 10
"""Rows in the table of best settings."""


class Row(NamedTuple):
    """A line of a table of results."""

    env: str | None
    """None if the table has no such column."""
    look: Style
    cells: list[str]


class Replays(NamedTuple):
    """Replays and graphs of the viewer."""

    shown: list[dict[str, Any]]
    graphs: list[dict[str, Any]]
    """Share of steps with each edge, per replay."""
    lacking: list[str]
    """Messages about runs without a replay."""


def run_page(results: Sequence[Result], title: str = "Report") -> str:
    """Self-contained HTML page of results, with the replays of run folders."""
    names = env_names(result.env for result in results)
    results = sorted(
        (result._replace(env=names[result.env]) for result in results),
        key=lambda result: (place(result)[:-1], order(result.method)),
    )
    looks, found_searches = styles(result.method for result in results), list(searches(results))
    count = f"{len(results)} result{'s' * (len(results) != 1)}"
    about = f"{count} in {', '.join(dict.fromkeys(names.values()))}."
    if left_out := {id(run) for search in found_searches for run in search.runs[MOST_SEARCHED:]}:
        results = [result for result in results if id(result) not in left_out]
        about += (
            f" Only Best settings includes more than the best {MOST_SEARCHED} runs of a search."
        )
    charts = charts_data(grouped(results, "env"))
    values = {
        "title": title,
        "about": f"{about} Every number is computed from the runs named here.",
        "n_results": len(results),
        "headline": _headline(results, looks),
        "searches": [_search(search, looks) for search in found_searches],
        "aggregates": _aggregates(results, looks),
        "timing": _timing(results, looks),
        "costs": [_inline(figure) for figure in _costs(results, looks)],
        "differences": _differences(results, looks),
    }

    def page(replays: Replays) -> str:
        return render(
            "run_page.html",
            ("charts", *REPLAY) if replays.shown else ("charts",),
            {**charts, "replays": replays.shown},
            **values,
            graphs=replays.graphs,
            has_replays=bool(replays.shown),
            notes=caveats(results),
            not_shown=replays.lacking,
        )

    folders = [(result, result.facts.get("folder")) for result in results]
    found = [(result, Path(folder)) for result, folder in folders if folder is not None]
    without = len(page(Replays([], [], ["x" * 200] * len(found))).encode())
    text = page(_replays(found, LARGEST - 100_000 - without))
    if len(text.encode()) > LARGEST:
        raise UsageError(
            f"The page would have {len(text.encode()) / 1e6:.1f} MB, but at most 5 are allowed: "
            "give fewer runs."
        )
    return text


def _headline(results: Sequence[Result], looks: Looks) -> list[Row]:
    rows = []
    for before, result in zip([None, *results], results, strict=False):
        repeated = before is not None and before.env == result.env
        seeds, steps = str(len(result.final)), f"{int(result.steps[:, -1].min()):,}"
        cells = [*interval_texts(mean_interval(result.final)), seeds, steps]
        rows.append(Row("" if repeated else result.env, looks[result.method], cells))
    return rows


def _search(search: Search, looks: Looks) -> dict[str, Any]:
    """The best runs with their settings, and a plot of all runs."""
    rows = []
    for k, run in enumerate(search.runs[:MOST_BEST]):
        settings = [_plain(values[k]) for values in search.settings.values()]
        reached = interval_texts(mean_interval(run.final))
        steps = f"{run.budget:,}" + ", stopped early" * (run.facts.get("stopped_early") is True)
        rows.append(Row(search.env, looks[run.method], [*reached, steps, *settings]))
    return {"rows": rows, "names": [*search.settings], "figure": _inline(search.figure())}


def _aggregates(results: Sequence[Result], looks: Looks) -> list[dict[str, Any]]:
    """Figures over scenarios per benchmark, or the reason why there are none; not of a single run,
    whose final return they would only repeat."""
    parts = []
    for benchmark, own in grouped(results, "benchmark").items():
        if len(own) == 1:
            continue
        found = over_scenarios(own)
        drawn = {} if found.reason else found.figures(looks)
        part = {
            "benchmark": benchmark,
            "reason": found.reason,
            "scenarios": ", ".join(found.scenarios),
            "left_out": found.lacking(),
            "figures": [_inline(figure) for figure in drawn.values()],
        }
        parts.append(part)
    return parts


def _timing(results: Sequence[Result], looks: Looks) -> list[Row]:
    rows = []
    for result in results:
        timing = result.facts.get("timing")
        if timing:
            seconds = [
                f"{_number(timing, name):,.1f}" for name in ("compile_s", "train_s", "steps_per_s")
            ]
            names = ("peak_memory_mib", "device", "cores", "jax", "dgmarl")
            cells = [*seconds, *(str(timing.get(name, "")) for name in names)]
            rows.append(Row(result.env, looks[result.method], cells))
    return rows


def _number(timing: dict[str, Any], name: str) -> float:
    value = timing.get(name)
    return float(value) if isinstance(value, int | float) else float("nan")


def _costs(results: Sequence[Result], looks: Looks) -> list[Figure]:
    """Plots of return over training time per seed, for environments with several timed runs."""
    drawn = []
    for env, own in grouped(results, "env").items():
        timed = [one for one in own if _number(one.facts.get("timing", {}), "train_s") > 0]
        if len(timed) > 1:
            points = {
                result.method: (
                    _number(result.facts["timing"], "train_s") / len(result.final),
                    mean_interval(result.final),
                )
                for result in timed
            }
            seeds = span(len(one.final) for one in timed)
            caption = (
                f"{env}: {seeds} seeds in parallel, without compilation; bars: 95 % bootstrap over "
                "seeds"
            )
            cost = "seconds of training per seed"
            drawn.append(figures.cost_against_return(points, cost, caption, looks))
    return drawn


def _differences(results: Sequence[Result], looks: Looks) -> dict[str, Any]:
    """Table of configuration fields that differ between results, one column each; `same`: the
    fields and values of the configuration, if none differs."""
    configs = [{**dotted(result.facts.get("config", {})), "env": result.env} for result in results]
    names = list(dict.fromkeys(name for config in configs for name in config))
    different = [
        name
        for name in names
        if len({json.dumps(config.get(name), default=str) for config in configs}) > 1
    ]
    rows = [
        Row(None, looks[result.method], [_plain(config.get(name)) for name in different])
        for result, config in zip(results, configs, strict=True)
    ]
    same = [] if different else [(name, _plain(configs[0].get(name))) for name in names]
    n_same = len(names) - len(different)
    return {"names": different, "rows": rows, "n_same": n_same, "same": same}


def _plain(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, default=str)


def _replays(found: Sequence[tuple[Result, Path]], room: int) -> Replays:
    """Recorded episodes within `room` bytes, runs with graph credit first."""
    chosen = sorted(found, key=lambda one: not uses_graph(one[0].method))[:MOST_REPLAYS]
    replays = Replays([], [], [])
    if len(found) > MOST_REPLAYS:
        replays.lacking.append(
            f"Replays of {MOST_REPLAYS} of {len(found)} runs are shown, graph credit first."
        )
    for result, folder in chosen:
        name = f"{result.env} {result.method}"
        try:
            _add_replay(replays, folder, name, room // len(chosen))
        except UsageError as error:
            replays.lacking.append(f"No replay of {name}: {error}")
    return replays


def _add_replay(replays: Replays, folder: Path, name: str, most_bytes: int) -> None:
    """Add as many recorded episodes as fit, and the mean graph of all of them."""
    path = folder / FILE_NAME
    if not path.is_file():
        raise UsageError(
            f"{folder} has no {FILE_NAME}, which is written when training ends; "
            f"`dgmarl watch {folder}` runs its policy and writes a replay page."
        )
    replay = read_replay(path)
    data = replay_data(replay, name)
    sizes = np.cumsum([len(json.dumps(episode)) for episode in data["episodes"]])
    data["episodes"] = data["episodes"][: int((sizes <= most_bytes).sum())]
    if not data["episodes"]:
        raise UsageError(
            f"one episode takes {sizes[0] / 1e6:.1f} MB; `dgmarl watch {folder}` writes a separate "
            "page."
        )
    replays.shown.append(data)
    shares = replay.mean_graph()
    if shares is not None:
        n_pairs = max(len(shares) * (len(shares) - 1), 1)
        density = float((shares.sum() - np.trace(shares)) / n_pairs)
        replays.graphs.append({"name": name, "shares": shares.tolist(), "density": density})


def _inline(figure: Figure) -> Markup:
    return Markup(figures.inline_svg(figure))
