"""The interface of learners, and functions that they share."""

from typing import Any, Protocol

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from dgmarl.credit.base import Credit, Values
from dgmarl.envs.base import Observation
from dgmarl.rollout import Act, Batch, HiddenState


class Learner(Protocol):
    """Pure functions of a state whose `params` hold the policy. Constructed as
    `Learner(config, env, varying)`, where `varying` has the numbers that differ between batched
    runs.

    A learner may also have `probs(state, batch) -> [T, B, N, A]`, the policy's probabilities at
    every step, for rules that need "probs", and `has_replay = True`, so that a CPU computes seeds
    together: one after the other their replay buffers would be copied."""

    needs: frozenset[str]
    """What the rollout must record beyond the ordinary batch."""

    def init(self, key: PRNGKeyArray) -> Any:
        """The initial state; has `params` and `with_params(params)`."""
        ...

    def init_hidden_state(self, *batch: int) -> HiddenState:
        """The hidden state at the start of an episode."""
        ...

    def behaviour(self, state: Any, step: Int[Array, ""], /) -> Act:
        """Behaviour policy after `step` environment steps."""
        ...

    def act(
        self,
        params: Any,
        key: PRNGKeyArray,
        observation: Observation,
        hidden_state: HiddenState,
        is_first: Bool[Array, "B"],
        greedy: bool = False,
    ) -> tuple[Array, Array, HiddenState]:
        """Evaluation policy: actions, their log probabilities and the next hidden state."""
        ...

    def values(self, state: Any, batch: Batch, /) -> Values | None:
        """The critic's values, which the credit rule needs; None without a critic."""
        ...

    def update(
        self,
        state: Any,
        batch: Batch,
        credit: Credit,
        key: PRNGKeyArray,
        active: Bool[Array, ""],
        /,
    ) -> tuple[Any, dict[str, Array]]:
        """The state after one iteration's updates, and metrics. Must return the state unchanged
        unless `active`: the seed has reached `config.steps`."""
        ...


def batched_index(values: Float[Array, "*B A"], index: Int[Array, "*B"]) -> Float[Array, "*B"]:
    """values[..., index], by a comparison and a sum, which are faster here than a gather."""
    return jnp.sum(values, axis=-1, where=index[..., None] == jnp.arange(values.shape[-1]))


def where_active(active: Bool[Array, ""], new: Any, old: Any) -> Any:
    """`new` if active, else `old`, leaf by leaf."""
    return jax.tree.map(lambda new, old: jnp.where(active, new, old), new, old)
