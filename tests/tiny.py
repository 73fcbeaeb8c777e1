"""A task small enough to compile in seconds, on which local reward provably fails."""

import json
from typing import NamedTuple

import jax
import jax.numpy as jnp

from dgmarl import Environment, EnvSpec, Observation, Outcome

GIFT = f"{__file__}:Gift"
SMALL = {"learner.hidden": 8, "n_envs": 2, "evaluation.episodes": 3, "evaluation.interval": 20}
"""Overrides for a run of a second or two, once compiled."""
WINDOWS = {
    **SMALL,
    "rollout_length": 4,
    "learner.network": "gru",
    "env_options.stop": 0.3,
}
"""The same with all that a run can carry from one iteration to the next."""


def write_result(run) -> None:
    """A result file of a planned run with as much as makes it count as done."""
    run.result_file.parent.mkdir(parents=True, exist_ok=True)
    extent = {"steps": run.config.steps, "seeds": run.config.seeds}
    run.result_file.write_text(json.dumps({"config": extent}))


class GiftState(NamedTuple):
    time: jax.Array
    given: jax.Array


class Gift(Environment[GiftState]):
    """Agent 0 may give: that costs it `cost` and is worth 1 to agent 1, whose own action does
    nothing.

    The team gains by giving, agent 0 alone loses by it: with local reward the only gradient points
    away from giving. Episodes end at the horizon (a time-out), or after each step with probability
    `stop` (a true end)."""

    def __init__(self, horizon: int = 5, cost: float = 0.1, stop: float = 0.0):
        self.spec = EnvSpec(
            "gift", n_agents=2, n_actions=2, obs_size=2, state_size=2, horizon=horizon
        )
        self.cost, self.stop = cost, stop

    def reset(self, key):
        state = GiftState(jnp.int32(0), jnp.int32(0))
        return state, self._observation(state)

    def step(self, key, state, action):
        state = GiftState(state.time + 1, action[0].astype(jnp.int32))
        reward = jnp.stack([-self.cost * action[0], action[0]]).astype(jnp.float32)
        terminated = jax.random.bernoulli(key, self.stop)
        truncated = ~terminated & (state.time >= self.spec.horizon)
        return state, self._observation(state), Outcome(reward, terminated, truncated, {})

    def _observation(self, state):
        seen = jnp.stack([state.time / self.spec.horizon, state.given]).astype(jnp.float32)
        return Observation(
            jnp.broadcast_to(seen, (2, 2)), seen, jnp.ones((2, 2), bool), jnp.ones(2, bool)
        )

    def oracle_graph(self, state):
        return jnp.array([[True, True], [False, True]])


class NoOracle(Gift):
    """The same without a known graph."""

    oracle_graph = Environment.oracle_graph


class Unplayed(Environment[None]):
    """An environment of given sizes for batches made by hand: nobody plays it."""

    def __init__(self, spec: EnvSpec):
        self.spec = spec

    def reset(self, key):
        raise NotImplementedError

    def step(self, key, state, action):
        raise NotImplementedError
