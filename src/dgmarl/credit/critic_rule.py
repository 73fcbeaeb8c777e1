"""Base class of credit rules with their own action-value critic."""

from typing import Any, NamedTuple

from jaxtyping import Array, Float, PRNGKeyArray

from dgmarl.config.schema import TrainConfig
from dgmarl.config.varying import Varying
from dgmarl.credit.local import LocalRule
from dgmarl.credit.standardise import RunningStatistics
from dgmarl.envs.base import Environment
from dgmarl.nets.regression import Fitted, Regression
from dgmarl.rollout import Batch


class CriticState(NamedTuple):
    """Reward statistics, and parameters and optimiser state of the critic."""

    statistics: RunningStatistics | None
    critic: Fitted


class ActionValueRule:
    """A critic of the returns of a plain rule, trained alongside the policy with the learner's
    hyperparameters. A batch is credited before the critic is trained on it."""

    needs: frozenset[str] = frozenset()
    plain: type[LocalRule] = LocalRule
    """Local or team credit, whose return the critic predicts."""
    critic: Any
    """Has `init(key)`, `inputs(batch)` and `values(params, inputs)`, unless a subclass defines
    these itself."""

    def __init__(self, config: TrainConfig, env: Environment, varying: Varying):
        self.plain_rule, learner = self.plain(config, env, varying), config.learner
        self.gamma, self.lambda_ = learner.gamma, learner.lambda_
        self.regression = Regression(
            self.values,
            self.gamma,
            self.lambda_,
            varying.learning_rate,
            learner.max_grad_norm,
            config.credit.critic_epochs,
            learner.minibatches,
        )

    def init_params(self, key: PRNGKeyArray) -> Any:
        return self.critic.init(key)

    def inputs(self, batch: Batch) -> Any:
        return self.critic.inputs(batch)

    def values(self, params: Any, inputs: Any) -> Float[Array, "T B N"]:
        """The critic's prediction of the return."""
        return self.critic.values(params, inputs)

    def init(self, key: PRNGKeyArray, env: Environment) -> CriticState:
        fitted = self.regression.init(self.init_params(key))
        return CriticState(self.plain_rule.init(key, env), fitted)

    def update(
        self, credit_state: CriticState, batch: Batch, key: PRNGKeyArray
    ) -> tuple[CriticState, dict[str, Array]]:
        """Update the reward statistics, and the critic by regression to lambda-returns."""
        statistics, reward = self.plain_rule.scaled_rewards(credit_state.statistics, batch)
        inputs = self.inputs(batch)
        critic, loss = self.regression.update(credit_state.critic, inputs, batch, reward, key)
        return CriticState(statistics, critic), {"action_value_loss": loss}
