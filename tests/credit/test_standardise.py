"""Running statistics against direct computation."""

import doctest

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dgmarl.credit.standardise as module
from dgmarl.credit.standardise import initial_statistics, standardise, update_statistics

BATCHES = [
    np.random.default_rng(k).normal(k, 1 + k, size=(4 + k, 2, 3)).astype(np.float32)
    for k in range(3)
]


@pytest.mark.parametrize("shape", [(), (3,)])
def test_merging_equals_direct_computation(shape):
    statistics = initial_statistics(shape)
    for batch in BATCHES:
        statistics = update_statistics(statistics, batch)
    everything = np.concatenate(BATCHES).reshape(-1, 3)
    axis = 0 if shape else None
    np.testing.assert_allclose(statistics.mean, everything.mean(axis), rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(statistics.variance, everything.var(axis), rtol=1e-3)
    np.testing.assert_allclose(
        statistics.seen, everything.size if not shape else len(everything), rtol=1e-5
    )


def test_the_first_guess_weighs_a_ten_thousandth_of_a_value():
    with jax.enable_x64(True):
        seen = update_statistics(initial_statistics(dtype=jnp.float64), jnp.array([[2.0, 4.0]]))
    weight = 1e-4 / (2 + 1e-4)
    np.testing.assert_allclose(seen.mean, (1 - weight) * 3.0, rtol=1e-12)
    np.testing.assert_allclose(
        seen.variance, weight * 1.0 + (1 - weight) * 1.0 + weight * (1 - weight) * 9.0, rtol=1e-12
    )


@pytest.mark.parametrize("shape", [(), (3,)])
def test_masked_steps_do_not_count(shape):
    batch = BATCHES[1].copy()
    valid = np.arange(5)[:, None] < np.array([5, 2])
    kept = update_statistics(initial_statistics(shape), batch[valid])
    batch[~valid] = np.nan
    for ours, expected in zip(
        update_statistics(initial_statistics(shape), batch, valid), kept, strict=True
    ):
        np.testing.assert_allclose(ours, expected, rtol=1e-5)


def test_an_empty_batch_changes_nothing():
    before = update_statistics(initial_statistics(), BATCHES[0])
    after = update_statistics(before, BATCHES[1], np.zeros((5, 2), bool))
    np.testing.assert_array_equal(np.stack(after), np.stack(before))


def test_standardised_rewards_have_mean_zero_and_variance_one():
    statistics = jax.jit(update_statistics)(initial_statistics((3,)), BATCHES[2])
    scaled = standardise(statistics, BATCHES[2])
    np.testing.assert_allclose(scaled.mean((0, 1)), 0, atol=1e-3)
    np.testing.assert_allclose(scaled.var((0, 1)), 1, rtol=1e-3)


def test_works_inside_a_scan():
    stacked = jnp.stack([BATCHES[0]] * 4)
    last, _ = jax.lax.scan(
        lambda seen, batch: (update_statistics(seen, batch), None), initial_statistics(), stacked
    )
    np.testing.assert_allclose(last.mean, BATCHES[0].mean(), rtol=1e-3)


def test_bad_shapes_are_refused():
    with pytest.raises(ValueError, match="a scalar or have one entry"):
        update_statistics(initial_statistics((2,)), BATCHES[0])
    with pytest.raises(ValueError, match="valid must be Boolean"):
        update_statistics(initial_statistics(), BATCHES[0], np.ones((4, 2)))


def test_examples_in_the_documentation():
    assert doctest.testmod(module).failed == 0
