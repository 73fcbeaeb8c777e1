"""The contract of credit rules: from what happened, and who could influence whom, to advantages."""

from typing import Any, NamedTuple, Protocol

import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from dgmarl.config.parts import RewardScaling
from dgmarl.credit.standardise import RunningStatistics, scale, standardise
from dgmarl.envs.base import Environment
from dgmarl.graphs.sources import Graphs
from dgmarl.rollout import Batch


class Values(NamedTuple):
    """The critic's values of each step."""

    now: Float[Array, "T B N"]
    next: Float[Array, "T B N"]
    """Of the true successor, before any reset."""


class Credit(NamedTuple):
    """What a rule pays for each step; the learner reads nothing else of the rewards."""

    reward: Float[Array, "T B K"]
    """One per agent, or K = 1 for the team. A Q-learner learns from these."""
    advantage: Float[Array, "T B N"] | None = None
    """None without a critic."""
    target: Float[Array, "T B N"] | None = None
    """What the critic is to predict."""
    own: Float[Array, "T B N"] | None = None
    """The part of the advantage from an agent's own rewards."""
    cross: Float[Array, "T B N"] | None = None
    """The part from the rewards of others, before its weight."""


class CreditRule(Protocol):
    """Pure functions of a state. A rule is made from the configuration, the environment and the
    numbers that may vary: `Rule(config, env, varying)`."""

    needs: frozenset[str]
    """"graph"; "probs": the policy's probabilities [T, B, N, A] in `batch.extras`; and what the
    rollout must record beyond the ordinary batch."""

    def init(self, key: PRNGKeyArray, env: Environment) -> Any:
        """The state of the rule at the start of training."""
        ...

    def assign(
        self, credit_state: Any, batch: Batch, values: Values | None, graph: Graphs | None
    ) -> Credit:
        """Advantages and critic targets; only rewards where the learner has no critic."""
        ...

    def update(
        self, credit_state: Any, batch: Batch, key: PRNGKeyArray
    ) -> tuple[Any, dict[str, Array]]:
        """The state after the batch, and metrics."""
        ...


def scaled(
    kind: RewardScaling, statistics: RunningStatistics, reward: Float[Array, "*B N"]
) -> Float[Array, "*B N"]:
    """Rewards on a common scale, by statistics that include them."""
    if kind == "none":
        return reward
    return scale(statistics, reward) if kind == "scale" else standardise(statistics, reward)


def team_sum(reward: Float[Array, "*B N"]) -> Float[Array, "*B 1"]:
    """The team's reward."""
    return jnp.sum(reward, axis=-1, keepdims=True)
