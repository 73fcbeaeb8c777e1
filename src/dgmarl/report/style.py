"""One visual language: a method has the same colour, dash and name, a quantity the same words, in
every figure and page.

The colour says whose rewards are credited, the dash which learner does it. Colours are Okabe and
Ito's, and others chosen to be as far from them for people who lack a cone (a test computes it); all
can be seen on light and dark paper."""

import re
from collections.abc import Iterable
from typing import NamedTuple

BACKBONES = {"ippo": "IPPO", "mappo": "MAPPO"}
VALUES = {"iql": "#A04000", "vdn": "#447788", "qmix": "#5B3FFF", "qplex": "#FF5566"}
CREDITS = {"local": "#E69F00", "global": "#0072B2", "dg": "#009E73"}
GRAPHS = {
    "oracle": CREDITS["dg"],
    "learned": "#CC79A7",
    "learned-tuned": "#D055FF",
    "interventional": "#56B4E9",
}
OTHER_GRAPH = "#8B6F00"
CREDIT_NAMES = {"local": "local reward", "global": "global reward", "dg": "dependence graph"}
SOLID, DASHED, DOTTED = "", "7 3", "2 2.5"

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
    backbone, _, rest = method.partition("-")
    credit, _, graph = rest.partition("-")
    if backbone in VALUES:
        return Style(method.upper() + extra, VALUES[backbone], DOTTED)
    dash = DASHED if backbone == "mappo" else SOLID
    name = BACKBONES.get(backbone, backbone)
    if credit in ("local", "global"):
        return Style(f"{name} {credit}{extra}", CREDITS[credit], dash)
    if credit == "dg":
        return Style(f"{name}-DG {_spaced(graph)}".rstrip() + extra, graph_colour(graph), dash)
    return Style(method + extra, OTHER_GRAPH, dash)


def styles(methods: Iterable[str]) -> dict[str, Style]:
    """Of all methods of one page: of two that would look the same (two runs of one method), the
    second gets another colour."""
    found: dict[str, Style] = {}
    for method in sorted(dict.fromkeys(methods), key=order):
        own = style(method)
        spare = [own, *(own._replace(colour=colour) for colour in (OTHER_GRAPH, *VALUES.values()))]
        taken = {(other.colour, other.dash) for other in found.values()}
        found[method] = next((look for look in spare if (look.colour, look.dash) not in taken), own)
    return found


def order(method: str) -> tuple:
    """For lists of methods: IPPO, MAPPO, others; within them local, global, graph."""
    backbone, _, rest = method.partition("-")
    place = list(BACKBONES).index(backbone) if backbone in BACKBONES else len(BACKBONES)
    credit = rest.partition("-")[0].partition(" ")[0]
    return place, list(CREDITS).index(credit) if credit in CREDITS else len(CREDITS), method


def graph_colour(graph: str) -> str:
    """Of a graph source by its tag; random graphs are grey, the darker the denser."""
    if not graph:
        return CREDITS["dg"]
    density = re.fullmatch(r"random([0-9.]+)", graph)
    if density:
        shade = round(0xB0 - 0x60 * min(float(density[1]), 1.0))
        return f"#{shade:02x}{shade:02x}{shade:02x}"
    # A variant (`oracle-cross_weight=0.3`) has the colour of its source.
    sources = [source for source in GRAPHS if f"{graph}-".startswith(f"{source}-")]
    return GRAPHS[max(sources, key=len)] if sources else OTHER_GRAPH


def _spaced(graph: str) -> str:
    return re.sub(r"^([a-z]+)([0-9])", r"\1 \2", graph)
