"""The interface of credit rules: from a batch, values and graphs to advantages."""

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
    """What a rule assigns to each step; all that the learner reads of the rewards."""

    reward: Float[Array, "T B K"]
    """One per agent, or K = 1 for the team. Q-learners use only these."""
    advantage: Float[Array, "T B N"] | None = None
    """None without a critic."""
    target: Float[Array, "T B N"] | None = None
    """The critic's target."""
    own: Float[Array, "T B N"] | None = None
    """The part of the advantage from an agent's own rewards."""
    cross: Float[Array, "T B N"] | None = None
    """The part from the rewards of others, before weighting."""


class CreditRule(Protocol):
    """Pure functions of a state. Constructed as `Rule(config, env, varying)`, where `varying` has
    the numbers that differ between batched runs."""

    needs: frozenset[str]
    """"graph"; "probs": the policy's probabilities [T, B, N, A] in `batch.extras`; and extras that
    the rollout must record."""

    def init(self, key: PRNGKeyArray, env: Environment) -> Any:
        """The initial state."""
        ...

    def assign(
        self, credit_state: Any, batch: Batch, values: Values | None, graph: Graphs | None
    ) -> Credit:
        """Advantages and critic targets; only rewards if the learner has no critic."""
        ...

    def update(
        self, credit_state: Any, batch: Batch, key: PRNGKeyArray
    ) -> tuple[Any, dict[str, Array]]:
        """The state after the batch, and metrics."""
        ...


def scaled(
    kind: RewardScaling, statistics: RunningStatistics, reward: Float[Array, "*B N"]
) -> Float[Array, "*B N"]:
    """Rewards scaled or standardised by statistics that include them."""
    if kind == "none":
        return reward
    return scale(statistics, reward) if kind == "scale" else standardise(statistics, reward)


def team_sum(reward: Float[Array, "*B N"]) -> Float[Array, "*B 1"]:
    """The team reward: the sum over agents."""
    return jnp.sum(reward, axis=-1, keepdims=True)
