"""Mixers: the formulas by hand, monotonicity, IGM by enumeration, and what each can and cannot
represent."""

from functools import cache
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from dgmarl.envs.base import EnvSpec
from dgmarl.envs.matrix import climbing, penalty
from dgmarl.nets.mixers import Mixer

N, A, D = 3, 3, 4
SPEC = EnvSpec("mixers", n_agents=N, n_actions=A, obs_size=2, state_size=D, horizon=5)
JOINT = np.array(list(product(range(A), repeat=N)))
KINDS = ("vdn", "qmix", "qplex")


def random_utilities(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Values [N, A] of single agents and a state, both large enough to bend what is bent."""
    rng = np.random.default_rng(seed)
    return rng.normal(scale=3, size=(N, A)).astype(np.float32), rng.normal(scale=2, size=D).astype(
        np.float32
    )


def fresh(mixer: Mixer, seed: int = 0):
    return jax.jit(mixer.init)(jax.random.key(seed))


def layers(params) -> dict:
    return jax.tree.map(np.asarray, params["params"])


def linear(layer: dict, x: np.ndarray) -> np.ndarray:
    return x @ layer["weight"] + layer["bias"]


def test_without_a_mixer_values_stay_as_they_are_and_vdn_sums_them():
    chosen = np.arange(6.0).reshape(2, 3)
    action = np.zeros((2, 3), int)
    np.testing.assert_array_equal(Mixer(SPEC, "none")({}, chosen, chosen, action, chosen), chosen)
    np.testing.assert_array_equal(
        Mixer(SPEC, "vdn")({}, chosen, chosen, action, chosen), [[3], [12]]
    )


def test_qmix_is_that_of_the_specification():
    mixer = Mixer(SPEC, "qmix", embedding=5, hidden=6)
    params = fresh(mixer)
    found, (utilities, state) = layers(params), random_utilities(0)
    q = utilities[:, 0]
    first = linear(found["Linear_0"], state)
    w1 = np.abs(linear(found["Linear_1"], np.maximum(first[:6], 0))).reshape(N, 5)
    w2 = np.abs(linear(found["Linear_2"], np.maximum(first[6:12], 0)))
    v = linear(found["Linear_3"], np.maximum(first[12:17], 0))
    x = q @ w1 + first[17:]
    expected = np.where(x > 0, x, np.expm1(x)) @ w2 + v
    mix = jax.jit(mixer.__call__)
    np.testing.assert_allclose(mix(params, q, q, np.zeros(N, int), state), expected, rtol=1e-5)


def test_qplex_is_that_of_the_specification():
    heads, width = 2, 6
    mixer = Mixer(SPEC, "qplex", hidden=width, heads=heads)
    params = fresh(mixer)
    found, (utilities, state) = layers(params), random_utilities(1)
    action = np.array([2, 0, 1])
    joint = np.eye(A)[action].ravel()

    def second(name: str, x: np.ndarray) -> np.ndarray:
        layer = found[name]["VmapLinear_0"]
        return np.einsum("ki,kij->kj", np.maximum(x, 0), layer["weight"]) + layer["bias"]

    first = linear(found["Linear_0"], state).reshape(2 + 2 * heads, width)
    scale, offset = second("_PerHead_0", first[:2])
    scale = np.abs(scale) + 1e-10
    key = np.abs(second("_PerHead_1", first[2 : 2 + heads])) + 1e-10
    of_agent = 1 / (1 + np.exp(-second("_PerHead_2", first[2 + heads :])))
    from_joint = linear(found["Linear_1"], np.concatenate([state, joint])).reshape(heads, width)
    of_action = 1 / (1 + np.exp(-second("_PerHead_3", from_joint)))
    weight = (key * of_agent * of_action).sum(axis=0)
    q, v = (
        scale * values + offset
        for values in (utilities[np.arange(N), action], utilities.max(axis=1))
    )
    expected = (v + weight * (q - v)).sum()
    batched_index = utilities[np.arange(N), action]
    mix = jax.jit(mixer.__call__)
    np.testing.assert_allclose(
        mix(params, batched_index, utilities.max(axis=1), action, state), [expected], rtol=1e-4
    )
    # Learning an agent's value goes through its weight alone: the advantage is held fixed.
    gradient = jax.grad(
        lambda batched_index: mix(params, batched_index, utilities.max(axis=1), action, state)[0]
    )(batched_index)
    np.testing.assert_allclose(gradient, scale, rtol=1e-4)


@pytest.mark.parametrize("kind", ["vdn", "qmix"])
def test_the_team_value_never_falls_where_an_agents_value_rises(kind):
    mixer = Mixer(SPEC, kind, embedding=8, hidden=8)
    init = jax.jit(mixer.init)
    mix = jax.jit(
        lambda params, q, state: mixer(params, q, q, jnp.zeros(q.shape, int), state)[:, 0]
    )
    for seed in range(20):
        params = init(jax.random.key(seed))
        rng = np.random.default_rng(seed)
        q, state = rng.normal(scale=3, size=(50, N)), rng.normal(scale=2, size=(50, D))
        before = mix(params, q, state)
        for i in range(N):
            risen = mix(params, q + 0.1 * np.eye(N)[i], state) - before
            assert (np.asarray(risen) >= -1e-5).all()
            assert (np.asarray(risen) > 1e-4).any()


@pytest.mark.parametrize("kind", KINDS)
def test_the_best_joint_action_is_that_of_the_best_single_actions(kind):
    mixer = Mixer(SPEC, kind, embedding=8, hidden=8)
    init = jax.jit(mixer.init)
    values = jax.jit(lambda params, utilities, state: mixer(params, *utilities, JOINT, state))
    for seed in range(30):
        utilities, state = random_utilities(seed)
        chosen = utilities[np.arange(N), JOINT]
        best = np.broadcast_to(utilities.max(axis=1), chosen.shape)
        mixed = values(
            init(jax.random.key(seed)), (chosen, best), np.broadcast_to(state, (len(JOINT), D))
        )
        found = JOINT[np.asarray(mixed)[:, 0].argmax()]
        np.testing.assert_array_equal(found, utilities.argmax(axis=1))


def fitted(kind: str, game, best: tuple[int, int]) -> np.ndarray:
    """The payoffs as a mixer represents them, fitted directly where single agents prefer `best`;
    the better of two fits."""
    payoff = game.payoff[0].ravel()
    worse = np.arange(3) != np.array(best)[:, None]
    fits = np.asarray(fitter(kind)(jax.random.split(jax.random.key(0), 2), payoff, worse))
    return fits[np.abs(fits - payoff).max(axis=1).argmin()].reshape(3, 3)


@cache
def fitter(kind: str):
    """One compiled program for all games of this size."""
    mixer = Mixer(climbing().spec, kind, heads=10)
    joint = np.array(list(product(range(3), repeat=2)))
    state = np.ones((9, 1), np.float32)
    rule = optax.flatten(optax.adam(optax.cosine_decay_schedule(3e-3, 4000)))

    def represented(params, worse):
        # A sum and a monotone mixture may choose by how much other actions are worse; QPLEX weighs
        # them itself.
        utilities = (
            params["level"] - (20.0 if kind == "qplex" else jax.nn.softplus(params["gap"])) * worse
        )
        chosen = jnp.stack([utilities[i][joint[:, i]] for i in range(2)], axis=-1)
        return mixer(
            params["mixer"], chosen, jnp.full(chosen.shape, params["level"]), joint, state
        )[:, 0]

    def fit(key, payoff, worse):
        def loss(params):
            return ((represented(params, worse) - payoff) ** 2).mean()

        def step(carry, _):
            params, opt_state = carry
            updates, opt_state = rule.update(jax.grad(loss)(params), opt_state)
            return (optax.apply_updates(params, updates), opt_state), None

        params = {"mixer": mixer.init(key), "gap": jnp.zeros((2, 3)), "level": jnp.float32(0)}
        (params, _), _ = jax.lax.scan(step, (params, rule.init(params)), None, 4000)
        return represented(params, worse)

    return jax.jit(jax.vmap(fit, in_axes=(0, None, None)))


@pytest.mark.slow
@pytest.mark.parametrize(("game", "best"), [(climbing(), (0, 0)), (penalty(50), (0, 2))])
def test_qplex_represents_games_that_no_sum_and_no_monotone_mixture_can(game, best):
    payoff = game.payoff[0]
    np.testing.assert_allclose(fitted("qplex", game, best), payoff, atol=0.5)
    for kind in ("vdn", "qmix"):
        assert np.abs(fitted(kind, game, best) - payoff).max() > 10


def ends_of_penalty_50(decided: float, n_fits: int = 8) -> np.ndarray:
    """Where greedy agents end after tables of values and QPLEX's mixer were fitted to all payoffs
    at once.

    decided: by how much the agents at first prefer the optimum (0, 2).
    """
    game, joint = penalty(50), np.array(list(product(range(3), repeat=2)))
    mixer, payoff, state = (
        Mixer(game.spec, "qplex", heads=10),
        jnp.asarray(game.payoff[0]),
        np.ones((9, 1), np.float32),
    )
    rule = optax.adam(2e-3)

    def loss(params):
        chosen = jnp.stack([params["values"][i][joint[:, i]] for i in range(2)], axis=-1)
        best = jnp.broadcast_to(params["values"].max(axis=1), chosen.shape)
        return (
            (mixer(params["mixer"], chosen, best, joint, state)[:, 0] - payoff.ravel()) ** 2
        ).mean()

    def step(carry, _):
        params, moments = carry
        change, moments = rule.update(jax.grad(loss)(params), moments)
        return (optax.apply_updates(params, change), moments), None

    def fit(key):
        mixer_key, values_key = jax.random.split(key)
        values = (
            0.1 * jax.random.normal(values_key, (2, 3)) + decided * jnp.eye(3)[jnp.array([0, 2])]
        )
        params = {"mixer": mixer.init(mixer_key), "values": values}
        first, second = jax.lax.scan(step, (params, rule.init(params)), None, 3000)[0][0][
            "values"
        ].argmax(axis=1)
        return payoff[first, second]

    return np.asarray(jax.jit(jax.vmap(fit))(jax.random.split(jax.random.key(0), n_fits)))


@pytest.mark.slow
def test_qplex_keeps_one_of_two_equal_optima_but_seldom_decides_for_one():
    assert (ends_of_penalty_50(decided=3.0) == 10).all()
    assert (ends_of_penalty_50(decided=0.0) == 10).sum() < 4
