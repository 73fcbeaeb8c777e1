"""Matplotlib figures of results, readable at the width of a column.

Functions take results or intervals and the styles of methods; `save` writes SVG and PNG files on a
white background. The same data give the same SVG: no date, no random ids, text as text."""

import hashlib
import io
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, NamedTuple, ParamSpec

import matplotlib
import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.text import Text
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

from dgmarl.files import is_number, write_atomic
from dgmarl.report.results import Result, grouped, on_grid, span
from dgmarl.report.statistics import Band, Interval, aggregate_band, mean
from dgmarl.report.style import AXES, METRICS, Looks, Style, order, styles

P = ParamSpec("P")
COLUMN = 3.4
"""Width of a column of a two-column page, in inches."""
LONG = 50
"""Number of letters above which names need a figure of two columns."""
N_POINTS = 60
MOST_LABELS = 6
"""Maximum labels of an axis of parallel coordinates; with more values only the ends."""
LOG_RATIO = 30
"""Ratio of the largest to the smallest positive value above which an axis is logarithmic."""
RETURN, STEPS = METRICS["return"], AXES["steps"]
INK, FAINT, RULE = "#010203", "#010204", "#010205"
"""Placeholder colours, replaced by the page's colours or, in `save`, by those for white paper."""
ON_WHITE = {INK: "#222222", FAINT: "#555555", RULE: "#e4e4e0"}
ON_PAGE = {INK: "currentColor", FAINT: "var(--faint)", RULE: "var(--line)"}
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "text.parse_math": False,  # a $ in a name is a $
    "svg.hashsalt": "dgmarl",
    "font.family": "sans-serif",
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "legend.fontsize": 7,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": RULE,
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "lines.linewidth": 1.4,
    **dict.fromkeys(("text.color", "xtick.color", "ytick.color"), INK),
    **dict.fromkeys(("axes.edgecolor", "axes.labelcolor", "axes.titlecolor"), INK),
}


def styled(draw: Callable[P, Figure]) -> Callable[P, Figure]:
    """Decorate a drawing function to use the style of this module."""

    @wraps(draw)
    def drawn(*args: P.args, **kwargs: P.kwargs) -> Figure:
        with matplotlib.rc_context(STYLE):
            return draw(*args, **kwargs)

    return drawn


class Panel(NamedTuple):
    """One chart of learning curves."""

    title: str
    results: Sequence[Result]
    metric: str | None = None
    """Metric over environment steps; None for the return."""
    label: str = RETURN
    """Label of the vertical axis, with the unit."""
    ends: tuple[float, float] | None = None
    """Limits of the vertical axis."""


@styled
def learning_curves(
    panels: Sequence[Panel], looks: Looks | None = None, columns: int = 2
) -> Figure:
    """Mean over seeds with its band, for all results of each panel."""
    shown = [result for panel in panels for result in panel.results]
    looks = looks or styles(result.method for result in shown)
    figure, axes = _panels(len(panels), columns=columns)
    for ax, panel in zip(axes, panels, strict=True):
        for result in panel.results:
            band = aggregate_band([on_grid(result, N_POINTS, metric=panel.metric)], mean)
            _band(ax, np.linspace(0, result.budget, N_POINTS), band, looks[result.method])
        ax.set_title(panel.title)
        ax.set_ylabel(panel.label)
        ax.set_ylim(panel.ends)
        _steps_axis(ax)
    _legend(figure, [result.method for result in shown], looks)
    seeds = span(len(result.final) for result in shown)
    lines = f"Lines: mean over {seeds} seed{'s' * (seeds != '1')}"
    return _caption(figure, f"{lines}; bands: 95 % bootstrap over seeds")


def scenario_panels(results: Sequence[Result]) -> list[Panel]:
    """One panel of returns per scenario."""
    return [Panel(scenario, own) for scenario, own in grouped(results, "scenario").items()]


def graph_panels(results: Sequence[Result]) -> list[Panel]:
    """Panels of graph density and F1 against known graphs, for results in which they change."""
    names = ("graph_density", "graph_f1_oracle", "graph_f1_interventional")
    return [
        Panel(panel.title, measured, metric, METRICS[metric], (-0.02, 1.02))
        for panel in scenario_panels(results)
        for metric in names
        if (measured := [result for result in panel.results if _changes(result.metric(metric))])
    ]


def _changes(values: np.ndarray | None) -> bool:
    return values is not None and bool(np.ptp(values) > 0)


@styled
def sample_efficiency(
    bands: Mapping[str, Band], last: Mapping[str, float], caption: str, looks: Looks
) -> Figure:
    """IQM over scenarios as a function of steps, up to each method's last step."""
    figure, (ax,) = _panels(1)
    for method, band in bands.items():
        _band(ax, np.linspace(0, last[method], len(band.estimate)), band, looks[method])
    _steps_axis(ax)
    ax.set_ylabel("IQM of the return")
    _legend(figure, list(bands), looks)
    return _caption(figure, caption)


@styled
def intervals(
    estimates: Mapping[str, Mapping[str, Interval]], caption: str, looks: Looks
) -> Figure:
    """One panel per kind of estimate, one row per method: estimate and interval."""
    methods = sorted({method for of_kind in estimates.values() for method in of_kind}, key=order)
    height = 0.5 + 0.2 * len(methods)
    figure, axes = _panels(len(estimates), height, columns=4, sharey=True)
    for ax, (kind, of_kind) in zip(axes, estimates.items(), strict=True):
        ax.use_sticky_edges = False  # a bar that ends at the frame looks truncated
        for row, method in enumerate(methods):
            if method in of_kind:
                _bar(ax, row, of_kind[method], looks[method].colour)
        ax.set_yticks(range(len(methods)), [looks[method].name for method in methods])
        ax.set_ylim(len(methods) - 0.4, -0.6)
        ax.set_title(kind)
        ax.grid(axis="y", visible=False)
    return _caption(figure, caption)


@styled
def improvement(chances: Mapping[tuple[str, str], Interval], caption: str, looks: Looks) -> Figure:
    """One row per pair of methods: probability that a run of the first beats one of the second."""
    figure, (ax,) = _panels(1, height=0.5 + 0.2 * len(chances))
    for row, ((first, _), chance) in enumerate(chances.items()):
        _bar(ax, row, chance, looks[first].colour)
    ax.axvline(0.5, color=FAINT, linewidth=0.8, linestyle=":")
    names = [f"{looks[first].name} > {looks[second].name}" for first, second in chances]
    ax.set_yticks(range(len(chances)), names)
    _make_room(figure, names)
    ax.set_ylim(len(chances) - 0.4, -0.6)
    ax.set_xlim(-0.02, 1.02)
    ax.set_xlabel("probability of improvement", loc="right")  # wider than the axis beside names
    ax.grid(axis="y", visible=False)
    return _caption(figure, caption)


@styled
def profiles(
    of_methods: Mapping[str, Band], thresholds: Float[np.ndarray, "K"], caption: str, looks: Looks
) -> Figure:
    """Share of runs above each return, by method."""
    figure, (ax,) = _panels(1)
    for method, band in of_methods.items():
        _band(ax, thresholds, band, looks[method])
    ax.set_xlabel("return τ")
    ax.set_ylabel("share of runs with return > τ")
    ax.set_ylim(-0.02, 1.02)
    _legend(figure, list(of_methods), looks)
    return _caption(figure, caption)


@styled
def cost_against_return(
    points: Mapping[str, tuple[float, Interval]], cost: str, caption: str, looks: Looks
) -> Figure:
    """One dot per method: return over cost, on a logarithmic axis."""
    figure, (ax,) = _panels(1)
    for method, (spent, reached) in points.items():
        drawn, dot = looks[method], (spent, reached.estimate)
        if np.isfinite(reached.low):
            ends = [reached.low, reached.high]
            ax.plot([spent] * 2, ends, color=drawn.colour, alpha=0.5, linewidth=3)
        ax.plot(*dot, "s" if drawn.dash else "o", color=drawn.colour, markersize=5)
        ax.annotate(drawn.name, dot, (6, 2), textcoords="offset points", fontsize=6.5)
    ax.set_xscale("log")
    # The default labels of a logarithmic axis are TeX, which this module does not render.
    ax.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    ax.xaxis.set_major_formatter(lambda value, _: _count(value))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xlabel(cost)
    ax.set_ylabel(RETURN)
    ax.margins(x=0.25)
    return _caption(figure, caption)


@styled
def parallel_coordinates(columns: Mapping[str, Sequence[Any]], caption: str) -> Figure:
    """A line per run through its value in each column; the last column sets the colour."""
    width = 2 * COLUMN
    figure = Figure(figsize=(width, 3.0), layout="constrained", facecolor="white")
    ax = figure.subplots()
    places = np.array([_axis(ax, k, values) for k, values in enumerate(columns.values())])
    for heights in places[:, np.argsort(places[-1], kind="stable")].T:
        # Without the ends of the scale, which are hard to see on dark or white pages.
        colour = matplotlib.colormaps["viridis"](0.2 + 0.65 * heights[-1])
        ax.plot(heights, color=colour, linewidth=1, alpha=0.8)
    ax.set_xticks(range(len(columns)), [name.replace(".", ".\n") for name in columns])
    ax.set_yticks([])
    ax.set_xlim(-0.1, len(columns) - 0.6)
    ax.grid(visible=False)
    ax.spines[:].set_visible(False)
    return _caption(figure, caption)


def _axis(ax: Axes, place: int, values: Sequence[Any]) -> np.ndarray:
    """Draw one axis of parallel coordinates; returns the heights of values, from 0 to 1."""
    ax.axvline(place, color=FAINT, linewidth=0.8)
    if all(is_number(value) for value in values):
        numbers = np.array(values, float)
        logarithmic = numbers.min() > 0 and numbers.max() > LOG_RATIO * numbers.min()
        scaled = np.log(numbers) if logarithmic else numbers
        span = np.ptp(scaled)
        heights = (scaled - scaled.min()) / span if span else np.full(len(values), 0.5)
        texts = [f"{value:.4g}" for value in numbers]
    else:
        texts = [value if isinstance(value, str) else str(value) for value in values]
        names = sorted(set(texts))
        heights = np.array([names.index(text) for text in texts]) / max(len(names) - 1, 1)
    labels = dict(zip(heights.tolist(), texts, strict=True))
    if len(labels) > MOST_LABELS:
        labels = {height: labels[height] for height in (min(labels), max(labels))}
    for height, text in labels.items():
        ax.text(place + 0.02, height + 0.015, text[-LONG // 2 :], fontsize=6.5, va="bottom")
    return heights


def svg(figure: Figure) -> str:
    """SVG file on white; its last line, a hash of the data, does not depend on matplotlib."""
    return f"{_coloured(_svg(figure), ON_WHITE)}<!-- data {data_digest(figure)} -->\n"


def data_digest(figure: Figure) -> str:
    """Hash of lines, bands, bars (to four digits), titles and labels."""
    drawn: list[object] = []
    for ax in figure.axes:
        drawn += [ax.get_title(), ax.get_xlabel(), ax.get_ylabel()]
        shapes = [np.asarray(line.get_xydata()) for line in ax.lines]
        shapes += [
            patch.get_bbox().get_points() for patch in ax.patches if isinstance(patch, Rectangle)
        ]
        shapes += [
            path.get_extents().get_points() for band in ax.collections for path in band.get_paths()
        ]
        drawn += [[f"{value:.4g}" for value in shape.ravel()] for shape in shapes]
    return hashlib.sha256(repr(drawn).encode()).hexdigest()[:16]


def inline_svg(figure: Figure) -> str:
    """SVG for a page, in the page's light or dark colours."""
    figure.patch.set_alpha(0)
    for axes in figure.axes:
        axes.patch.set_alpha(0)
    return _coloured(_svg(figure), ON_PAGE)


def _svg(figure: Figure) -> str:
    buffer = io.StringIO()
    with matplotlib.rc_context(STYLE):
        figure.savefig(
            buffer, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type"))
        )
    text = buffer.getvalue()
    return "\n".join(line.rstrip() for line in text[text.index("<svg") :].splitlines()) + "\n"


def _coloured(text: str, colours: Mapping[str, str]) -> str:
    for mark, colour in colours.items():
        text = text.replace(mark, colour)
    return text


def save(figure: Figure, stem: Path) -> list[Path]:
    """Write `stem.svg` and `stem.png` (200 dpi) on white."""
    files = {".svg": svg(figure), ".png": _png(figure)}
    return [
        write_atomic(stem.with_name(stem.name + suffix), content)
        for suffix, content in files.items()
    ]


def _png(figure: Figure) -> bytes:
    """PNG file; placeholder colours are replaced in the figure, as pixels have no names."""
    for artist in (*figure.findobj(Text), *figure.findobj(Line2D)):
        colour = artist.get_color()
        artist.set_color(ON_WHITE.get(colour, colour) if isinstance(colour, str) else colour)
    for ax in figure.axes:
        ax.tick_params(
            which="both", color=ON_WHITE[INK], labelcolor=ON_WHITE[INK], grid_color=ON_WHITE[RULE]
        )
        for spine in ax.spines.values():
            spine.set_edgecolor(ON_WHITE[INK])
    buffer = io.BytesIO()
    with matplotlib.rc_context(STYLE):
        figure.savefig(buffer, format="png", dpi=200, metadata={"Software": None})
    return buffer.getvalue()


def _panels(
    n_panels: int, height: float = 2.3, columns: int = 2, sharey: bool = False
) -> tuple[Figure, list[Axes]]:
    """Panels in at most `columns` columns, at most two page columns wide; unused ones hidden."""
    n_columns = min(n_panels, columns)
    n_rows = -(-n_panels // n_columns)
    width = COLUMN * min(n_columns, 2)
    figure = Figure(figsize=(width, height * n_rows + 0.5), layout="constrained", facecolor="white")
    axes = figure.subplots(n_rows, n_columns, squeeze=False, sharey=sharey).ravel()
    for unused in axes[n_panels:]:
        unused.set_visible(False)
    return figure, list(axes[:n_panels])


def _band(ax: Axes, x: np.ndarray, band: Band, drawn: Style) -> None:
    if np.isfinite(band.low).all():
        ax.fill_between(x, band.low, band.high, color=drawn.colour, alpha=0.2, linewidth=0)
    ax.plot(x, band.estimate, color=drawn.colour, linestyle=_dashes(drawn.dash))


def _bar(ax: Axes, row: int, interval: Interval, colour: str) -> None:
    if np.isfinite(interval.low):
        width = interval.high - interval.low
        ax.barh(row, width, 0.55, interval.low, color=colour, alpha=0.45)
    ax.plot([interval.estimate] * 2, [row - 0.28, row + 0.28], color=colour, linewidth=2.2)


def _steps_axis(ax: Axes) -> None:
    ax.set_xlabel(STEPS)
    ax.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    ax.xaxis.set_major_formatter(lambda value, _: _count(value))


def _count(value: float) -> str:
    for size, unit in ((1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g}{unit}"
    return f"{value:g}"


def _dashes(dash: str) -> Any:
    return (0, tuple(float(length) / 1.4 for length in dash.split())) if dash else "-"


def _legend(figure: Figure, methods: Sequence[str], looks: Looks) -> None:
    drawn = [looks[method] for method in sorted(dict.fromkeys(methods), key=order)]
    lines = [
        Line2D([], [], color=one.colour, linestyle=_dashes(one.dash), label=one.name)
        for one in drawn
    ]
    longest = _make_room(figure, [one.name for one in drawn])
    columns = max(1, min(len(lines), int(figure.get_figwidth() / (0.45 + 0.055 * longest))))
    rows = -(-len(lines) // columns)
    figure.set_figheight(figure.get_figheight() + 0.15 * max(rows - 2, 0))
    figure.legend(handles=lines, loc="outside upper center", ncols=columns)


def _make_room(figure: Figure, names: Sequence[str]) -> int:
    """Widen the figure to two columns if names are long; returns the length of the longest."""
    longest = max(map(len, names))
    if longest > LONG:
        figure.set_figwidth(2 * COLUMN)
    return longest


def _caption(figure: Figure, text: str) -> Figure:
    figure.supxlabel(text, fontsize=6.5, color=FAINT, x=0.01, ha="left", wrap=True)
    return figure
