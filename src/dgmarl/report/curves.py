"""Learning curves as SVG that follows the page's light or dark colours; a method has the same colour everywhere."""

from collections.abc import Iterable, Mapping
from html import escape
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

CREDIT_COLOURS = {"local": "#E69F00", "global": "#0072B2", "dg": "#009E73"}
CREDIT_NAMES = {"local": "local reward", "global": "global reward", "dg": "dependence graph"}
WIDTH, HEIGHT = 460.0, 280.0
LEFT, RIGHT, TOP, BOTTOM = 52.0, 12.0, 12.0, 36.0


class Curve(NamedTuple):
    """The evaluations of all seeds of one method."""

    steps: Int[np.ndarray, "S K"]
    returns: Float[np.ndarray, "S K"]


def curve_panel(curves: Mapping[str, Curve], label: str) -> str:
    """One chart: a thin line per seed, a thick one for their mean, by kind of credit (local, global, dg)."""
    last = min(float(curve.steps[:, -1].min()) for curve in curves.values())
    values = np.concatenate([curve.returns.ravel() for curve in curves.values()])
    low, high = float(values.min()), float(values.max())
    low, high = low - 0.04 * (high - low), high + 0.04 * (high - low) + 1e-9

    def point(step: float, value: float) -> tuple[float, float]:
        x = LEFT + (WIDTH - LEFT - RIGHT) * step / last
        return x, HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (value - low) / (high - low)

    shapes = _axes(last, low, high, point)
    grid = np.linspace(0, last, 60)
    for credit, curve in curves.items():
        seeds = [np.interp(grid, steps, returns) for steps, returns in zip(*curve, strict=True)]
        colour = CREDIT_COLOURS[credit]
        shapes += [_line(grid, seed, point, colour, 0.8, 0.45) for seed in seeds]
        shapes.append(_line(grid, np.mean(seeds, axis=0), point, colour, 2.6, 1.0))
    return (
        f'<svg viewBox="0 0 {WIDTH:g} {HEIGHT:g}" role="img" aria-label="{escape(label, quote=True)}" class="curves" '
        f'font-family="system-ui, sans-serif" font-size="11">{"".join(shapes)}</svg>'
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
            f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle" fill="var(--faint)">{step / 1000:g}k</text>'
        )
    middle = (LEFT + WIDTH - RIGHT) / 2
    shapes.append(f'<text x="{middle}" y="{HEIGHT - 4}" text-anchor="middle" fill="var(--faint)">environment steps</text>')
    return shapes


def _ticks(low: float, high: float) -> list[float]:
    """About five round numbers between two ends."""
    raw = (high - low) / 5
    size = 10 ** np.floor(np.log10(raw))
    step = size * min((1, 2, 5, 10), key=lambda factor: abs(factor * size - raw))
    return [float(round(value, 10)) + 0.0 for value in np.arange(np.ceil(low / step) * step, high + 1e-9, step)]


def _line(grid: np.ndarray, values: np.ndarray, point, colour: str, width: float, opacity: float) -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (point(step, value) for step, value in zip(grid, values, strict=True)))
    return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}" stroke-opacity="{opacity}"/>'
