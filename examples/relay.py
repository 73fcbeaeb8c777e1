"""A custom environment: a relay. Agent k passes a parcel to agent k + 1. Passing has a small cost;
only the last agent is rewarded, when the parcel arrives.

    dgmarl check-env examples/relay.py:Relay
    dgmarl train examples/relay.py:Relay --method ippo-dg --steps 1e5

With local rewards only the last agent has an incentive to act:

    dgmarl train examples/relay.py:Relay --method ippo-local --steps 1e5

All methods are pure functions of a key and a state, so they run under jit and vmap. `oracle_graph`
and `local_state` are optional; without the former use `--graph interventional`."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from dgmarl import Environment, EnvSpec, Observation, Outcome


class RelayState(NamedTuple):
    """Environment state."""

    holder: jax.Array
    """The agent that holds the parcel; n_agents once it has arrived."""
    time: jax.Array


class Relay(Environment[RelayState]):
    """A line of agents that pass a parcel; action 1 passes, action 0 waits."""

    def __init__(self, n_agents: int = 3, horizon: int = 8):
        self.spec = EnvSpec(
            "relay",
            n_agents,
            n_actions=2,
            obs_size=1,
            state_size=n_agents,
            horizon=horizon,
            action_names=("wait", "pass"),
        )

    def reset(self, key):
        state = RelayState(jnp.int32(0), jnp.int32(0))
        return state, self.observation(state)

    def step(self, key, state, action):
        n = self.spec.n_agents
        holds = jnp.arange(n) == state.holder
        passed = (holds & (action == 1)).any()
        state = RelayState(state.holder + passed, state.time + 1)
        arrived = state.holder == n
        # Passing costs 0.05; only the last agent is rewarded, when the parcel arrives.
        reward = jnp.where(action == 1, -0.05, 0.0).at[-1].add(jnp.where(arrived, 1.0, 0.0))
        timeout = (state.time >= self.spec.horizon) & ~arrived
        return (
            state,
            self.observation(state),
            Outcome(reward, arrived, timeout, {"arrived": arrived}),
        )

    def observation(self, state):
        n = self.spec.n_agents
        holds = (jnp.arange(n) == state.holder).astype(jnp.float32)
        return Observation(
            agents_view=holds[:, None],
            global_state=holds,
            action_mask=jnp.ones((n, 2), bool),
            alive=jnp.ones(n, bool),
        )

    def oracle_graph(self, state):
        """Self-loops, and an edge from the holder to the next agent."""
        n = self.spec.n_agents
        passing = (jnp.arange(n) == state.holder)[:, None] & (jnp.arange(n) == state.holder + 1)[
            None, :
        ]
        return jnp.eye(n, dtype=bool) | passing

    def local_state(self, state):
        return self.observation(state).agents_view
