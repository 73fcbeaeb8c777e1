"""Our environments as PettingZoo `ParallelEnv`s."""

import sys
import warnings

import numpy as np
import pytest
from pettingzoo.test import parallel_api_test, parallel_seed_test

from dgmarl import UsageError
from dgmarl.envs.adapters import to_pettingzoo
from dgmarl.envs.registry import make_env
from tests.tiny import Gift


def small():
    return to_pettingzoo(make_env("lbf/5x5-2p-1f", horizon=10))


def test_it_passes_the_tests_of_pettingzoo():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # boxes without bounds
        parallel_api_test(small(), num_cycles=30)
        parallel_seed_test(small, num_cycles=5)


def test_episodes_are_those_of_the_environment():
    env = to_pettingzoo(Gift(horizon=3))
    views, infos = env.reset(seed=1)
    assert set(views) == set(env.agents) == {"agent_0", "agent_1"}
    assert infos["agent_0"]["action_mask"].dtype == np.int8
    for step in range(3):
        views, rewards, terminated, truncated, _ = env.step({"agent_0": 1, "agent_1": 0})
        assert rewards["agent_1"] == 1, "the gift"
        assert rewards["agent_0"] < 0, "its cost"
        assert views["agent_0"].dtype == np.float32
        assert any([*terminated.values(), *truncated.values()]) == (step == 2)
    assert env.agents == []
    with pytest.raises(ValueError, match="call reset"):
        env.step({})
    np.testing.assert_array_equal(env.state().shape, env.state_space.shape)


def test_without_a_seed_episodes_follow_from_the_seed_before():
    once, again = small(), small()
    for env in (once, again):
        env.reset(seed=3)
    first, second = once.reset()[0]["agent_0"], again.reset()[0]["agent_0"]
    np.testing.assert_array_equal(first, second)
    assert not np.array_equal(first, once.reset()[0]["agent_0"])


def test_the_absent_package_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "pettingzoo", None)
    monkeypatch.delitem(sys.modules, "dgmarl.envs.adapters.as_pettingzoo", raising=False)
    with pytest.raises(UsageError, match=r"pettingzoo is not installed: .*dgmarl\[adapters\]"):
        to_pettingzoo(Gift())
