"""Counterfactual credit (COMA): how much better an agent's action is than its average action, the
others' actions held fixed.

    A[t, i] = Q_i(s_t, a_t) - sum_b pi_i(b) Q_i(s_t, (b, a_t^-i))

Q predicts the return of the team reward; its targets are TD(lambda) with the learner's gamma and
lambda. Source: Foerster et al., arXiv 1705.08926. Differences: PPO's clipped update, no target
network, and the learner's hyperparameters. The learner's state value is trained on the team reward
as usual, but the advantage does not use it.

`ippo-coma`: Q_i sees agent i's observation and all actions; `mappo-coma`: the global state and all
actions.

Limits: the advantage is only as good as Q, which depends much less on one action than on the state;
no return is used directly. Q therefore needs more updates than the policy (`credit.critic_epochs`);
with equally many, policies drift and collapse. Q learns nothing from the last step before a
time-out or the end of a rollout, because the successor's action is not recorded."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from dgmarl.config.schema import TrainConfig
from dgmarl.config.varying import Varying
from dgmarl.credit.base import Credit, Values
from dgmarl.credit.critic_rule import ActionValueRule, CriticState
from dgmarl.credit.team import TeamRule
from dgmarl.envs.base import Environment
from dgmarl.graphs.sources import Graphs
from dgmarl.nets.action_values import CounterfactualCritic
from dgmarl.rollout import Batch


class COMARule(ActionValueRule):
    """Adv[t, i] = Q_i(a_i) - sum_b pi_i(b) Q_i(b), the others' actions held fixed."""

    needs: frozenset[str] = frozenset({"probs"})
    plain = TeamRule

    def __init__(self, config: TrainConfig, env: Environment, varying: Varying):
        super().__init__(config, env, varying)
        self.critic, self.spec = CounterfactualCritic(config.learner.hidden), env.spec
        self.central = config.learner.critic.startswith("central")

    def init_params(self, key: PRNGKeyArray) -> Any:
        spec = self.spec
        x = (1, spec.state_size) if self.central else (spec.n_agents, spec.obs_size)
        return self.critic.init(key, jnp.zeros(x), jnp.zeros((spec.n_agents, spec.n_actions)))

    def inputs(self, batch: Batch) -> tuple[Array, Array, Array]:
        """Observations or state, all actions, and each agent's own slot."""
        seen = batch.observation
        x = seen.global_state[..., None, :] if self.central else seen.agents_view
        return x, jax.nn.one_hot(batch.action, self.spec.n_actions), self.own_slot(batch)

    def own_slot(self, batch: Batch) -> Float[Array, "T B N A"]:
        """The action taken, so that the critic's value is Q of the joint action."""
        return jax.nn.one_hot(batch.action, self.spec.n_actions)

    def values(self, params: Any, inputs: Any) -> Float[Array, "T B N"]:
        """The expectation over each agent's own slot, the others' actions held fixed."""
        x, action, own_slot = inputs
        return (self.critic.apply(params, x, action) * own_slot).sum(axis=-1)  # pyright: ignore[reportOperatorIssue, reportAttributeAccessIssue]

    def assign(
        self, credit_state: CriticState, batch: Batch, values: Values | None, graph: Graphs | None
    ) -> Credit:
        """The counterfactual advantage; the learner's critic predicts the team's return."""
        assert values is not None
        team = self.plain_rule.assign(credit_state.statistics, batch, values, graph)
        advantage = self.advantage(credit_state.critic.params, batch, team.reward, values)
        return team._replace(advantage=advantage, own=None)

    def advantage(
        self, params: Any, batch: Batch, reward: Float[Array, "T B N"], values: Values
    ) -> Float[Array, "T B N"]:
        """Q of the action taken minus its mean over the agent's own actions."""
        x, action, _ = self.inputs(batch)
        return self.values(params, (x, action, action - batch.extras["probs"]))
