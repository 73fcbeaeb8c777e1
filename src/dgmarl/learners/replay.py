"""Episode replay: a ring buffer of the last whole episodes, on the device, part of the training
state and so of its checkpoints.

Replay libraries store every field in full precision and each observation twice. Here observations
are stored once (T + 1 for T steps), in half precision where that loses nothing, states only if a
mixer reads them and they are not just the observations, and actions in one byte. Seeds past
`config.steps` add nothing, without a copy of the buffer, which is larger than the rest of the
training state."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from dgmarl.config.parts import Precision
from dgmarl.device import over_envs
from dgmarl.envs.base import EnvSpec
from dgmarl.rollout import Batch


class Episodes(NamedTuple):
    """Episodes padded to the horizon T, as they are stored."""

    agents_view: Float[Array, "E T+1 N O"]
    """With the final observation, which is repeated after the end."""
    action_mask: Bool[Array, "E T+1 N A"]
    state: Float[Array, "E T+1 D"] | None
    """None if no mixer reads it, or if it is just the observations."""
    action: Int[Array, "E T N"]
    reward: Float[Array, "E T K"]
    """One per agent, or their sum (K = 1). Zero after the end."""
    length: Int[Array, "E"]
    terminated: Bool[Array, "E"]
    """Whether the episode ended by termination, not by truncation."""


class Replay(NamedTuple):
    """A ring buffer of E episodes."""

    episodes: Episodes
    added: Int[Array, ""]
    """Episodes added so far, including overwritten ones."""


def empty_replay(
    spec: EnvSpec, capacity: int, n_rewards: int, with_state: bool, precision: Precision
) -> Replay:
    """A buffer for `capacity` episodes. n_rewards: one per agent, or 1 for their sum."""
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
    """Replace the oldest episodes by those of a batch; unchanged unless `where`."""
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
        raise ValueError(f"{n_new} episodes at once do not fit into a buffer of {capacity}")
    # Writes past the end are dropped. All slots differ: `unique_indices` avoids atomic writes on an
    # accelerator, and sequential ones if it must be deterministic.
    slots = jnp.where(
        where, (replay.added + jnp.arange(n_new)) % capacity, capacity + jnp.arange(n_new)
    )

    def put(ring: Array, new: Array) -> Array:
        return ring.at[slots].set(
            _swap_time(new).astype(ring.dtype), mode="drop", unique_indices=True
        )

    return Replay(jax.tree.map(put, ring, new), replay.added + jnp.where(where, n_new, 0))


def sample(replay: Replay, key: PRNGKeyArray, n_batches: int, batch_size: int) -> Int[Array, "U B"]:
    """Indices of `n_batches` of `batch_size` different episodes each, sampled uniformly; the
    longest of a batch first.

    Includes empty slots while the buffer holds fewer; the caller must check."""
    length = replay.episodes.length
    priority = jnp.where(
        jnp.arange(length.size) < replay.added,
        jax.random.uniform(key, (n_batches, length.size)),
        -1.0,
    )
    chosen = jax.lax.top_k(priority, batch_size)[1]
    order = jnp.argsort(length[chosen], descending=True)
    return jnp.take_along_axis(chosen, order, axis=-1)


class Slots(NamedTuple):
    """What is in each of the P slots of R rows. An episode of L steps takes L + 1 consecutive slots
    of a row, one per observation; the others are padding."""

    episode: Int[Array, "P R"]
    """Index in the batch."""
    step: Int[Array, "P R"]
    """Step of the episode; larger than its length in padding."""


def one_per_row(n_episodes: int, horizon: int) -> Slots:
    """Every episode in a row of its own."""
    step, episode = jnp.mgrid[: horizon + 1, :n_episodes]
    return Slots(episode, step)


def pack(length: Int[Array, "B"], n_rows: int, horizon: int) -> tuple[Slots, Bool[Array, ""]]:
    """Episodes, the longest first, one after the other in fewer rows, each in the row with the most
    free slots; and whether all of them fit."""

    def place(free: Array, size: Array) -> tuple[Array, tuple[Array, Array]]:
        row = free.argmax()
        return free.at[row].add(-size), (row, horizon + 1 - free[row])

    start = jnp.full(n_rows, horizon + 1)
    free, (row, first_slot) = jax.lax.scan(place, start, length + 1)
    step = jnp.arange(horizon + 1)
    beyond = horizon + 1  # writes there are dropped
    slot = jnp.where(step <= length[:, None], first_slot[:, None] + step, beyond)
    places = jnp.zeros((horizon + 1, n_rows), int).at[slot, row[:, None]]
    episode = places.set(jnp.arange(len(length))[:, None], mode="drop")
    steps = jnp.full((horizon + 1, n_rows), beyond).at[slot, row[:, None]]
    return Slots(episode, steps.set(step, mode="drop")), (free >= 0).all()


class Sequences(NamedTuple):
    """A batch of episodes in rows of P slots."""

    agents_view: Float[Array, "P R N O"]
    action_mask: Bool[Array, "P R N A"]
    state: Float[Array, "P R D"] | None
    action: Int[Array, "P R N"]
    reward: Float[Array, "P R K"]
    is_first: Bool[Array, "P R"]
    """At the first observation of an episode, and in padding."""
    valid: Bool[Array, "P R"]
    """Whether a step of the episode follows; not at its final observation, nor in padding."""
    last: Bool[Array, "P R"]
    """At the last step of an episode."""
    terminal: Bool[Array, "P R"]
    """At a last step that terminated the episode."""


def in_slots(
    episodes: Episodes, chosen: Int[Array, "B"], reward: Float[Array, "T B K"], slots: Slots
) -> Sequences:
    """The chosen episodes of the buffer in slots. reward: replaces the stored rewards."""
    stored, length = chosen[slots.episode], episodes.length[chosen][slots.episode]

    def take(ring: Array) -> Array:
        return ring[stored, jnp.minimum(slots.step, ring.shape[1] - 1)]

    last = slots.step == length - 1
    sequences = Sequences(
        agents_view=take(episodes.agents_view),
        action_mask=take(episodes.action_mask),
        state=None if episodes.state is None else take(episodes.state),
        action=take(episodes.action),
        reward=reward[jnp.minimum(slots.step, len(reward) - 1), slots.episode],
        is_first=(slots.step == 0) | (slots.step > length),
        valid=slots.step < length,
        last=last,
        terminal=last & episodes.terminated[stored],
    )
    return over_envs(sequences, axis=1)


def _swap_time(array: Array) -> Array:
    """Swap the axes of time and episodes, if there is a time axis."""
    return array if array.ndim == 1 else jnp.swapaxes(array, 0, 1)
