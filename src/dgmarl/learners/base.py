"""What the training loop asks of a learner, and what learners have in common."""

from typing import Any, Protocol

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from dgmarl.envs.base import Observation
from dgmarl.errors import UsageError
from dgmarl.learners.replay import Replay
from dgmarl.rollout import Act, HiddenState


class Learner(Protocol):
    """Pure functions of a state whose `params` are what plays, and which can be given others:
    `with_params`."""

    def init(self, key: PRNGKeyArray) -> Any:
        """The state before anything is learned."""
        ...

    def start_replay(self) -> Replay | None:
        """Where to keep episodes that are learned from again; None for a learner that looks at a
        batch once."""
        ...

    def init_hidden_state(self, *batch: int) -> HiddenState:
        """What agents remember at the start of an episode."""
        ...

    def behaviour(self, state: Any, step: Int[Array, ""], /) -> Act:
        """How to play while learning, after so many environment steps."""
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
        """How to play when it counts: actions, their log probabilities, and the memory after."""
        ...

    def learn(
        self,
        state: Any,
        experience: Any,
        graph: Bool[Array, "T B N N"] | None,
        key: PRNGKeyArray,
        /,
    ) -> tuple[Any, dict[str, Array]]:
        """The state after one iteration's updates, and metrics. experience: the replay, or without
        one the batch."""
        ...


def batched_index(values: Float[Array, "*B A"], action: Int[Array, "*B"]) -> Float[Array, "*B"]:
    """The entry of the action that was taken; a comparison and a sum are faster here than a
    gather."""
    return jnp.sum(values, axis=-1, where=action[..., None] == jnp.arange(values.shape[-1]))


def require(holds: bool, name: str, value: float, allowed: str) -> None:
    """Refuse a number of a learner's configuration that cannot be meant."""
    if not holds:
        raise UsageError(f"learner.{name} is {value:g}, but must be {allowed}.")
