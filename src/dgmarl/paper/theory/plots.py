"""Figures of the theory page, in the page's colours."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from dgmarl.envs.svg import agent_colour
from dgmarl.paper.theory.voter import TOPOLOGIES
from dgmarl.report.figures import INK, styled

GRAPH, STANDARD = agent_colour(0), agent_colour(1)
FLOOR = 1e-16
CLOUD: dict[str, Any] = {"alpha": 0.6, "linewidths": 0}
DOTS: dict[str, Any] = {"marker": "o", "markersize": 4}
HOLLOW: dict[str, Any] = {**DOTS, "marker": "s", "markerfacecolor": "none", "linewidth": 0.8}
MOMENTS = {
    "{}": ("random rewards", DOTS),
    "constant_{}": ("all rewards 1", HOLLOW),
    "paper_{}_bound": ("paper's bound", {"linestyle": "--"}),
}
"""Label and plot style per column of the data; {} is the estimator."""


@styled
def error_strips(data: dict[str, list[float]]) -> Figure:
    """Relative errors on a logarithmic axis, one row of dots per way of computing the gradient."""
    figure = Figure(figsize=(8.5, 0.6 + 0.36 * len(data)), layout="constrained")
    axes = figure.subplots()
    jitter = np.random.default_rng(0)
    for row, errors in enumerate(data.values()):
        shown = np.maximum(np.asarray(errors), FLOOR)
        height = row + jitter.uniform(-0.25, 0.25, len(shown))
        colour = GRAPH if np.max(shown) < 1e-8 else STANDARD
        axes.scatter(shown, height, color=colour, s=7, **CLOUD)
    axes.axvline(1e-8, color=INK, linewidth=0.8, linestyle=":")
    axes.set_xscale("log")
    axes.set_xlim(FLOOR / 2, 10)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_yticks(range(len(data)), list(data))
    axes.invert_yaxis()
    axes.set_xlabel("difference from the exact gradient, relative to its norm (dotted: 1e-8)")
    return figure


def _logarithmic(axes: Axes) -> None:
    """Make both axes logarithmic, without the default TeX labels, which are not rendered."""
    axes.loglog()
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter("{x:g}")
        axis.set_minor_formatter(NullFormatter())


def _diagonal(axes: Axes, factor: float, label: str) -> None:
    ends = np.array(axes.get_xlim())
    axes.plot(ends, factor * ends, color=INK, linewidth=0.9, linestyle="--", label=label)


@styled
def graph_lemma(data: dict[str, Any]) -> Figure:
    """Left: error over B gamma epsilon R / (1-gamma)^2. Right: the long-memory family."""
    figure = Figure(figsize=(8.5, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    for number, gamma in enumerate(sorted({case["gamma"] for case in data["cases"]})):
        chosen = [case for case in data["cases"] if case["gamma"] == gamma]
        unit, error = (
            np.maximum([case[key] for case in chosen], 1e-9) for key in ("unit", "error")
        )
        colour, label = agent_colour(number), f"γ = {gamma:g}"
        left.scatter(unit, error, color=colour, label=label, s=9, **CLOUD)
    _logarithmic(left)
    _diagonal(left, 3, "proof's bound, 3 times that")
    left.set_xlabel("B γ ε R / (1−γ)²")
    left.set_ylabel("gradient error")
    left.set_title("random MDPs, 1 to 3 edges removed")
    left.legend(fontsize=8)
    distance = 1 - np.array([point["gamma"] for point in data["memory"]])
    ratio = np.array([point["ratio"] for point in data["memory"]])
    _logarithmic(right)
    right.plot(distance, ratio, marker="o", color=STANDARD, label="measured (exact)")
    growth = ratio[0] * np.sqrt(distance[0] / distance)
    right.plot(distance, growth, ":", color=INK, label="grows like 1 / √(1−γ)")
    right.axhline(3, color=INK, linewidth=0.9, linestyle="--", label="proof's constant 3")
    right.invert_xaxis()
    right.set_xlabel("1 − γ")
    right.set_ylabel("error / [B γ ε R / (1−γ)²]")
    right.set_title("an agent with a long memory")
    right.legend(fontsize=8)
    return figure


@styled
def information(data: dict[str, list[float]]) -> Figure:
    """Distance of the kernels over the mutual-information bound."""
    figure = Figure(figsize=(5.2, 3.4), layout="constrained")
    axes = figure.subplots()
    axes.scatter(data["bound"], data["distance"], color=GRAPH, s=10, **CLOUD)
    _logarithmic(axes)
    _diagonal(axes, 1, "equal")
    axes.set_xlabel("mutual-information bound")
    axes.set_ylabel("E ‖P − P′‖₁")
    axes.legend(fontsize=8)
    return figure


@styled
def second_moments(data: dict[str, Any]) -> Figure:
    """One panel per graph: measured second moments and the paper's bounds over N."""
    figure = Figure(figsize=(10.5, 4.0), layout="constrained")
    panels = figure.subplots(1, len(TOPOLOGIES), sharey=True)
    for axes, name in zip(panels, TOPOLOGIES, strict=True):
        _logarithmic(axes)
        rows = [row for row in data["rows"] if row["topology"] == name]
        size = [row["n_agents"] for row in rows]
        for kind, colour in (("graph", GRAPH), ("standard", STANDARD)):
            for column, (what, look) in MOMENTS.items():
                values = [row[column.format(kind)] for row in rows]
                axes.plot(size, values, color=colour, label=f"{kind}, {what}", **look)
        _over_agents(axes, name, size)
    panels[0].set_ylabel("E ‖g‖²")
    return _with_legend(figure, panels[0], columns=3)


@styled
def sample_counts(data: dict[str, Any]) -> Figure:
    """Samples until the gradient is small, with the bounds' slopes through the first point."""
    figure = Figure(figsize=(9.0, 4.6), layout="constrained")
    names = list(dict.fromkeys(curve["topology"] for curve in data["curves"]))
    panels = figure.subplots(1, len(names), sharey=True)
    for axes, name in zip(panels, names, strict=True):
        _logarithmic(axes)
        for curve in (c for c in data["curves"] if c["topology"] == name):
            colour = GRAPH if curve["estimator"] == "graph" else STANDARD
            size, samples = np.array(curve["n_agents"]), np.array(curve["samples"])
            axes.plot(size, samples.mean(axis=1), color=colour, label=curve["estimator"], **DOTS)
            of_seeds = np.repeat(size, samples.shape[1]), samples.ravel()
            axes.scatter(*of_seeds, color=colour, s=6, **CLOUD)
            for bound, line in (("paper", "--"), ("corrected", ":")):
                slope = np.array(curve[bound])
                through_first = samples[0].mean() * slope / slope[0]
                label = f"{curve['estimator']}, slope of the {bound} bound"
                axes.plot(size, through_first, line, linewidth=1, color=colour, label=label)
        ticks = np.unique(np.concatenate([c["n_agents"] for c in data["curves"]])).astype(int)
        _over_agents(axes, name, ticks)
    panels[0].set_ylabel("samples (steps of all agents)")
    return _with_legend(figure, panels[0], columns=2)


def _over_agents(axes: Axes, title: str, sizes: Iterable[int]) -> None:
    """Title and horizontal axis of a panel over the number of agents."""
    axes.set_title(title)
    axes.set_xlabel("N")
    axes.set_xticks(list(sizes), [str(n) for n in sizes])
    axes.minorticks_off()


def _with_legend(figure: Figure, axes: Axes, columns: int) -> Figure:
    """Add one legend below all panels, which show the same lines."""
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, fontsize=8)
    return figure
