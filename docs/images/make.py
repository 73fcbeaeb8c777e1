"""Draw the pictures of docs/images: `python docs/images/make.py`, from the root of the repository.

Nothing is trained: the agents follow a rule, and pages and pictures are those of `dgmarl watch`.
A test checks that the files are current."""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from dgmarl import credited_rewards, make_env
from dgmarl.envs import svg
from dgmarl.envs.lbf.types import EAST, LOAD, NORTH, SOUTH, WEST
from dgmarl.report.replay_page import replay_page
from dgmarl.rollout import record_episodes
from dgmarl.runs.replays import Replay, make_replay

FOLDER = Path(__file__).parent
CREDIT = {"gamma": 0.99, "lambda_": 0.95}
FORAGING = "lbf/6x6-2p-2f-coop"
STEPS, AGENTS, CELL, PACE = 8, 4, 26, 130

sys.path.insert(0, str(FOLDER.parents[1] / "examples"))
from relay import Relay  # noqa: E402


class DrawnRelay(Relay):
    """The relay of examples/, with a picture: the parcel goes from left to right."""

    def draw(self, state, graph=None):
        """Agents in a row; a square is the parcel."""
        n, holder = self.spec.n_agents, int(state.holder)
        centres = np.stack([PACE * (np.arange(n) + 0.5), np.full(n, 80)], axis=1)
        width = PACE * (n + 1)
        shapes = [svg.rect(0, 0, width, 150, "#FFFFFF")]
        for agent, (x, y) in enumerate(centres):
            shapes.append(svg.circle(x, y, 24, svg.agent_colour(agent)))
            shapes.append(svg.text(x, y, agent, 16, "#FFF"))
        shapes += [svg.rect(PACE * (holder + 0.5) - 10, 26, 20, 20, "#8B6F00")]
        shapes += svg.dependence_arrows(graph, centres, gap=30)
        caption = f"step {int(state.time)} · " + (
            "the parcel has arrived" if holder == n else f"agent {holder} holds the parcel"
        )
        shapes.append(svg.text(width / 2, 132, caption, 13, fill="#555"))
        return svg.picture(width, 150, shapes, f"Relay, {caption}")


def pass_on(key, observation, hidden_state, is_first):
    """Whoever holds the parcel passes it."""
    action = observation.agents_view[..., 0].astype(jnp.int32)
    return action, jnp.zeros(action.shape), hidden_state


def gather(key, observation, hidden_state, is_first):
    """Everybody walks to the first food and loads it."""
    views = observation.agents_view
    food, own = views[..., :2], views[..., -6:-4]
    row, column = jnp.moveaxis(food - own, -1, 0)
    vertical = jnp.where(row > 0, SOUTH, NORTH)
    sideways = jnp.where(column > 0, EAST, WEST)
    walk = jnp.where(jnp.abs(row) > jnp.abs(column), vertical, sideways)
    action = jnp.where(jnp.abs(row) + jnp.abs(column) == 1, LOAD, walk).astype(jnp.int32)
    return action, jnp.zeros(action.shape), hidden_state


def replays() -> dict[str, Replay]:
    """By name, one episode each."""
    relay, foraging = DrawnRelay(n_agents=AGENTS), make_env(FORAGING, horizon=20)
    played = {
        "relay": (relay, pass_on, 0),
        "foraging": (foraging, gather, 2),
    }
    return {
        name: make_replay(
            env, record_episodes(env, act, jax.random.key(seed), 1), "scripted", credit=CREDIT
        )
        for name, (env, act, seed) in played.items()
    }


def credit_picture(graph: np.ndarray) -> str:
    """Three panels: the later rewards that agent 0's first action is credited with. The last agent
    is one that no path leads to."""
    n, ends = graph.shape[1] + 1, np.zeros(STEPS, bool)
    alone = np.tile(np.eye(n, dtype=bool), (STEPS, 1, 1))
    paths = alone.copy()
    paths[: len(graph), :-1, :-1] |= graph
    edges = {
        "local reward": alone,
        "global reward": np.ones_like(alone),
        "dependence graph": paths,
    }
    width, shapes = STEPS * CELL + 40, []
    for panel, (name, each) in enumerate(edges.items()):
        weights = credited_rewards(each, ends, 0, 0, gamma=1.0, lambda_=1.0)
        left = 60 + panel * width
        shapes.append(svg.text(left + STEPS * CELL / 2, 16, name, 15, font_weight="bold"))
        for agent, step in np.ndindex(n, STEPS):
            fill = svg.agent_colour(agent) if weights[step, agent] > 0 else "#EEE"
            place = (left + step * CELL, 34 + agent * CELL)
            shapes.append(svg.rect(*place, CELL - 3, CELL - 3, fill))
    for agent in range(n):
        shapes.append(svg.text(28, 45 + agent * CELL, f"agent {agent}", 12, fill="#555"))
    foot = (
        "time goes to the right; filled: rewards that the first action of agent 0 is credited with"
    )
    total = 60 + 3 * width
    height = 34 + n * CELL + 30
    shapes.append(svg.text(total / 2, height - 14, foot, 13, fill="#555"))
    return svg.picture(total, height, [svg.rect(0, 0, total, height, "#FFFFFF"), *shapes], foot)


def pictures() -> dict[str, str]:
    """The text of every file, by name."""
    played = replays()
    relay, foraging = (played[name].episodes[0] for name in ("relay", "foraging"))
    assert relay.graph is not None
    lift = int(np.argmax(foraging.rewards.sum(axis=1) > 0))
    return {
        **{f"{name}.html": replay_page(replay) for name, replay in played.items()},
        "replay.svg": foraging.frames[lift // foraging.stride],
        "credit.svg": credit_picture(relay.graph),
    }


if __name__ == "__main__":
    for name, text in pictures().items():
        (FOLDER / name).write_text(text)
        print(name, len(text))
