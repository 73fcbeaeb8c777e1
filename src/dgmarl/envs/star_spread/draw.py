"""SVG drawing of Star-Spread."""

import numpy as np

from dgmarl.envs.svg import agent_colour, circle, dependence_arrows, picture, rect, text

SIDE = 400.0
MARGIN = 24.0


def draw_star_spread(
    position: np.ndarray, landmarks: np.ndarray, covered_within: float, graph: object = None
) -> str:
    """Landmarks as rings (filled when covered), agents as discs, dependence edges as arrows."""
    radius = max(4.0, min(13.0, 90.0 / len(position)))
    agents, places = _pixels(position), _pixels(landmarks)
    distance = np.linalg.norm(position[:, None] - landmarks[None], axis=-1)
    covered = distance.min(axis=0) <= covered_within
    shapes = [
        rect(0, 0, SIDE, SIDE, "#fbfaf7"),
        rect(MARGIN / 2, MARGIN / 2, SIDE - MARGIN, SIDE - MARGIN, "none", stroke="#ccc"),
    ]
    for (x, y), is_covered in zip(places, covered, strict=True):
        fill = "#dff0d8" if is_covered else "none"
        shapes.append(circle(x, y, radius * 1.5, fill, stroke="#7a7", stroke_width=2))
    shapes += dependence_arrows(graph, agents, radius * 1.2)
    for agent, (x, y) in enumerate(agents):
        shapes.append(circle(x, y, radius, agent_colour(agent), stroke="#fff", stroke_width=1.5))
        label, size = ("hub", 0.75) if agent == 0 else (agent, 1)
        shapes.append(text(x, y, label, radius * size, "#fff"))
    label = f"Star-Spread with {len(position)} agents, {int(covered.sum())} landmarks covered"
    return picture(SIDE, SIDE, shapes, label)


def _pixels(point: np.ndarray) -> np.ndarray:
    """From the square [-1, 1]^2 (y up) to pixels (y down)."""
    scale = SIDE / 2 - MARGIN
    return np.stack([SIDE / 2 + scale * point[:, 0], SIDE / 2 - scale * point[:, 1]], axis=-1)
