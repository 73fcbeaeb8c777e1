"""SVG primitives shared by the drawings of all environments."""

from collections.abc import Iterable
from html import escape

import numpy as np

# Okabe and Ito's palette, distinguishable with all common forms of colour blindness. Agent k has
# colour k modulo 8.
AGENT_COLOURS = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
    "#8B6F00",
    "#666666",
)
ARROW_COLOUR = "#C2185B"


def agent_colour(agent: int) -> str:
    """The colour of an agent in every picture and page."""
    return AGENT_COLOURS[agent % len(AGENT_COLOURS)]


def picture(width: float, height: float, shapes: Iterable[str], label: str) -> str:
    """A complete SVG document that scales to its container; `label` is the accessible name."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" role="img" '
        f'aria-label="{escape(label, quote=True)}" font-family="system-ui, sans-serif">'
        f"{''.join(shapes)}</svg>"
    )


def rect(x: float, y: float, width: float, height: float, fill: str, **attributes: object) -> str:
    """A rectangle by its top-left corner."""
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" '
        f'fill="{fill}"{_as_text(attributes)}/>'
    )


def circle(x: float, y: float, radius: float, fill: str, **attributes: object) -> str:
    """A circle by its centre."""
    return f'<circle cx="{x:g}" cy="{y:g}" r="{radius:g}" fill="{fill}"{_as_text(attributes)}/>'


def line(x1: float, y1: float, x2: float, y2: float, stroke: str, **attributes: object) -> str:
    """A straight line."""
    return (
        f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" '
        f'stroke="{stroke}"{_as_text(attributes)}/>'
    )


def text(
    x: float, y: float, content: object, size: float = 12, fill: str = "#222", **attributes: object
) -> str:
    """Text centred on a point."""
    return (
        f'<text x="{x:g}" y="{y:g}" font-size="{size:g}" fill="{fill}" text-anchor="middle" '
        'dominant-baseline="central"'
        f"{_as_text(attributes)}>{escape(str(content))}</text>"
    )


def titled(shapes: str, title: object) -> str:
    """Shapes with a tooltip."""
    return f"<g><title>{escape(str(title))}</title>{shapes}</g>"


def arrow(start: tuple[float, float], end: tuple[float, float], gap: float) -> str:
    """A curved arrow that ends `gap` short of both points; the curvature separates j→i from i→j."""
    p, q = np.asarray(start, float), np.asarray(end, float)
    distance = float(np.hypot(*(q - p)))
    if distance < 1e-6:
        return circle(p[0], p[1], gap * 1.25, "none", stroke=ARROW_COLOUR, stroke_width=gap / 8)
    along = (q - p) / distance
    across = np.array([-along[1], along[0]])
    middle = (p + q) / 2 + across * min(0.18 * distance, gap)
    gap = min(gap, 0.45 * distance)
    tail, head = p + along * gap, q - along * gap
    towards = (head - middle) / max(float(np.hypot(*(head - middle))), 1e-6)
    side, size = np.array([-towards[1], towards[0]]), gap * 0.45
    base, half = head - towards * size, side * size * 0.6
    left, right = base + half, base - half
    return (
        f'<path d="M{tail[0]:.1f} {tail[1]:.1f}Q{middle[0]:.1f} {middle[1]:.1f} '
        f'{head[0]:.1f} {head[1]:.1f}" fill="none" '
        f'stroke="{ARROW_COLOUR}" stroke-width="{gap / 8:.2f}" opacity=".85"/>'
        f'<path d="M{head[0]:.1f} {head[1]:.1f}L{left[0]:.1f} {left[1]:.1f}'
        f'L{right[0]:.1f} {right[1]:.1f}Z" fill="{ARROW_COLOUR}"/>'
    )


def dependence_arrows(graph: object, centres: np.ndarray, gap: float) -> list[str]:
    """One arrow from source to target per off-diagonal edge of `graph`, in an SVG group of class
    `dependence`; empty if `graph` is None."""
    if graph is None:
        return []
    edges = np.argwhere(np.asarray(graph, bool) & ~np.eye(len(centres), dtype=bool))
    arrows = [arrow(tuple(centres[j]), tuple(centres[i]), gap) for j, i in edges]
    return ['<g class="dependence">', *arrows, "</g>"]


def _as_text(attributes: dict[str, object]) -> str:
    return "".join(
        f' {name.replace("_", "-")}="{escape(str(value), quote=True)}"'
        for name, value in attributes.items()
    )
