"""SVG drawing of the battlefield."""

import jax
import numpy as np

from dgmarl.envs import svg

from .roster import Roster
from .terrain import SIZE, rectangles
from .types import SmacliteConfig, State

CELL = 18
RIM = 1.5
FOOT = 26
GROUND, ROCK, ENEMY, FALLEN = "#F3F1EA", "#C9C2B4", "#4A4A4A", "#B5AFA3"


def draw(roster: Roster, config: SmacliteConfig, state: State, graph: object = None) -> str:
    """Allies as numbered coloured discs, enemies as dark ones, each with weapon range, bars for hit
    points and shield, a line to its target and a tooltip; crosses for dead units; an arrow from
    source to target per edge of `graph`."""
    state = jax.tree.map(np.asarray, state)
    frame = _Frame(roster)
    centres = frame.pixels(np.asarray(state.position))
    # Small discs on top of large ones, so that none is hidden.
    standing = sorted(np.flatnonzero(state.in_play).tolist(), key=lambda unit: -roster.radius[unit])
    shapes = [
        *_field(roster, frame),
        *(_cross(*centres[unit]) for unit in range(roster.n_units) if not state.in_play[unit]),
        *(_range(roster, unit, centres) for unit in standing),
        *(
            _target(roster, int(state.target[unit]), unit, centres)
            for unit in standing
            if state.target[unit] >= 0
        ),
        *(
            svg.titled(_unit(roster, unit, *centres[unit]), _tooltip(roster, state, unit))
            for unit in standing
        ),
        *(_bars(roster, state, unit, *centres[unit]) for unit in standing),
        *svg.dependence_arrows(graph, centres[: roster.n_allies], gap=CELL * 0.5),
        svg.rect(0, frame.height, frame.width, FOOT, "#FFFFFF"),
    ]
    n = roster.n_allies
    allies, enemies = int(state.in_play[:n].sum()), int(state.in_play[n:].sum())
    left = f"allies {allies} of {n} · enemies {enemies} of {roster.n_enemies}"
    end = "" if allies and enemies else " · defeat" if enemies else " · victory"
    caption = f"step {int(state.time)} of {config.horizon} · {left}{end}"
    shapes.append(svg.text(frame.width / 2, frame.height + FOOT / 2, caption, size=13, fill="#555"))
    return svg.picture(
        frame.width, frame.height + FOOT, shapes, f"SMAClite {roster.name}, {caption}"
    )


class _Frame:
    """The visible part of the map, walkable cells and a margin, and the transform from map
    coordinates (y up) to pixels (y down)."""

    def __init__(self, roster: Roster):
        rows, columns = (np.flatnonzero(roster.walkable.any(axis)) for axis in (1, 0))
        self.left, self.top = columns[0] - RIM, rows[-1] + 1 + RIM
        self.width = (columns[-1] + 1 + RIM - self.left) * CELL
        self.height = (self.top - rows[0] + RIM) * CELL

    def pixels(self, position: np.ndarray) -> np.ndarray:
        return np.stack(
            [(position[..., 0] - self.left) * CELL, (self.top - position[..., 1]) * CELL], axis=-1
        )


def _colour(roster: Roster, unit: int) -> str:
    return svg.agent_colour(unit) if unit < roster.n_allies else ENEMY


def _field(roster: Roster, frame: _Frame) -> list[str]:
    corner = frame.pixels(np.array([0.0, SIZE]))
    shapes = [
        svg.rect(0, 0, frame.width, frame.height, "#FFFFFF"),
        svg.rect(corner[0], corner[1], SIZE * CELL, SIZE * CELL, GROUND),
    ]
    for x, y, width, height in rectangles(roster.walkable):
        left, top = frame.pixels(np.array([x, y + height]))
        shapes.append(svg.rect(left, top, width * CELL, height * CELL, ROCK))
    return shapes


def _cross(x: float, y: float) -> str:
    arm = CELL * 0.25
    first = svg.line(x - arm, y - arm, x + arm, y + arm, FALLEN, stroke_width=2)
    return first + svg.line(x - arm, y + arm, x + arm, y - arm, FALLEN, stroke_width=2)


def _range(roster: Roster, unit: int, centres: np.ndarray) -> str:
    """The weapon range, measured from the unit's rim."""
    reach = roster.reach[unit, unit] - roster.radius[unit]
    (x, y), line = centres[unit], {"stroke_dasharray": "2 4", "opacity": 0.35}
    colour = _colour(roster, unit)
    return svg.circle(x, y, reach * CELL, "none", stroke=colour, stroke_width=0.6, **line)


def _target(roster: Roster, target: int, unit: int, centres: np.ndarray) -> str:
    width, opacity = (1.6, 0.75) if unit < roster.n_allies else (0.9, 0.5)
    (x1, y1), (x2, y2), colour = centres[unit], centres[target], _colour(roster, unit)
    return svg.line(x1, y1, x2, y2, colour, stroke_width=width, opacity=opacity)


def _unit(roster: Roster, unit: int, x: float, y: float) -> str:
    """A disc of the unit's size, ringed for air units, labelled with the agent's index or the first
    and last letter of the enemy's type."""
    radius = max(0.3, float(roster.radius[unit])) * CELL
    look = {"stroke": "#FFFFFF", "stroke_width": 1.2, "fill_opacity": 0.92}
    look |= {"stroke_dasharray": "3 2"} if roster.is_air[unit] else {}
    kind = roster.type_names[unit]
    label = str(unit) if unit < roster.n_allies else kind[0] + kind[-1]
    text = svg.text(x, y + 0.5, label, size=radius * 1.05, fill="#FFFFFF", font_weight="bold")
    return svg.circle(x, y, radius, _colour(roster, unit), **look) + text


def _tooltip(roster: Roster, state: State, unit: int) -> str:
    """Type and remaining hit points, shield and energy."""
    n = roster.n_allies
    who = f"agent {unit}" if unit < n else f"enemy {unit - n}"
    left = [f"{state.hp[unit]:.0f} of {roster.max_hp[unit]:.0f} hit points"]
    left += [f"shield {state.shield[unit]:.0f}"] if roster.max_shield[unit] else []
    left += [f"energy {state.energy[unit]:.0f}"] if roster.is_healer[unit] else []
    return f"{who}: {roster.type_names[unit].replace('_', ' ')}, {', '.join(left)}"


def _bars(roster: Roster, state: State, unit: int, x: float, y: float) -> str:
    """Bars above the disc: hit points in green to red, shield in blue."""
    width, height = 1.0 * CELL, 0.16 * CELL
    top = y - max(0.3, float(roster.radius[unit])) * CELL - 2 * height
    share = float(state.hp[unit] / roster.max_hp[unit])
    colour = "#2E9E4F" if share > 0.5 else "#E0A100" if share > 0.25 else "#C62828"
    bars = svg.rect(x - width / 2, top, width, height, "#FFFFFF")
    bars += svg.rect(x - width / 2, top, width * share, height, colour)
    if roster.max_shield[unit] > 0:
        share = float(state.shield[unit] / roster.max_shield[unit])
        bars += svg.rect(x - width / 2, top - height, width * share, height, "#1E88E5")
    return bars
