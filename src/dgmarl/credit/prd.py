"""Partial reward decoupling (PRD): an agent is credited with the rewards of the agents whose
action-value critic attends to it.

    w_ij      attention of agent i's critic Q_i on agent j, softmax over j != i
    m_ij      soft: (N - 1) w_ij.   hard: 1 if (N - 1) w_ij > threshold, else 0.   m_jj = 1
    r~^j_t    sum_i m_ij(t) r^i_t
    Adv[t, j] GAE of r~^j with the learner's state value, whose target is the return of r~^j

Sources: Freed et al., arXiv 2112.12740; Kapoor et al., arXiv 2408.04295 (PRD-MAPPO: soft weights,
and the state value as a baseline of linear cost). As there, the agents relevant to j are those
whose return depends on j's action. Attention is relative to uniform attention, 1 / (N - 1), so that
uniform attention is team credit and one threshold works for teams of any size; the published hard
weights compare w_ij itself.

Limits: attention is not influence; a critic may attend to a teammate because its observation is
informative. Only the weights at the step of the reward count, no paths over time (for these,
`--graph attention` with graph credit). With two agents the other has weight 1, which is team
credit. Q learns nothing from the last step before a time-out or the end of a rollout, because the
successor's action is not recorded."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from dgmarl.config.schema import TrainConfig
from dgmarl.config.varying import Varying
from dgmarl.credit.base import Credit, Values
from dgmarl.credit.critic_rule import ActionValueRule, CriticState
from dgmarl.credit.gae import gae
from dgmarl.envs.base import Environment
from dgmarl.graphs.sources import Graphs
from dgmarl.nets.action_values import AttentionValue
from dgmarl.rollout import Batch


class PRDRule(ActionValueRule):
    """Adv[t, j] = GAE of sum_i m_ij r^i, with relevance m from an attention critic."""

    def __init__(self, config: TrainConfig, env: Environment, varying: Varying):
        super().__init__(config, env, varying)
        self.soft = config.credit.relevance == "soft"
        self.threshold = config.credit.threshold
        self.critic = AttentionValue(env.spec, config.learner.hidden)

    def relevance(self, params: Any, batch: Batch) -> Float[Array, "T B N N"]:
        """m at [j, i]: how much of agent i's reward is credited to agent j."""
        relevance = self.critic.relevance(params, batch)
        share = relevance if self.soft else relevance > self.threshold
        return jnp.where(jnp.eye(relevance.shape[-1], dtype=bool), 1.0, share)

    def assign(
        self, credit_state: CriticState, batch: Batch, values: Values | None, graph: Graphs | None
    ) -> Credit:
        assert values is not None
        _, reward = self.plain_rule.scaled_rewards(credit_state.statistics, batch)
        relevance = self.relevance(credit_state.critic.params, batch)
        credited = jnp.einsum("tbji,tbi->tbj", relevance, reward)
        own = gae(credited, *values, batch.bootstrap, batch.continues, self.gamma, self.lambda_)
        return Credit(credited, own, own + values.now)
