"""Graph metrics by hand."""

import doctest

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dgmarl.graphs.metrics as module
from dgmarl.graphs.metrics import agreement, density

EMPTY, COMPLETE = jnp.eye(3, dtype=bool), jnp.ones((3, 3), bool)
CHAIN = EMPTY.at[0, 1].set(True).at[1, 2].set(True)


def test_density_leaves_self_loops_out():
    assert density(EMPTY) == 0
    assert density(COMPLETE) == 1
    np.testing.assert_allclose(density(CHAIN), 2 / 6)
    assert density(jnp.ones((5, 1, 1), bool)) == 0


def test_density_counts_valid_steps_only():
    graphs = jnp.stack([COMPLETE, EMPTY])
    assert density(graphs, jnp.array([True, False])) == 1
    assert density(graphs, jnp.array([False, False])) == 0
    with pytest.raises(ValueError, match=r"valid must have the shape \(2,\)"):
        density(graphs, jnp.ones(3, bool))


def test_agreement_by_hand():
    predicted = EMPTY.at[0, 1].set(True).at[2, 0].set(True).at[2, 1].set(True)
    precision, recall, f1 = jax.jit(agreement)(predicted, CHAIN)
    np.testing.assert_allclose([precision, recall, f1], [1 / 3, 1 / 2, 2 / 5], rtol=1e-6)


def test_agreement_with_nothing_to_find():
    assert agreement(EMPTY, EMPTY) == (1, 1, 1)
    assert agreement(EMPTY, CHAIN) == (1, 0, 0)
    assert agreement(CHAIN, EMPTY) == (0, 1, 0)


def test_agreement_counts_valid_steps_only():
    predicted, truth = jnp.stack([CHAIN, COMPLETE]), jnp.stack([CHAIN, EMPTY])
    assert agreement(predicted, truth, jnp.array([True, False])).f1 == 1
    assert agreement(predicted, truth).f1 < 1
    with pytest.raises(ValueError, match="one shape"):
        agreement(predicted, CHAIN)


def test_examples_in_the_documentation():
    assert doctest.testmod(module).failed == 0
