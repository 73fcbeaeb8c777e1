"""Graph credit (MAPPO-DG, IPPO-DG): each agent is credited with the rewards that a path of the
dependence graph connects its action to (Algorithm 1 of the paper)."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from dgmarl.config.schema import TrainConfig
from dgmarl.config.varying import Varying
from dgmarl.credit.base import Credit, Values
from dgmarl.credit.graph_gae import graph_gae, soft_graph_gae
from dgmarl.credit.local import LocalRule
from dgmarl.envs.base import Environment
from dgmarl.errors import UsageError
from dgmarl.graphs.interventional import intervene_batch
from dgmarl.graphs.sources import Graphs
from dgmarl.rollout import Batch


class GraphRule(LocalRule):
    """Adv = GAE of the own rewards + cross_weight * credit for the rewards of others.

    With `credit.others` = mean, the TD errors of the others reached so far are averaged instead of
    summed; with two agents that is the same."""

    per_agent = False

    def __init__(self, config: TrainConfig, env: Environment, varying: Varying):
        super().__init__(config, env, varying)
        self.form = config.credit.advantage_form
        self.unreached_weight = varying.unreached_weight
        self.cross_weight = varying.cross_weight
        self.env, self.reward_graph = env, config.credit.reward_graph
        recorded = {"measured": {"states", "keys"}, "oracle": {"states"}}
        self.needs = frozenset({"graph", *recorded.get(self.reward_graph, ())})
        if self.reward_graph == "oracle" and not env.offers("oracle_reward_graph"):
            raise UsageError(
                f"credit.reward_graph is oracle, but {env.spec.name} offers no "
                "oracle_reward_graph: define it, or set credit.reward_graph to measured."
            )
        if self.reward_graph == "measured" and (reason := env.no_interventions()):
            raise UsageError(
                f"credit.reward_graph is measured, but {env.spec.name} cannot simulate the "
                f"rewards of other actions ({reason}): set credit.reward_graph to none."
            )
        self.mean_of_others = varying.mean_of_others if self.form == "td" else False

    def assign(
        self, credit_state: Any, batch: Batch, values: Values | None, graph: Graphs | None
    ) -> Credit:
        assert values is not None
        assert graph is not None
        local = super().assign(credit_state, batch, values, graph)
        own = local.own
        assert own is not None
        cross = self._all_credit(batch, local.reward, values, graph, own) - own
        return local._replace(advantage=own + self.cross_weight * cross, cross=cross)

    def _all_credit(
        self, batch: Batch, reward: Array, values: Values, graph: Graphs, own: Array
    ) -> Float[Array, "T B N"]:
        """The advantage with a cross weight of 1. own: GAE of the agents' own rewards."""
        masks = (batch.bootstrap, batch.continues, self.gamma, self.lambda_)
        steps = (reward, values.now, values.next, graph.edges, *masks)
        weight = {"unreached_weight": self.unreached_weight}
        reward_edges = self._reward_edges(batch, graph)
        if graph.edges.dtype != jnp.bool_:
            if self.form == "return" or reward_edges is not None:
                raise UsageError(
                    "The graph source gives soft edges, which support neither a reward graph nor "
                    "the advantage form return: set credit.advantage_form to td and "
                    "credit.reward_graph to none, or use Boolean edges."
                )
            credit = partial(soft_graph_gae, *steps, **weight)
        else:
            if self.form == "return":
                shape = (*values.now.shape, values.now.shape[-1])
                weight["pair_baseline"] = jnp.broadcast_to(values.now[..., None, :], shape)
            options = {"advantage_form": self.form, "reward_graph": reward_edges, "own": own}
            credit = partial(graph_gae, *steps, **options, **weight)
        if isinstance(self.mean_of_others, bool):
            return credit(others="mean" if self.mean_of_others else "sum")
        return jnp.where(self.mean_of_others, credit(others="mean"), credit(others="sum"))

    def _reward_edges(self, batch: Batch, graph: Graphs) -> Bool[Array, "T B N N"] | None:
        """Whose action affects whose reward in the same step; None: only the agent's own."""
        if self.reward_graph == "none":
            return graph.reward_edges
        if self.reward_graph == "self":
            return None
        if self.reward_graph == "oracle":
            edges = jax.vmap(jax.vmap(self.env.oracle_reward_graph))(batch.extras["states"])
        elif graph.reward_edges is None:
            edges = intervene_batch(self.env, batch).reward_graph
        else:
            edges = graph.reward_edges
        # Steps after the end do not matter: a graph that is constant until then stays constant.
        return jnp.where(batch.valid[..., None, None], edges, edges[:1])
