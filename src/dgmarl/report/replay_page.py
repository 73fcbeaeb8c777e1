"""The replay page: recorded episodes with dependence arrows, rewards and credit."""

from html import escape
from typing import Any

import numpy as np

from dgmarl.envs.svg import agent_colour
from dgmarl.report.html import render
from dgmarl.runs.replays import CreditWeights, Episode, Replay

REPLAY = ("player", "replay")
"""Scripts of the viewer (`viewer.html`)."""


def replay_page(replay: Replay) -> str:
    """Self-contained HTML page with all recorded episodes."""
    data = {"replays": [replay_data(replay)]}
    return render("replay_page.html", REPLAY, data, title=f"{replay.env}: replay")


class Inline:
    """A page that notebooks show in a frame."""

    def __init__(self, page: str, height: int):
        self.page, self.height = page, height

    def _repr_html_(self) -> str:
        return (
            f'<iframe srcdoc="{escape(self.page)}" title="replay" width="100%" '
            f'height="{self.height}" style="border: 0"></iframe>'
        )


def show(replay: Replay, height: int = 720) -> Inline:
    """The player of a replay, as the last value of a notebook's cell.

    >>> run = load("runs/mine")
    >>> show(run.replay(jax.random.key(0), n_episodes=1))
    """
    return Inline(replay_page(replay), height)


def replay_data(replay: Replay, name: str = "") -> dict[str, Any]:
    """Data of one run for the viewer; `name` identifies it on the page."""
    return {
        "name": name,
        "environment": replay.env,
        "policy": replay.policy,
        "note": replay.note,
        "actions": replay.action_names,
        "colours": [agent_colour(agent) for agent in range(replay.n_agents)],
        "weights": None if replay.weights is None else _weights(replay.weights),
        "episodes": [_episode(episode) for episode in replay.episodes],
    }


def _episode(episode: Episode) -> dict[str, Any]:
    return {
        "frames": episode.frames,
        "stride": episode.stride,
        "rewards": np.round(episode.rewards.astype(float), 4).tolist(),
        "actions": None if episode.actions is None else episode.actions.tolist(),
        "lags": None if episode.lags is None else episode.lags.tolist(),
        "through": None if episode.through is None else episode.through.tolist(),
        "ending": "terminated" if episode.terminated else "truncated",
    }


def _weights(weights: CreditWeights) -> dict[str, Any]:
    """Weights by distance in time; those of reached agents also by meeting lag."""
    rows = zip(weights.lags.tolist(), weights.reached, strict=True)
    return {
        "own": _rounded(weights.own),
        "unreached": _rounded(weights.unreached),
        "full": _rounded(weights.full),
        "reached": {str(lag): _rounded(row) for lag, row in rows},
    }


def _rounded(values: np.ndarray) -> list[float]:
    return [float(f"{value:.4g}") for value in values]
