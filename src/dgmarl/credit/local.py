"""Local credit: each agent is credited with its own rewards."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from dgmarl.config.methods import find_method
from dgmarl.config.parts import RewardScaling
from dgmarl.config.schema import TrainConfig
from dgmarl.config.varying import Varying
from dgmarl.credit.base import Credit, Values, scaled
from dgmarl.credit.gae import gae
from dgmarl.credit.standardise import RunningStatistics, initial_statistics, update_statistics
from dgmarl.envs.base import Environment
from dgmarl.graphs.sources import Graphs
from dgmarl.rollout import Batch


class LocalRule:
    """Adv[t, j] = GAE^j[t]; the state is the running statistics of the rewards."""

    needs: frozenset[str] = frozenset()
    per_agent: bool = True
    """Whether `standardise` keeps statistics per agent, as the paper does for this rule."""

    def __init__(self, config: TrainConfig, env: Environment, varying: Varying):
        # Learners that replay episodes scale the rewards they sample.
        replays = find_method(config.method).whole_episodes
        self.scaling: RewardScaling = "none" if replays else config.credit.reward_scaling
        self.gamma, self.lambda_ = config.learner.gamma, config.learner.lambda_

    def init(self, key: PRNGKeyArray, env: Environment) -> RunningStatistics | None:
        """Initial reward statistics; None without scaling."""
        if self.scaling == "none":
            return None
        per_agent = self.per_agent and self.scaling == "standardise"
        return initial_statistics((env.spec.n_agents,) if per_agent else ())

    def paid(self, batch: Batch) -> Float[Array, "T B K"]:
        """The rewards that this rule credits, one per agent, or one for the team."""
        return batch.reward

    def assign(
        self, credit_state: Any, batch: Batch, values: Values | None, graph: Graphs | None
    ) -> Credit:
        """GAE of the credited rewards, scaled by statistics that include this batch. Without values
        (for Q-learners) only the raw rewards."""
        if values is None:
            return Credit(self.paid(batch))
        _, reward = self.scaled_rewards(credit_state, batch)
        own = gae(reward, *values, batch.bootstrap, batch.continues, self.gamma, self.lambda_)
        return Credit(reward, own, own + values.now, own)

    def scaled_rewards(
        self, credit_state: Any, batch: Batch
    ) -> tuple[RunningStatistics | None, Float[Array, "T B N"]]:
        """Statistics that include this batch, and the credited rewards scaled by them."""
        statistics, _ = self.update(credit_state, batch)
        paid = scaled(self.scaling, statistics, self.paid(batch))
        return statistics, jnp.broadcast_to(paid, batch.reward.shape)

    def update(
        self, credit_state: Any, batch: Batch, key: PRNGKeyArray | None = None
    ) -> tuple[Any, dict[str, Array]]:
        """The reward statistics with this batch merged in.

        `scale` uses the agents' own rewards for every rule, so that all rules have the same scale;
        the paper standardises the rewards that the rule credits."""
        if self.scaling == "none":
            return credit_state, {}
        seen = batch.reward if self.scaling == "scale" else self.paid(batch)
        return update_statistics(credit_state, seen, batch.valid), {}
