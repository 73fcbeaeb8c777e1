"""Policies and critics: the original's initialisation, a GRU against plain NumPy, memory that ends
with its episode."""

from math import sqrt

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dgmarl.envs.base import EnvSpec, Observation
from dgmarl.nets.actor_critic import FeedForward, Policy, Recurrent, Value
from dgmarl.nets.layers import GRU, Linear, rows_times

SPEC = EnvSpec("nets", n_agents=3, n_actions=4, obs_size=5, state_size=7, horizon=10)
HIDDEN = 8
T, B = 6, 2


def observations(key, *shape: int) -> Observation:
    obs_key, state_key = jax.random.split(key)
    agents_view = jax.random.normal(obs_key, (*shape, SPEC.n_agents, SPEC.obs_size))
    state = jax.random.normal(state_key, (*shape, SPEC.state_size))
    action_mask = np.ones((*shape, SPEC.n_agents, SPEC.n_actions), bool)
    alive = np.ones((*shape, SPEC.n_agents), bool)
    return Observation(np.array(agents_view), np.array(state), action_mask, alive)


def at(array, place, value) -> np.ndarray:
    """A copy with another value there."""
    array = np.array(array)
    array[place] = value
    return array


def leaves(params) -> dict[str, np.ndarray]:
    found = jax.tree_util.tree_leaves_with_path(params)
    return {
        jax.tree_util.keystr(path, simple=True, separator="."): np.asarray(leaf)
        for path, leaf in found
    }


@pytest.mark.parametrize(
    ("module", "inputs", "fan_in"),
    [
        (Linear(400), (jnp.zeros((1, 16)),), 16),
        # The one-hot of the agent counts as input.
        (Linear(400, n_agents=9), (jnp.zeros((1, 16)),), 25),
        # All weights and both biases of a GRU are drawn by its own width, whatever its input's.
        (GRU(64), (jnp.zeros((1, 64)), jnp.zeros((1, 1, 3)), jnp.zeros((1, 1), bool)), 64),
    ],
)
def test_everything_is_drawn_uniformly_within_one_over_the_root_of_the_fan_in(
    module, inputs, fan_in
):
    bound = 1 / sqrt(fan_in)
    for name, leaf in leaves(jax.jit(module.init)(jax.random.key(0), *inputs)).items():
        assert np.abs(leaf).max() <= bound, name
        assert np.abs(leaf).max() > 0.95 * bound, name
        # A uniform law, not a normal one that was cut: its deviation is bound / sqrt(3).
        np.testing.assert_allclose(leaf.std(), bound / sqrt(3), rtol=0.12, err_msg=name)


def test_who_one_is_enters_as_a_one_hot_beside_the_input():
    layer = Linear(HIDDEN, n_agents=3)
    x = jax.random.normal(jax.random.key(1), (4, 3, 5))
    params = jax.jit(layer.init)(jax.random.key(0), x)
    weight, bias, identity = (
        np.asarray(params["params"][name]) for name in ("weight", "bias", "identity")
    )
    wide = np.concatenate([x, np.broadcast_to(np.eye(3), (4, 3, 3))], axis=-1)
    expected = wide @ np.concatenate([weight, identity]) + bias
    np.testing.assert_allclose(jax.jit(layer.apply)(params, x), expected, atol=1e-5)


@pytest.mark.parametrize("n_outputs", [2, 8])
def test_gradients_of_a_product_are_those_of_the_formula(n_outputs):
    """Also where the outputs are few, which a CPU computes transposed."""
    keys = jax.random.split(jax.random.key(3), 3)
    shapes = ((4, 3, 8), (8, n_outputs), (4, 3, n_outputs))
    x, weight, given = (
        jax.random.normal(key, shape) for key, shape in zip(keys, shapes, strict=True)
    )
    of_x, of_weight = jax.jit(lambda *factors: jax.vjp(rows_times, *factors)[1](given))(x, weight)
    np.testing.assert_allclose(of_x, given @ weight.T, atol=1e-5)
    np.testing.assert_allclose(of_weight, np.einsum("abi,abo->io", x, given), atol=1e-5)


def gru_by_hand(params, hidden_state, x, is_first):
    """One step at a time, gate by gate, as the specification writes it."""
    W, b, U, c = (
        np.split(params["params"][name], 3, axis=-1)
        for name in ("weight", "bias", "recurrent", "offset")
    )
    outputs = []
    for t in range(len(x)):
        h = np.where(is_first[t][..., None], 0, hidden_state)
        r, z = (1 / (1 + np.exp(-(x[t] @ W[k] + b[k] + h @ U[k] + c[k]))) for k in (0, 1))
        n = np.tanh(x[t] @ W[2] + b[2] + r * (h @ U[2] + c[2]))
        hidden_state = (1 - z) * n + z * h
        outputs.append(hidden_state)
    return hidden_state, np.stack(outputs)


@pytest.fixture(scope="module")
def gru():
    keys = jax.random.split(jax.random.key(2), 3)
    x, hidden_state = jax.random.normal(keys[0], (T, B, 5)), jax.random.normal(keys[1], (B, HIDDEN))
    is_first = at(np.zeros((T, B), bool), (3, 1), True)
    layer = GRU(HIDDEN)
    params = jax.jit(layer.init)(keys[2], hidden_state, x, is_first)
    return layer, params, hidden_state, x, is_first


def test_the_gru_is_that_of_the_specification(gru):
    layer, params, hidden_state, x, is_first = gru
    last, outputs = jax.jit(layer.apply)(params, hidden_state, x, is_first)
    expected_last, expected = gru_by_hand(
        jax.tree.map(np.asarray, params),
        np.asarray(hidden_state),
        np.asarray(x),
        np.asarray(is_first),
    )
    np.testing.assert_allclose(outputs, expected, atol=1e-5)
    np.testing.assert_allclose(last, expected_last, atol=1e-5)


def test_both_biases_of_the_gru_matter(gru):
    layer, params, hidden_state, x, is_first = gru
    apply, own = jax.jit(layer.apply), params["params"]
    before = apply(params, hidden_state, x, is_first)[1]
    for name in ("bias", "offset"):
        changed = {"params": {**own, name: at(own[name], -1, own[name][-1] + 1)}}
        assert not np.allclose(apply(changed, hidden_state, x, is_first)[1], before)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("network", [FeedForward, Recurrent])
def test_a_sequence_at_once_is_the_same_as_step_by_step(network, shared):
    policy = Policy(SPEC, HIDDEN, network, shared)
    params = jax.jit(policy.init)(jax.random.key(0))
    observation = observations(jax.random.key(1), T, B)
    log_probs = jax.jit(policy.log_probs)
    is_first = at(at(np.zeros((T, B), bool), 0, True), (4, 0), True)
    last, at_once = log_probs(params, policy.init_hidden_state(B), observation, is_first)
    hidden_state, single = policy.init_hidden_state(B), []
    for t in range(T):
        hidden_state, chances = log_probs(
            params,
            hidden_state,
            jax.tree.map(lambda leaf, t=t: leaf[t : t + 1], observation),
            is_first[t : t + 1],
        )
        single.append(chances[0])
    np.testing.assert_allclose(at_once, np.stack(single), atol=1e-5)
    np.testing.assert_allclose(last, hidden_state, atol=1e-5)


@pytest.mark.parametrize("shared", [True, False])
def test_memory_does_not_leak_into_the_next_episode_of_a_window(shared):
    policy = Policy(SPEC, HIDDEN, Recurrent, shared)
    params = jax.jit(policy.init)(jax.random.key(0))
    observation = observations(jax.random.key(1), T, B)
    log_probs = jax.jit(policy.log_probs)
    is_first = at(np.zeros((T, B), bool), (3, 0), True)
    before = policy.init_hidden_state(B) + 1.0
    _, whole = log_probs(params, before, observation, is_first)
    view = observation.agents_view
    other = observation._replace(agents_view=at(view, slice(3), view[:3] + 5))
    _, changed = log_probs(params, before - 3.0, other, is_first)
    # Environment 0 began anew at step 3: nothing from before is left. Environment 1 played on: it
    # remembers.
    np.testing.assert_array_equal(changed[3:, 0], whole[3:, 0])
    assert not np.allclose(changed[3:, 1], whole[3:, 1])
    _, fresh = log_probs(
        params,
        policy.init_hidden_state(B),
        jax.tree.map(lambda leaf: leaf[3:], observation),
        is_first[3:],
    )
    np.testing.assert_allclose(whole[3:, 0], fresh[:, 0], atol=1e-6)


@pytest.mark.parametrize("network", [FeedForward, Recurrent])
def test_agents_share_one_set_of_parameters_or_have_their_own(network):
    observation, is_first = observations(jax.random.key(1), T, B), np.zeros((T, B), bool)
    shared, separate = (Policy(SPEC, HIDDEN, network, share) for share in (True, False))
    assert all(
        leaf.shape[0] != SPEC.n_agents or "identity" in name
        for name, leaf in leaves(jax.jit(shared.init)(jax.random.key(0))).items()
    )
    params, log_probs = jax.jit(separate.init)(jax.random.key(0)), jax.jit(separate.log_probs)
    for name, leaf in leaves(params).items():
        assert leaf.shape[0] == SPEC.n_agents, name
        assert not np.allclose(leaf[0], leaf[1]), name
    before = log_probs(params, separate.init_hidden_state(B), observation, is_first)[1]
    changed = jax.tree.map(lambda leaf: at(leaf, 1, np.asarray(leaf)[1] + 0.3), params)
    after = log_probs(changed, separate.init_hidden_state(B), observation, is_first)[1]
    np.testing.assert_array_equal(np.delete(after, 1, axis=2), np.delete(before, 1, axis=2))
    assert not np.allclose(after[:, :, 1], before[:, :, 1])


def test_an_agent_is_told_apart_by_its_identity_alone():
    policy = Policy(SPEC, HIDDEN, FeedForward, True)
    observation = observations(jax.random.key(1), 1, 1)
    view = observation.agents_view
    same = observation._replace(agents_view=np.broadcast_to(view[:, :, :1], view.shape))
    params = jax.jit(policy.init)(jax.random.key(0))
    _, log_probs = jax.jit(policy.log_probs)(
        params, policy.init_hidden_state(1), same, np.ones((1, 1), bool)
    )
    assert not np.allclose(log_probs[0, 0, 0], log_probs[0, 0, 1])


def test_unavailable_actions_have_no_probability_and_the_others_all_of_it():
    policy = Policy(SPEC, HIDDEN, FeedForward, True)
    observation = observations(jax.random.key(1), 1, 1)
    observation.action_mask[..., 0, :3] = False
    params = jax.jit(policy.init)(jax.random.key(0))
    _, log_probs = jax.jit(policy.log_probs)(
        params, policy.init_hidden_state(1), observation, np.ones((1, 1), bool)
    )
    np.testing.assert_allclose(np.exp(log_probs[0, 0, 0]), [0, 0, 0, 1], atol=1e-6)
    np.testing.assert_allclose(np.exp(log_probs).sum(axis=-1), 1, atol=1e-5)
    assert np.isfinite(log_probs).all()


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("kind", ["agent", "central", "central-heads"])
def test_each_critic_answers_for_every_agent_from_what_it_may_see(kind, shared):
    critic = Value(SPEC, HIDDEN, kind, shared)
    value = jax.jit(critic.__call__)
    params = jax.jit(critic.init)(jax.random.key(0))
    observation = observations(jax.random.key(1), T, B)
    answer = value(params, observation)
    assert answer.shape == (T, B, SPEC.n_agents)
    assert not np.allclose(answer[..., 0], answer[..., 1])
    view = observation.agents_view
    view = at(view, np.s_[:, :, 1], view[:, :, 1] + 1)
    by_obs = value(params, observation._replace(agents_view=view))
    by_state = value(params, observation._replace(global_state=observation.global_state + 1.0))
    moved = np.array(
        [not np.allclose(by_obs[..., i], answer[..., i]) for i in range(SPEC.n_agents)]
    )
    np.testing.assert_array_equal(moved, [False, kind == "agent", False])
    assert np.allclose(by_state, answer) == (kind == "agent")


def test_the_written_gradient_of_the_gru_is_that_of_its_steps(gru):
    layer, params, hidden_state, x, is_first = gru
    params = jax.tree.map(lambda leaf: 3 * leaf, params)  # far from where everything is linear

    def by_steps(params, hidden_state, x):
        W, b, U, c = (
            jnp.split(params["params"][name], 3, axis=-1)
            for name in ("weight", "bias", "recurrent", "offset")
        )
        outputs = []
        for t in range(T):
            h = jnp.where(is_first[t][..., None], 0, hidden_state)
            r, z = (jax.nn.sigmoid(x[t] @ W[k] + b[k] + h @ U[k] + c[k]) for k in (0, 1))
            n = jnp.tanh(x[t] @ W[2] + b[2] + r * (h @ U[2] + c[2]))
            hidden_state = (1 - z) * n + z * h
            outputs.append(hidden_state)
        return jnp.stack(outputs)

    weight = jax.random.normal(jax.random.key(3), (T, B, HIDDEN))
    found, expected = (
        jax.jit(
            jax.grad(lambda *inputs, run=run: (weight * run(*inputs)).sum(), argnums=(0, 1, 2))
        )(params, hidden_state, x)
        for run in (
            lambda params, hidden_state, x: layer.apply(params, hidden_state, x, is_first)[1],
            by_steps,
        )
    )
    for new, old in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert np.abs(old).max() > 0
        np.testing.assert_allclose(new, old, rtol=1e-4, atol=1e-5)
