"""What a sample of alternative actions finds: `python benchmarks/sampled_actions.py`.

`interventional:1:K` compares the action taken with K random available alternatives of each agent
and step instead of all. Every edge found is one of the full graph; some are missed. Measured in
random play on SMAClite and foraging, by K:

- recall: the share of the full graph's edges between different agents that the sample finds;
- cost: environment steps played, as a share of those of the full measurement;
- reached: the share of pairs which paths from the first step reach by the end of the recording in
  the full graphs that paths in the sampled graphs reach too.

Writes results/graphs/sampled-actions.json."""

import argparse
import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
from state_influence import ROOT, play

from dgmarl import Environment, make_env, meeting_times
from dgmarl.graphs.interventional import intervene_batch
from dgmarl.rollout import Batch

MAPS = ("MMM", "MMM2", "corridor", "bane_vs_bane", "25m_vs_30m", "3s5z_vs_3s6z")
FORAGING = ("10x10-3p-3f", "15x15-4p-3f", "8x8-2p-4f-coop")
ENVS = (*(f"smaclite/{name}" for name in MAPS), *(f"lbf/{name}" for name in FORAGING))
GAMES = 64
"""Games of foraging, whose steps are cheap."""
SAMPLES = (1, 2, 4)


def graphs_of(env: Environment, batch: Batch, alternatives: int | None) -> jax.Array:
    """Action graphs of all steps, from all alternatives (None) or a sample of them."""

    def look(batch: Batch, key: jax.Array) -> jax.Array:
        options: dict[str, Any] = {"alternatives": alternatives, "key": key}
        return intervene_batch(env, batch, **options).action_graph

    return jax.jit(look)(batch, jax.random.key(2))


def steps_played(batch: Batch, alternatives: int | None) -> int:
    """Environment steps: one per state for the actions taken, and one per compared alternative."""
    mask = np.asarray(batch.observation.action_mask) & np.asarray(batch.valid)[..., None, None]
    others = np.maximum(mask.sum(axis=-1) - 1, 0)
    if alternatives is not None:
        others = np.minimum(others, alternatives)
    return int(others.sum() + others.any(axis=-1).sum())


def reached_pairs(batch: Batch, graphs: jax.Array) -> np.ndarray:
    """Pairs [B, N, N] of different agents that paths from the first step reach."""
    lags = np.asarray(meeting_times(graphs, ~batch.continues))
    return (lags[0] < len(lags)) & ~np.eye(lags.shape[-1], dtype=bool)


def share(part: np.ndarray, whole: np.ndarray) -> float:
    """Of the true entries of `whole`, those that are true in `part`."""
    return round(float((part & whole).sum() / max(whole.sum(), 1)), 4)


def measured(env: Environment, batch: Batch) -> dict[str, Any]:
    """Size of the full measurement, and recall, cost and reached pairs of each sample."""
    pairs = np.asarray(batch.valid)[..., None, None] & ~np.eye(env.spec.n_agents, dtype=bool)
    full = graphs_of(env, batch, None)
    edges, reached = np.asarray(full) & pairs, reached_pairs(batch, full)
    n_valid = int(np.asarray(batch.valid).sum())
    rows = []
    for n in SAMPLES:
        found = graphs_of(env, batch, n)
        if (np.asarray(found) & pairs & ~edges).any():
            raise AssertionError("a sample found an edge that the full graph does not have")
        rows.append(
            {
                "alternatives": n,
                "recall": share(np.asarray(found), edges),
                "cost": round(steps_played(batch, n) / steps_played(batch, None), 4),
                "reached": share(reached_pairs(batch, found), reached),
            }
        )
    return {
        "agents": env.spec.n_agents,
        "steps": n_valid,
        "played per step": round(steps_played(batch, None) / n_valid, 1),
        "edges": int(edges.sum()),
        "reached pairs": int(reached.sum()),
        "samples": rows,
    }


def main() -> None:
    """Command line of this module."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--battles", type=int, default=2)
    parser.add_argument("--length", type=int, default=30, help="steps of each battle")
    parser.add_argument("--envs", nargs="*", default=ENVS, help="others keep what the file has")
    parser.add_argument("--out", type=Path, default=ROOT / "results/graphs/sampled-actions.json")
    options = parser.parse_args()
    stored = json.loads(options.out.read_text()) if options.out.is_file() else {}
    report: dict[str, Any] = stored | {
        "jax": jax.__version__,
        "battles": options.battles,
        "length": options.length,
        "games": GAMES,
    }
    for name in options.envs:
        env = make_env(name)
        is_battle = name.startswith("smaclite/")
        batch = play(env, options.battles if is_battle else GAMES, options.length)
        report[name] = measured(env, batch)
        print(name, json.dumps(report[name]), flush=True)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
