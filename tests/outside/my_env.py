"""An environment family of one's own: `count/5` ends after five steps."""

import jax.numpy as jnp

from dgmarl import Environment, EnvSpec, Observation, Outcome
from dgmarl.envs.registry import Family, register_family


class Count(Environment):
    """Three agents; each is paid for the action 1. The state is the time."""

    def __init__(self, horizon: int):
        self.spec = EnvSpec(f"count/{horizon}", 3, 2, obs_size=1, state_size=1, horizon=horizon)

    def reset(self, key):
        return jnp.int32(0), self._observation(jnp.int32(0))

    def step(self, key, state, action):
        over = state + 1 >= self.spec.horizon
        outcome = Outcome(action.astype(jnp.float32), jnp.bool_(False), over, {})
        return state + 1, self._observation(state + 1), outcome

    def _observation(self, time):
        seen = (time / self.spec.horizon)[None].astype(jnp.float32)
        every = jnp.ones((3, 2), bool)
        return Observation(jnp.broadcast_to(seen, (3, 1)), seen, every, jnp.ones(3, bool))


def register() -> None:
    """Make it known to dgmarl."""
    make = lambda text, options: Count(int(text), **options)  # noqa: E731
    register_family("count", Family(make, "{steps}", "Counting to a number", ("count/5",)))
