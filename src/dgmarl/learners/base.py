"""The contract of learners, and what they have in common."""

from typing import Any, Protocol

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from dgmarl.credit.base import Credit, Values
from dgmarl.envs.base import Observation
from dgmarl.rollout import Act, Batch, HiddenState


class Learner(Protocol):
    """Pure functions of a state whose `params` hold the policy. A learner is made from the
    configuration, the environment and the numbers that may vary: `Learner(config, env, varying)`.

    A learner may also have `probs(state, batch) -> [T, B, N, A]`, the policy's probabilities at
    every step, for rules that need "probs".
    """

    needs: frozenset[str]
    """What the rollout must record beyond the ordinary batch."""

    def init(self, key: PRNGKeyArray) -> Any:
        """The state before training; has `params` and `with_params(params)`."""
        ...

    def init_hidden_state(self, *batch: int) -> HiddenState:
        """The recurrent state at the start of an episode."""
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
        """The state after one iteration's updates, and metrics. Unless `active`, the state must
        come back as it was: the seed has had its steps."""
        ...


def batched_index(values: Float[Array, "*B A"], index: Int[Array, "*B"]) -> Float[Array, "*B"]:
    """values[..., index]; a comparison and a sum are faster here than a gather."""
    return jnp.sum(values, axis=-1, where=index[..., None] == jnp.arange(values.shape[-1]))


def where_active(active: Bool[Array, ""], new: Any, old: Any) -> Any:
    """`new` if active, leaf by leaf, else `old`."""
    return jax.tree.map(lambda new, old: jnp.where(active, new, old), new, old)
