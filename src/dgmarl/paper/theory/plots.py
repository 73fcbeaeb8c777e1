"""The laboratory's figures as SVG text that takes the page's ink colour, so that they read on light
and dark paper alike."""

import io
from collections.abc import Callable
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dgmarl.envs.svg import agent_colour
from dgmarl.paper.theory.voter import TOPOLOGIES

# A colour that nothing else uses: it marks what must follow the page's text colour.
INK = "#010203"
GRAPH, STANDARD, OTHER = agent_colour(0), agent_colour(1), agent_colour(2)
FLOOR = 1e-16


def svg(name: str, width: float, height: float, draw: Callable[[Figure], None]) -> str:
    """Draw on an empty figure and return it as inline SVG. `name` keeps the ids of several figures
    on one page apart."""
    style: dict[Any, Any] = {
        "svg.fonttype": "none",
        "svg.hashsalt": name,
        "font.family": "sans-serif",
        "font.size": 9,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "legend.frameon": False,
    } | dict.fromkeys(
        ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), INK
    )
    with matplotlib.rc_context(style):
        figure = Figure(figsize=(width, height), layout="constrained")
        draw(figure)
        figure.patch.set_alpha(0)
        for axes in figure.axes:
            axes.patch.set_alpha(0)
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    return text[text.index("<svg") :].replace(INK, "currentColor")


def error_strips(data: dict[str, list[float]], name: str) -> str:
    """One row of dots per way of computing the gradient: relative error, on a logarithmic axis."""

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        jitter = np.random.default_rng(0)
        for row, errors in enumerate(data.values()):
            shown = np.maximum(np.asarray(errors), FLOOR)
            height = row + jitter.uniform(-0.25, 0.25, len(shown))
            axes.scatter(
                shown,
                height,
                s=7,
                alpha=0.6,
                linewidths=0,
                color=GRAPH if np.max(shown) < 1e-8 else STANDARD,
            )
        axes.axvline(1e-8, color=INK, linewidth=0.8, linestyle=":")
        axes.set_xscale("log")
        axes.set_xlim(FLOOR / 2, 10)
        axes.set_yticks(range(len(data)), list(data))
        axes.invert_yaxis()
        axes.set_xlabel("difference from the exact gradient, relative to its norm (dotted: 1e-8)")

    return svg(name, 8.5, 0.6 + 0.36 * len(data), draw)


def _diagonal(axes: Axes, factor: float, label: str) -> None:
    ends = np.array(axes.get_xlim())
    axes.plot(ends, factor * ends, color=INK, linewidth=0.9, linestyle="--", label=label)


def graph_lemma(data: dict[str, Any]) -> str:
    """Left: error against B gamma epsilon R / (1-gamma)^2 on random MDPs. Right: the long-memory
    family."""

    def draw(figure: Figure) -> None:
        left, right = figure.subplots(1, 2)
        for number, gamma in enumerate(sorted({case["gamma"] for case in data["cases"]})):
            chosen = [case for case in data["cases"] if case["gamma"] == gamma]
            unit, error = (
                np.maximum([case[key] for case in chosen], 1e-9) for key in ("unit", "error")
            )
            left.scatter(
                unit,
                error,
                s=9,
                alpha=0.7,
                linewidths=0,
                color=agent_colour(number),
                label=f"γ = {gamma:g}",
            )
        left.set_xscale("log")
        left.set_yscale("log")
        _diagonal(left, 3, "proof's bound, 3 times that")
        left.set_xlabel("B γ ε R / (1−γ)²")
        left.set_ylabel("gradient error")
        left.set_title("random MDPs, 1 to 3 edges removed")
        left.legend(fontsize=8)
        distance = 1 - np.array([point["gamma"] for point in data["memory"]])
        ratio = np.array([point["ratio"] for point in data["memory"]])
        right.loglog(distance, ratio, marker="o", color=STANDARD, label="measured (exact)")
        right.loglog(
            distance,
            ratio[0] * np.sqrt(distance[0] / distance),
            linestyle=":",
            color=INK,
            label="grows like 1 / √(1−γ)",
        )
        right.axhline(3, color=INK, linewidth=0.9, linestyle="--", label="proof's constant 3")
        right.invert_xaxis()
        right.set_xlabel("1 − γ")
        right.set_ylabel("error / [B γ ε R / (1−γ)²]")
        right.set_title("an agent with a long memory")
        right.legend(fontsize=8)

    return svg("lemma", 8.5, 3.6, draw)


def information(data: dict[str, list[float]]) -> str:
    """Distance of the kernels against the mutual-information bound."""

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        axes.scatter(data["bound"], data["distance"], s=10, alpha=0.7, linewidths=0, color=GRAPH)
        axes.set_xscale("log")
        axes.set_yscale("log")
        _diagonal(axes, 1, "equal")
        axes.set_xlabel("mutual-information bound")
        axes.set_ylabel("E ‖P − P′‖₁")
        axes.legend(fontsize=8)

    return svg("information", 5.2, 3.4, draw)


def second_moments(data: dict[str, Any]) -> str:
    """One panel per graph: measured second moments and the paper's bounds over N."""

    def draw(figure: Figure) -> None:
        panels = figure.subplots(1, len(TOPOLOGIES), sharey=True)
        for axes, name in zip(panels, TOPOLOGIES, strict=True):
            rows = [row for row in data["rows"] if row["topology"] == name]
            size = [row["n_agents"] for row in rows]
            for kind, colour in (("graph", GRAPH), ("standard", STANDARD)):
                axes.loglog(
                    size,
                    [row[kind] for row in rows],
                    marker="o",
                    markersize=4,
                    color=colour,
                    label=f"{kind}, random rewards",
                )
                constant = [row[f"constant_{kind}"] for row in rows]
                hollow = {
                    "marker": "s",
                    "markersize": 4,
                    "markerfacecolor": "none",
                    "linewidth": 0.8,
                }
                axes.loglog(size, constant, color=colour, label=f"{kind}, all rewards 1", **hollow)
                axes.loglog(
                    size,
                    [row[f"paper_{kind}_bound"] for row in rows],
                    linestyle="--",
                    color=colour,
                    label=f"{kind}, paper's bound",
                )
            axes.set_title(name)
            axes.set_xlabel("N")
            axes.set_xticks(size, [str(n) for n in size])
            axes.minorticks_off()
        panels[0].set_ylabel("E ‖g‖²")
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=8)

    return svg("moments", 10.5, 4.0, draw)


def sample_counts(data: dict[str, Any]) -> str:
    """Samples until the gradient is small, every seed, with the slopes of the bounds through the
    first point."""

    def draw(figure: Figure) -> None:
        names = list(dict.fromkeys(curve["topology"] for curve in data["curves"]))
        panels = figure.subplots(1, len(names), sharey=True)
        for axes, name in zip(panels, names, strict=True):
            for curve in (c for c in data["curves"] if c["topology"] == name):
                colour = GRAPH if curve["estimator"] == "graph" else STANDARD
                size, samples = np.array(curve["n_agents"]), np.array(curve["samples"])
                axes.loglog(
                    size,
                    samples.mean(axis=1),
                    marker="o",
                    markersize=4,
                    color=colour,
                    label=curve["estimator"],
                )
                axes.scatter(
                    np.repeat(size, samples.shape[1]),
                    samples.ravel(),
                    s=6,
                    alpha=0.5,
                    linewidths=0,
                    color=colour,
                )
                for bound, line in (("paper", "--"), ("mended", ":")):
                    slope = np.array(curve[bound])
                    label = f"{curve['estimator']}, slope of {bound} bound"
                    axes.loglog(
                        size,
                        samples[0].mean() * slope / slope[0],
                        linestyle=line,
                        linewidth=1,
                        color=colour,
                        label=label,
                    )
            axes.set_title(name)
            axes.set_xlabel("N")
            ticks = np.unique(np.concatenate([c["n_agents"] for c in data["curves"]])).astype(int)
            axes.set_xticks(ticks, [str(n) for n in ticks])
            axes.minorticks_off()
        panels[0].set_ylabel("samples (steps of all agents)")
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=2, fontsize=8)

    return svg("samples", 9.0, 4.6, draw)
