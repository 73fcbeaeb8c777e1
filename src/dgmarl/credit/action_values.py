"""What credit rules with an action-value critic of their own have in common."""

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from dgmarl.config.schema import TrainConfig
from dgmarl.config.varying import Varying
from dgmarl.credit.base import scaled
from dgmarl.credit.local import LocalRule
from dgmarl.credit.standardise import RunningStatistics
from dgmarl.envs.base import Environment
from dgmarl.nets.regression import Fitted, Regression
from dgmarl.rollout import Batch


class CriticState(NamedTuple):
    """All that such a rule carries."""

    statistics: RunningStatistics | None
    """Of the rewards."""
    critic: Fitted


class ActionValueRule(ABC):
    """A critic that learns beside the policy, with the learner's numbers, to predict the return of
    the rewards of a plain rule. A batch is credited by the critic that has not seen it."""

    needs: frozenset[str] = frozenset()
    plain: type[LocalRule] = LocalRule
    """Local or team credit: whose rewards the critic predicts."""

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

    @abstractmethod
    def init_params(self, key: PRNGKeyArray) -> Any:
        """Initial parameters of the critic."""

    @abstractmethod
    def inputs(self, batch: Batch) -> Any:
        """What the critic sees of a batch."""

    @abstractmethod
    def values(self, params: Any, inputs: Any) -> Float[Array, "T B N"]:
        """The critic's prediction of the return."""

    def init(self, key: PRNGKeyArray, env: Environment) -> CriticState:
        fitted = self.regression.init(self.init_params(key))
        return CriticState(self.plain_rule.init(key, env), fitted)

    def rewards(
        self, credit_state: CriticState, batch: Batch
    ) -> tuple[RunningStatistics | None, Float[Array, "T B N"]]:
        """Statistics that include this batch, and the plain rule's rewards scaled by them."""
        statistics, _ = self.plain_rule.update(credit_state.statistics, batch)
        paid = scaled(self.plain_rule.scaling, statistics, self.plain_rule.paid(batch))
        return statistics, jnp.broadcast_to(paid, batch.reward.shape)

    def update(
        self, credit_state: CriticState, batch: Batch, key: PRNGKeyArray
    ) -> tuple[CriticState, dict[str, Array]]:
        """Reward statistics, and the critic after regression to lambda-returns."""
        statistics, reward = self.rewards(credit_state, batch)
        inputs = self.inputs(batch)
        critic, loss = self.regression.update(credit_state.critic, inputs, batch, reward, key)
        return CriticState(statistics, critic), {"action_value_loss": loss}
