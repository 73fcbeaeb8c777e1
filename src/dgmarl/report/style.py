"""One visual language: a method has the same colour, dash and name, a quantity the same words, in
every figure and page.

The colour says whose rewards are credited, the dash which learner does it. Colours are Okabe and
Ito's, and others chosen to be as far from them for people who lack a cone (a test computes it); all
can be seen on light and dark paper."""

import re
from collections.abc import Iterable
from typing import NamedTuple

from dgmarl.config.methods import GRAPH, METHODS, SOLID, method_of_label

GRAPHS = {
    "oracle": GRAPH,
    "learned": "#CC79A7",
    "learned-tuned": "#D055FF",
    "interventional": "#56B4E9",
    "attention": "#D47C32",
}
OTHER = "#8B6F00"

AXES = {
    "steps": "environment steps",
    "wall_s": "seconds of training",
    "episodes": "training episodes",
}
METRICS = {
    "return": "team return per episode",
    "graph_density": "graph density (share of pairs)",
    "graph_f1_oracle": "F1 against the oracle's edges",
    "graph_f1_interventional": "F1 against interventional edges",
    "length_mean": "episode length in steps",
    "entropy": "policy entropy in nats",
    "value_loss": "value loss",
}


class Style(NamedTuple):
    """How a method is drawn."""

    name: str
    colour: str
    dash: str
    """Lengths of strokes and gaps, as in SVG; empty for a solid line."""


def style(method: str) -> Style:
    """Of a method by the name of its result: `ippo-local`, `mappo-dg-random0.3`, `qmix`, with an
    optional ` (run name)`."""
    method, _, extra = method.partition(" (")
    extra = f" ({extra}" if extra else ""
    entry, graph = method_of_label(method)
    if entry is None:
        return Style(method + extra, OTHER, SOLID)
    colour = graph_colour(graph) if entry.uses_graph else entry.colour
    return Style(f"{entry.label} {_spaced(graph)}".rstrip() + extra, colour, entry.dash)


def styles(methods: Iterable[str]) -> dict[str, Style]:
    """Of all methods of one page: of two that would look the same (two runs of one method), the
    second gets another colour."""
    found: dict[str, Style] = {}
    for method in sorted(dict.fromkeys(methods), key=order):
        own = style(method)
        spare = [own, *(own._replace(colour=colour) for colour in (OTHER, *_spare_colours()))]
        taken = {(other.colour, other.dash) for other in found.values()}
        found[method] = next((look for look in spare if (look.colour, look.dash) not in taken), own)
    return found


def order(method: str) -> tuple[int, str]:
    """For lists of methods: as in the table of methods, others last."""
    entry, _ = method_of_label(method.partition(" (")[0])
    return list(METHODS).index(entry.name) if entry else len(METHODS), method


def uses_graph(method: str) -> bool:
    """Whether a result's method has graph credit."""
    entry, _ = method_of_label(method.partition(" (")[0])
    return entry is not None and entry.uses_graph


def same_learner(first: str, second: str) -> bool:
    """Whether the methods of two results differ in the credit rule only."""
    one, other = (method_of_label(method.partition(" (")[0])[0] for method in (first, second))
    if one is None or other is None:
        return False
    return (one.learner, one.allowed) == (other.learner, other.allowed)


def _spare_colours() -> list[str]:
    return list(dict.fromkeys(method.colour for method in METHODS.values()))


def graph_colour(graph: str) -> str:
    """Of a graph source by its tag; random graphs are grey, the darker the denser."""
    if not graph:
        return GRAPH
    density = re.fullmatch(r"random([0-9.]+)", graph)
    if density:
        shade = round(0xB0 - 0x60 * min(float(density[1]), 1.0))
        return f"#{shade:02x}{shade:02x}{shade:02x}"
    # A variant (`oracle-cross_weight=0.3`) has the colour of its source.
    sources = [source for source in GRAPHS if f"{graph}-".startswith(f"{source}-")]
    return GRAPHS[max(sources, key=len)] if sources else OTHER


def _spaced(graph: str) -> str:
    return re.sub(r"^([a-z]+)([0-9])", r"\1 \2", graph)
