"""Why a learned graph ends near local reward on Star-Spread: `python benchmarks/late_graph.py`.

While reverse models learn, their graph is empty, and credit is local. IPPO in the paper's setting
with five agents and two given graphs: random edges, as many as the learned graph has at the end,
from the first step on; and the oracle's star, with self-loops alone in the first 300 iterations
(1.5e5 steps). Writes results/graphs/late-star.json."""

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

import dgmarl
from dgmarl import Environment
from dgmarl.files import to_json, write_atomic
from dgmarl.graphs.sources import Graph, GraphSource, register_source
from dgmarl.rollout import Batch

ROOT = Path(__file__).parents[1]
SEEDS, STEPS = 10, 600_000


class LateStar:
    """Self-loops, and after 300 iterations every agent's edge to the hub."""

    needs = frozenset[str]()

    def init(self, key: PRNGKeyArray, env: Environment) -> Array:
        """Iterations so far."""
        return jnp.zeros((), jnp.int32)

    def infer(self, graph_state: Array, batch: Batch, key: PRNGKeyArray) -> Graph:
        """The same graph at every step of the batch."""
        agents = jnp.arange(batch.reward.shape[-1])
        to_hub = (graph_state >= 300) & (agents == 0)
        star = (agents[:, None] == agents) | to_hub
        return jnp.broadcast_to(star, (*batch.reward.shape, len(agents)))

    def update(
        self, graph_state: Array, batch: Batch, key: PRNGKeyArray
    ) -> tuple[Array, dict[str, Array]]:
        """Counts iterations."""
        return graph_state + 1, {}


def late_star(*_: Any) -> GraphSource:
    """For the table of sources."""
    return LateStar()


def main() -> None:
    """Train both and write their final returns."""
    register_source("late-star", late_star)
    finals = {}
    for graph in ("random:0.35", "late-star"):
        run = dgmarl.train(
            "star-spread/5", "ippo-dg", graph=graph, preset="paper", seeds=SEEDS, steps=STEPS
        )
        last = run.returns[:, -1].mean(axis=-1)
        finals[graph] = np.round(last.astype(float), 1).tolist()
    path = ROOT / "results" / "graphs" / "late-star.json"
    write_atomic(path, to_json({"steps": STEPS, "final_return": finals}) + "\n")


if __name__ == "__main__":
    main()
