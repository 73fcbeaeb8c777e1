"""SMAClite's GPU kernels, interpreted, against the operations that they replace."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dgmarl import device, make_env
from dgmarl.envs.smaclite import avoidance, combat, kernels
from dgmarl.envs.smaclite.targeting import Intent
from dgmarl.envs.smaclite.types import NOBODY, State

N_BATTLES = 13
"""Not a multiple of the battles in a block."""


def slow(name: str):
    """A map that is left to `make test-slow`."""
    return pytest.param(name, marks=pytest.mark.slow)


def random_fight(roster, key) -> tuple[State, Intent, jax.Array, jax.Array]:
    """Units close together, some dead, hurt or out of energy, that fire at random others."""
    keys = iter(jax.random.split(key, 20))
    shape = (roster.n_units, N_BATTLES)

    def share(most: np.ndarray) -> jax.Array:
        return most[:, None] * jax.random.uniform(next(keys), shape)

    def chance(p: float) -> jax.Array:
        return jax.random.bernoulli(next(keys), p, shape)

    def anyone() -> jax.Array:
        return jax.random.randint(next(keys), shape, NOBODY, roster.n_units)

    in_play = chance(0.8)
    position = jax.random.uniform(next(keys), (shape[0], 2, shape[1]), maxval=6.0)
    velocity = jax.random.normal(next(keys), position.shape)
    before = State(
        position=position,
        velocity=velocity,
        hp=jnp.where(in_play, 1 + share(roster.max_hp / 8), 0.0),
        shield=share(roster.max_shield),
        energy=jnp.where(chance(0.3), 0.0, share(roster.max_energy)),
        heal_reserve=share(np.ones(shape[0], np.float32)),
        cooldown=jnp.where(chance(0.6), 0.0, share(roster.max_cooldown)),
        shield_cooldown=jnp.where(chance(0.5), 0.0, 3.0),
        target=anyone(),
        attacking=chance(0.5),
        in_play=in_play,
        last_action=jnp.zeros((roster.n_allies, N_BATTLES), jnp.int32),
        time=jnp.zeros(N_BATTLES, jnp.int32),
    )
    intent = Intent(anyone(), anyone(), chance(0.7), position)
    order = jax.random.uniform(next(keys), shape).argsort(0).argsort(0)
    return before, intent, velocity, order.astype(jnp.int32)


@pytest.mark.parametrize("name", ["MMM2", "bane_vs_bane", "corridor"])
def test_turns_are_those_of_single_operations(monkeypatch, name):
    """Healers, units that explode, and two blows per attack."""
    roster = make_env(f"smaclite/{name}").roster
    given = random_fight(roster, jax.random.key(0))
    expected = jax.jit(lambda *given: combat.take_turns(roster, *given, True))(*given)
    assert (expected[1] > 0).any()
    assert (expected[0].in_play != given[0].in_play).any()
    monkeypatch.setattr(kernels, "INTERPRET", True)
    monkeypatch.setattr(combat, "has_kernels", lambda: True)
    found = jax.jit(lambda *given: combat.take_turns(roster, *given, True))(*given)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), found, expected)


@pytest.mark.parametrize("name", ["corridor", slow("MMM2"), slow("bane_vs_bane")])
def test_collision_avoidance_is_that_of_single_operations(monkeypatch, name):
    """Crowds in the open, and between walls."""
    roster = make_env(f"smaclite/{name}").roster
    state = random_fight(roster, jax.random.key(1))[0]
    key, other = jax.random.split(jax.random.key(2))
    at = jnp.asarray(roster.position, jnp.float32)[:, :, None]
    position = at + jax.random.normal(key, state.position.shape) * 0.7
    state = state._replace(position=position)
    wish = jax.random.normal(other, position.shape) * state.in_play[:, None]
    expected = jax.jit(lambda state, wish: avoidance.avoid(roster, state, wish))(state, wish)
    assert (jnp.abs(expected - wish) > 0.1).mean() > 0.1
    monkeypatch.setattr(kernels, "INTERPRET", True)
    monkeypatch.setattr(avoidance, "has_kernels", lambda: True)
    found = jax.jit(lambda state, wish: avoidance.avoid(roster, state, wish))(state, wish)
    # Where lines are nearly parallel, the last digit decides between distant solutions.
    assert np.isclose(found, expected, atol=1e-4).mean() > 0.99
    assert np.abs(found - expected).max() < 0.05


@pytest.mark.parametrize(
    ("backend", "capability", "divided", "expected"),
    [
        ("gpu", 9.0, False, True),
        ("gpu", 9.0, True, False),
        ("gpu", 7.5, False, False),
        ("gpu", 0.0, False, False),
        ("cpu", 9.0, False, False),
    ],
)
def test_where_kernels_are_used(monkeypatch, backend, capability, divided, expected):
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    monkeypatch.setattr(device, "compute_capability", lambda: capability)
    monkeypatch.setattr(device, "envs_divided", lambda: divided)
    assert device.has_kernels() is expected
