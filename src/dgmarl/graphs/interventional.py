"""Interventional dependence graphs, from counterfactual steps of the simulator.

For a state s, with the random key w and the actions a^{-j} of the other agents held fixed,

    A[j, i] = 1  iff  local_state_i(step(w, s, (b, a^{-j})))  differs between available actions b
    B[j, i] = 1  iff  reward_i(step(w, s, (b, a^{-j})))       differs between available actions b

Row j = source, column i = target; both have self-loops. All branches share the key, so randomness
alone creates no edge. All actions of j are compared, so row j does not depend on the action taken
by j; it depends on s, w and a^{-j}. Environments without `local_state` are compared by their
observations, which usually contain more and give more edges.

One step shows what the *action* of j changes immediately. It misses influence that is mediated by a
state, for example a switch set by j that moves i one step later. Multi-step rollouts show it
(`horizon`, see `intervene_rollout`)."""

import warnings
from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from dgmarl.config.ranges import check_number
from dgmarl.envs.base import Environment
from dgmarl.errors import UsageError
from dgmarl.graphs.reach import add_self_loops
from dgmarl.graphs.sources import GivenSource, Graphs
from dgmarl.rollout import Batch

TOLERANCE = 1e-6
"""Differences up to this size, relative for values above 1, count as rounding."""
CHUNK_FLOATS = 2**22
"""Size of the local states in the default chunk, in floats: 16 MiB per seed."""
HOST_BRANCHES = 2**10
"""Branches in the default chunk of an environment on the host, where each is a copy of it."""


class Interventions(NamedTuple):
    """Effects of changing one agent's action; row = source, column = target."""

    action_graph: Bool[Array, "*B N N"]
    """A: whose local state changes."""
    reward_graph: Bool[Array, "*B N N"]
    """B: whose reward changes in the same step."""


class _Branch(NamedTuple):
    """One counterfactual trajectory."""

    state: Any
    own: Float[Array, "N L"]
    """Local state of every agent."""
    action_mask: Bool[Array, "N A"]
    running: Bool[Array, ""]


def intervene(
    env: Environment,
    state: Any,
    key: PRNGKeyArray,
    action: Int[Array, "N"],
    action_mask: Bool[Array, "N A"] | None = None,
) -> Interventions:
    """One-step interventional graphs, as defined in the module docstring.

    key: the key given to `env.step`, so that all branches share its randomness.
    action_mask: `Observation.action_mask` of this state; only available actions are compared. An
      agent with a single available action, for example a dead one, reaches only itself. None: all
      actions."""
    return intervene_rollout(env, state, key[None], jnp.asarray(action)[None], action_mask)


def intervene_rollout(
    env: Environment,
    state: Any,
    keys: PRNGKeyArray,
    actions: Int[Array, "H N"],
    action_mask: Bool[Array, "N A"] | None = None,
    counts: Bool[Array, "H"] | None = None,
) -> Interventions:
    """Effects of the *first* action within H steps: the union of the edges of all steps.

    After the first step every branch executes the same recorded `actions` with the same `keys`,
    including those of agent j, so that the effect propagates through the dynamics alone; reactions
    of policies are excluded, as in a one-step graph. Recorded actions that are unavailable in a
    branch are replaced by the first available one. Branches that have ended are frozen, with zero
    reward.

    counts: which of the H steps to include (the first always is), False past the end of the
      recording. The other arguments are those of `intervene`."""
    actions = jnp.asarray(actions)
    if action_mask is None:
        action_mask = jnp.ones((env.spec.n_agents, env.spec.n_actions), bool)
    counts = jnp.ones(actions.shape[:1], bool) if counts is None else counts
    _check_shapes(env, keys, actions, action_mask, counts)

    def found(branches: _Branch, reward: Float[Array, "N A N"]) -> Interventions:
        differ = partial(_differ, allowed=action_mask)
        return Interventions(differ(branches.own), differ(reward[..., None]))

    def one_step(carry: tuple[_Branch, Interventions], inputs: Any) -> tuple[Any, None]:
        branches, before = carry
        key, action, counted = inputs
        branches, reward = _everywhere(partial(_play_on, env, key, action))(branches)
        now = found(branches, reward)
        return (branches, jax.tree.map(lambda old, new: old | (new & counted), before, now)), None

    first = _joint_actions(actions[0], env.spec.n_actions)
    branches, reward = _everywhere(partial(_play, env, keys[0], state))(first)
    graphs = found(branches, reward)
    if actions.shape[0] > 1:
        (_, graphs), _ = lax.scan(one_step, (branches, graphs), (keys[1:], actions[1:], counts[1:]))
    return jax.tree.map(add_self_loops, graphs)


def intervene_batch(
    env: Environment, batch: Batch, *, horizon: int = 1, chunk: int | None = None
) -> Interventions:
    """Graphs [T, B, N, N] for all steps of a batch recorded with the extras `states` and `keys`.

    Costs N * A environment steps per step and unit of `horizon`; observations are not computed if
    the environment offers `local_state`. Multi-step rollouts stop at the end of the episode and of
    the batch. Graphs of steps that are not `batch.valid` are meaningless.

    chunk: states processed in parallel; None: as many as fit into `CHUNK_FLOATS`. Affects memory
      only."""
    if horizon < 1:
        raise ValueError(f"horizon must be at least 1, got {horizon}")
    if chunk is not None and chunk < 1:
        raise ValueError(f"chunk must be at least 1, got {chunk}")
    length = len(batch.reward)
    step = jnp.arange(length)[:, None] + jnp.arange(horizon)
    inside, step = step < length, jnp.minimum(step, length - 1)
    ends = ~batch.continues[step]
    ended_before = (jnp.cumsum(ends, axis=1) - ends) > 0
    rollouts = (batch.extras["keys"][step], batch.action[step], inside[..., None] & ~ended_before)
    keys, actions, counts = (jnp.swapaxes(part, 1, 2) for part in rollouts)  # [T, B, H, ...]
    steps = (batch.extras["states"], keys, actions, batch.observation.action_mask, counts)
    chunk = chunk or _default_chunk(env, batch)
    return _map_steps(lambda inputs: intervene_rollout(env, *inputs), steps, batch, chunk)


def counterfactual_rewards(
    env: Environment, batch: Batch, chunk: int | None = None
) -> Float[Array, "T B N A"]:
    """Entry [t, b, j, c]: the team reward of that step had agent j taken action c, the key and the
    other agents' actions held fixed.

    The batch needs the extras `states` and `keys`. Entries of unavailable actions and of steps that
    are not `batch.valid` are meaningless. Costs N * A environment steps per step; chunk as in
    `intervene_batch`."""

    def one_state(inputs: Any) -> Float[Array, "N A"]:
        state, key, action = inputs
        play, joint = partial(_play, env, key, state), _joint_actions(action, env.spec.n_actions)
        return _everywhere(lambda one: play(one)[1].sum())(joint)

    steps = (batch.extras["states"], batch.extras["keys"], batch.action)
    return _map_steps(one_state, steps, batch, chunk or _default_chunk(env, batch))


class InterventionalSource(GivenSource):
    """Graphs from the environment's own simulator: `--graph interventional[:H]`."""

    needs: frozenset[str] = frozenset({"states", "keys"})

    def __init__(self, horizon: int = 1, rewards: bool = False, env: Environment | None = None):
        """horizon: number of steps to look ahead. rewards: also return the reward graph B."""
        check_number("interventional", horizon, "H in --graph interventional:H")
        self.horizon, self.rewards, self.env = horizon, rewards, env

    def init(self, key: PRNGKeyArray, env: Environment) -> None:
        """No state; the environment is kept for the interventions."""
        if reason := env.no_interventions():
            raise UsageError(
                f"{env.spec.name} cannot simulate the effects of other actions ({reason}): choose "
                "--graph learned."
            )
        if not env.offers("local_state"):
            warnings.warn(
                f"{env.spec.name} has no local_state, so interventional graphs compare "
                "observations, which usually show other agents too and give too many edges: define "
                "local_state or, for an environment of another library, name the observation "
                "columns of an agent's own state, --set env_options.local_state='[0, 1]'.",
                stacklevel=2,
            )
        self.env = env

    def infer(self, graph_state: Any, batch: Batch, key: PRNGKeyArray) -> Graphs:
        """The action graph A and, with `rewards`, the reward graph B at no extra cost."""
        if self.env is None:
            raise ValueError("infer needs the environment: call init(key, env) first")
        found = intervene_batch(self.env, batch, horizon=self.horizon)
        return Graphs(found.action_graph, found.reward_graph if self.rewards else None)


def _map_steps(function: Callable[[Any], Any], steps: Any, batch: Batch, chunk: int) -> Any:
    """Apply a function of one state to all steps [T, B, ...], `chunk` states in parallel."""
    shape = batch.valid.shape
    rows = jax.tree.map(lambda leaf: leaf.reshape(batch.valid.size, *leaf.shape[2:]), steps)
    found = lax.map(function, rows, batch_size=min(chunk, batch.valid.size))
    return jax.tree.map(lambda leaf: leaf.reshape(*shape, *leaf.shape[1:]), found)


def _joint_actions(action: Int[Array, "N"], n_actions: int) -> Int[Array, "N A N"]:
    """Joint actions [source, action, agent] in which one agent's action is replaced."""
    replaced = jnp.eye(action.shape[0], dtype=bool)[:, None, :]
    return jnp.where(replaced, jnp.arange(n_actions)[:, None], action)


def _play(
    env: Environment, key: PRNGKeyArray, state: Any, action: Int[Array, "N"]
) -> tuple[_Branch, Float[Array, "N"]]:
    """One step of one branch and its rewards."""
    state, observation, outcome = env.step(key, state, action)
    own = env.local_state(state) if env.offers("local_state") else observation.agents_view
    running = ~(outcome.terminated | outcome.truncated)
    return _Branch(state, own, observation.action_mask, running), outcome.reward


def _play_on(
    env: Environment, key: PRNGKeyArray, action: Int[Array, "N"], branch: _Branch
) -> tuple[_Branch, Float[Array, "N"]]:
    """A later step of one branch, if it is running, with unavailable actions replaced."""
    # If all actions are always available the mask is a constant, and XLA would spend a minute
    # folding its argmax.
    action_mask = lax.optimization_barrier(branch.action_mask)
    possible = jnp.take_along_axis(action_mask, action[:, None], axis=1)[:, 0]
    after, reward = _play(
        env, key, branch.state, jnp.where(possible, action, jnp.argmax(action_mask, axis=1))
    )
    after = jax.tree.map(lambda new, old: jnp.where(branch.running, new, old), after, branch)
    return after, jnp.where(branch.running, reward, 0)


def _everywhere(function: Callable[..., Any]) -> Callable[..., Any]:
    """Map a function over all branches: every source agent and each of its actions."""
    return jax.vmap(jax.vmap(function))


def _differ(values: Array, allowed: Bool[Array, "N A"]) -> Bool[Array, "N N"]:
    """Entry [j, i], from values [j, action, i, L]: whether they differ between j's allowed
    actions."""
    allowed = allowed[:, :, None, None]
    highest = jnp.where(allowed, values, -jnp.inf).max(axis=1)
    lowest = jnp.where(allowed, values, jnp.inf).min(axis=1)
    scale = jnp.maximum(1, jnp.minimum(jnp.abs(highest), jnp.abs(lowest)))
    return (highest - lowest > TOLERANCE * scale).any(axis=-1)


def _default_chunk(env: Environment, batch: Batch) -> int:
    """The number of states whose branches fit into `CHUNK_FLOATS`, or `HOST_BRANCHES`."""
    own_size = prod(batch.observation.agents_view.shape[2:])
    if env.offers("local_state"):
        first = jax.tree.map(lambda leaf: leaf[0, 0], batch.extras["states"])
        own_size = prod(jax.eval_shape(env.local_state, first).shape)
    branches = HOST_BRANCHES if env.on_host else CHUNK_FLOATS // max(own_size, 1)
    return max(1, branches // (env.spec.n_agents * env.spec.n_actions))


def _check_shapes(
    env: Environment, keys: Array, actions: Array, action_mask: Array, counts: Array
) -> None:
    n_agents, n_actions, horizon = env.spec.n_agents, env.spec.n_actions, actions.shape[0]
    if (
        horizon < 1
        or actions.shape[1:] != (n_agents,)
        or not jnp.issubdtype(actions.dtype, jnp.integer)
    ):
        raise ValueError(
            f"actions must be integers, {n_agents} per step, got shape {actions.shape} of "
            f"{actions.dtype}"
        )
    if keys.shape[:1] != (horizon,) or counts.shape != (horizon,):
        raise ValueError(
            f"keys and counts must have one entry for each of {horizon} steps, got {keys.shape} "
            f"and {counts.shape}"
        )
    if action_mask.shape != (n_agents, n_actions):
        raise ValueError(
            f"action_mask must have the shape {(n_agents, n_actions)}, got {action_mask.shape}"
        )
