"""Influence through rewards that the oracle graph does not show is reported."""

import jax.numpy as jnp
import numpy as np
import pytest

from dgmarl import Environment, EnvSpec, Observation, Outcome
from dgmarl.graphs.check_oracle import _Played, _reached, check_oracle

NOTE = (
    "actions of agents [0] change rewards of agents [1, 2] that no path of oracle_graph reaches: "
    "add the edges, define oracle_reward_graph, or train with --credit.reward-graph measured."
)


class Pays(Environment):
    """Agent 0's action is the reward of agents 1 and 2; local states never change."""

    def __init__(self, horizon: int = 4, edges: bool = False):
        self.spec, self.edges = EnvSpec("pays", 3, 2, 1, 1, horizon), edges

    def reset(self, key):
        return jnp.int32(0), self._observation()

    def step(self, key, state, action):
        state, paid = state + 1, action[0].astype(jnp.float32)
        ended = state >= self.spec.horizon
        outcome = Outcome(jnp.stack([0 * paid, paid, paid]), jnp.bool_(False), ended, {})
        return state, self._observation(), outcome

    def _observation(self):
        return Observation(
            jnp.zeros((3, 1)), jnp.zeros(1), jnp.ones((3, 2), bool), jnp.ones(3, bool)
        )

    def local_state(self, state):
        return jnp.zeros((3, 1))

    def oracle_graph(self, state):
        """With `edges`, a path 0 -> 1 -> 2 that takes two steps."""
        first = self.edges & (state == 0)
        path = jnp.eye(3, dtype=bool).at[0, 1].set(first)
        return path.at[1, 2].set(self.edges & (state == 1))


class WithRewardGraph(Pays):
    def oracle_reward_graph(self, state):
        return jnp.eye(3, dtype=bool).at[0].set(True)


class TeamReward(Pays):
    def step(self, key, state, action):
        state, observation, outcome = super().step(key, state, action)
        return state, observation, outcome._replace(reward=jnp.full(3, outcome.reward.sum()))


@pytest.mark.parametrize(
    ("env", "notes"),
    [
        (Pays(), [NOTE]),
        (Pays(horizon=30), [NOTE]),
        # From the second step on no path leaves agent 0.
        (Pays(edges=True), [NOTE]),
        # The episodes end with the first step, in which only agent 1 is reached.
        (Pays(horizon=1, edges=True), [NOTE.replace("[1, 2]", "[2]")]),
        # They go on after the steps that are played, where the path may occur again.
        (Pays(horizon=30, edges=True), []),
        (WithRewardGraph(), []),
        (TeamReward(), []),
    ],
)
def test_rewards_that_no_path_reaches_are_a_note(env, notes):
    assert [finding.sentence for finding in check_oracle(env)] == notes


def test_paths_are_followed_to_the_end_of_the_episode():
    eye = np.eye(3, dtype=bool)
    first, second = eye.copy(), eye.copy()
    first[0, 1] = second[1, 2] = True
    oracle = np.stack([first, second, first])[:, None]
    valid, going = np.array([[True], [True], [False]]), np.array([[True], [False], [False]])
    none = np.zeros_like(oracle)
    reached = _reached(_Played(oracle, none, none, None, valid, going))[:, 0]
    assert reached[0].tolist() == [[True, True, True], [False, True, True], [False, False, True]]
    np.testing.assert_array_equal(reached[1], second)
    np.testing.assert_array_equal(reached[2], eye)
