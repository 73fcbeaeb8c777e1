"""JaxMARL's environments, `jaxmarl:MPE_simple_spread_v3` or `jaxmarl:overcooked`, and the maps of
SMAX by their names, `jaxmarl:2s3z`.

`step_env` is called, not `step`, which would reset and hide the last observation. JaxMARL has one
flag for termination and time limit: an episode that ends at its `max_steps` counts as truncated."""

from contextlib import suppress
from typing import Any

import jax
import jax.numpy as jnp
from jaxmarl import make as make_jaxmarl
from jaxmarl import registered_envs
from jaxmarl.environments import spaces
from jaxmarl.environments.overcooked import overcooked_layouts
from jaxmarl.environments.smax.smax_env import MAP_NAME_TO_SCENARIO
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from dgmarl.envs.adapters.base import Adapted, AdaptedState, LocalState, checked_horizon, stacked
from dgmarl.envs.base import EnvSpec, Observation, Outcome
from dgmarl.errors import UnknownNameError, UsageError, did_you_mean

MASKS = ("get_avail_actions", "get_legal_moves")
"""Methods that return the available actions; Hanabi has the second."""


def make(
    name: str, horizon: int | None = None, local_state: LocalState = None, **options: Any
) -> "JaxMARL":
    """The environment that JaxMARL registers under `name`, or SMAX against its heuristic enemy on
    the map `name`. options: arguments of its class; the `layout` of overcooked by name."""
    if name in MAP_NAME_TO_SCENARIO:
        options["scenario"] = MAP_NAME_TO_SCENARIO[name]
        env = make_jaxmarl("HeuristicEnemySMAX", **options)
    elif name in registered_envs:
        layout = options.get("layout")
        if name == "overcooked" and isinstance(layout, str):
            options["layout"] = _layout(layout)
        env = make_jaxmarl(name, **options)
    else:
        raise UnknownNameError(
            f"{name!r} is neither an environment that JaxMARL registers nor a map of SMAX"
            f"{did_you_mean(name, [*registered_envs, *MAP_NAME_TO_SCENARIO])}"
        )
    return JaxMARL(env, f"jaxmarl:{name}", horizon, local_state)


class JaxMARL(Adapted):
    """A `jaxmarl.environments.MultiAgentEnv` with discrete actions."""

    library = "jaxmarl"

    def _spec(self, name: str, horizon: int | None) -> EnvSpec:
        env = self.env
        self._counts = [_n_actions(env, agent, name) for agent in env.agents]
        observations, inner = jax.eval_shape(env.reset, jax.random.key(0))
        if not isinstance(observations, dict) or not set(env.agents) <= set(observations):
            raise UsageError(
                f"{name} does not return one observation per agent name, as JaxMARL's interface "
                "requires: wrap it in your own dgmarl.Environment."
            )
        self._mask = _mask_method(env, inner)
        self._max_steps = getattr(env, "max_steps", None)
        size = max(observations[agent].size for agent in env.agents)
        world = jax.eval_shape(self._world_state, observations, inner)
        return EnvSpec(
            name=name,
            n_agents=len(env.agents),
            n_actions=max(self._counts),
            obs_size=size,
            state_size=len(env.agents) * size if world is None else world.size,
            horizon=checked_horizon(name, _time_limit(env), horizon),
            state_is_obs=world is None,
        )

    def reset(self, key: PRNGKeyArray) -> tuple[AdaptedState, Observation]:
        observations, inner = self.env.reset(key)
        alive = jnp.ones(self.spec.n_agents, bool)
        return self._observe(observations, inner, alive, jnp.int32(0))

    def step(
        self, key: PRNGKeyArray, state: AdaptedState, action: Int[Array, "N"]
    ) -> tuple[AdaptedState, Observation, Outcome]:
        """JaxMARL's `step_env`. An agent that is done before the others counts as dead."""
        actions = {agent: action[i] for i, agent in enumerate(self.env.agents)}
        observations, inner, rewards, dones, info = self.env.step_env(key, state.inner, actions)
        done = jnp.stack([dones[agent] for agent in self.env.agents])
        alive = jnp.where(done.all(), state.alive, ~done)
        after, observation = self._observe(observations, inner, alive, state.step + 1)
        if battle := _battle(self.env, inner):
            won, over = battle
            info = {**info, "battle_won": won}
        else:
            over = after.step < (self._max_steps or self.spec.horizon + 1)
        terminated = dones["__all__"] & over
        late = dones["__all__"] | (after.step >= self.spec.horizon)
        reward = stacked([rewards[agent] for agent in self.env.agents], 1)[:, 0]
        return after, observation, Outcome(reward, terminated, late & ~terminated, info)

    def _observe(
        self, observations: dict[str, Array], inner: Any, alive: Bool[Array, "N"], step: Array
    ) -> tuple[AdaptedState, Observation]:
        view = stacked([observations[agent] for agent in self.env.agents], self.spec.obs_size)
        world = self._world_state(observations, inner)
        observation = Observation(
            agents_view=view,
            global_state=view.reshape(-1) if world is None else world,
            action_mask=self._action_mask(inner),
            alive=alive,
        )
        return AdaptedState(inner, view, alive, step), observation

    def _world_state(self, observations: dict[str, Array], inner: Any) -> Float[Array, "D"] | None:
        """None if the environment has none; the observations are then concatenated."""
        if "world_state" in observations:
            return jnp.ravel(observations["world_state"]).astype(jnp.float32)
        if hasattr(self.env, "get_world_state"):
            return jnp.ravel(self.env.get_world_state(inner)).astype(jnp.float32)
        return None

    def _action_mask(self, inner: Any) -> Bool[Array, "N A"]:
        exists = jnp.arange(self.spec.n_actions) < jnp.array(self._counts)[:, None]
        if not self._mask:
            return exists
        given = getattr(self.env, self._mask)(inner)
        rows = [given[agent] for agent in self.env.agents]
        return exists & (stacked(rows, self.spec.n_actions) > 0)


def _n_actions(env: Any, agent: str, name: str) -> int:
    space = env.action_space(agent)
    if not isinstance(space, spaces.Discrete):
        raise UsageError(
            f"{name}: the actions of {agent} are a {type(space).__name__}, but dgmarl learns "
            "discrete actions: choose an environment, or an action_type, with discrete ones."
        )
    return int(space.n)


def _mask_method(env: Any, state: Any) -> str:
    """The method that returns the available actions; empty if all are always available."""
    for method in MASKS:
        if hasattr(env, method):
            with suppress(NotImplementedError):
                jax.eval_shape(getattr(env, method), state)
                return method
    return ""


def _time_limit(env: Any) -> int | None:
    """Steps after which the environment ends an episode. MPE and SMAX compare their counter before
    they increase it, which allows one more step than `max_steps`."""
    limit = getattr(env, "max_steps", None)
    late = ("jaxmarl.environments.mpe", "jaxmarl.environments.smax")
    one_more = any(cls.__module__.startswith(late) for cls in type(env).__mro__)
    return None if limit is None else int(limit) + one_more


def _battle(env: Any, inner: Any) -> tuple[Bool[Array, ""], Bool[Array, ""]] | None:
    """Whether a battle of SMAX is won, and whether it is over; None for others."""
    state = getattr(inner, "state", inner)
    if not hasattr(state, "unit_alive"):
        return None
    allies, enemies = state.unit_alive[: env.num_allies], state.unit_alive[env.num_allies :]
    return allies.any() & ~enemies.any(), ~allies.any() | ~enemies.any()


def _layout(name: str) -> Any:
    if name not in overcooked_layouts:
        raise UsageError(
            f"layout is {name!r}, which overcooked does not have"
            f"{did_you_mean(name, overcooked_layouts)}"
        )
    return overcooked_layouts[name]
