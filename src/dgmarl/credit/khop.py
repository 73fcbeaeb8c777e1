"""k-hop credit: each agent is credited with the rewards of agents near it in the step's graph."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from dgmarl.config.schema import TrainConfig
from dgmarl.config.varying import Varying
from dgmarl.credit.base import Credit, Values
from dgmarl.credit.local import LocalRule
from dgmarl.envs.base import Environment
from dgmarl.graphs.reach import boolean_product, max_product
from dgmarl.graphs.sources import Graphs
from dgmarl.rollout import Batch


class KHopRule(LocalRule):
    """Adv[t, j] = sum of GAE^i[t] over the agents i within k hops of j in the graph of step t.

    The truncated advantage of scalable actor-critic (arXiv 2006.06555; with graphs that change over
    time 2006.06626). Unlike graph credit, it counts rewards of a near agent before a path could
    reach it, and ignores agents that are reached only through graphs of later steps. With soft
    edges an agent is weighted by the strongest path of k edges."""

    needs: frozenset[str] = frozenset({"graph"})
    per_agent = False  # rewards of several agents are summed

    def __init__(self, config: TrainConfig, env: Environment, varying: Varying):
        super().__init__(config, env, varying)
        self.hops = config.credit.hops

    def assign(
        self, credit_state: Any, batch: Batch, values: Values | None, graph: Graphs | None
    ) -> Credit:
        assert graph is not None
        local = super().assign(credit_state, batch, values, graph)
        assert local.own is not None
        near = within_hops(graph.edges, self.hops).astype(local.own.dtype)
        advantage = jnp.einsum("...ji,...i->...j", near, local.own)
        return local._replace(advantage=advantage, cross=advantage - local.own)


def within_hops(
    edges: Bool[Array, "*B N N"] | Float[Array, "*B N N"], k: int
) -> Bool[Array, "*B N N"] | Float[Array, "*B N N"]:
    """Entry [j, i]: whether a path of k edges, self-loops included, leads from j to i; for soft
    edges the largest product of weights along such a path."""
    product = boolean_product if edges.dtype == jnp.bool_ else max_product
    near = edges = jnp.maximum(edges, jnp.eye(edges.shape[-1], dtype=edges.dtype))
    for _ in range(k - 1):
        near = product(near, edges)
    return near
