"""SVG drawing of the board."""

import numpy as np

from dgmarl.envs import svg

from .types import LBFConfig, State

CELL = 40
MARGIN = 10
FOOT = 26


def draw(config: LBFConfig, state: State, graph: object = None) -> str:
    """Foods (as apples), players with their levels, and an arrow per edge of `graph`."""
    side = config.size * CELL
    centres, radii = _player_discs(np.asarray(state.position))
    food_level = np.asarray(state.food_level)
    shapes = [
        svg.rect(0, 0, side + 2 * MARGIN, side + 2 * MARGIN + FOOT, "#FFFFFF"),
        *_board(config.size),
        *(
            _apple(*_centre(position), level)
            for position, level in zip(np.asarray(state.food_position), food_level, strict=True)
            if level > 0
        ),
        *(
            _player(agent, x, y, radii[agent], int(state.level[agent]))
            for agent, (x, y) in enumerate(centres)
        ),
        *svg.dependence_arrows(graph, centres, gap=CELL * 0.36),
    ]
    left, total = int(food_level.sum()), int(state.food_total)
    caption = f"step {int(state.time)} of {config.horizon} · food value left {left} of {total}"
    size = min(13, 1.8 * (side + 2 * MARGIN) / len(caption))
    middle = (MARGIN + side / 2, side + 2 * MARGIN + FOOT / 2 - 4)
    shapes.append(svg.text(*middle, caption, size, fill="#555"))
    label = f"Level-based foraging, {caption}"
    return svg.picture(side + 2 * MARGIN, side + 2 * MARGIN + FOOT, shapes, label)


def _centre(position: np.ndarray) -> tuple[float, float]:
    row, column = position
    return MARGIN + (column + 0.5) * CELL, MARGIN + (row + 0.5) * CELL


def _player_discs(position: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Centres and radii. Players that share a cell are smaller and placed around its centre."""
    centres = np.array([_centre(cell) for cell in position])
    radii = np.full(len(position), CELL * 0.3)
    for agent, same_cell in enumerate((position[:, None] == position).all(-1)):
        if same_cell.sum() > 1:
            angle = 2 * np.pi * same_cell[:agent].sum() / same_cell.sum()
            centres[agent] -= CELL * 0.24 * np.array([np.cos(angle), np.sin(angle)])
            radii[agent] = CELL * 0.2
    return centres, radii


def _board(size: int) -> list[str]:
    side = size * CELL
    tiles = [
        svg.rect(MARGIN + column * CELL, MARGIN + row * CELL, CELL, CELL, "#E9F2E3")
        for row in range(size)
        for column in range(size)
        if (row + column) % 2
    ]
    ground = svg.rect(MARGIN, MARGIN, side, side, "#F5F9F1")
    frame = svg.rect(MARGIN, MARGIN, side, side, "none", stroke="#A9BFA0", stroke_width=1.5, rx=2)
    return [ground, *tiles, frame]


def _apple(x: float, y: float, level: int) -> str:
    radius = CELL * 0.33
    top = y - radius * 0.75
    tip = (x + radius * 0.2, top - radius * 0.5)
    stalk = svg.line(x, top, *tip, "#6B4423", stroke_width=2, stroke_linecap="round")
    leaf = (
        f'<ellipse cx="{x + radius * 0.6:g}" cy="{top - radius * 0.3:g}" '
        f'rx="{radius * 0.38:g}" ry="{radius * 0.18:g}" '
        f'fill="#4C9A2A" transform="rotate(-25 {x + radius * 0.6:g} {top - radius * 0.3:g})"/>'
    )
    body = "".join(
        svg.circle(x + offset, y + 1, radius * 0.82, "#C62828")
        for offset in (-radius * 0.28, radius * 0.28)
    )
    label = svg.text(x, y + 1.5, level, size=CELL * 0.4, fill="#FFFFFF", font_weight="bold")
    return stalk + leaf + body + label


def _player(agent: int, x: float, y: float, radius: float, level: int) -> str:
    """A disc in the agent's colour with its level, and a small index at the lower right."""
    colour, right, low = svg.agent_colour(agent), x + 0.8 * radius, y + 0.8 * radius
    return (
        svg.circle(x, y, radius, colour, stroke="#FFFFFF", stroke_width=1.5)
        + svg.text(x, y + 0.5, level, size=radius * 1.3, fill="#FFFFFF", font_weight="bold")
        + svg.circle(right, low, radius * 0.45, "#FFFFFF", stroke=colour, stroke_width=1)
        + svg.text(right, low + 0.3, agent, size=radius * 0.65, fill="#333")
    )
