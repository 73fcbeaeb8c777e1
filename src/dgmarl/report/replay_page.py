"""The replay page: episodes one can watch, with dependence arrows, rewards and where credit
flows."""

from typing import Any

import jax
import numpy as np

from dgmarl.envs.base import Environment
from dgmarl.envs.svg import agent_colour, circle, dependence_arrows, picture, rect, text
from dgmarl.report.html import asset, page, scripts
from dgmarl.rollout import Recording

REPLAY = ("player", "replay")
"""The viewer's scripts."""


def replay_page(env: Environment, recording: Recording, policy: str, note: str = "") -> str:
    """One self-contained HTML page with every recorded episode; `note` says how the policy itself
    was credited."""
    data = {"replays": [replay_data(env, recording, policy, note)]}
    return page(f"{env.spec.name}: replay", replay_html(), scripts(*REPLAY), data)


def replay_html() -> str:
    """Where the viewer goes, with its controls."""
    return f'<section id="replay" tabindex="-1" aria-label="replay">{asset("player.html")}{asset("replay.html")}</section>'


def replay_data(
    env: Environment, recording: Recording, policy: str, note: str = "", name: str = ""
) -> dict[str, Any]:
    """What the viewer (`replay_html` and the scripts `REPLAY`) shows of one run; `name` tells it
    from others on the page."""
    recording = jax.tree.map(np.asarray, recording)
    return {
        "name": name,
        "environment": env.spec.name,
        "policy": policy,
        "note": note,
        "colours": [agent_colour(agent) for agent in range(env.spec.n_agents)],
        "episodes": [_episode(env, recording, k) for k in range(len(recording.length))],
    }


def _episode(env: Environment, recording: Recording, k: int) -> dict[str, Any]:
    """One episode as plain values: a picture before each step and after the last, rewards and
    graphs per step."""
    length = int(recording.length[k])
    graphs = [None] * length if recording.graph is None else list(recording.graph[k, :length])
    states = [jax.tree.map(lambda leaf, t=t: leaf[k, t], recording.state) for t in range(length)]
    last = jax.tree.map(lambda leaf: leaf[k], recording.last_state)
    frames = [_draw(env, state, graph) for state, graph in zip(states, graphs, strict=True)]
    return {
        "frames": [*frames, _draw(env, last, None)],
        "rewards": np.round(recording.reward[k, :length].astype(float), 4).tolist(),
        "edges": None
        if recording.graph is None
        else [np.argwhere(np.asarray(graph)).tolist() for graph in graphs],
        "ending": "terminated" if recording.terminated[k] else "truncated",
    }


def _draw(env: Environment, state: Any, graph: Any) -> str:
    return env.draw(state, graph) if env.offers("draw") else _draw_plain(env.spec.n_agents, graph)


def _draw_plain(n_agents: int, graph: Any) -> str:
    """For environments without a picture of their own: the agents on a circle, so that the arrows
    can still be seen."""
    angle = 2 * np.pi * np.arange(n_agents) / n_agents
    centres = 200 + 150 * np.stack([np.sin(angle), -np.cos(angle)], axis=-1)
    radius = max(6.0, min(22.0, 260.0 / n_agents))
    shapes = [rect(0, 0, 400, 400, "#fbfaf7"), *dependence_arrows(graph, centres, radius * 1.2)]
    for agent, (x, y) in enumerate(centres):
        shapes += [circle(x, y, radius, agent_colour(agent)), text(x, y, agent, radius, "#fff")]
    return picture(400, 400, shapes, f"{n_agents} agents")
