"""The page of one or many runs: table, curves, aggregates, timing, differences, graphs, replays
that show where credit goes.

One file without network, below 5 MB: replays take what is left of that, fewer episodes where
pictures are large."""

import json
from collections.abc import Sequence
from html import escape
from typing import Any

import jax
import numpy as np
from matplotlib.figure import Figure

from dgmarl.config.yaml import dotted
from dgmarl.errors import UsageError
from dgmarl.report import figures
from dgmarl.report.aggregate import over_scenarios
from dgmarl.report.charts import charts_data, charts_html
from dgmarl.report.html import page, scripts
from dgmarl.report.replay_page import REPLAY, replay_data, replay_html
from dgmarl.report.results import Result, place
from dgmarl.report.statistics import mean_interval
from dgmarl.report.style import Style, order, style, styles
from dgmarl.report.table import interval_texts

LARGEST = 5_000_000
"""Bytes of the whole page."""
MARGIN = 100_000
"""Bytes that the budget of replays leaves over."""
EPISODES = 3
MOST_REPLAYS = 6


def run_page(results: Sequence[Result], title: str = "Report") -> str:
    """One self-contained HTML page of results; replays are played anew from the run folders among
    them."""
    results = sorted(results, key=lambda result: (place(result)[:-1], order(result.method)))
    charts = charts_data(
        {
            env: [one for one in results if one.env == env]
            for env in dict.fromkeys(r.env for r in results)
        }
    )
    head, after = _aggregates(results), _timing(results) + _differences(results)
    room = LARGEST - MARGIN - len((head + after + json.dumps(charts)).encode())
    replays, graphs, notes = _replays(
        [result for result in results if "folder" in result.facts], room
    )
    sections = [
        f"<h1>{escape(title)}</h1>{_about(results)}",
        _section("Final return", _headline(results) + _notes([*_caveats(results), *notes])),
        _section("Learning curves", charts_html()),
        head,
        _section("Graphs", _graph_pictures(graphs)) if graphs else "",
        _section("Who is credited with what?", replay_html()) if replays else "",
        after,
    ]
    names = ("charts", *REPLAY) if replays else ("charts",)
    text = page(title, "\n".join(sections), scripts(*names), {**charts, "replays": replays})
    if len(text.encode()) > LARGEST:
        raise UsageError(
            f"The page would have {len(text.encode()) / 1e6:.1f} MB, but at most 5: give fewer "
            "runs."
        )
    return text


def _about(results: Sequence[Result]) -> str:
    runs = f"{len(results)} result{'s' * (len(results) != 1)}"
    envs = ", ".join(dict.fromkeys(result.env for result in results))
    return f'<p class="faint">{runs} in {escape(envs)}. Every number is computed from the runs named here.</p>'


def _headline(results: Sequence[Result]) -> str:
    rows, looks = [], styles(result.method for result in results)
    for before, result in zip([None, *results], results, strict=False):
        estimate, ends = interval_texts(mean_interval(result.final))
        env = "" if before is not None and before.env == result.env else escape(result.env)
        steps = f"{int(result.steps[:, -1].min()):,}"
        rows.append(
            (
                env,
                _named(looks[result.method]),
                _cell(estimate),
                _cell(ends),
                _cell(len(result.final)),
                _cell(steps),
            )
        )
    caption = "Mean over seeds of the last evaluation, never the best, with its 95 % bootstrap interval over seeds."
    titles = ("environment", "method", "team return", "95 % interval", "seeds", "steps per seed")
    return f'<p class="faint">{caption}</p>{_table(titles, rows)}'


def _caveats(results: Sequence[Result]) -> list[str]:
    """What a reader must know before comparing."""
    notes = [
        f"{result.env}, {result.method}: {note}"
        for result in results
        for note in result.facts.get("notes", [])
    ]
    single = [result.method for result in results if len(result.final) < 2]
    if single:
        notes.append(
            f"One seed says nothing about the spread, so there is no interval for {', '.join(single)}."
        )
    for env in dict.fromkeys(result.env for result in results):
        own = [result for result in results if result.env == env]
        if len({len(result.final) for result in own}) > 1:
            counts = ", ".join(f"{result.method} {len(result.final)}" for result in own)
            notes.append(f"Methods in {env} have different numbers of seeds: {counts}.")
        lasts = [int(result.steps[:, -1].min()) for result in own]
        if max(lasts) > 1.1 * min(lasts):
            counts = ", ".join(
                f"{result.method} {last:,}" for result, last in zip(own, lasts, strict=True)
            )
            notes.append(f"Methods in {env} had different numbers of steps: {counts}.")
    return notes


def _notes(notes: Sequence[str]) -> str:
    return "".join(f'<p class="note">{escape(note)}</p>' for note in notes)


def _aggregates(results: Sequence[Result]) -> str:
    parts = []
    for benchmark in dict.fromkeys(result.benchmark for result in results):
        found = over_scenarios([result for result in results if result.benchmark == benchmark])
        if isinstance(found, str):
            parts.append(f'<p class="faint">{escape(benchmark)}: {escape(found)}</p>')
            continue
        drawn = "".join(
            f"<figure>{figures.inline_svg(figure)}</figure>" for figure in found.figures().values()
        )
        lacking = [
            f"{style(method).name} (lacks {', '.join(names)})"
            for method, names in found.left_out.items()
        ]
        left_out = (
            f'<p class="faint">Left out: {escape("; ".join(lacking))}.</p>' if lacking else ""
        )
        title = f"<p>{escape(benchmark)}: {escape(', '.join(found.scenarios))}</p>"
        parts.append(f'{title}{left_out}<div class="figures">{drawn}</div>')
    return _section("All seeds together", "".join(parts))


def _timing(results: Sequence[Result]) -> str:
    rows, looks = [], styles(result.method for result in results)
    for result in results:
        timing = result.facts.get("timing")
        if timing:
            seconds = (
                _cell(f"{timing.get(name, float('nan')):,.1f}")
                for name in ("compile_s", "train_s", "steps_per_s")
            )
            facts = (
                timing.get(name, "")
                for name in ("peak_memory_mib", "device", "cores", "jax", "dgmarl")
            )
            rows.append(
                (escape(result.env), _named(looks[result.method]), *seconds, *map(_cell, facts))
            )
    titles = (
        "environment",
        "method",
        "compiling, s",
        "training, s",
        "steps/s, all seeds",
        "memory, MiB",
        "device",
        "cores",
    )
    if not rows:
        return ""
    costs = "".join(f"<figure>{figures.inline_svg(figure)}</figure>" for figure in _costs(results))
    return _section(
        "Timing",
        f'{_table((*titles, "jax", "dgmarl"), rows)}<div class="graphs costs">{costs}</div>',
    )


def _costs(results: Sequence[Result]) -> list[Figure]:
    """Per environment with several timed runs: what a seed cost and what it reached."""
    drawn = []
    for env in dict.fromkeys(result.env for result in results):
        timed = [
            result
            for result in results
            if result.env == env and result.facts.get("timing", {}).get("train_s")
        ]
        if len(timed) > 1:
            points = {
                result.method: (
                    result.facts["timing"]["train_s"] / len(result.final),
                    mean_interval(result.final),
                )
                for result in timed
            }
            caption = f"{env}: {_seeds(timed)} side by side, compiling not counted; bars: 95 % bootstrap over seeds"
            drawn.append(
                figures.cost_against_return(points, "seconds of training per seed", caption)
            )
    return drawn


def _seeds(results: Sequence[Result]) -> str:
    counts = sorted({len(result.final) for result in results})
    return f"{counts[0]} seeds" if len(counts) == 1 else f"{counts[0]} to {counts[-1]} seeds"


def _differences(results: Sequence[Result]) -> str:
    """What is not the same in all configurations, one column per result."""
    configs = [dotted(result.facts.get("config", {})) for result in results]
    names = list(dict.fromkeys(name for config in configs for name in config))
    different = [
        name for name in names if len({json.dumps(config.get(name)) for config in configs}) > 1
    ]
    if not different:
        return _section(
            "Configuration", "<p>All configurations are the same.</p>" if len(results) > 1 else ""
        )
    looks = styles(result.method for result in results)
    rows = [
        (_named(looks[result.method]), *(escape(_plain(config.get(name))) for name in different))
        for result, config in zip(results, configs, strict=True)
    ]
    same = f"{len(names) - len(different)} other fields are the same everywhere."
    return _section(
        "What differs between the configurations",
        _table(("method", *different), rows) + f'<p class="faint">{same}</p>',
    )


def _plain(value: Any) -> str:
    return "" if value is None else value if isinstance(value, str) else json.dumps(value)


def _replays(
    results: Sequence[Result], room: int
) -> tuple[list[dict[str, Any]], dict[str, np.ndarray], list[str]]:
    """For the viewer within `room` bytes, by name how often each edge was on, and why a run has no
    replay."""
    # Graph credit first: that is what the viewer is for.
    chosen = sorted(results, key=lambda result: "-dg" not in result.method)[:MOST_REPLAYS]
    replays, graphs, notes = [], {}, []
    if len(results) > MOST_REPLAYS:
        notes.append(
            f"Replays are of {MOST_REPLAYS} of {len(results)} runs, those with graph credit first."
        )
    for result in chosen:
        name = f"{result.env} {result.method}"
        try:
            replay, graph = _replay(result, name, room // len(chosen))
        except UsageError as error:
            notes.append(f"No replay of {name}: {error}")
            continue
        replays.append(replay)
        if graph is not None:
            graphs[name] = graph
    return replays, graphs, notes


def _replay(result: Result, name: str, most_bytes: int) -> tuple[dict[str, Any], np.ndarray | None]:
    """Episodes of the first seed, as many as there is room for, and the mean graph over their
    steps."""
    from dgmarl import api

    run = api.load(result.facts["folder"])
    recording = run.record(jax.random.key(0), EPISODES)
    data = replay_data(run.env, recording, f"{run.config.method} (last)", run.credit_note(), name)
    sizes = np.cumsum([len(json.dumps(episode)) for episode in data["episodes"]])
    data["episodes"] = data["episodes"][: int((sizes <= most_bytes).sum())]
    if not data["episodes"]:
        raise UsageError(
            f"one episode takes {sizes[0] / 1e6:.1f} MB; use `dgmarl watch` for a page of its own."
        )
    if recording.graph is None:
        return data, None
    happened = np.arange(recording.graph.shape[1]) < np.asarray(recording.length)[:, None]
    return data, np.asarray(recording.graph)[happened].mean(axis=0)


def _graph_pictures(graphs: dict[str, np.ndarray]) -> str:
    about = (
        "How often each dependence was on in the episodes below: row = whose action, column = "
        "whom it reaches, the stronger the colour the more often. Runs without graph credit show "
        "the environment's own graph."
    )
    shown = "".join(
        (
            f"<figure>{_matrix(graph, name)}<figcaption>{escape(name)}: density "
            f"{_density(graph):.2f}</figcaption></figure>"
        )
        for name, graph in graphs.items()
    )
    return f'<p class="faint">{about}</p><div class="graphs">{shown}</div>'


def _density(graph: np.ndarray) -> float:
    n_agents = len(graph)
    return float((graph.sum() - np.trace(graph)) / max(n_agents * (n_agents - 1), 1))


def _matrix(graph: np.ndarray, label: str) -> str:
    """Shares of steps as a square of cells."""
    n_agents, left = len(graph), 14.0
    cell = (200 - left) / n_agents
    cells = [
        f'<rect x="{left + cell * i:.2f}" y="{left + cell * j:.2f}" width="{cell:.2f}" height="{cell:.2f}" '
        f'fill="var(--accent)" fill-opacity="{graph[j, i]:.2f}" stroke="var(--line)" stroke-width=".4">'
        f"<title>{j} → {i}: {graph[j, i]:.0%} of steps</title></rect>"
        for j in range(n_agents)
        for i in range(n_agents)
    ]
    names = [
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="middle" font-size="8" fill="var(--faint)">{agent}</text>'
        for agent in range(n_agents if n_agents <= 20 else 0)
        for x, y in ((7, left + cell * (agent + 0.5) + 3), (left + cell * (agent + 0.5), 10))
    ]
    shapes = "".join(cells + names)
    return f'<svg viewBox="0 0 201 201" role="img" aria-label="{escape(label, quote=True)}">{shapes}</svg>'


def _section(title: str, content: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{content}</section>" if content else ""


def _named(drawn: Style) -> str:
    return f'<span class="swatch" style="background:{drawn.colour}"></span>{escape(drawn.name)}'


def _cell(value: object) -> str:
    return escape(str(value))


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Cells are HTML, titles are text."""
    head = "".join(f"<th>{escape(title)}</th>" for title in titles)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f'<div class="wide"><table class="facts"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
