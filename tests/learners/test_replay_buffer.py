"""The ring of episodes: first in, first out; nothing lost on the way; different episodes in a
batch, each as likely."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dgmarl.envs.base import EnvSpec, Observation
from dgmarl.learners.replay import (
    Replay,
    add,
    empty_replay,
    in_slots,
    one_per_row,
    pack,
    sample,
)
from dgmarl.rollout import Batch

T, N, A = 4, 2, 3
empty = jax.jit(empty_replay, static_argnums=range(5))
draw = jax.jit(sample, static_argnums=(2, 3))
SPEC = EnvSpec("replayed", n_agents=N, n_actions=A, obs_size=5, state_size=6, horizon=T)


def batch(rng, n_episodes: int, mark: float = 0.0) -> Batch:
    """Random episodes of random lengths; the reward of each step is `mark` plus its episode's
    place."""
    observations = Observation(
        rng.normal(size=(T + 1, n_episodes, N, 5)).astype(np.float32),
        rng.normal(size=(T + 1, n_episodes, 6)).astype(np.float32),
        rng.random((T + 1, n_episodes, N, A)) < 0.7,
        np.ones((T + 1, n_episodes, N), bool),
    )
    length = rng.integers(1, T + 1, n_episodes)
    valid = np.arange(T)[:, None] < length
    terminated = (np.arange(T)[:, None] == length - 1) & (length < T)
    reward = np.where(
        valid[..., None], mark + np.arange(n_episodes)[:, None] + np.array([0.0, 0.25]), 0
    )
    observation, next_observation, last_observation = (
        jax.tree.map(lambda leaf, part=part: leaf[part], observations)
        for part in (slice(T), slice(1, None), -1)
    )
    ends = (terminated, np.zeros_like(terminated), valid, np.zeros_like(valid))
    return Batch(
        observation,
        next_observation,
        rng.integers(0, A, (T, n_episodes, N)),
        reward * 0,
        reward.astype(np.float32),
        *ends,
        None,
        {},
        last_observation,
    )


@jax.jit
def kept(ring: Replay, played: Batch, where=True) -> Replay:
    """The ring with what was played, and with each agent's own reward."""
    return add(ring, played, played.reward, where=jnp.asarray(where))


@pytest.mark.parametrize("n_rows", [3, 2])
def test_what_is_sampled_is_what_was_played(n_rows):
    played = batch(np.random.default_rng(7), 3)  # of 4, 1 and 2 steps
    ring = kept(empty(SPEC, 3, N, True, "float32"), played)
    chosen = draw(ring, jax.random.key(0), 1, 3)[0]
    length = ring.episodes.length[chosen]
    slots, fits = pack(length, n_rows, T) if n_rows < 3 else (one_per_row(3, T), True)
    assert fits
    reward = jnp.swapaxes(ring.episodes.reward[chosen], 0, 1)
    found = in_slots(ring.episodes, chosen, reward, slots)
    assert sorted(np.asarray(chosen)) == [0, 1, 2]
    steps = np.asarray(played.valid.sum(axis=0))
    assert [*np.asarray(length)] == sorted(steps, reverse=True)
    observations = jax.tree.map(np.asarray, played.all_observations())
    seen = np.zeros((T + 1, 3), bool)
    for slot, row in np.ndindex(T + 1, n_rows):
        e, t = int(chosen[slots.episode[slot, row]]), int(slots.step[slot, row])
        here = jax.tree.map(lambda leaf, at=(slot, row): np.asarray(leaf[at]), found)
        assert here.is_first == (t == 0 or t > steps[e])
        assert here.valid == (t < steps[e])
        assert here.last == (t == steps[e] - 1)
        assert here.terminal == (t == steps[e] - 1 and played.terminated[:, e].any())
        if t <= steps[e]:
            assert not seen[t, e]
            seen[t, e] = True
            np.testing.assert_array_equal(here.agents_view, observations.agents_view[t, e])
            np.testing.assert_array_equal(here.state, observations.global_state[t, e])
            np.testing.assert_array_equal(here.action_mask, observations.action_mask[t, e])
        if t < steps[e]:
            np.testing.assert_array_equal(here.action, played.action[t, e])
            np.testing.assert_array_equal(here.reward, played.reward[t, e])
            assert slots.step[slot + 1, row] == t + 1
            assert slots.episode[slot + 1, row] == slots.episode[slot, row]
    np.testing.assert_array_equal(seen, np.arange(T + 1)[:, None] <= steps)


@pytest.mark.parametrize(
    ("length", "fits"),
    [
        ([9, 4, 2, 0, 0], True),
        ([9, 9, 4, 4, 1], False),
        ([6, 5, 1, 1, 1], True),
        ([9, 9, 9, 1, 1], False),
        ([9, 9, 0, 0, 0], False),
        ([2, 2, 1, 1, 1], True),
    ],
)
def test_episodes_are_packed_if_they_fit(length, fits):
    """An episode of 9 steps fills a row of 10 observations."""
    slots, found = jax.jit(pack, static_argnums=(1, 2))(jnp.array(length), 2, 9)
    assert bool(found) is fits
    there = [(int(e), int(t)) for e, t in zip(*map(np.ravel, slots), strict=True)]
    wanted = [(e, t) for e, steps in enumerate(length) for t in range(steps + 1)]
    if fits:
        assert sorted(each for each in there if each[1] <= 9) == wanted


def test_only_what_is_needed_is_kept_and_compactly():
    ring = empty(SPEC, 3, 1, False, "float16")
    assert ring.episodes.state is None
    assert ring.episodes.agents_view.dtype == jnp.float16
    assert ring.episodes.action.dtype == jnp.int8
    played = batch(np.random.default_rng(0), 2)
    team = played.reward.sum(axis=-1, keepdims=True)
    ring = add(ring, played, team, where=jnp.bool_(True))
    np.testing.assert_allclose(ring.episodes.reward[:2], np.swapaxes(team, 0, 1))


def test_the_oldest_episodes_are_overwritten_first():
    rng = np.random.default_rng(0)
    ring = empty(SPEC, 5, N, False, "float32")
    for k in range(4):
        ring = kept(ring, batch(rng, 3, mark=10 * k))
    # Twelve were added to five slots: the last five are there.
    assert sorted(np.asarray(ring.episodes.reward[:, 0, 0])) == [21, 22, 30, 31, 32]
    assert ring.added == 12


def test_a_seed_that_stands_still_adds_nothing():
    rng = np.random.default_rng(0)
    before = kept(empty(SPEC, 5, N, True, "float32"), batch(rng, 3))
    new = batch(rng, 3, mark=10)
    both = jax.vmap(lambda where: kept(before, new, where))(jnp.array([False, True]))
    for unchanged, changed, old in zip(*map(jax.tree.leaves, (both, both, before)), strict=True):
        np.testing.assert_array_equal(unchanged[0], old)
        assert not np.array_equal(changed[1], old)


@pytest.mark.parametrize("added", [4, 7])
def test_batches_hold_different_episodes_and_every_one_as_often(added):
    ring = empty(SPEC, 6, N, False, "float32")
    for k in range(added):
        ring = kept(ring, batch(np.random.default_rng(k), 1, mark=k))
    drawn = np.asarray(ring.episodes.reward[draw(ring, jax.random.key(0), 2000, 3), 0, 0])
    assert all(len(set(row)) == 3 for row in drawn)
    last = range(max(0, added - 6), added)
    share = [(drawn == k).sum() / 2000 for k in last]
    assert sum(share) == pytest.approx(3)
    np.testing.assert_allclose(share, 3 / len(last), atol=0.05)


def test_more_episodes_than_fit_are_refused():
    played = batch(np.random.default_rng(0), 3)
    with pytest.raises(ValueError, match="buffer of 2"):
        kept(empty(SPEC, 2, N, True, "float32"), played)
