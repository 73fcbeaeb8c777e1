"""The weight of others' rewards that makes a gradient's direction surest."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dgmarl.credit.cross_weight import LEAST, best_cross_weight, initial_moments, updated_moments


def weight_after(own, cross, noise_own, noise_cross, n_batches=3000):
    """The weight after many batches whose gradients are `own` and `cross` plus independent noise of
    these deviations."""
    truth, spread = jnp.stack([own, cross]), jnp.array([noise_own, noise_cross])[:, None]

    def one(moments, key):
        gradients = truth + spread * jax.random.normal(key, (2, *truth.shape))
        return updated_moments(moments, gradients), best_cross_weight(moments)

    return jax.lax.scan(one, initial_moments(), jax.random.split(jax.random.key(0), n_batches))[1][
        -500:
    ].mean()


def unit(index, size=50):
    return jnp.eye(size)[index]


def test_before_the_first_batch_others_count_fully():
    assert best_cross_weight(initial_moments()) == 1


@pytest.mark.parametrize("noise", [1.2, 1.6, 2.0])
def test_independent_parts_of_equal_strength_get_the_ratio_of_their_noise(noise):
    """SNR of the sum is largest at beta = (signal / noise of cross) / (signal / noise of own)."""
    found = weight_after(unit(0), unit(1), 0.3, 0.3 * noise)
    np.testing.assert_allclose(found, 1 / noise**2, atol=0.08)


def test_what_is_only_noise_gets_the_least_weight():
    assert weight_after(unit(0), jnp.zeros(50), 0.1, 1.0) < LEAST + 0.05


def test_others_count_fully_where_ones_own_rewards_say_nothing():
    assert weight_after(jnp.zeros(50), unit(1), 0.3, 0.3) > 0.9


def test_rewards_of_others_that_speak_against_ones_own_are_kept():
    """Own gradient selfish, team gradient the other way: the weight must not fall."""
    assert weight_after(unit(0), -3 * unit(0) + unit(1), 0.2, 0.2) > 0.9
