"""k-hop credit: each agent is credited with the agents near it in the graph of the step."""

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

    The truncated advantage of scalable actor-critic (arXiv 2006.06555; with graphs that change
    over time 2006.06626). All later rewards of a near agent count from step t on, also those before
    a path could reach it, and an agent that only the graphs of later steps lead to is left out:
    what graph credit does otherwise. With soft edges an agent counts with the strongest path of k
    edges."""

    needs: frozenset[str] = frozenset({"graph"})
    per_agent = False  # rewards of several agents are added up

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
    """Entry [j, i]: whether a path of at most k edges, self-loops included, leads from j to i; for
    soft edges the largest product of weights along one."""
    product = boolean_product if edges.dtype == jnp.bool_ else max_product
    near = edges = jnp.maximum(edges, jnp.eye(edges.shape[-1], dtype=edges.dtype))
    for _ in range(k - 1):
        near = product(near, edges)
    return near
