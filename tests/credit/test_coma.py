"""Counterfactual advantages: COMA's, and its form over several steps (GPAE)."""

from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.credit.by_hand import A, B, N, assigned, made, played
from tests.credit.double_loop import gae_loop

BACKBONES = ("ippo", "mappo")


@pytest.mark.parametrize("backbone", BACKBONES)
def test_the_advantage_sums_to_zero_under_the_policy(backbone):
    rule, state = made(f"{backbone}-coma")
    batch, values = played()
    probs = batch.extras["probs"]
    for agent in range(N):
        each = [
            rule.assign(
                state, batch._replace(action=batch.action.at[..., agent].set(b)), values, None
            ).advantage[..., agent]
            for b in range(A)
        ]
        found = np.stack(each, axis=-1)
        assert np.abs(found).max() > 1e-3
        np.testing.assert_allclose((found * probs[..., agent, :]).sum(-1), 0, atol=1e-6)


@pytest.mark.parametrize("method", ["ippo-coma", "mappo-gpae"])
def test_the_learners_critic_predicts_the_teams_return(method):
    found = assigned(method, played())
    expected = assigned(f"{method.partition('-')[0]}-global", played())
    np.testing.assert_array_equal(found.target, expected.target)
    np.testing.assert_array_equal(found.reward, expected.reward)
    assert not np.allclose(found.advantage, expected.advantage, atol=1e-3)


@pytest.mark.parametrize("backbone", BACKBONES)
def test_several_steps_are_gae_with_the_value_of_the_others_actions(backbone):
    rule, state = made(f"{backbone}-gpae")
    batch, values = played()
    found = rule.assign(state, batch, values, None)
    x, action, _ = rule.inputs(batch)
    each = rule.critic.apply(state.critic.params, x, action)
    now = np.asarray((each * batch.extras["probs"]).sum(axis=-1))
    following = np.array(values.next)
    goes_on = np.asarray(batch.continues)[:-1]
    following[:-1][goes_on] = now[1:][goes_on]
    for env in range(B):
        steps = (found.reward, now, following, batch.bootstrap, batch.continues)
        one = [np.asarray(part)[:, env] for part in steps]
        expected = gae_loop(*one, rule.gamma, rule.lambda_)
        np.testing.assert_allclose(found.advantage[:, env], expected, atol=1e-5)


def test_the_own_action_does_not_enter_the_value_of_the_others_actions():
    rule, state = made("ippo-gpae")
    batch, _ = played()
    moved = batch._replace(action=batch.action.at[..., 0].set((batch.action[..., 0] + 1) % A))
    before, after = (rule.values(state.critic.params, rule.inputs(b)) for b in (batch, moved))
    np.testing.assert_allclose(before[..., 0], after[..., 0], atol=1e-6)
    assert not np.allclose(before[..., 1], after[..., 1], atol=1e-4)


@pytest.fixture(scope="module")
def one_shot():
    """Every joint action of a game that ends at once, and its payoff to the team."""
    joint = np.array(list(product(range(A), repeat=N)))
    payoff = np.random.default_rng(1).normal(size=(A,) * N).astype(np.float32)
    batch, values = played()
    first = jax.tree.map(
        lambda leaf: jnp.broadcast_to(leaf[0, 0], (1, len(joint), *leaf.shape[2:])), batch
    )
    reward = np.repeat(payoff[tuple(joint.T)][None, :, None] / N, N, axis=-1)
    over = jnp.ones((1, len(joint)), bool)
    batch = first._replace(
        action=jnp.asarray(joint)[None],
        reward=jnp.asarray(reward),
        terminated=over,
        truncated=~over,
        valid=over,
    )
    return batch, jax.tree.map(lambda leaf: jnp.zeros_like(batch.reward), values), payoff


def test_in_a_one_shot_game_the_advantage_becomes_the_difference_of_payoffs(one_shot):
    batch, values, payoff = one_shot
    numbers = {"learner.hidden": 64, "learner.learning_rate": 3e-3, "learner.epochs": 50}
    rule, state = made("mappo-coma", **numbers, **{"credit.reward_scaling": "none"})

    @jax.jit
    def learn(state):
        learned = lambda _, state: rule.update(state, batch, jax.random.key(0))[0]  # noqa: E731
        return jax.lax.fori_loop(0, 20, learned, state)

    found = np.asarray(rule.assign(learn(state), batch, values, None).advantage)[0]
    probs = np.asarray(batch.extras["probs"])[0, 0]
    for agent in range(N):
        average = np.moveaxis(payoff, agent, -1) @ probs[agent]
        expected = payoff - np.expand_dims(average, agent)
        np.testing.assert_allclose(found[:, agent], expected.ravel(), atol=0.1)
