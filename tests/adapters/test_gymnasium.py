"""Gymnasium environments with tuples over agents, through the same workers."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from dgmarl import UsageError
from dgmarl.envs.adapters.worker import BEGIN, STEP, Recipe, Simulator, make
from dgmarl.envs.registry import make_env

FORAGING = "Foraging-8x8-2p-1f-v3"


class Team(gymnasium.Env):
    """Two agents and one reward; the second ends the task with action 2."""

    max_steps = 3

    def __init__(self, alone: bool = False):
        two = [spaces.Discrete(2), spaces.Discrete(3)]
        self.action_space = spaces.Tuple(two[: 1 if alone else 2])
        self.observation_space = spaces.Tuple([spaces.Discrete(4), spaces.MultiBinary(2)])

    def reset(self, seed=None, options=None):
        return (3, np.array([0, 1])), {}

    def step(self, actions):
        return (1, np.array([1, 1])), 6.0, actions[1] == 2, False, {}


gymnasium.register("Team-v0", Team)


def test_foraging_is_what_the_original_plays():
    env = make_env(f"gymnasium:{FORAGING}", workers=1)
    assert (env.spec.n_agents, env.spec.n_actions, env.spec.obs_size) == (2, 6, 9)
    assert env.spec.horizon == 50
    original = gymnasium.make(FORAGING, disable_env_checker=True)
    views, _ = original.reset(seed=7)
    episode, numbers = env.workers.play(np.array([[BEGIN, -1, 0, 7, 0, 0]], np.int32))
    np.testing.assert_array_equal(env.layout.parts(numbers[0])["agents_view"], views)
    draw = np.random.default_rng(0)
    for t in range(50):
        actions = draw.integers(6, size=2)
        row = np.array([[STEP, episode[0], t, 0, *actions]], np.int32)
        found = env.layout.parts(env.workers.play(row)[1][0])
        views, rewards, terminated, truncated, _ = original.step(tuple(actions))
        np.testing.assert_array_equal(found["agents_view"], views)
        np.testing.assert_allclose(found["reward"], rewards)
        assert (found["terminated"], found["truncated"]) == (terminated, truncated)
        if terminated:
            break
    assert terminated


def test_a_reward_of_the_team_is_divided_and_spaces_are_flattened():
    recipe = Recipe("gymnasium", "Team-v0", "", {})
    simulator = Simulator(make(recipe), recipe)
    layout = simulator.layout
    assert (layout.view_sizes, layout.n_actions, layout.horizon) == ((4, 2), (2, 3), 3)
    first = layout.parts(simulator.begin(0))
    assert first["agents_view"].tolist() == [[0, 0, 0, 1], [0, 1, 0, 0]]
    assert first["action_mask"].tolist() == [[1, 1, 0], [1, 1, 1]]
    going, ended = (layout.parts(simulator.step(actions)) for actions in ((0, 0), (0, 2)))
    assert going["reward"].tolist() == [3, 3]
    assert (going["terminated"], ended["terminated"], ended["truncated"]) == (0, 1, 0)
    assert ended["alive"].tolist() == [0, 0]


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("CartPole-v1", {}, "needs one of each for every agent"),
        ("Team-v0", {"alone": True}, "needs one of each for every agent"),
        ("Nothing-v0", {}, "Gymnasium has no environment 'Nothing-v0'"),
        ("no_such_module:Team-v0", {}, "No module named 'no_such_module'"),
    ],
)
def test_what_cannot_be_used_is_told_in_one_sentence(name, options, words):
    with pytest.raises(UsageError, match=words):
        make_env(f"gymnasium:{name}", **options)


def test_foraging_can_be_asked_what_other_actions_would_have_done():
    assert make_env(f"gymnasium:lbforaging:{FORAGING}").no_interventions() == ""
