"""How cost grows with agents, environments, seeds, horizon, edges and devices.

    python benchmarks/growth.py                  # results/benchmarks/growth-cpu.{json,md,svg}
    python benchmarks/growth.py --gpu            # growth-gpu.*, larger sizes
    python benchmarks/growth.py --only 'agents.*oracle'

Iterations are those of `ippo-dg` without evaluations, ten environments of one seed where not said
otherwise: Star-Spread for agents and horizon, foraging 10x10-3p-3f for environments, seeds and
devices. Credit alone has one window of 50 steps. The exponent is the slope of a line through the
logarithms of the upper half of each curve, beside what O(T N E) says (T steps, N agents, E
edges)."""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from common import MEDIANS, RESULTS, Rows, facts, machine, options_of, ours, say, short, table
from report import figure_of, publish
from timing import Found

CAPTION = "Milliseconds over each size; expected slopes are dotted"
FORAGING = "lbf/10x10-3p-3f"
TOLERANCE = 0.3
"""By how much an exponent may differ from the expected before the table says so."""


class Curve(NamedTuple):
    """Cost over one size, all else equal."""

    axis: str
    what: str
    expected: float
    """The exponent of O(T N E)."""
    points: dict[int, Found]
    """A job for each size."""


def curves(gpu: bool) -> Iterator[Curve]:
    """Everything that is measured."""
    yield from agents(gpu)
    yield from sizes(gpu)
    yield from edges(gpu)


def agents(gpu: bool) -> Iterator[Curve]:
    """Training on Star-Spread, whose observations grow with N too; credit alone."""
    many = (2, 10, 50, 200, 1000) if gpu else (2, 5, 10, 20, 50, 100, 200)
    sparse = {"graph_model.pair_fraction": 0.1}
    for graph, counts in {"none": many, "oracle": many, "learned": many[:5]}.items():
        job = train("ippo-local" if graph == "none" else "ippo-dg", graph)
        extra = {"overrides": {"n_envs": 10, **sparse}} if graph == "learned" else {}
        points = {n: {**job, "env": f"star-spread/{n}", **extra} for n in counts}
        yield Curve("agents", f"training, graph {graph}", 2, points)
    for degree in (2, 8):
        points = {n: credit(n, degree) for n in (100, 300, 1000, 3000, 10_000)}
        yield Curve("agents", f"credit alone, {degree} others reached", 2, points)


def sizes(gpu: bool) -> Iterator[Curve]:
    """Environments, seeds, horizon and devices."""
    most = 4 if gpu else 2
    job = {**train("ippo-dg", "oracle"), "env": FORAGING}
    envs = {n: {**job, "overrides": {"n_envs": n}} for n in (10, 40, 160, 640, 2560)[: most + 1]}
    yield Curve("environments", "training, foraging", 1, envs)
    counts = (1, 4, 16, 64) if gpu else (1, 2, 4, 8, 16)
    seeds = {n: {**job, "seeds": n} for n in counts}
    yield Curve("seeds", "training, foraging", 1, seeds)
    star = {**job, "env": "star-spread/10"}
    horizons = {
        t: {**star, "overrides": {"n_envs": 10, "env_options.horizon": t}}
        for t in (25, 50, 100, 200, 400)
    }
    yield Curve("horizon", "training, Star-Spread with 10 agents", 1, horizons)
    most = len((facts()["gpu"] or "").splitlines()) if gpu else len(os.sched_getaffinity(0))
    devices = {n: {**job, "seeds": 8, "devices": n} for n in (1, 2, 4, 8) if n <= most}
    yield Curve("devices", "training, foraging, 8 seeds", -1, devices)


def edges(gpu: bool) -> Iterator[Curve]:
    """Graph density."""
    n_agents = 1000 if gpu else 256
    points = {degree: credit(n_agents, degree) for degree in (1, 2, 4, 8, 16, 32)}
    yield Curve("edges per agent", f"credit alone, {n_agents:,} agents", 1, points)


def train(method: str, graph: str) -> Found:
    graph = "self" if graph == "none" else graph
    return {"kind": "train", "method": method, "graph": graph, "overrides": {"n_envs": 10}}


def credit(n_agents: int, degree: int) -> Found:
    sizes = {"batch": 1, "n_steps": 50, "n_agents": n_agents, "degree": degree}
    return {"kind": "credit", **sizes, "how": "graph_gae"}


def seconds(row: Found) -> float:
    """Of one iteration or call."""
    return row.get("steps_per_iteration", 1) / row["value"]


def exponent(curve: list[Found]) -> float | None:
    """The slope of the upper half of a curve, at least three points, on logarithmic axes."""
    tail = curve[min(len(curve) // 2, len(curve) - 3) :] if len(curve) > 2 else curve
    if len(tail) < 2:
        return None
    x, y = ([np.log(value) for value in column] for column in zip(*map(point, tail), strict=True))
    return float(np.polyfit(x, y, 1)[0])


def point(row: Found) -> tuple[float, float]:
    return row["size"], seconds(row)


def measure(wanted: list[Curve], rows: Rows, fresh: bool, compile_workers: int) -> None:
    """Measure what is not there yet."""
    points = {
        f"{curve.axis}: {curve.what}: {size}": (curve, size, job)
        for curve in wanted
        for size, job in curve.points.items()
    }
    left = [key for key in points if fresh or not rows.done(key)]
    say(f"{len(points)} points, {len(points) - len(left)} of this commit already measured")
    results = ours()([points[key][2] for key in left], compile_workers)
    for key, found in zip(left, results, strict=True):
        curve, size, _ = points[key]
        facts = {"axis": curve.axis, "what": curve.what, "expected": curve.expected}
        rows.add(key, {**facts, "size": size, **found})
        say(f"{key}: {found.get('error') or f'{short(1e3 * seconds(found))} ms'}")


def by_curve(rows: list[Found]) -> dict[tuple[str, str], list[Found]]:
    """The rows of each curve, by size."""
    names = dict.fromkeys((row["axis"], row["what"]) for row in rows)
    mine = {name: [row for row in rows if (row["axis"], row["what"]) == name] for name in names}
    return {name: sorted(found, key=lambda row: row["size"]) for name, found in mine.items()}


def write_markdown(path: Path) -> None:
    """One line per curve, with its largest size."""
    found = json.loads(path.read_text())
    lines = []
    for (axis, what), curve in by_curve(found["rows"]).items():
        ran = [row for row in curve if "error" not in row]
        failed = [f"{row['size']:,}: {row['error'][:80]}" for row in curve if "error" in row]
        slope = exponent(ran)
        if slope is None:
            continue
        expected = ran[-1]["expected"]
        verdict = "as expected" if abs(slope - expected) <= TOLERANCE else "differs"
        verdict = "cheaper" if slope < expected - TOLERANCE else verdict
        last = ran[-1]
        cells = [f"{ran[0]['size']:,} to {last['size']:,}", short(1e3 * seconds(ran[0]))]
        cells += [short(1e3 * seconds(last)), f"{last['memory_mib']:,.0f}", f"{slope:.2f}"]
        lines.append([axis, what, *cells, f"{expected:g}, {verdict}", "; ".join(failed)])
    header = ["axis", "what", "sizes", "ms, smallest", "ms, largest", "MiB, largest"]
    header += ["exponent", "O(T N E)", "did not run"]
    title = f"# Growth, {path.stem.removeprefix('growth-')}\n"
    path.with_suffix(".md").write_text(
        "\n".join([title, machine(found) + MEDIANS, table(header, lines)])
    )


def plot(path: Path) -> None:
    """A panel per axis, on logarithmic axes, with the expected slope dotted."""
    from matplotlib.ticker import LogLocator, NullLocator

    ran = by_curve([row for row in json.loads(path.read_text())["rows"] if "error" not in row])
    groups = {name: curve for name, curve in ran.items() if len(curve) > 1}
    axes = list(dict.fromkeys(axis for axis, _ in groups))
    with figure_of(path, -(-len(axes) // 2), 2, (9, 3.2 * -(-len(axes) // 2))) as panels:
        for panel, axis in zip(panels.flat, axes, strict=False):
            for (_, what), curve in ((key, c) for key, c in groups.items() if key[0] == axis):
                draw_curve(panel, what, curve)
            panel.set(xscale="log", yscale="log", xlabel=axis, ylabel="ms")
            decades = np.ptp(np.log10(panel.get_ylim()))
            panel.yaxis.set_major_locator(LogLocator(subs=(1,) if decades > 2 else (1, 2, 5)))
            panel.set_xticks(sorted({x for line in panel.lines for x in line.get_xdata()}))
            for ticks in (panel.xaxis, panel.yaxis):
                ticks.set_major_formatter(lambda value, _: short(value))
                ticks.set_minor_locator(NullLocator())
            panel.tick_params(axis="x", rotation=45 if len(panel.get_xticks()) > 8 else 0)
            panel.legend(loc="lower left", bbox_to_anchor=(0, 1), frameon=False)
            panel.spines[["top", "right"]].set_visible(False)
        for panel in panels.flat[len(axes) :]:
            panel.set_visible(False)


def draw_curve(panel: Any, what: str, curve: list[Found]) -> None:
    """Median and spread; a dotted line of the expected slope through the last point."""
    x, y = ([*column] for column in zip(*map(point, curve), strict=True))
    per = [row.get("steps_per_iteration", 1) for row in curve]
    low, high = (
        [1e3 * p / row[k] for p, row in zip(per, curve, strict=True)] for k in ("high", "low")
    )
    slope = exponent(curve)
    label = what if slope is None else f"{what}: {slope:.2f}"
    line = panel.plot(x, [1e3 * s for s in y], "o-", ms=3, lw=1.2, label=label)[0]
    panel.fill_between(x, low, high, color=line.get_color(), alpha=0.2, lw=0)
    ends = np.array([x[len(x) // 2], x[-1]], float)
    expected = 1e3 * y[-1] * (ends / x[-1]) ** curve[0]["expected"]
    panel.plot(ends, expected, ":", color=line.get_color(), lw=1)


def main() -> None:
    options = options_of(__doc__).parse_args()
    path = options.out / f"growth-{'gpu' if options.gpu else 'cpu'}.json"
    wanted = [c for c in curves(options.gpu) if re.search(options.only, f"{c.axis}: {c.what}")]
    if not options.draw:
        measure(wanted, Rows(path), options.fresh, options.compile_workers)
    write_markdown(path)
    publish(path, options.out == RESULTS, plot, CAPTION)


if __name__ == "__main__":
    main()
