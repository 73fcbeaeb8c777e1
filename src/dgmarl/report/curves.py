"""Learning curves as SVG; a kind of credit has the same colour everywhere.

`curve_panel` is for a page and follows its light or dark colours; `curve_figure` is a file of its own, on white.
"""

from collections.abc import Iterable, Mapping
from html import escape
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from dgmarl.report.statistics import aggregate_band, mean

CREDIT_COLOURS = {"local": "#E69F00", "global": "#0072B2", "dg": "#009E73"}
CREDIT_NAMES = {"local": "local reward", "global": "global reward", "dg": "dependence graph"}
WIDTH, HEIGHT = 460.0, 280.0
LEFT, RIGHT, TOP, BOTTOM = 52.0, 12.0, 12.0, 36.0
HEADING = 26.0


class Curve(NamedTuple):
    """The evaluations of all seeds of one method."""

    steps: Int[np.ndarray, "S K"]
    returns: Float[np.ndarray, "S K"]


def curve_panel(curves: Mapping[str, Curve], label: str, spread: Literal["seeds", "interval"] = "seeds") -> str:
    """One chart by kind of credit (local, global, dg): a thick line for the mean over seeds, and around it a thin line per
    seed or the band of the mean's 95 % bootstrap intervals."""
    last = min(float(curve.steps[:, -1].min()) for curve in curves.values())
    grid = np.linspace(0, last, 60)
    on_grid = {
        credit: np.array([np.interp(grid, *seed) for seed in zip(*curve, strict=True)]) for credit, curve in curves.items()
    }
    around = {
        credit: seeds if spread == "seeds" else np.array(aggregate_band([seeds], mean)[1:]) for credit, seeds in on_grid.items()
    }
    values = np.concatenate(list(around.values()))
    low, high = float(values.min()), float(values.max())
    low, high = low - 0.04 * (high - low), high + 0.04 * (high - low) + 1e-9

    def point(step: float, value: float) -> tuple[float, float]:
        x = LEFT + (WIDTH - LEFT - RIGHT) * step / last
        return x, HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (value - low) / (high - low)

    shapes = _axes(last, low, high, point)
    for credit, lines in around.items():
        if spread == "seeds":
            shapes += [_line(grid, line, point, CREDIT_COLOURS[credit], 0.8, 0.45) for line in lines]
        else:
            shapes.append(_band(grid, lines, point, CREDIT_COLOURS[credit]))
    shapes += [_line(grid, seeds.mean(axis=0), point, CREDIT_COLOURS[credit], 2.6, 1.0) for credit, seeds in on_grid.items()]
    return (
        f'<svg viewBox="0 0 {WIDTH:g} {HEIGHT:g}" role="img" aria-label="{escape(label, quote=True)}" class="curves" '
        f'font-family="system-ui, sans-serif" font-size="11">{"".join(shapes)}</svg>'
    )


def curve_figure(panels: Mapping[str, Mapping[str, Curve]], label: str) -> str:
    """A whole SVG file on white: titled charts with interval bands, two in a row, under one legend."""
    width, height = 2 * WIDTH, HEADING + -(-len(panels) // 2) * (HEIGHT + HEADING)
    shapes = [f'<rect width="{width:g}" height="{height:g}" fill="#fff"/>']
    for k, credit in enumerate(dict.fromkeys(credit for curves in panels.values() for credit in curves)):
        x = LEFT + 170 * k
        shapes.append(f'<rect x="{x:g}" y="9" width="22" height="10" fill="{CREDIT_COLOURS[credit]}"/>')
        shapes.append(f'<text x="{x + 28:g}" y="19" fill="#222">{CREDIT_NAMES[credit]}</text>')
    for k, (title, curves) in enumerate(panels.items()):
        x, y = k % 2 * WIDTH, HEADING + k // 2 * (HEIGHT + HEADING)
        panel = curve_panel(curves, title, "interval").replace("var(--line)", "#ddd").replace("var(--faint)", "#555")
        shapes.append(f'<text x="{x + LEFT:g}" y="{y + 20:g}" font-weight="600" fill="#222">{escape(title)}</text>')
        shapes.append(panel.replace("<svg ", f'<svg x="{x:g}" y="{y + HEADING:g}" width="{WIDTH:g}" height="{HEIGHT:g}" ', 1))
    size = f'viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{escape(label, quote=True)}" '
        f'font-family="system-ui, sans-serif" font-size="13">\n{chr(10).join(shapes)}\n</svg>\n'
    )


def legend(credits: Iterable[str]) -> str:
    """Which colour is which credit."""
    swatch = '<span class="swatch" style="background:{}"></span>{}'
    return " &nbsp; ".join(swatch.format(CREDIT_COLOURS[credit], CREDIT_NAMES[credit]) for credit in credits)


def _axes(last: float, low: float, high: float, point) -> list[str]:
    shapes = []
    for value in _ticks(low, high):
        _, y = point(0, value)
        shapes.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="var(--line)"/>')
        shapes.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end" fill="var(--faint)">{value:g}</text>')
    for step in _ticks(0, last):
        x, _ = point(step, low)
        shapes.append(
            f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle" fill="var(--faint)">{_count(step, last)}</text>'
        )
    middle = (LEFT + WIDTH - RIGHT) / 2
    shapes.append(f'<text x="{middle}" y="{HEIGHT - 4}" text-anchor="middle" fill="var(--faint)">environment steps</text>')
    return shapes


def _count(step: float, last: float) -> str:
    if step == 0:
        return "0"
    return f"{step / 1e6:g}M" if last >= 1e6 else f"{step / 1000:g}k"


def _ticks(low: float, high: float) -> list[float]:
    """About five round numbers between two ends."""
    raw = (high - low) / 5
    size = 10 ** np.floor(np.log10(raw))
    step = size * min((1, 2, 5, 10), key=lambda factor: abs(factor * size - raw))
    return [float(round(value, 10)) + 0.0 for value in np.arange(np.ceil(low / step) * step, high + 1e-9, step)]


def _band(grid: np.ndarray, ends: np.ndarray, point, colour: str) -> str:
    low, high = ends
    steps, values = np.concatenate([grid, grid[::-1]]), np.concatenate([high, low[::-1]])
    return f'<polygon points="{_path(steps, values, point)}" fill="{colour}" fill-opacity="0.22"/>'


def _line(grid: np.ndarray, values: np.ndarray, point, colour: str, width: float, opacity: float) -> str:
    path = _path(grid, values, point)
    return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}" stroke-opacity="{opacity}"/>'


def _path(steps: np.ndarray, values: np.ndarray, point) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in (point(step, value) for step, value in zip(steps, values, strict=True)))
