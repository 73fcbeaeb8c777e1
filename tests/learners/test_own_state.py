"""Critics that see only what belongs to an agent."""

import jax
import numpy as np
import pytest
from dgmarl.envs.local_states import LocalStates

from dgmarl import make_env
from dgmarl.config.resolve import resolve
from dgmarl.errors import UsageError
from dgmarl.nets.actor_critic import Value
from dgmarl.training import Trainer
from tests.tiny import GIFT

KEY = jax.random.key(0)


def test_the_value_of_an_agent_depends_on_its_own_state_alone():
    env = LocalStates(make_env("lbf/8x8-2p-4f-coop"))
    value = Value(env.spec, 8, "own-state", shared=True)
    state, observation = env.reset(KEY)
    np.testing.assert_array_equal(observation.global_state, env.local_state(state).reshape(-1))
    assert env.draw(state) == make_env("lbf/8x8-2p-4f-coop").draw(state)
    params, size = value.init(KEY), env.spec.state_size // 2
    before, after = (
        value(params, observation),
        value(
            params, observation._replace(global_state=observation.global_state.at[:size].add(1.0))
        ),
    )
    assert before.shape == (2,)
    assert before[0] != after[0]
    assert before[1] == after[1]


def test_it_is_a_critic_of_ippo_where_there_are_local_states():
    own = {"learner.critic": "own-state"}
    trainer = Trainer(resolve("lbf/8x8-2p-4f-coop", "ippo-dg", own))
    assert isinstance(trainer.env, LocalStates)
    assert trainer.env.offers("oracle_graph")
    _, metrics = jax.eval_shape(trainer.iterate, jax.eval_shape(trainer.init, KEY))
    assert "value_loss" in metrics
    with pytest.raises(UsageError, match="has no local_state"):
        Trainer(resolve(GIFT, "ippo-dg", own))
    with pytest.raises(UsageError, match="IPPO has the critic agent or own-state"):
        resolve("lbf/8x8-2p-4f-coop", "mappo-dg", own)
