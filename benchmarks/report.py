"""Tables and plots of what `bench.py` measured, from its files, and the comparison of
`make bench-check`."""

import json
import logging
import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from common import MEDIANS, PAGE, machine, say, short, table
from timing import Found

SLOWER = 1.3
"""How many times as long as stored is a slow-down."""
TITLES = {
    "environments": "Environments: steps per second of a random policy, resets included",
    "training": "Training: environment steps per second of whole runs, and time to a return",
    "credit": "Credit: graph advantages (Algorithm 1), calls per second",
    "rules": "Credit rules: training steps per second",
}
OURS = "#0072B2"
THEIRS = "#777777"
FOLD = "<!-- all rows -->\n"
"""What follows is folded on the page."""
WIDE = 20
"""A logarithmic axis where the fastest row is so many times the slowest."""


class Verdict(NamedTuple):
    """How a row compares with the stored one."""

    key: str
    times: float | None
    """How many times as long as stored, both in units of the calibration."""
    limit: float
    slower: bool


def compare(stored: list[Found], now: list[Found]) -> list[Verdict]:
    """Each row against the stored one of the same key. It is slower if it takes more than 1.3 times
    as long and longer than the repeats of either measurement differ."""
    before = {row["key"]: row for row in stored if "error" not in row}
    verdicts = []
    for row in now:
        old = before.get(row["key"])
        if old is None or "error" in row:
            verdicts.append(Verdict(row["key"], None, SLOWER, "error" in row))
            continue
        times = _relative(old) / _relative(row)
        limit = max(SLOWER, old["high"] / old["low"], row["high"] / row["low"])
        verdicts.append(Verdict(row["key"], times, limit, times > limit))
    return verdicts


def _relative(row: Found) -> float:
    """Work during one calibration."""
    return row["value"] * row["calibration_ms"]


def show_check(verdicts: list[Verdict]) -> None:
    """The comparison as a table, and the slow-downs by name."""
    lines = []
    for key, times, limit, slower in verdicts:
        shown = "not measured or not stored" if times is None else f"{times:.2f}"
        lines.append([key, shown, f"{limit:.2f}", "SLOWER" if slower else "ok"])
    print(table(["row", "times as long as stored", "limit", ""], lines))
    for key, times, *_ in (verdict for verdict in verdicts if verdict.slower):
        print(f"{key} takes {times:.2f} times as long" if times else f"{key} has failed")


def write_markdown(path: Path) -> None:
    """The file's tables, beside it."""
    found = json.loads(path.read_text())
    text = [f"# Benchmarks, {path.stem.removeprefix('bench-')}\n", machine(found) + MEDIANS]
    text += [beside_peers(found["rows"]), FOLD]
    for section, title in TITLES.items():
        rows = [row for row in found["rows"] if row["section"] == section]
        if rows:
            text += [f"## {title}\n", section_table(section, rows)]
    path.with_suffix(".md").write_text("\n".join(text))


def beside_peers(rows: list[Found]) -> str:
    """How many times as fast dgmarl is, one line per task and peer."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for row in rows:
        own = None if row["section"] == "rules" or "error" in row else rival(row, rows)
        if own:
            key = (row["task"], row["program"], row["note"] or own["note"])
            found.setdefault(key, []).append(f"{advantage(row, rows)} ({row['size']})")
    lines = [[task, program, ", ".join(how), note] for (task, program, note), how in found.items()]
    return table(["task", "program", "dgmarl is as fast", "note"], lines) if lines else ""


def section_table(section: str, rows: list[Found]) -> str:
    """One line per row, tasks together; beside a peer, how many times as fast dgmarl is."""
    goal = [f"s to return {rows[0]['job']['goal']:g}"] if section == "training" else []
    cost = ["cost over ippo-local"] if section == "rules" else ["dgmarl is as fast"]
    header = ["task", "program", "size", "per second", *goal, *cost, "compile s", "note"]
    tasks = list(dict.fromkeys(row["task"] for row in rows))
    lines = []
    for row in sorted(rows, key=lambda row: tasks.index(row["task"])):
        cells = [row["task"], row["program"], row["size"]]
        if "error" in row:
            lines.append([*cells, "", *("" for _ in goal), "", "", row["error"]])
            continue
        cells.append(f"{short(row['value'])} ({short(row['low'])} to {short(row['high'])})")
        cells += [to_goal(row)] if goal else []
        relation = relative_cost(row, rows) if section == "rules" else advantage(row, rows)
        compile_s = f"{row['compile_s']:.1f}" if "compile_s" in row else ""
        lines.append([*cells, relation, compile_s, row["note"]])
    return table(header, lines)


def to_goal(row: Found) -> str:
    """Median seconds of the runs until they reach the return; how many do."""
    reached = sorted(s for s in row["to_goal_s"] if s is not None)
    total = len(row["to_goal_s"])
    if not reached:
        return f"not reached ({row['final_return']:.0f} at the end)"
    return f"{statistics.median(reached):.1f} ({len(reached)} of {total} runs)"


def rival(row: Found, rows: list[Found]) -> Found | None:
    """Our row for the same task and size."""
    own = [other for other in rows if other["program"] in ("dgmarl", "graph_gae")]
    same = [other for other in own if (other["task"], other["size"]) == (row["task"], row["size"])]
    return next((other for other in same if "error" not in other and other is not row), None)


def advantage(row: Found, rows: list[Found]) -> str:
    """How many times as fast as a peer's row ours is."""
    own = rival(row, rows)
    return f"{short(own['value'] / row['value'])} ×" if own else ""


def relative_cost(row: Found, rows: list[Found]) -> str:
    """Time of a step relative to local credit."""
    same = {
        (other["task"], other["size"]): other["value"]
        for other in rows
        if other["program"] == "ippo-local" and "error" not in other
    }
    local = same.get((row["task"], row["size"]))
    return f"{local / row['value']:.2f} ×" if local else ""


def publish(path: Path, on_page: bool, draw: Callable[[Path], None], caption: str) -> None:
    """The plot of a file and, if wanted, both in the documentation."""
    if find_spec("matplotlib") is None:
        return say(f"{path.with_suffix('.md')} is written; no plot, as matplotlib is not installed")
    draw(path)
    if on_page:
        embed(path, PAGE, caption)
    say(f"{path.with_suffix('.md')} and {path.with_suffix('.svg')} are written")


def embed(path: Path, page: Path, caption: str) -> None:
    """Put a file's tables and plot into the page, between the comments that name it."""
    name = path.stem
    text = path.with_suffix(".md").read_text().partition("\n")[2].replace("\n## ", "\n#### ")
    figure = page.parent / "figures" / f"{name}.svg"
    figure.write_text(path.with_suffix(".svg").read_text())
    picture = f"![{caption}](figures/{figure.name})\n"
    shown, folds, folded = text.strip().partition(FOLD)
    text = f"{shown.strip()}\n\n{picture}"
    if folds:
        text += '\n<details markdown="1">\n<summary>All rows</summary>\n\n'
        text += f"{folded.strip()}\n\n</details>\n"
    first, begin, rest = page.read_text().partition(f"<!-- {name}: ")
    command, end, last = rest.partition(f"<!-- end of {name} -->")
    opening = command.partition("\n")[0]
    page.write_text(f"{first}{begin}{opening}\n\n{text}\n{end}{last}")


@contextmanager
def figure_of(path: Path, n_rows: int, n_columns: int, size: Any, **options: Any) -> Iterator[Any]:
    """The panels of a figure that is then written beside a file, as SVG."""
    import matplotlib as mpl

    mpl.use("svg")
    import matplotlib.pyplot as plt

    logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)
    mpl.rcParams.update({"font.size": 8, "svg.hashsalt": path.name})
    figure, panels = plt.subplots(n_rows, n_columns, figsize=size, squeeze=False, **options)
    yield panels
    figure.tight_layout()
    figure.savefig(path.with_suffix(".svg"), metadata={"Date": None})
    plt.close(figure)


def plot(path: Path) -> None:
    """A panel per task."""
    rows = [row for row in json.loads(path.read_text())["rows"] if "error" not in row]
    tasks = {task: [r for r in rows if r["task"] == task] for task in (r["task"] for r in rows)}
    heights = [0.8 + 0.22 * len(found) for found in tasks.values()]
    with figure_of(path, len(tasks), 1, (8, sum(heights)), height_ratios=heights) as panels:
        for panel, (task, found) in zip(panels[:, 0], tasks.items(), strict=True):
            draw_rows(panel, found)
            panel.set_title(f"{task}, per second", loc="left")


def draw_rows(panel: Any, rows: list[Found]) -> None:
    """Median and spread of each row, the fastest on top."""
    rows = sorted(rows, key=lambda row: row["value"])
    for k, row in enumerate(rows):
        mine = row["section"] == "rules" or row["program"] in ("dgmarl", "graph_gae")
        colour = OURS if mine else THEIRS
        panel.plot([row["low"], row["high"]], [k, k], color=colour, lw=4, alpha=0.4)
        panel.plot(row["value"], k, "o", color=colour)
        panel.annotate(
            short(row["value"]), (row["high"], k), (8, 0), textcoords="offset points", va="center"
        )
    lowest, highest = rows[0]["low"], max(row["high"] for row in rows)
    if highest / lowest > WIDE:
        panel.set(xscale="log", xlim=(lowest / 2, highest * 4))
    else:
        panel.set(xlim=(0, highest * 1.2))
    panel.xaxis.set_major_formatter(lambda value, _: short(value) if value else "0")
    panel.set_yticks(range(len(rows)), [f"{row['program']}, {row['size']}" for row in rows])
    panel.set_ylim(-0.6, len(rows) - 0.4)
    panel.grid(axis="y", color="#EEEEEE")
    panel.spines[["top", "right"]].set_visible(False)
