"""Jumanji's environments through their adapter against Jumanji's own stepping."""

from types import SimpleNamespace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jumanji.types import restart, termination, transition, truncation

from dgmarl.envs.adapters.jumanji import Jumanji
from dgmarl.envs.base import random_actions
from dgmarl.envs.checker import check_env
from dgmarl.envs.registry import make_env
from dgmarl.errors import UsageError

KEY = jax.random.key(0)
FORAGING = "jumanji:LevelBasedForaging-v0"
SMALL = {"grid_size": 5, "fov": 5, "num_food": 1, "force_coop": False, "time_limit": 12}


@pytest.fixture(scope="module")
def foraging():
    return make_env(FORAGING, **SMALL)


def test_foraging_keeps_the_contract(foraging):
    assert [found.sentence for found in check_env(foraging) if found.kind == "violation"] == []


def test_rewards_observations_and_endings_are_jumanjis(foraging):
    """32 random episodes of 12 steps: some foods are eaten, some are not."""

    @jax.jit
    @jax.vmap
    def play(key):
        state, observation = foraging.reset(key)
        inner, _ = foraging.env.reset(key)

        def one_step(carry, key):
            state, observation, inner = carry
            action = random_actions(key, observation)
            state, observation, outcome = foraging.step(key, state, action)
            inner, timestep = foraging.env.step(inner, action)
            return (state, observation, inner), (observation, outcome, timestep)

        return jax.lax.scan(one_step, (state, observation, inner), jax.random.split(key, 12))[1]

    observation, outcome, timestep = jax.tree.map(np.asarray, play(jax.random.split(KEY, 32)))
    np.testing.assert_array_equal(observation.agents_view, timestep.observation.agents_view)
    np.testing.assert_array_equal(observation.action_mask, timestep.observation.action_mask)
    np.testing.assert_array_equal(outcome.reward, timestep.reward)
    np.testing.assert_array_equal(outcome.info["percent_eaten"], timestep.extras["percent_eaten"])
    last = timestep.step_type == 2
    np.testing.assert_array_equal(outcome.terminated, last & (timestep.discount == 0).all(-1))
    np.testing.assert_array_equal(outcome.truncated, last & (timestep.discount == 1).all(-1))
    assert outcome.terminated.any()
    assert outcome.truncated.any()
    assert (outcome.reward.std(axis=-1) > 0).any()  # each agent has a reward of its own


class TallyObservation(NamedTuple):
    grid: jax.Array
    action_mask: jax.Array


class Tally:
    """Two agents, a team reward, no view per agent: action 1 of the first agent ends the task, and
    agent 1 can do nothing."""

    action_spec = SimpleNamespace(shape=(2,), dtype=jnp.int32)
    time_limit = 3

    def observation(self, count):
        mask = jnp.array([[True, True], [False, False]])
        return TallyObservation(jnp.full((2, 3), count), mask)

    def reset(self, key):
        return jnp.int32(0), restart(self.observation(jnp.int32(0)), extras={"count": jnp.int32(0)})

    def step(self, count, action):
        count, done = count + 1, action[0] == 1
        timestep = jax.lax.switch(
            done + 2 * (~done & (count >= self.time_limit)),
            [transition, termination, truncation],
            jnp.float32(3),
            self.observation(count),
        )
        timestep.extras = {"count": count}
        return count, timestep


def test_a_team_reward_is_shared_and_one_view_is_given_to_all():
    env = Jumanji(Tally())
    assert (env.spec.name, env.spec.obs_size, env.spec.horizon) == ("jumanji:Tally", 8, 3)
    state, observation = env.reset(KEY)
    np.testing.assert_array_equal(observation.agents_view, [[0] * 6 + [1, 0], [0] * 6 + [0, 1]])
    assert observation.action_mask.all()  # agent 1 may do anything: it is ignored
    state, observation, outcome = env.step(KEY, state, jnp.array([0, 0]))
    np.testing.assert_array_equal(outcome.reward, [1.5, 1.5])
    np.testing.assert_array_equal(observation.agents_view[:, :6], 1)
    assert outcome.info == {"count": 1}


@pytest.mark.parametrize(
    ("first_actions", "ending"),
    [([0, 0, 0], "truncated"), ([0, 1], "terminated"), ([0, 0, 1], "terminated")],
)
def test_discount_zero_terminates_and_discount_one_truncates(first_actions, ending):
    env = Jumanji(Tally())
    state, _ = env.reset(KEY)
    for k, action in enumerate(first_actions, start=1):
        state, _, outcome = env.step(KEY, state, jnp.array([action, 0]))
        ended = {"terminated": bool(outcome.terminated), "truncated": bool(outcome.truncated)}
        last = k == len(first_actions)
        assert ended == {
            "terminated": False,
            "truncated": False,
            **({ending: True} if last else {}),
        }


def test_options_go_to_the_environment_and_to_its_generator():
    env = make_env(FORAGING, num_agents=3, time_limit=7)
    assert (env.spec.n_agents, env.spec.horizon, env.env.grid_size) == (3, 7, 8)


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("LevelBasedForaging", {}, "did you mean LevelBasedForaging-v0?"),
        ("Snake-v1", {}, "a single agent"),
        ("BinPack-v2", {}, "a single agent"),
        ("SearchAndRescue-v0", {}, "learns discrete actions"),
        ("JobShop-v0", {}, "no step limit of its own"),
        ("LevelBasedForaging-v0", {"grid_siz": 6}, "did you mean grid_size?"),
        ("LevelBasedForaging-v0", {"grid_size": 3}, "Grid size must be greater"),
        ("LevelBasedForaging-v0", {"horizon": 101}, "from 1 to 100"),
    ],
)
def test_what_cannot_be_used_is_refused_in_a_sentence(name, options, words):
    with pytest.raises(UsageError, match="umanji") as refusal:
        make_env(f"jumanji:{name}", **options)
    assert words in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("RobotWarehouse-v0", {"num_agents": 2, "time_limit": 20}),
        ("Connector-v3", {"num_agents": 3, "grid_size": 6}),
        ("Cleaner-v0", {"num_rows": 5, "num_cols": 5}),
        ("MultiCVRP-v0", {"horizon": 20}),
    ],
)
def test_environments_of_jumanji_keep_the_contract(name, options):
    findings = check_env(make_env(f"jumanji:{name}", **options))
    assert [finding.sentence for finding in findings if finding.kind == "violation"] == []
