"""What `interventional:H` adds to one-step graphs: `python benchmarks/state_influence.py`.

One step shows what an agent's action changes at once. An agent whose *state* changes another one,
whatever it does, has no such edge: the paper names this as a limit of its learned graph. Measured

- on the relay of examples/, in which every agent must act to pass the parcel on, and on a belt that
  carries it on by itself: edges, pairs that paths reach, and what IPPO learns from that credit;
- on SMAClite in random play: edges of H steps that no path of one-step edges explains, and how many
  edges show in positions alone, as when one unit stands in the way of another.

Writes results/graphs/state-influence.json."""

import argparse
import json
import sys
from copy import copy
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import dgmarl
from dgmarl import Environment, Outcome, make_env, meeting_times
from dgmarl.envs.smaclite.env import Smaclite
from dgmarl.graphs.interventional import intervene_batch
from dgmarl.rollout import Batch, act_randomly, collect, reset_envs

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "examples"))
from relay import Relay, RelayState  # noqa: E402  # pyright: ignore[reportMissingImports]

HORIZONS = (1, 3)
TRAINED = (
    ("ippo-local", "self"),
    ("ippo-global", "self"),
    ("ippo-dg", "interventional"),
    ("ippo-dg", "interventional:3"),
    ("ippo-dg", "learned"),
)


class Belt(Relay):
    """The relay with a belt: agent 0 may put the parcel on it, at a cost; from then on it moves to
    the next agent in each step by itself. The last one is paid when it arrives."""

    def __init__(self, n_agents: int = 4, horizon: int = 8):
        super().__init__(n_agents, horizon)

    def step(self, key, state, action):
        n = self.spec.n_agents
        moves = (state.holder > 0) | (action[0] == 1)
        state = RelayState(state.holder + moves, state.time + 1)
        arrived = state.holder == n - 1
        reward = jnp.where(action == 1, -0.05, 0.0).at[-1].add(jnp.where(arrived, 1.0, 0.0))
        timeout = (state.time >= self.spec.horizon) & ~arrived
        outcome = Outcome(reward, arrived, timeout, {"arrived": arrived})
        return state, self.observation(state), outcome


class Places(Smaclite):
    """Battles in which an agent's state is its position alone."""

    def local_state(self, state):
        return super().local_state(state)[:, :2]


def play(env: Environment, n_envs: int, length: int) -> Batch:
    """Random play without resets."""
    start = reset_envs(env, jax.random.key(0), None, n_envs)
    needs = frozenset({"states", "keys"})
    return collect(env, act_randomly, start, jax.random.key(1), length, needs, reset=False)[1]


def measured(env: Environment, batch: Batch) -> list[dict[str, Any]]:
    """By horizon: density, the share of edges that no path of one-step edges within as many steps
    explains, and the share of pairs that paths reach by the end of the episode."""
    pairs = np.asarray(batch.valid)[..., None, None] & ~np.eye(env.spec.n_agents, dtype=bool)
    graphs = [
        jax.jit(lambda batch, h=horizon: intervene_batch(env, batch, horizon=h).action_graph)(batch)
        for horizon in HORIZONS
    ]
    lags = [np.asarray(meeting_times(graph, ~batch.continues)) for graph in graphs]
    rows = []
    for horizon, graph, lag in zip(HORIZONS, graphs, lags, strict=True):
        edges = np.asarray(graph)[pairs]
        unexplained = edges & (lags[0] >= horizon)[pairs]
        rows.append(
            {
                "horizon": horizon,
                "edges": int(edges.sum()),
                "density": round(float(edges.mean()), 4),
                "unexplained": round(float(unexplained.sum() / max(edges.sum(), 1)), 4),
                "reached": round(float((lag < len(lag))[pairs].mean()), 4),
            }
        )
    return rows


def trained(env: Environment, steps: int, seeds: int) -> dict[str, list[float]]:
    """Final returns of IPPO by credit."""
    overrides = {"evaluation.interval": steps, "learner.hidden": 32}
    options: dict[str, Any] = {"seeds": seeds, "steps": steps, "overrides": overrides}
    finals = {}
    for method, graph in TRAINED:
        returns = dgmarl.train(env, method, graph=graph, **options).returns
        finals[f"{method} {graph}"] = [round(float(each.mean()), 3) for each in returns[:, -1]]
    return finals


def main() -> None:
    """Command line of this module."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=float, default=2e4, help="of each training")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--maps", nargs="*", default=["MMM", "corridor"])
    parser.add_argument("--out", type=Path, default=ROOT / "results/graphs/state-influence.json")
    options = parser.parse_args()
    report: dict[str, Any] = {"jax": jax.__version__, "steps": int(options.steps)}
    for env in (Relay(n_agents=4), Belt()):
        name = type(env).__name__
        report[name] = {
            "graphs": measured(env, play(env, 64, env.spec.horizon)),
            "returns": trained(env, int(options.steps), options.seeds),
        }
        print(name, json.dumps(report[name]), flush=True)
    for name in options.maps:
        env = make_env(f"smaclite/{name}")
        batch = play(env, 2, 40)
        places = copy(env)
        places.__class__ = Places
        report[f"smaclite/{name}"] = {
            "graphs": measured(env, batch),
            "positions": measured(places, batch),
        }
        print(name, json.dumps(report[f"smaclite/{name}"]), flush=True)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
