"""Interventional dependence graphs, from counterfactual steps of the simulator.

For a state s, with the random key w and the actions a^{-j} of the other agents held fixed,

    A[j, i] = 1  iff  local_state_i(step(w, s, (b, a^{-j})))  differs between available actions b
    B[j, i] = 1  iff  reward_i(step(w, s, (b, a^{-j})))       differs between available actions b

Row j = source, column i = target; both have self-loops. All branches share the key, so randomness
alone creates no edge. If all actions of j are compared, row j does not depend on the action taken
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

from dgmarl.arrays import anywhere, in_chunks
from dgmarl.config.ranges import check_number
from dgmarl.device import launch_bound
from dgmarl.envs.base import Environment
from dgmarl.errors import UsageError
from dgmarl.graphs.reach import add_self_loops
from dgmarl.graphs.sources import GivenSource, Graphs
from dgmarl.rollout import Batch

TOLERANCE = 1e-6
"""Differences up to this size, relative for values above 1, count as rounding."""
CHUNK_FLOATS = 2**22
"""Size of the local states kept for the default chunk, in floats: 16 MiB per seed."""
PART_FLOATS = 2**18
"""Size of the local states of the branches played at a time if only some are compared: 1 MiB per
seed, so that intermediate results fit into a CPU's cache."""
ACCELERATOR_PART_FLOATS = 2**20
"""The same on an accelerator, which needs more branches to be busy."""
MIN_PARTS = 16
"""Minimum number of such parts, so that few branches beyond the compared ones are played."""
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
    action_mask: Bool[Array, "N A"]
    running: Bool[Array, ""]


class _Effects(NamedTuple):
    """What is compared between branches."""

    own: Float[Array, "*B N L"]
    """Local state of every agent."""
    reward: Float[Array, "*B N 1"]


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
    rows = (state, keys, actions, action_mask, counts)
    rows = jax.tree.map(lambda leaf: jnp.expand_dims(leaf, 0), rows)
    found = _intervene(env, *rows, sparse=env.loops_inside)
    return jax.tree.map(lambda leaf: leaf[0], found)


def intervene_batch(
    env: Environment,
    batch: Batch,
    *,
    horizon: int = 1,
    chunk: int | None = None,
    alternatives: int | None = None,
    key: PRNGKeyArray | None = None,
) -> Interventions:
    """Graphs [T, B, N, N] for all steps of a batch recorded with the extras `states` and `keys`.

    Costs N * A environment steps per step and unit of `horizon`, or only those of available actions
    where a step is costly (`loops_inside`); observations are not computed if the environment offers
    `local_state`. Multi-step rollouts stop at the end of the episode and of
    the batch. Graphs of steps that are not `batch.valid` are meaningless.

    chunk: states processed in parallel; None: as many as fit into `CHUNK_FLOATS`. Affects memory
      only.
    alternatives: compare the action taken with at most this many others of each agent and step,
      drawn at random with `key`; None: with all. Every edge found is one of the full graph. Costs
      at most 1 + N * alternatives environment steps per step and unit of `horizon`."""
    if horizon < 1:
        raise ValueError(f"horizon must be at least 1, got {horizon}")
    if chunk is not None and chunk < 1:
        raise ValueError(f"chunk must be at least 1, got {chunk}")
    if alternatives is not None and alternatives < 1:
        raise ValueError(f"alternatives must be at least 1, got {alternatives}")
    length = len(batch.reward)
    step = jnp.arange(length)[:, None] + jnp.arange(horizon)
    inside, step = step < length, jnp.minimum(step, length - 1)
    ends = ~batch.continues[step]
    ended_before = (jnp.cumsum(ends, axis=1) - ends) > 0
    rollouts = (batch.extras["keys"][step], batch.action[step], inside[..., None] & ~ended_before)
    keys, actions, counts = (jnp.swapaxes(part, 1, 2) for part in rollouts)  # [T, B, H, ...]
    # At invalid steps nothing is compared, and where a step is costly nothing is played.
    compared = batch.observation.action_mask & batch.valid[..., None, None]
    if alternatives is not None:
        if key is None:
            raise ValueError("alternatives are drawn at random: give a key")
        compared = _sample(key, compared, batch.action, alternatives)
    sparse = env.loops_inside or alternatives is not None
    steps = (batch.extras["states"], keys, actions, compared, counts)
    chunk = chunk or _default_chunk(env, batch, horizon)
    return _map_steps(partial(_intervene, env, sparse=sparse), steps, batch, chunk)


def counterfactual_rewards(
    env: Environment, batch: Batch, chunk: int | None = None
) -> Float[Array, "T B N A"]:
    """Entry [t, b, j, c]: the team reward of that step had agent j taken action c, the key and the
    other agents' actions held fixed.

    The batch needs the extras `states` and `keys`. Entries of unavailable actions and of steps that
    are not `batch.valid` are meaningless. Costs N * A environment steps per step; chunk as in
    `intervene_batch`."""

    @jax.vmap
    def team_rewards(state: Any, key: PRNGKeyArray, action: Int[Array, "N"]) -> Array:
        def of_branch(source: Array, alternative: Array) -> Array:
            _, effects = _play(env, key, state, action.at[source].set(alternative))
            return effects.reward.sum()

        return _for_branches(of_branch, env.spec.n_agents, env.spec.n_actions)

    steps = (batch.extras["states"], batch.extras["keys"], batch.action)
    return _map_steps(team_rewards, steps, batch, chunk or _default_chunk(env, batch))


class InterventionalSource(GivenSource):
    """Graphs from the environment's own simulator: `--graph interventional[:H[:K]]`."""

    needs: frozenset[str] = frozenset({"states", "keys"})

    def __init__(
        self,
        horizon: int = 1,
        rewards: bool = False,
        env: Environment | None = None,
        alternatives: int | None = None,
    ):
        """horizon: number of steps to look ahead. rewards: also return the reward graph B.
        alternatives: as in `intervene_batch`."""
        check_number("interventional", horizon, "H in --graph interventional:H:K")
        check_number("alternatives", alternatives, "K in --graph interventional:H:K")
        self.horizon, self.rewards, self.env = horizon, rewards, env
        self.alternatives = alternatives

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
        options = {"horizon": self.horizon, "alternatives": self.alternatives, "key": key}
        found = intervene_batch(self.env, batch, **options)
        return Graphs(found.action_graph, found.reward_graph if self.rewards else None)


def _sample(
    key: PRNGKeyArray, compared: Bool[Array, "*B N A"], action: Int[Array, "*B N"], n: int
) -> Bool[Array, "*B N A"]:
    """The action taken and at most n of the other compared actions, drawn at random."""
    taken = jax.nn.one_hot(action, compared.shape[-1], dtype=bool)
    scores = jnp.where(compared & ~taken, jax.random.uniform(key, compared.shape), -1)
    # Ranks rather than a threshold: equal scores would exceed n.
    rank = jnp.argsort(jnp.argsort(-scores, axis=-1), axis=-1)
    return compared & (taken | (rank < n))


def _map_steps(function: Callable[..., Any], steps: Any, batch: Batch, chunk: int) -> Any:
    """Apply a function of C states to all steps [T, B, ...], at most `chunk` states at a time."""
    rows = jax.tree.map(lambda leaf: leaf.reshape(batch.valid.size, *leaf.shape[2:]), steps)
    found = in_chunks(lambda rows: function(*rows), rows, chunk)
    return jax.tree.map(lambda leaf: leaf.reshape(*batch.valid.shape, *leaf.shape[1:]), found)


def _intervene(
    env: Environment,
    state: Any,
    keys: PRNGKeyArray,
    actions: Int[Array, "C H N"],
    action_mask: Bool[Array, "C N A"],
    counts: Bool[Array, "C H"],
    sparse: bool,
) -> Interventions:
    """`intervene_rollout` for C states. sparse: play only the compared branches."""
    # An agent with a single available action reaches only itself: nothing to compare.
    compared = action_mask & (action_mask.sum(axis=-1, keepdims=True) > 1)

    def branch(index: Any, source: Array, alternative: Array) -> _Effects:
        first = actions[index, 0].at[source].set(alternative, mode="drop")
        here = jax.tree.map(lambda leaf: leaf[index], state)
        return _play_branch(env, here, keys[index], actions[index], first)

    if sparse:
        taken = jax.nn.one_hot(actions[:, 0], compared.shape[-1], dtype=bool)
        highest, lowest = _extremes_of_compared(branch, compared, taken)
    else:
        highest, lowest = _extremes_of_all(branch, compared)

    def edges(highest: Array, lowest: Array) -> Bool[Array, "C N N"]:
        scale = jnp.maximum(1, jnp.minimum(jnp.abs(highest), jnp.abs(lowest)))
        differ = (highest - lowest > TOLERANCE * scale).any(axis=-1)  # [C, source, H, target]
        return add_self_loops((differ & counts[:, None, :, None]).any(axis=2))

    return Interventions(*jax.tree.map(edges, highest, lowest))


Branches = Callable[[Array, Array, Array], _Effects]
"""From a state's index, a source agent and its action to the effects of that branch; the source N
stands for nobody, with which the branch is what happened."""


def _extremes_of_all(branch: Branches, compared: Bool[Array, "C N A"]) -> tuple[_Effects, _Effects]:
    """Maximum and minimum over the compared actions of each source, [C, N, H, ...]."""
    n_states, *sizes = compared.shape
    found = jax.vmap(lambda index: _for_branches(partial(branch, index), *sizes))(
        jnp.arange(n_states)
    )

    def over_actions(reduce: Callable[..., Array], other: float) -> _Effects:
        def one(values: Array) -> Array:
            mask = compared.reshape(*compared.shape, *(1,) * (values.ndim - compared.ndim))
            return reduce(jnp.where(mask, values, other), axis=2)

        return jax.tree.map(one, found)

    return over_actions(jnp.max, -jnp.inf), over_actions(jnp.min, jnp.inf)


def _extremes_of_compared(
    branch: Branches, compared: Bool[Array, "C N A"], taken: Bool[Array, "C N A"]
) -> tuple[_Effects, _Effects]:
    """`_extremes_of_all`, but only the compared branches are played, and that of the actions taken,
    which is the same for all sources, once per state."""
    alternatives = compared & ~taken
    any_played = alternatives.any(axis=(1, 2))
    factual = jnp.zeros_like(taken[:, :1]).at[:, 0, 0].set(any_played)
    played = jnp.concatenate([alternatives, factual], axis=1)
    includes_taken = (compared & taken).any(axis=-1)

    def joined(combine: Callable[[Array, Array], Array], values: Array) -> Array:
        own, shared = values[:, :-1], values[:, -1:]
        mask = includes_taken.reshape(*includes_taken.shape, *(1,) * (values.ndim - 2))
        return jnp.where(mask, combine(own, shared), own)

    highest, lowest = _extremes_of_played(branch, played)
    return (
        jax.tree.map(partial(joined, jnp.maximum), highest),
        jax.tree.map(partial(joined, jnp.minimum), lowest),
    )


def _extremes_of_played(
    branch: Branches, compared: Bool[Array, "C N A"]
) -> tuple[_Effects, _Effects]:
    """Maximum and minimum over the given branches of each source, played a part at a time."""
    n_states, n_agents, n_actions = compared.shape
    shapes = jax.eval_shape(branch, *(jnp.int32(0),) * 3)
    floats = ACCELERATOR_PART_FLOATS if launch_bound() else PART_FLOATS
    width = max(1, min(floats // max(shapes.own.size, 1), -(-compared.size // MIN_PARTS)))
    size = -(-compared.size // width) * width
    (order,) = jnp.nonzero(compared.reshape(-1), size=size, fill_value=compared.size)

    def play_part(carry: tuple[Array, _Effects, _Effects]) -> tuple[Array, _Effects, _Effects]:
        start, highest, lowest = carry
        chosen = lax.dynamic_slice(order, (start,), (width,))
        index, source = chosen // (n_agents * n_actions), chosen // n_actions % n_agents
        found = jax.vmap(branch)(jnp.minimum(index, n_states - 1), source, chosen % n_actions)
        rows = (index, source)  # past the last state, hence dropped, where `order` is filled up
        highest = jax.tree.map(lambda h, new: h.at[rows].max(new, mode="drop"), highest, found)
        lowest = jax.tree.map(lambda low, new: low.at[rows].min(new, mode="drop"), lowest, found)
        return start + width, highest, lowest

    def full(value: float) -> _Effects:
        return jax.tree.map(lambda x: jnp.full((n_states, n_agents, *x.shape), value), shapes)

    start = (jnp.int32(0), full(-jnp.inf), full(jnp.inf))
    n_compared = compared.sum()
    return lax.while_loop(lambda carry: anywhere(carry[0] < n_compared), play_part, start)[1:]


def _for_branches(function: Callable[[Array, Array], Any], n_agents: int, n_actions: int) -> Any:
    """Apply a function to every source agent and each of its actions: [N, A, ...]."""
    of_source = jax.vmap(function, in_axes=(None, 0))
    return jax.vmap(of_source, in_axes=(0, None))(jnp.arange(n_agents), jnp.arange(n_actions))


def _play_branch(
    env: Environment,
    state: Any,
    keys: PRNGKeyArray,
    actions: Int[Array, "H N"],
    first: Int[Array, "N"],
) -> _Effects:
    """Effects of all steps of a branch, [H, ...], whose first joint action is `first`."""
    branch, effects = _play(env, keys[0], state, first)
    effects = jax.tree.map(lambda leaf: leaf[None], effects)
    if actions.shape[0] == 1:
        return effects

    def one_step(
        carry: tuple[_Branch, _Effects], given: tuple[PRNGKeyArray, Array]
    ) -> tuple[Any, _Effects]:
        branch, effects = _play_on(env, *carry, *given)
        return (branch, effects), effects

    now = jax.tree.map(lambda leaf: leaf[0], effects)
    _, later = lax.scan(one_step, (branch, now), (keys[1:], actions[1:]))
    return jax.tree.map(lambda *parts: jnp.concatenate(parts), effects, later)


def _play(
    env: Environment, key: PRNGKeyArray, state: Any, action: Int[Array, "N"]
) -> tuple[_Branch, _Effects]:
    """One step of one branch."""
    state, observation, outcome = env.step(key, state, action)
    own = env.local_state(state) if env.offers("local_state") else observation.agents_view
    running = ~(outcome.terminated | outcome.truncated)
    branch = _Branch(state, observation.action_mask, running)
    return branch, _Effects(own, outcome.reward[:, None])


def _play_on(
    env: Environment, branch: _Branch, before: _Effects, key: PRNGKeyArray, action: Int[Array, "N"]
) -> tuple[_Branch, _Effects]:
    """A later step of one branch, if it is running, with unavailable actions replaced."""
    # If all actions are always available the mask is a constant, and XLA would spend a minute
    # folding its argmax.
    action_mask = lax.optimization_barrier(branch.action_mask)
    possible = jnp.take_along_axis(action_mask, action[:, None], axis=1)[:, 0]
    action = jnp.where(possible, action, jnp.argmax(action_mask, axis=1))
    old = (branch, before._replace(reward=jnp.zeros_like(before.reward)))
    return jax.tree.map(
        lambda new, old: jnp.where(branch.running, new, old),
        _play(env, key, branch.state, action),
        old,
    )


def _default_chunk(env: Environment, batch: Batch, horizon: int = 1) -> int:
    """The number of states whose kept local states fit into `CHUNK_FLOATS`, or whose branches into
    `HOST_BRANCHES`."""
    own_size = prod(batch.observation.agents_view.shape[2:])
    if env.offers("local_state"):
        first = jax.tree.map(lambda leaf: leaf[0, 0], batch.extras["states"])
        own_size = prod(jax.eval_shape(env.local_state, first).shape)
    n_agents, n_branches = env.spec.n_agents, env.spec.n_agents * env.spec.n_actions
    # Of branches played in parts only the extremes over actions are kept, one per source.
    kept = n_agents if env.loops_inside else n_branches
    if env.on_host:
        return max(1, HOST_BRANCHES // n_branches)
    return max(1, CHUNK_FLOATS // max(own_size * horizon * kept, 1))


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
