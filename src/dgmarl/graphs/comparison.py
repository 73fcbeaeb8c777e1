"""Agreement of a graph with the oracle's and the interventional graph."""

import jax
from jaxtyping import Array, Bool, Float

from dgmarl.envs.base import Environment
from dgmarl.graphs.interventional import intervene_batch
from dgmarl.graphs.metrics import agreement
from dgmarl.rollout import Batch

EVERY, BUDGET = 5, 10_000
"""The interventional graph costs N * A environment steps per state. It is computed for every
`EVERY`-th step, or for fewer so that the total stays within `BUDGET` environment steps."""


def references(env: Environment) -> frozenset[str]:
    """The extras a rollout must record for `compare`."""
    simulated = set() if env.no_interventions() else {"states", "keys"}
    return frozenset(simulated | ({"oracle"} if env.offers("oracle_graph") else set()))


def compare(
    env: Environment, graph: Bool[Array, "T B N N"], batch: Batch
) -> dict[str, Float[Array, ""]]:
    """Precision, recall and F1 of the edges of `graph` against the oracle's and the interventional
    graph, as far as the batch has their `references`."""
    truths = {}
    if "oracle" in batch.extras:
        truths["oracle"] = (graph, batch.extras["oracle"], batch.valid)
    if "keys" in batch.extras:
        every = max(EVERY, -(-(batch.reward.size * env.spec.n_actions) // BUDGET))
        some = jax.tree.map(
            lambda leaf: leaf[::every], batch._replace(hidden_state=None, last_observation=None)
        )
        found = intervene_batch(env, some).action_graph
        truths["interventional"] = (graph[::every], found, some.valid)
    return {
        f"graph_{measure}_{name}": value
        for name, (predicted, truth, valid) in truths.items()
        for measure, value in agreement(predicted, truth, valid)._asdict().items()
    }
