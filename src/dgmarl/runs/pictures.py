"""Pictures of recorded states as static SVG."""

import re
from typing import Any
from xml.etree import ElementTree

import numpy as np

from dgmarl.envs.svg import agent_colour, circle, dependence_arrows, picture, rect, text

ELEMENTS = {
    *("svg", "g", "defs", "symbol", "use", "title", "desc", "text", "tspan", "image"),
    *("rect", "circle", "ellipse", "line", "polyline", "polygon", "path", "marker", "pattern"),
    *("linearGradient", "radialGradient", "stop", "clipPath", "mask"),
}
"""Static SVG: no scripts, links, style sheets, animations or foreign objects."""
EMBEDDED = ("#", "data:image/png", "data:image/jpeg")
"""Allowed prefixes of `href`: a part of the same picture, or an embedded bitmap."""


def draw_state(env: Any, state: Any, graph: Any) -> str:
    """The environment's picture of a state, or its agents on a circle without a `draw` method."""
    if env.offers("draw"):
        return env.draw(state, graph)
    return draw_circle(env.spec.n_agents, graph)


def draw_circle(n_agents: int, graph: Any) -> str:
    """The agents on a circle, with an arrow per edge."""
    angle = 2 * np.pi * np.arange(n_agents) / n_agents
    centres = 200 + 150 * np.stack([np.sin(angle), -np.cos(angle)], axis=-1)
    radius = max(6.0, min(22.0, 260.0 / n_agents))
    shapes = [rect(0, 0, 400, 400, "#fbfaf7"), *dependence_arrows(graph, centres, radius * 1.2)]
    for agent, (x, y) in enumerate(centres):
        shapes += [circle(x, y, radius, agent_colour(agent)), text(x, y, agent, radius, "#fff")]
    return picture(400, 400, shapes, f"{n_agents} agents")


def svg_problem(svg: str) -> str | None:
    """Why a text is not static SVG, or None if it is.

    Pages embed pictures, and a replay may come from an untrusted source. The page's content
    security policy already blocks scripts and requests; this also rejects elements that could
    imitate or leave the page."""
    if "<!" in svg or "<?" in svg:
        return "it holds a declaration, a comment or a processing instruction"
    try:
        root = ElementTree.fromstring(svg)
    except (ElementTree.ParseError, ValueError, RecursionError) as error:
        return f"it is not well-formed XML ({error})"
    if _local(root.tag) != "svg":
        return f"its outermost element is <{_local(root.tag)}>, not <svg>"
    for element in root.iter():
        if _local(element.tag) not in ELEMENTS:
            return f"it holds a <{_local(element.tag)}> element"
        for name, value in element.attrib.items():
            if not _is_static(_local(name), value):
                return f"it holds the attribute {_local(name)} with the value {value[:40]!r}"
    return None


def _is_static(name: str, value: str) -> bool:
    if name.lower().startswith("on"):
        return False
    if name.lower() == "href":
        return value.strip().startswith(EMBEDDED)
    return not re.search(r"url\((?!\s*['\"]?#)|@import|\\", value, re.IGNORECASE)


def _local(name: Any) -> str:
    """A name without its namespace."""
    return str(name).rpartition("}")[2]
