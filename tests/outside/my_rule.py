"""A credit rule of one's own: an agent also earns what its neighbours earn.

Each agent is paid its own reward and a share of the rewards of those it has an edge to at this
step; nothing is followed along paths.
"""

from dataclasses import dataclass

import jax.numpy as jnp

from dgmarl.config.methods import PPO_LEARNER, Method, register_method
from dgmarl.config.parts import CreditConfig
from dgmarl.credit.base import Credit
from dgmarl.credit.gae import gae


@dataclass(frozen=True)
class NeighbourConfig(CreditConfig):
    """Credit for neighbours."""

    share: float = 0.5
    """Weight of a neighbour's reward."""


class NeighbourRule:
    """Adv = GAE of the own reward and a share of the neighbours' rewards; counts its batches."""

    needs = frozenset({"graph"})

    def __init__(self, config, env, varying):
        self.share = config.credit.share
        self.gamma, self.lambda_ = config.learner.gamma, config.learner.lambda_

    def init(self, key, env):
        return jnp.int32(0)

    def assign(self, credit_state, batch, values, graph):
        others = graph.edges & ~jnp.eye(graph.edges.shape[-1], dtype=bool)
        reward = batch.reward + self.share * jnp.einsum("tbji,tbi->tbj", others, batch.reward)
        own = gae(reward, *values, batch.bootstrap, batch.continues, self.gamma, self.lambda_)
        return Credit(reward, own, own + values.now)

    def update(self, credit_state, batch, key):
        return credit_state + 1, {"batches": credit_state + 1.0}


METHOD = Method(
    "ippo-neighbours",
    "IPPO, credit for one's neighbours",
    PPO_LEARNER,
    f"{__name__}:NeighbourRule",
    "IPPO neighbours",
    "#CC79A7",
    credit_config=NeighbourConfig,
    allowed={"critic": ("agent",)},
    uses_graph=True,
)


def register() -> None:
    """Make it known to dgmarl."""
    register_method(METHOD)
