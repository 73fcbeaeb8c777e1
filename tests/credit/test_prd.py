"""Partial reward decoupling lies between local and team credit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dgmarl.config.resolve import resolve
from dgmarl.errors import UsageError
from tests.credit.by_hand import assigned, made, played

PARTS = ("reward", "advantage", "target")


@pytest.mark.parametrize(("threshold", "same"), [(0.0, "ippo-global"), (2.0, "ippo-local")])
def test_with_all_weights_on_it_is_team_credit_and_with_none_local(threshold, same):
    overrides = {"credit.relevance": "hard", "credit.threshold": threshold}
    found, expected = assigned("ippo-prd", played(), **overrides), assigned(same, played())
    for part in PARTS:
        np.testing.assert_allclose(getattr(found, part), getattr(expected, part), atol=1e-5)


def with_relevance(relevance):
    """A soft rule whose critic attends like this; row = source."""
    rule, state = made("mappo-prd")

    class Given:
        def relevance(self, params, batch):
            return jnp.broadcast_to(jnp.asarray(relevance), (*batch.reward.shape, 3))

    rule.critic = Given()
    return rule.assign(state, *played(), None)


def test_equal_attention_is_team_credit():
    found = with_relevance(np.float32(~np.eye(3, dtype=bool)))
    expected = assigned("mappo-global", played())
    np.testing.assert_allclose(found.advantage, expected.advantage, atol=1e-5)


def test_an_agent_is_credited_with_the_rewards_of_those_who_attend_to_it():
    """Agents 0 and 2 attend to agent 1 alone, agent 1 to agent 0."""
    found = with_relevance(np.float32([[0, 2, 0], [2, 0, 2], [0, 0, 0]]))
    own = np.asarray(assigned("mappo-local", played()).reward)
    expected = [own[..., 0] + 2 * own[..., 1], own[..., 1] + 2 * (own[..., 0] + own[..., 2])]
    np.testing.assert_allclose(found.reward, np.stack([*expected, own[..., 2]], -1), atol=1e-5)


def test_the_critic_learns_and_the_batch_is_credited_by_the_one_before():
    rule, state = made("ippo-prd")
    batch, values = played()
    new, metrics = jax.jit(rule.update)(state, batch, jax.random.key(1))
    assert metrics["action_value_loss"] > 0
    before, after = (rule.assign(each, batch, values, None) for each in (state, new))
    assert not np.allclose(before.advantage, after.advantage, atol=1e-6)
    # The rewards are scaled as for every other rule.
    local, statistics = made("ippo-local")
    expected = local.update(statistics, batch, jax.random.key(1))[0]
    jax.tree.map(np.testing.assert_allclose, new.statistics, expected)


def test_a_threshold_out_of_range_is_refused():
    with pytest.raises(UsageError, match=r"credit.threshold is -1, but must be from 0 to"):
        resolve("lbf/8x8-3p-2f", "ippo-prd", {"credit.threshold": -1.0})
