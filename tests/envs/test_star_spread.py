"""Star-Spread by hand and by property."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dgmarl import make_env
from dgmarl.envs.star_spread import StarSpread, StarSpreadState


@cache
def compiled(size: int, **options) -> StarSpread:
    """An environment whose functions are compiled once."""
    env = make_env(f"star-spread/{size}", **options)
    env.reset, env.step = jax.jit(env.reset), jax.jit(env.step)
    return env


def test_landmarks_stand_on_a_circle():
    env = make_env("star-spread/4")
    np.testing.assert_allclose(env.landmarks, [[0.7, 0], [0, 0.7], [-0.7, 0], [0, -0.7]], atol=1e-7)


def test_rewards_of_three_agents_by_hand():
    env = compiled(3, noise=0)
    landmarks = np.asarray(env.landmarks)
    position = jnp.asarray(
        np.stack([landmarks[0], landmarks[0] + [0.0, 0.2], landmarks[1]]), jnp.float32
    )
    _, _, outcome = env.step(
        jax.random.key(0), StarSpreadState(position, jnp.int32(0)), jnp.zeros(3, jnp.int32)
    )
    to_third = np.linalg.norm(np.asarray(position) - landmarks[2], axis=-1).min()
    np.testing.assert_allclose(outcome.reward, [-to_third, -0.2, 0.0], atol=1e-6)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**31), st.lists(st.integers(0, 4), min_size=5, max_size=5))
def test_positions_stay_in_the_square_and_move_by_one_step(seed, actions):
    env = compiled(5)
    state, _ = env.reset(jax.random.key(seed))
    after, _, _ = env.step(jax.random.key(0), state, jnp.asarray(actions))
    moved = np.array([[0, 0], [0, 1], [0, -1], [-1, 0], [1, 0]])[actions] * 0.1
    np.testing.assert_allclose(
        after.position, np.clip(np.asarray(state.position) + moved, -1, 1), atol=1e-6
    )


def test_the_hub_sees_everybody_and_a_leaf_only_itself():
    env = compiled(3)
    state, observation = env.reset(jax.random.key(1))
    position, landmarks = np.asarray(state.position), np.asarray(env.landmarks).reshape(-1)
    np.testing.assert_allclose(
        observation.agents_view[0], np.concatenate([position[0], position.reshape(-1), landmarks])
    )
    np.testing.assert_allclose(
        observation.agents_view[2],
        np.concatenate([position[2], np.zeros(4), position[2], landmarks]),
    )
    np.testing.assert_allclose(
        observation.global_state, np.concatenate([position.reshape(-1), landmarks])
    )


def test_step_50_truncates_and_never_terminates():
    env = compiled(3)
    state, _ = env.reset(jax.random.key(0))
    for time, expected in ((48, False), (49, True)):
        _, _, outcome = env.step(
            jax.random.key(0), state._replace(time=jnp.int32(time)), jnp.zeros(3, jnp.int32)
        )
        assert bool(outcome.truncated) is expected
        assert not bool(outcome.terminated)


def test_everybody_influences_itself_and_the_hub():
    env = make_env("star-spread/4")
    graph = np.asarray(env.oracle_graph(env.reset(jax.random.key(0))[0]))
    expected = np.eye(4, dtype=bool)
    expected[:, 0] = True
    np.testing.assert_array_equal(graph, expected)


def test_noise_is_standard_normal_for_every_agent_and_can_be_turned_off():
    noisy, silent = compiled(6), compiled(6, noise=0)
    state, _ = noisy.reset(jax.random.key(0))
    keys = jax.random.split(jax.random.key(1), 4000)
    rewards = jax.vmap(lambda key: noisy.step(key, state, jnp.zeros(6, jnp.int32))[2].reward)(keys)
    noise = np.asarray(rewards - silent.step(keys[0], state, jnp.zeros(6, jnp.int32))[2].reward)
    np.testing.assert_allclose(noise.mean(axis=0), 0, atol=0.08)
    np.testing.assert_allclose(np.cov(noise.T), np.eye(6), atol=0.12)


@pytest.mark.parametrize(("n", "size"), [(30, 0.1), (31, 0.05), (200, 0.05)])
def test_crowds_take_smaller_steps(n, size):
    env = compiled(n)
    assert env.spec.obs_size == 4 * n + 2
    state = StarSpreadState(jnp.zeros((n, 2)), jnp.int32(0))
    after, _, _ = env.step(jax.random.key(0), state, jnp.full(n, 4))
    np.testing.assert_allclose(after.position[:, 0], size, atol=1e-7)


def test_random_play_earns_what_an_independent_simulation_earned():
    """Mean episode sums of 200 noise-free random episodes with N = 5: hub -115, leaves -76."""
    from dgmarl.rollout import act_randomly, record_episodes

    recording = record_episodes(
        make_env("star-spread/5", noise=0), act_randomly, jax.random.key(3), 200
    )
    sums = np.asarray(recording.reward.sum(axis=1))
    assert sums[:, 0].mean() == pytest.approx(-115, abs=5)
    assert sums[:, 1:].sum(axis=1).mean() == pytest.approx(-76, abs=5)
