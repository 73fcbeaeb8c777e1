"""Critics that see only what belongs to an agent."""

import jax
import numpy as np
import pytest

from dgmarl.config.resolve import resolve
from dgmarl.errors import UsageError
from dgmarl.learners.ppo import PPO
from dgmarl.rollout import collect
from dgmarl.training import Trainer
from tests.tiny import GIFT

KEY = jax.random.key(0)
OWN = {"learner.critic": "own-state", "learner.hidden": 8, "n_envs": 2}


@pytest.fixture(scope="module")
def trainer() -> Trainer:
    return Trainer(resolve("lbf/8x8-2p-4f-coop", "ippo-dg", OWN))


def test_the_value_of_an_agent_depends_on_its_own_state_alone(trainer):
    learner = trainer.learner
    assert isinstance(learner, PPO)

    @jax.jit
    def play(key):
        state = learner.init(key)
        start, act = trainer._reset_envs(key), learner.behaviour(state, 0)
        return state, collect(trainer.env, act, start, key, 3, trainer.needs, reset=False)[1]

    state, batch = play(KEY)
    before = learner.values(state, batch)
    # What an agent sees, and the global state, are no business of this critic.
    blind = jax.tree.map(
        lambda seen: seen._replace(
            agents_view=seen.agents_view + 1, global_state=seen.global_state + 1
        ),
        (batch.observation, batch.next_observation, batch.last_observation),
        is_leaf=lambda part: hasattr(part, "agents_view"),
    )
    fields = ("observation", "next_observation", "last_observation")
    unseen = batch._replace(**dict(zip(fields, blind, strict=True)))
    jax.tree.map(np.testing.assert_array_equal, learner.values(state, unseen), before)
    moved = [part.at[..., 0, :].add(1.0) for part in batch.extras["local"]]
    after = learner.values(state, batch._replace(extras={**batch.extras, "local": moved}))
    for new, old in zip(after, before, strict=True):
        assert new.shape == old.shape == (3, 2, 2)
        assert (new[..., 0] != old[..., 0]).all()
        np.testing.assert_array_equal(new[..., 1], old[..., 1])


def test_it_is_a_critic_of_ippo_where_there_are_local_states(trainer):
    assert trainer.needs == {"local", "oracle"}
    _, metrics = jax.eval_shape(trainer.iterate, jax.eval_shape(trainer.init, KEY))
    assert "value_loss" in metrics
    with pytest.raises(UsageError, match="has no local_state"):
        Trainer(resolve(GIFT, "ippo-dg", OWN))
    with pytest.raises(UsageError, match="'own-state', but for mappo-dg allowed are central"):
        resolve("lbf/8x8-2p-4f-coop", "mappo-dg", OWN)
