"""Matrix games: every payoff by enumeration."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dgmarl import UsageError, make_env


def play(env, *actions):
    """Total payoff of a sequence of joint actions, and whether the game ended with the last one
    only."""
    state, _ = env.reset(jax.random.key(0))
    total, endings = 0.0, []
    for action in actions:
        state, _, outcome = env.step(jax.random.key(0), state, jnp.asarray(action))
        total += float(outcome.reward.sum())
        endings.append(bool(outcome.terminated))
    return total, endings


@pytest.mark.parametrize(
    ("env_id", "payoff"),
    [
        ("matrix/climbing", [[11, -30, 0], [-30, 7, 6], [0, 0, 5]]),
        ("matrix/penalty-50", [[-50, 0, 10], [0, 2, 0], [10, 0, -50]]),
    ],
)
def test_one_shot_games_pay_their_matrix(env_id, payoff):
    env = make_env(env_id)
    for joint in itertools.product(range(3), repeat=2):
        assert play(env, joint) == (payoff[joint[0]][joint[1]], [True])


def test_the_two_step_game_is_decided_by_agent_0():
    env = make_env("matrix/two-step")
    risky = np.array([[0, 1], [1, 8]])
    for other, *second in itertools.product(range(2), repeat=3):
        assert play(env, (0, other), second) == (7.0, [False, True])
        assert play(env, (1, other), second) == (
            risky[second[0], second[1]],
            [False, True],
        )


def test_unknown_games_and_options_are_refused():
    with pytest.raises(UsageError, match="matrix/chess"):
        make_env("matrix/chess")
    with pytest.raises(UsageError, match="have none"):
        make_env("matrix/climbing", noise=1)
