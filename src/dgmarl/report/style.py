"""Colours, dashes and names of methods, and labels of metrics, for all figures and pages.

The colour encodes the credit rule, the dash the learner. Colours are those of Okabe and Ito, and
others that are equally distinct with colour blindness (a test checks it); all are visible on light
and dark backgrounds."""

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from dgmarl.config.methods import DASHED, DOTTED, GRAPH, METHODS, SOLID, Method, method_of_label

GRAPHS = {
    "oracle": GRAPH,
    "learned": "#CC79A7",
    "learned-tuned": "#D055FF",
    "interventional": "#56B4E9",
    "attention": "#D47C32",
    "interventional-sampled": "#D04848",
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
    """Plot style of a method."""

    name: str
    colour: str
    dash: str
    """SVG dash pattern; empty for a solid line."""


Looks = Mapping[str, Style]
"""Styles of all methods that are shown together."""


def style(method: str) -> Style:
    """Style of a result's method, such as `mappo-dg-random0.3` or `qmix (run name)`."""
    method, _, extra = method.partition(" (")
    extra = f" ({extra}" if extra else ""
    entry, graph = method_of_label(method)
    if entry is None:
        return Style(method + extra, OTHER, SOLID)
    colour = graph_colour(graph) if entry.uses_graph else entry.colour
    spaced = re.sub(r"^([a-z]+)([0-9])", r"\1 \2", graph)
    return Style(f"{entry.label} {spaced}".rstrip() + extra, colour, entry.dash)


def styles(methods: Iterable[str]) -> dict[str, Style]:
    """Distinct styles for all methods of a page. Methods with equal styles (runs or variants of one
    method), except the first, get colours that no other method there has, then other dashes."""
    found: dict[str, Style] = {}
    taken: set[tuple[str, str]] = set()
    all_own = {method: style(method) for method in sorted(dict.fromkeys(methods), key=order)}
    named = {own.colour for own in all_own.values()}
    spare = [colour for colour in _spare_colours() if colour not in named] or _spare_colours()
    for method, own in all_own.items():
        others = (
            own._replace(colour=colour, dash=dash)
            for dash in dict.fromkeys((own.dash, SOLID, DASHED, DOTTED))
            for colour in spare
        )
        look = next((one for one in (own, *others) if one[1:] not in taken), own)
        taken.add(look[1:])
        found[method] = look
    return found


def env_names(envs: Iterable[str]) -> dict[str, str]:
    """Display names of environments: those from files (`/home/me/relay.py:Relay`) without the
    folder, unless two would have the same name."""
    envs = list(dict.fromkeys(envs))
    short = [_without_folder(env) for env in envs]
    return {
        env: name if short.count(name) == 1 else env for env, name in zip(envs, short, strict=True)
    }


def _without_folder(env: str) -> str:
    path, _, name = env.rpartition(":")
    if path.endswith(".py"):
        return f"{path.rpartition('/')[2]}:{name}"
    family, _, path = env.partition("/")
    return f"{family}/{path.rpartition('/')[2]}" if path.endswith((".yaml", ".yml")) else env


def order(method: str) -> tuple[int, str]:
    """Sort key of methods: the order of the table of methods, others last."""
    entry = _entry(method)
    return list(METHODS).index(entry.name) if entry else len(METHODS), method


def uses_graph(method: str) -> bool:
    """Whether a result's method uses graph credit."""
    entry = _entry(method)
    return entry is not None and entry.uses_graph


def same_learner(first: str, second: str) -> bool:
    """Whether the methods of two results differ only in the credit rule."""
    one, other = _entry(first), _entry(second)
    if one is None or other is None:
        return False
    return (one.learner, one.allowed) == (other.learner, other.allowed)


def _entry(method: str) -> Method | None:
    """The method of a result's label, which may end in ` (run name)`."""
    return method_of_label(method.partition(" (")[0])[0]


def _spare_colours() -> list[str]:
    named = (method.colour for method in METHODS.values())
    return list(dict.fromkeys((OTHER, *GRAPHS.values(), *named)))


def graph_colour(graph: str) -> str:
    """Colour of a graph source by its tag; denser random graphs are a darker grey."""
    if not graph:
        return GRAPH
    density = re.fullmatch(r"random([0-9.]+)", graph)
    if density:
        shade = round(0xB0 - 0x60 * min(float(density[1]), 1.0))
        return f"#{shade:02x}{shade:02x}{shade:02x}"
    graph = re.sub(r"^(interventional)[0-9]*(-sampled)[0-9]+", r"\1\2", graph)
    # A variant (`oracle-cross_weight=0.3`) has the colour of its source.
    sources = [source for source in GRAPHS if f"{graph}-".startswith(f"{source}-")]
    return GRAPHS[max(sources, key=len)] if sources else OTHER
