"""Jumanji's multi-agent environments: `jumanji:LevelBasedForaging-v0`, `jumanji:RobotWarehouse-v0`,
`jumanji:Connector-v3`, `jumanji:Cleaner-v0`, `jumanji:MMST-v0`, ...

An environment is multi-agent if its action is a vector of integers and its observation has an
`action_mask` [N, A]. Its last step is `terminated` if the discount is 0, else `truncated`. A scalar
reward is the team's: every agent receives 1/N of it.

Jumanji draws random numbers from a key in its state, so all branches of an intervention share
them."""

import inspect
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray
from jumanji.registration import make as make_jumanji
from jumanji.registration import registered_environments

from dgmarl.envs.adapters.base import Adapted, AdaptedState, LocalState, checked_horizon
from dgmarl.envs.base import EnvSpec, Observation, Outcome
from dgmarl.errors import UnknownNameError, UsageError, did_you_mean


def make(
    name: str, horizon: int | None = None, local_state: LocalState = None, **options: Any
) -> "Jumanji":
    """The environment that Jumanji registers under `name`. options: arguments of its class, for
    example `time_limit`, and of its generator, for example `grid_size`."""
    names = registered_environments()
    if name not in names:
        raise UnknownNameError(
            f"{name!r} is not an environment that Jumanji registers{did_you_mean(name, names)}"
        )
    env = make_jumanji(name)
    own = {option for option in options if option in inspect.signature(type(env)).parameters}
    of_class = {option: options.pop(option) for option in own}
    if options:
        of_class["generator"] = _generator(env, name, options)
    env = make_jumanji(name, **of_class) if of_class else env
    return Jumanji(env, f"jumanji:{name}", horizon, local_state)


class Jumanji(Adapted):
    """A `jumanji.Environment` with several agents and discrete actions."""

    library = "jumanji"

    def _spec(self, name: str, horizon: int | None) -> EnvSpec:
        env = self.env
        _, first = jax.eval_shape(env.reset, jax.random.key(0))
        self._agents, n_actions = _require_agents(env, first.observation, name)
        # Uncompiled, they would take seconds.
        self._reset, self._step = jax.jit(env.reset), jax.jit(env.step)
        view = jax.eval_shape(self._view, first.observation)
        return EnvSpec(
            name=name,
            n_agents=self._agents,
            n_actions=n_actions,
            obs_size=view.shape[1],
            state_size=view.size,
            horizon=checked_horizon(name, getattr(env, "time_limit", None), horizon),
            state_is_obs=True,
        )

    def reset(self, key: PRNGKeyArray) -> tuple[AdaptedState, Observation]:
        inner, first = self._reset(key)
        return self._observe(inner, first, jnp.int32(0))

    def step(
        self, key: PRNGKeyArray, state: AdaptedState, action: Int[Array, "N"]
    ) -> tuple[AdaptedState, Observation, Outcome]:
        """Jumanji's step; the key is not used."""
        inner, timestep = self._step(state.inner, action)
        after, observation = self._observe(inner, timestep, state.step + 1)
        team = timestep.reward.ndim == 0
        reward = timestep.reward / self._agents if team else timestep.reward
        terminated = timestep.last() & (timestep.discount == 0).all()
        ended = timestep.last() | (after.step >= self.spec.horizon)
        reward = jnp.broadcast_to(reward, (self._agents,)).astype(jnp.float32)
        outcome = Outcome(reward, terminated, ended & ~terminated, dict(timestep.extras))
        return after, observation, outcome

    def _observe(self, inner: Any, timestep: Any, step: Array) -> tuple[AdaptedState, Observation]:
        view = self._view(timestep.observation)
        alive = jnp.ones(self._agents, bool)
        mask = timestep.observation.action_mask
        mask |= ~mask.any(axis=-1, keepdims=True)  # if none, all: Jumanji ignores them
        observation = Observation(view, view.reshape(-1), mask, alive)
        return AdaptedState(inner, view, alive, step), observation

    def _view(self, observation: Any) -> Float[Array, "N O"]:
        """`agents_view` if there is one; else all fields but the mask, the same for every agent,
        and the agent's index as a one-hot vector."""
        if hasattr(observation, "agents_view"):
            return observation.agents_view.reshape(self._agents, -1).astype(jnp.float32)
        fields = jax.tree.leaves(observation._replace(action_mask=None))
        shared = jnp.concatenate([jnp.ravel(field).astype(jnp.float32) for field in fields])
        return jax.vmap(partial(jnp.append, shared))(jnp.eye(self._agents))


def _require_agents(env: Any, observation: Any, name: str) -> tuple[int, int]:
    """The numbers of agents and actions; an error for single agents and continuous actions."""
    spec, mask = env.action_spec, getattr(observation, "action_mask", None)
    if not jnp.issubdtype(spec.dtype, jnp.integer):
        raise UsageError(
            f"{name} has actions of {spec.dtype}, but dgmarl learns discrete actions: choose an "
            "environment with discrete ones."
        )
    if len(spec.shape) != 1 or mask is None or mask.shape[:-1] != spec.shape:
        raise UsageError(
            f"{name} has a single agent, but dgmarl needs several: choose for example "
            "jumanji:LevelBasedForaging-v0, jumanji:RobotWarehouse-v0 or jumanji:Connector-v3."
        )
    return mask.shape


def _generator(env: Any, name: str, options: dict[str, Any]) -> Any:
    """The environment's generator with changed options."""
    default = getattr(env, "_generator", getattr(env, "generator", None))
    known = list(inspect.signature(type(default)).parameters) if default is not None else []
    for option in options:
        if option not in known:
            own = [*inspect.signature(type(env)).parameters, *known, "horizon", "local_state"]
            raise UsageError(
                f"{option!r} is not an option of jumanji:{name}; allowed are {', '.join(own)}"
                f"{did_you_mean(option, own)}"
            )
    values = {
        option: getattr(default, option, getattr(default, f"_{option}", None)) for option in known
    }
    return type(default)(**{**values, **options})
