"""Automatic resets: fresh states under their own law, the view before the reset kept, nobody else
touched."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dgmarl import make_env
from dgmarl.envs.base import Observation, random_actions
from dgmarl.rollout import (
    act_randomly,
    collect,
    evaluate,
    record_episodes,
    reset_envs,
    reset_where,
)
from tests.tiny import Gift


def observations(action_mask):
    return Observation(jnp.zeros(0), jnp.zeros(0), jnp.asarray(action_mask), jnp.ones(0, bool))


def test_random_actions_are_uniform_over_what_is_available():
    action_mask = np.array([[True, False, True, True], [False, True, False, False]])
    drawn = np.asarray(
        random_actions(jax.random.key(0), observations(np.broadcast_to(action_mask, (6000, 2, 4))))
    )
    shares = np.bincount(drawn[:, 0], minlength=4) / 6000
    np.testing.assert_allclose(shares, [1 / 3, 0, 1 / 3, 1 / 3], atol=0.03)
    assert (drawn[:, 1] == 1).all()


@pytest.mark.parametrize("chunk", [1, 3, 16, None])
def test_only_finished_environments_are_replaced_each_by_its_own_fresh_state(chunk):
    env = make_env("star-spread/3")
    state, observation = jax.jit(jax.vmap(env.reset))(jax.random.split(jax.random.key(0), 16))
    done = np.arange(16) % 3 == 0
    reset = jax.jit(partial(reset_where, env, chunk=chunk))
    fresh, fresh_observation = reset(jax.random.key(1), done, state, observation)
    changed = (np.asarray(fresh.position) != np.asarray(state.position)).all(axis=(1, 2))
    np.testing.assert_array_equal(changed, done)
    np.testing.assert_array_equal(
        np.asarray(fresh_observation.global_state[:, :6]), np.asarray(fresh.position).reshape(16, 6)
    )
    replaced = np.asarray(fresh.position)[done].reshape(int(done.sum()), -1)
    assert len(np.unique(replaced, axis=0)) == len(replaced)


def test_the_law_of_a_reset_does_not_depend_on_the_chunk():
    from scipy.stats import ks_2samp

    env = make_env("star-spread/2")
    state, observation = jax.jit(jax.vmap(env.reset))(jax.random.split(jax.random.key(0), 4000))
    drawn = [
        np.asarray(
            jax.jit(
                lambda key, c=chunk: reset_where(
                    env, key, jnp.ones(4000, bool), state, observation, c
                )
            )(key)[0].position
        )
        for chunk, key in ((64, jax.random.key(1)), (4000, jax.random.key(2)))
    ]
    assert ks_2samp(drawn[0].ravel(), drawn[1].ravel()).pvalue > 0.001


def test_the_true_successor_is_kept_beside_the_view_after_the_reset():
    env = make_env("star-spread/3", horizon=2)
    start = reset_envs(env, jax.random.key(0), None, 4)

    def stay(key, observation, hidden_state, is_first):
        return jnp.zeros((4, 3), jnp.int32), jnp.zeros((4, 3)), hidden_state

    last, batch = collect(env, stay, start, jax.random.key(1), 2, frozenset(), reset=True)
    seen, after = batch.observation.agents_view, batch.next_observation
    np.testing.assert_array_equal(seen[1], after.agents_view[0])
    assert bool(batch.truncated[1].all())
    place = after.global_state[1, :, :6]
    np.testing.assert_array_equal(place, np.asarray(start.state.position).reshape(4, 6))
    assert not np.allclose(last.observation.global_state[:, :6], place)
    np.testing.assert_array_equal(last.state.time, 0)


def test_recorded_episodes_stand_still_after_their_end():
    recording = record_episodes(make_env("matrix/two-step"), act_randomly, jax.random.key(0), 5)
    np.testing.assert_array_equal(recording.length, 2)
    assert bool(recording.terminated.all())
    short = record_episodes(
        make_env("star-spread/2", horizon=7), act_randomly, jax.random.key(0), 2
    )
    np.testing.assert_array_equal(short.last_state.time, 7)


class Clockwork(Gift):
    """An episode of so many steps as the first random number says; says in its view how many it has
    had."""

    def __init__(self, longest: int):
        super().__init__(horizon=100)
        self.longest = longest

    def reset(self, key):
        state, _ = super().reset(key)
        state = state._replace(given=jax.random.randint(key, (), 1, self.longest + 1))
        return state, self._observation(state)

    def step(self, key, state, action):
        after, _, outcome = super().step(key, state, action)
        after = after._replace(given=state.given)
        return (
            after,
            self._observation(after),
            outcome._replace(terminated=after.time >= after.given, info={"time": after.time}),
        )


@pytest.mark.parametrize("longest", [25, 26, 60])
def test_long_episodes_are_played_until_all_have_ended_and_stand_still_from_there(longest):
    env, calls = Clockwork(longest), []

    def act(key, observation, hidden_state, is_first):
        jax.debug.callback(lambda: calls.append(1))
        return act_randomly(key, observation, hidden_state, is_first)

    def rollout_state(key):
        start = reset_envs(env, key, None, 8)
        start = start._replace(
            state=start.state._replace(given=start.state.given.at[0].set(longest))
        )
        return collect(env, act, start, key, 100, frozenset({"states"}), reset=False)

    last, batch = jax.jit(jax.vmap(rollout_state))(jax.random.split(jax.random.key(0), 3))
    jax.effects_barrier()
    assert len(calls) == -(-longest // 25) * 25
    length = np.asarray(last.state.given)
    assert (length.max(axis=1) == longest).all()
    assert length.min() < longest
    np.testing.assert_array_equal(batch.valid.sum(axis=1), length)
    np.testing.assert_array_equal(last.state.time, length)
    steps = np.minimum(np.arange(101)[None, :, None], length[:, None])
    np.testing.assert_array_equal(batch.extras["states"].time, steps[:, :-1])
    np.testing.assert_allclose(
        batch.observation.global_state[..., 0] * 100, steps[:, :-1], rtol=1e-6
    )
    np.testing.assert_allclose(
        batch.next_observation.global_state[..., 0] * 100, steps[:, 1:], rtol=1e-6
    )


class Counting(Gift):
    """Says how many steps an episode has had, and more that is no number."""

    def step(self, key, state, action):
        state, observation, outcome = super().step(key, state, action)
        return state, observation, outcome._replace(info={"time": state.time, "both": jnp.zeros(2)})


def test_an_evaluation_keeps_the_numbers_of_the_last_step_of_each_episode():
    env = Counting(horizon=6, stop=0.4)
    found = jax.jit(lambda key: evaluate(env, act_randomly, key, None, 40))(jax.random.key(0))
    assert len(np.unique(found.lengths)) > 2
    assert set(found.endings) == {"time"}
    np.testing.assert_array_equal(found.endings["time"], found.lengths)
