"""A wrapper whose global state concatenates the agents' local states, for own-state critics."""

from dataclasses import replace
from typing import Any

import jax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from dgmarl.envs.base import Environment, Observation, Outcome
from dgmarl.errors import UsageError


class LocalStates(Environment[Any]):
    """The wrapped environment with `global_state = local_state(state).reshape(-1)`."""

    def __init__(self, env: Environment):
        if not env.offers("local_state"):
            raise UsageError(
                f"learner.critic is own-state, but {env.spec.name} has no local_state: define it, "
                "or choose another critic."
            )
        self.env, self.loops_inside = env, env.loops_inside
        shape = jax.eval_shape(
            lambda key: env.local_state(env.reset(key)[0]), jax.random.key(0)
        ).shape
        self.spec = replace(env.spec, state_size=shape[0] * shape[1], state_is_obs=False)

    def reset(self, key: PRNGKeyArray) -> tuple[Any, Observation]:
        """As in the wrapped environment."""
        state, observation = self.env.reset(key)
        return state, self._observation(state, observation)

    def step(
        self, key: PRNGKeyArray, state: Any, action: Int[Array, "N"]
    ) -> tuple[Any, Observation, Outcome]:
        """As in the wrapped environment."""
        state, observation, outcome = self.env.step(key, state, action)
        return state, self._observation(state, observation), outcome

    def _observation(self, state: Any, observation: Observation) -> Observation:
        return observation._replace(global_state=self.env.local_state(state).reshape(-1))

    def oracle_graph(self, state: Any) -> Bool[Array, "N N"]:
        """As in the wrapped environment."""
        return self.env.oracle_graph(state)

    def local_state(self, state: Any) -> Float[Array, "N L"]:
        """As in the wrapped environment."""
        return self.env.local_state(state)

    def draw(self, state: Any, graph: Bool[Array, "N N"] | None = None) -> str:
        """As in the wrapped environment."""
        return self.env.draw(state, graph)

    def offers(self, method: str) -> bool:
        """As in the wrapped environment."""
        return self.env.offers(method)
