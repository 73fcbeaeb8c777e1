"""Episode replay: a ring of the last whole episodes, on the device, part of the training state and
so of its checkpoints.

A ring of our own rather than a library: what a learner of whole episodes needs is one scatter and
one gather. Libraries keep every field in full precision and the views twice; here a view is kept
once (T + 1 for T steps), a state only if a mixer reads it and it is not just the observations,
actions in one byte, and observations in half precision where that loses nothing. A seed that has
had its steps adds nothing, without a copy of the ring, which is larger than all the rest of the
state together."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from dgmarl.config.parts import Precision
from dgmarl.device import over_envs
from dgmarl.envs.base import EnvSpec
from dgmarl.rollout import Batch


class Episodes(NamedTuple):
    """Episodes, padded to the horizon T; `[E, T, ...]` in the ring, `[T, E, ...]` when sampled."""

    agents_view: Float[Array, "E T+1 N O"]
    """With the final observation; after it, that one repeated."""
    action_mask: Bool[Array, "E T+1 N A"]
    state: Float[Array, "E T+1 D"] | None
    """None where no mixer reads it, or where it is just the observations."""
    action: Int[Array, "E T N"]
    reward: Float[Array, "E T K"]
    """One per agent, or K = 1: their sum. Zero after the end."""
    length: Int[Array, "E"]
    """Steps that happened."""
    terminated: Bool[Array, "E"]
    """The task was over at the end; False: the time was."""


class Replay(NamedTuple):
    """The ring: E slots, filled in turn."""

    episodes: Episodes
    added: Int[Array, ""]
    """Episodes added so far, those included that have been overwritten."""


def empty_replay(
    spec: EnvSpec, capacity: int, n_rewards: int, with_state: bool, precision: Precision
) -> Replay:
    """A ring of `capacity` episodes. n_rewards: one per agent, or 1 for their sum."""
    steps, per_agent = (capacity, spec.horizon), (spec.n_agents,)
    observations = (capacity, spec.horizon + 1)
    episodes = Episodes(
        agents_view=jnp.zeros((*observations, *per_agent, spec.obs_size), precision),
        action_mask=jnp.zeros((*observations, *per_agent, spec.n_actions), bool),
        state=jnp.zeros((*observations, spec.state_size), precision) if with_state else None,
        action=jnp.zeros((*steps, *per_agent), jnp.int8 if spec.n_actions <= 127 else jnp.int32),
        reward=jnp.zeros((*steps, n_rewards)),
        length=jnp.zeros(capacity, jnp.int32),
        terminated=jnp.zeros(capacity, bool),
    )
    return Replay(episodes, jnp.int32(0))


def add(
    replay: Replay, batch: Batch, reward: Float[Array, "T B K"], where: Bool[Array, ""]
) -> Replay:
    """The ring with a batch's episodes in the place of the oldest; as it was unless `where`."""
    ring = replay.episodes
    observations = batch.all_observations()
    new = Episodes(
        agents_view=observations.agents_view,
        action_mask=observations.action_mask,
        state=None if ring.state is None else observations.global_state,
        action=batch.action,
        reward=reward,
        length=batch.valid.sum(axis=0),
        terminated=batch.terminated.any(axis=0),
    )
    capacity, n_new = ring.length.shape[0], new.length.shape[0]
    if n_new > capacity:
        raise ValueError(f"{n_new} episodes at once do not fit into a ring of {capacity}")
    # A slot past the end is dropped: so nothing is written where nothing shall be. No two are
    # equal, and saying so spares an accelerator atomic writes, or one at a time where it shall be
    # deterministic.
    slots = jnp.where(
        where, (replay.added + jnp.arange(n_new)) % capacity, capacity + jnp.arange(n_new)
    )

    def put(ring: Array, new: Array) -> Array:
        return ring.at[slots].set(
            _time_second(new).astype(ring.dtype), mode="drop", unique_indices=True
        )

    return Replay(jax.tree.map(put, ring, new), replay.added + jnp.where(where, n_new, 0))


def sample(replay: Replay, key: PRNGKeyArray, n_batches: int, batch_size: int) -> Episodes:
    """`n_batches` of `batch_size` different episodes each, uniformly: `[n_batches, T, batch_size,
    ...]`.

    While fewer are in the ring, empty slots come along: whoever samples sees to it that enough were
    added first."""
    capacity = replay.episodes.length.shape[0]
    lots = jnp.where(
        jnp.arange(capacity) < replay.added, jax.random.uniform(key, (n_batches, capacity)), -1.0
    )
    drawn = jax.lax.top_k(lots, batch_size)[1]

    def take(ring: Array) -> Array:
        return over_envs(jax.vmap(_time_second)(ring[drawn]), min(2, ring.ndim))

    return jax.tree.map(take, replay.episodes)


def _time_second(array: Array) -> Array:
    """Time and episodes change places, where there is time."""
    return array if array.ndim == 1 else jnp.swapaxes(array, 0, 1)
