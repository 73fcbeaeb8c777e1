"""Interventional graphs against the oracle's in foraging: `python benchmarks/oracle_agreement.py`.

In random play, by horizon: density of both graphs, and precision and recall of interventional
edges against the oracle's, a distance rule. Writes results/graphs/oracle-agreement.json."""

import argparse
import json
from pathlib import Path
from typing import Any

import jax
from state_influence import ROOT, play

from dgmarl import Environment, make_env
from dgmarl.graphs.interventional import intervene_batch
from dgmarl.graphs.metrics import agreement, density
from dgmarl.rollout import Batch

SCENARIOS = ("10x10-3p-3f", "8x8-2p-4f-coop", "15x15-4p-3f")
HORIZONS = (1, 2, 3)


def compared(env: Environment, batch: Batch) -> list[dict[str, float]]:
    """One row per horizon."""
    oracle = jax.vmap(jax.vmap(env.oracle_graph))(batch.extras["states"])
    rows = []
    for horizon in HORIZONS:
        look = jax.jit(lambda batch, h=horizon: intervene_batch(env, batch, horizon=h).action_graph)
        graph = look(batch)
        found = agreement(graph, oracle, batch.valid)
        numbers = {
            "density": density(graph, batch.valid),
            "oracle": density(oracle, batch.valid),
            "precision": found.precision,
            "recall": found.recall,
        }
        rows.append({"horizon": horizon} | {k: round(float(x), 4) for k, x in numbers.items()})
    return rows


def main() -> None:
    """Command line of this module."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--episodes", type=int, default=200)
    parser.add_argument("--out", type=Path, default=ROOT / "results/graphs/oracle-agreement.json")
    options = parser.parse_args()
    report: dict[str, Any] = {"jax": jax.__version__, "episodes": options.episodes}
    for name in SCENARIOS:
        env = make_env(f"lbf/{name}")
        report[f"lbf/{name}"] = compared(env, play(env, options.episodes, env.spec.horizon))
        print(name, json.dumps(report[f"lbf/{name}"]), flush=True)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
