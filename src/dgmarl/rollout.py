"""Playing environments: random actions, automatic resets, recorded episodes.

An environment never resets by itself. Here finished ones are replaced by fresh ones, and the view before the reset, which
bootstrapping and graph inference need, is handed on beside the view after it.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from dgmarl.envs.base import Environment, Outcome, View

Act = Callable[[PRNGKeyArray, View], Int[Array, "*B N"]]


def random_actions(key: PRNGKeyArray, view: View) -> Int[Array, "*B N"]:
    """Uniform over the available actions of every agent, from one number per agent."""
    rank = jnp.cumsum(view.avail, axis=-1)
    chosen = jnp.floor(jax.random.uniform(key, rank.shape[:-1]) * rank[..., -1])
    return (rank <= chosen[..., None]).sum(axis=-1).clip(max=rank.shape[-1] - 1)


class Transition(NamedTuple):
    """One step of a batch of environments. `view` and `state` are already those of the next episode where one ended."""

    state: Any
    view: View
    next_view: View
    """The true successor, before any reset."""
    outcome: Outcome


def step_and_reset(
    env: Environment, key: PRNGKeyArray, state: Any, action: Int[Array, "B N"], chunk: int | None = None
) -> Transition:
    """Step B environments and start a new episode where one ended."""
    step_key, reset_key = jax.random.split(key)
    keys = jax.random.split(step_key, action.shape[0])
    state, next_view, outcome = jax.vmap(env.step)(keys, state, action)
    done = outcome.terminated | outcome.truncated
    state, view = reset_where(env, reset_key, done, state, next_view, chunk)
    return Transition(state, view, next_view, outcome)


def reset_where(
    env: Environment, key: PRNGKeyArray, done: Bool[Array, "B"], state: Any, view: View, chunk: int | None = None
) -> tuple[Any, View]:
    """Replace the finished environments by fresh ones, `chunk` at a time until none is left.

    A first state can cost many times a step (placing food, say), and only about one in an episode's length ends at a time.
    So fresh states are drawn `chunk` at a time, only while some environment waits for one: the law is that of `env.reset`
    with an independent key for each, the cost is that of the resets that happen. By default a chunk covers the steady
    state, in which B / horizon environments end per step, twice over.
    """
    n_envs = done.shape[0]
    chunk = min(n_envs, chunk or max(8, 2 * n_envs // env.spec.horizon))

    def some_wait(carry: tuple[Array, Bool[Array, "B"], Any]) -> Bool[Array, ""]:
        return carry[1].any()

    def serve(carry: tuple[Array, Bool[Array, "B"], Any]) -> tuple[Array, Bool[Array, "B"], Any]:
        round_, waiting, current = carry
        fresh = jax.vmap(env.reset)(jax.random.split(jax.random.fold_in(key, round_), chunk))
        place = jnp.cumsum(waiting) - 1
        served = waiting & (place < chunk)
        # The k-th waiting environment takes the k-th fresh state.
        source = jnp.where(served, place, 0)
        current = jax.tree.map(lambda new, old: jnp.where(_expand(served, old), new[source], old), fresh, current)
        return round_ + 1, waiting & ~served, current

    _, _, (state, view) = jax.lax.while_loop(some_wait, serve, (jnp.int32(0), done, (state, view)))
    return state, view


class Recording(NamedTuple):
    """Whole episodes, for replays: `[E, T, ...]` with the state before each step, and the state after the last one apart."""

    state: Any
    last_state: Any
    action: Int[Array, "E T N"]
    reward: Float[Array, "E T N"]
    graph: Bool[Array, "E T N N"] | None
    length: Int[Array, "E"]
    terminated: Bool[Array, "E"]


def record_episodes(env: Environment, act: Act, key: PRNGKeyArray, n_episodes: int) -> Recording:
    """Play `n_episodes` to their end, each with its oracle graphs where the environment offers them."""

    def one_episode(key: PRNGKeyArray) -> Recording:
        reset_key, play_key = jax.random.split(key)
        state, view = env.reset(reset_key)

        def one_step(carry: tuple[Any, View, Bool[Array, ""]], key: PRNGKeyArray) -> tuple[Any, Any]:
            state, view, running = carry
            act_key, step_key = jax.random.split(key)
            action = act(act_key, view)
            graph = env.oracle_graph(state) if env.offers("oracle_graph") else None
            after, next_view, outcome = env.step(step_key, state, action)
            # A finished episode stands still, so that its last state is still there at the horizon.
            after, next_view = jax.tree.map(lambda new, old: jnp.where(running, new, old), (after, next_view), (state, view))
            done = outcome.terminated | outcome.truncated
            record = (state, action, jnp.where(running, outcome.reward, 0), graph, running, outcome.terminated & running)
            return (after, next_view, running & ~done), record

        keys = jax.random.split(play_key, env.spec.horizon)
        (last, _, _), record = jax.lax.scan(one_step, (state, view, jnp.bool_(True)), keys)
        states, actions, rewards, graphs, running, terminated = record
        return Recording(states, last, actions, rewards, graphs, running.sum(), terminated.any())

    return jax.jit(jax.vmap(one_episode))(jax.random.split(key, n_episodes))


def _expand(mask: Bool[Array, "B"], like: Array) -> Bool[Array, "..."]:
    return mask.reshape(mask.shape + (1,) * (like.ndim - 1))
