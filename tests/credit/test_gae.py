"""Plain GAE against its definition, its masks, and recordings of the original."""

import doctest
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dgmarl.credit.gae as module
from dgmarl import gae
from tests.credit.double_loop import gae_loop
from tests.credit.windows import Window, over_batch, padded, random_window, windows


def run(window: Window, gamma, lambda_):
    return gae(*window[:3], window.bootstrap, window.continues, gamma, lambda_)


def by_loop(window, gamma, lambda_):
    return over_batch(lambda r, v, n, _, b, c: gae_loop(r, v, n, b, c, gamma, lambda_), window)


@settings(max_examples=30, deadline=None)
@given(windows(), st.floats(0, 1), st.floats(0, 1))
def test_equals_the_double_sum(window, gamma, lambda_):
    n_steps, _, n_agents = window.reward.shape
    ours = run(padded(window), gamma, lambda_)[:n_steps, :, :n_agents]
    np.testing.assert_allclose(ours, by_loop(window, gamma, lambda_), rtol=1e-5, atol=1e-5)


def test_equals_the_double_sum_in_float64():
    window = random_window(np.random.default_rng(0), 40, 5)
    with jax.enable_x64(True):
        ours = run(window, 0.99, 0.95)
        assert ours.dtype == jnp.float64
        np.testing.assert_allclose(ours, by_loop(window, 0.99, 0.95), rtol=1e-10, atol=1e-10)


def test_lambda_zero_is_the_td_error_and_lambda_one_the_return():
    window = random_window(np.random.default_rng(1), 6, 2, end=0.0)
    no_critic = window._replace(value=0 * window.value, next_value=0 * window.next_value)
    delta = window.reward + 0.9 * window.next_value - window.value
    np.testing.assert_allclose(run(window, 0.9, 0.0), delta, rtol=1e-5, atol=1e-6)
    to_go = sum(0.9**t * window.reward[t] for t in range(6))
    np.testing.assert_allclose(run(no_critic, 0.9, 1.0)[0], to_go, rtol=1e-5)


def test_termination_drops_the_successor_and_truncation_keeps_it():
    one, zero = np.ones((1, 1), np.float32), np.zeros((1, 1), np.float32)
    ends = np.zeros(1, bool)
    assert gae(one, zero, 10 * one, ends, ends, 0.5, 0.95)[0, 0] == 1.0
    assert gae(one, zero, 10 * one, ~ends, ends, 0.5, 0.95)[0, 0] == 6.0


def test_nothing_leaks_out_of_padding():
    window = padded(random_window(np.random.default_rng(2), 10, 3, end=0.0, dtype=np.float32))
    poisoned = window._replace(reward=window.reward.copy(), value=window.value.copy())
    poisoned.reward[10:], poisoned.value[10:] = np.nan, np.inf
    np.testing.assert_array_equal(run(poisoned, 0.99, 0.95)[:10], run(window, 0.99, 0.95)[:10])


def test_jit_vmap_and_grad():
    window = random_window(np.random.default_rng(3), 8, 3, dtype=np.float32)
    direct = run(window, 0.99, 0.95)
    arguments = (*window[:3], window.bootstrap, window.continues)
    np.testing.assert_allclose(jax.jit(gae)(*arguments, 0.99, 0.95), direct, rtol=1e-6)
    mapped = jax.vmap(partial(gae, gamma=0.99, lambda_=0.95), in_axes=1, out_axes=1)(*arguments)
    np.testing.assert_allclose(mapped, direct, rtol=1e-6)
    gradient = jax.grad(lambda lambda_: run(window, 0.99, lambda_).sum())(0.5)
    step = 1e-2
    slope = (run(window, 0.99, 0.5 + step).sum() - run(window, 0.99, 0.5 - step).sum()) / (2 * step)
    np.testing.assert_allclose(gradient, slope, rtol=1e-2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"value": np.zeros((4, 2, 4), np.float32)}, "value has the shape"),
        ({"reward": np.zeros((4, 2, 3), np.int32)}, "reward must hold floats"),
        ({"value": np.zeros((4, 2, 3), np.float16)}, "value is float16, but reward is float32"),
        ({"continues": np.ones((4, 2), np.float32)}, "continues must be Boolean"),
        ({"bootstrap": np.ones((4, 3), bool)}, "bootstrap must have the shape"),
        ({"lambda_": 1.5}, r"lambda_ must lie in \[0, 1\], got 1.5"),
        ({"gamma": -0.1}, r"gamma must lie in \[0, 1\]"),
        ({"gamma": np.ones(3)}, "gamma must be one number"),
    ],
)
def test_bad_input_is_refused(change, message):
    window = random_window(np.random.default_rng(0), 4, 3, dtype=np.float32)._asdict()
    del window["graph"]
    with pytest.raises(ValueError, match=message):
        jax.eval_shape(lambda: gae(**(window | {"gamma": 0.99, "lambda_": 0.95} | change)))


def test_examples_in_the_documentation():
    assert doctest.testmod(module).failed == 0
