"""Blocks of steps: every valid step is in exactly one place, and sums and results are those of the
whole batch."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dgmarl.blocks import as_columns, as_rows, map_of, sum_of

T = 7
LENGTHS = st.lists(st.integers(1, T), min_size=1, max_size=6)
LAYOUTS = {"rows": as_rows, "columns": as_columns}


def valid_of(lengths):
    return jnp.arange(T)[:, None] < jnp.array(lengths)


@pytest.mark.parametrize("layout", LAYOUTS)
@settings(deadline=None, max_examples=30)
@given(lengths=LENGTHS, size=st.integers(1, 50))
def test_every_step_is_in_one_place_of_the_first_blocks(layout, lengths, size):
    valid = valid_of(lengths)
    places = LAYOUTS[layout](valid, size)
    used = np.asarray(places.present)
    found = list(zip(np.asarray(places.step)[used], np.asarray(places.env)[used], strict=True))
    assert sorted(found) == sorted(map(tuple, np.argwhere(valid)))
    contains_steps = used.any(axis=(1, 2))
    n_used = int(places.n_used)
    assert contains_steps[:n_used].all()
    assert not contains_steps[n_used:].any()
    if layout == "rows":
        assert used.shape[1] == 1
        assert used.shape[2] <= size


@pytest.mark.parametrize("n_envs", [1, 2, 3])
def test_episodes_of_one_step(n_envs):
    places = as_columns(jnp.ones((1, n_envs), bool), width=2)
    values = jnp.arange(float(n_envs))[None]
    taken = np.asarray(places.take(values))
    assert taken.shape == places.present.shape
    np.testing.assert_array_equal(np.sort(taken[np.asarray(places.present)]), values[0])


@settings(deadline=None, max_examples=30)
@given(lengths=LENGTHS, width=st.integers(1, 3))
def test_an_episode_takes_consecutive_places_of_one_column(lengths, width):
    places = as_columns(valid_of(lengths), width)
    n_columns = places.step.shape[0] * places.step.shape[2]
    step, env, present = (
        np.moveaxis(np.asarray(each), 0, 1).reshape(T, n_columns) for each in places[:3]
    )
    for number, length in enumerate(lengths):
        slots, columns = np.nonzero(present & (env == number))
        assert len(set(columns)) == 1
        np.testing.assert_array_equal(slots, slots[0] + np.arange(length))
        np.testing.assert_array_equal(step[slots, columns], np.arange(length))


def test_short_episodes_share_columns():
    places = as_columns(valid_of([3, 1, 2, 4, 2, 2]), width=1)
    assert int(places.n_used) == 2


@pytest.mark.parametrize("size", [1, 3, 20, 100])
@pytest.mark.parametrize("batched", [False, True])
def test_sums_and_results_are_those_of_the_batch(size, batched):
    values = jax.random.normal(jax.random.key(0), (2, T, 3, 4))
    valid = jnp.stack([valid_of([3, 5, 2]), valid_of([1, 7, 7])])

    def found(values, valid):
        places = as_rows(valid, size)
        taken, present = places.take(values), places.present
        total = sum_of(
            lambda block: {"sum": jnp.where(block[1][..., None], block[0], 0).sum()},
            (taken, present),
            places.n_used,
        )
        squares = map_of(lambda block: block**2, taken, places.n_used)
        return total["sum"], places.put_back(squares, valid, -1.0)

    both = jax.jit(jax.vmap(found) if batched else partial(jax.lax.map, lambda x: found(*x)))
    totals, squares = both(values, valid) if batched else both((values, valid))
    mask = np.asarray(valid)[..., None]
    np.testing.assert_allclose(totals, np.sum(values, where=mask, axis=(1, 2, 3)), rtol=1e-5)
    np.testing.assert_allclose(
        squares, np.where(mask, values**2, -1) if size < 21 else values**2, rtol=1e-6
    )


def test_blocks_without_steps_are_not_computed():
    computed = []

    def function(block):
        jax.debug.callback(lambda: computed.append(1))
        return block.sum()

    places = as_rows(valid_of([2, 1, 1]), size=2)
    taken = places.take(jnp.ones((T, 3)))
    assert jax.jit(lambda x: sum_of(function, x, places.n_used))(taken) == 4
    jax.effects_barrier()
    assert len(computed) == 2
