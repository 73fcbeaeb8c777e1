"""Meeting times over a sequence of dependence graphs.

`A[t, j, i]`: agent j's action at step t can influence agent i's next local state. Row j is the
source, column i the target; self-loops are implied. Arrays are `[T, ..., N, N]`, time first, with
any batch axes in between. `ends[t]`: the episode ends with step t, so no path leads from t to
t + 1.

All functions use one backward recursion for the lag after which a path from (t, j) first meets a
condition on i,

    lag[t, j, i] = 0                                                 if now[t, j, i]
                 = 1 + min over k with A[t, j, k] of lag[t+1, k, i]  otherwise; never past an end,

where `now` is A itself for meeting times and the reward graph for reward lags. It costs O(T N^3),
or O(T N E) with neighbour lists."""

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, Int

from dgmarl.arrays import takes_any_arrays
from dgmarl.device import unroll
from dgmarl.errors import UsageError

Arrays = Array | np.ndarray
"""Input type of the public functions."""

NEVER = 2**30
"""Lag of a pair that never meets."""

Method = Literal["auto", "dense", "neighbours", "lists"]

# Below this many agents the dense recursion is at least as fast for every density.
_DENSE_BELOW = 64
# Above this degree, as a share of N, gathering neighbours costs more than the dense minimum.
_SPARSE_SHARE = 1 / 4


@takes_any_arrays
def meeting_times(
    graph: Bool[Arrays, "T *B N N"] | Int[Arrays, "T *B N D"],
    ends: Bool[Arrays, "T *B"],
    *,
    method: Method = "auto",
    max_degree: int | None = None,
) -> Int[Array, "T *B N N"]:
    """The TD lag L[t, j, i]: the number of steps until a path from j's action at t first reaches i.

        L[t, j, i] = 0                                               if A[t, j, i] or j = i
                   = 1 + min over k with A[t, j, k] of L[t+1, k, i]  otherwise; NEVER past an end

    i's TD error at step t + L is the first that a^j_t can influence; because of the self-loops it
    can influence all later ones. `reward_lags` converts L to the paper's T_ji.

    graph: A, Boolean, row = source, column = target. Self-loops are implied.
    ends: the episode ends with this step.
    method: "dense", O(T N^3); "neighbours", O(T N E), E = edges per step; "auto" uses neighbour
      lists if there are at least 64 agents and no agent has more than N / 4 targets. Both are
      exact. "lists": the graph itself is neighbour lists, integers [T, ..., N, D], the targets of
      each source, padded with the source; for thousands of agents, if matrices would not fit.
    max_degree: upper bound on the targets of an agent, including itself; computed if not given and
      the graph is not traced. Steps that exceed it use the dense recursion, so the result does not
      depend on it. (`vmap` would run both versions; use batch axes instead.)

    >>> chain = jnp.eye(3, dtype=bool).at[0, 1].set(True).at[1, 2].set(True)
    >>> meeting_times(jnp.stack([chain] * 2), jnp.zeros(2, bool))[0]
    Array([[         0,          0,          1],
           [1073741824,          0,          0],
           [1073741824, 1073741824,          0]], dtype=int32)
    """
    graph = require_graph(graph, method)
    ends = require_per_step("ends", ends, graph.shape[:-2])
    return _meeting_times(graph, ends, degree_bound(graph, method, max_degree))


def reward_lags(meeting_time: Int[Arrays, "*B N N"]) -> Int[Array, "*B N N"]:
    """The paper's meeting time T_ji (equation def:meetingtime): the lag of the first *reward* of i
    that j can influence.

    T_ji = 0 if j = i, else L + 1: an edge at step t reaches i's state, and hence i's reward, at
    t + 1."""
    to_others = jnp.where(meeting_time >= NEVER, NEVER, meeting_time + 1)
    return jnp.where(jnp.eye(meeting_time.shape[-1], dtype=bool), 0, to_others)


def neighbour_lists(graph: Bool[Array, "*B N N"], max_degree: int) -> Int[Array, "*B N D"]:
    """The first `max_degree` targets of each source, in order, padded with the source itself."""
    n_agents = graph.shape[-1]
    position = jnp.cumsum(graph, axis=-1, dtype=jnp.int32)
    wanted = jnp.arange(1, max_degree + 1, dtype=jnp.int32)
    find = jnp.vectorize(partial(jnp.searchsorted, v=wanted), signature="(n)->(d)")
    target = find(position)
    return jnp.where(target < n_agents, target, jnp.arange(n_agents, dtype=target.dtype)[:, None])


def add_self_loops(graph: Bool[Arrays, "*B N N"]) -> Bool[Array, "*B N N"]:
    """The graph with all self-loops set."""
    graph = jnp.asarray(graph).astype(bool)
    return graph | jnp.eye(graph.shape[-1], dtype=bool)


def check_graph(graph: Any) -> Bool[Array, "*B N N"]:
    """Validate a graph and return it as a Boolean array; a UsageError names the problem and a fix.

    Inspects values, so it works only outside `jit`."""
    values = np.asarray(graph)
    if values.ndim < 2 or values.shape[-1] != values.shape[-2] or values.shape[-1] == 0:
        raise UsageError(
            f"A dependence graph must have the shape [..., N, N], got {values.shape}; stack one "
            "N x N matrix per step."
        )
    if values.dtype != bool and not np.isin(values, (0, 1)).all():
        raise UsageError(
            f"A dependence graph must hold only 0 and 1, got values from {values.min()} to "
            f"{values.max()}; threshold it (graph > 0.5) or use soft_graph_gae for weights in "
            "[0, 1]."
        )
    missing = ~np.diagonal(values, axis1=-2, axis2=-1).astype(bool)
    if missing.any():
        agents = ", ".join(map(str, np.unique(np.nonzero(missing)[-1])[:8]))
        raise UsageError(
            f"Every agent must reach itself, but the graph has no self-loop for agent {agents}; "
            "use add_self_loops(graph)."
        )
    return jnp.asarray(values.astype(bool))


def scan_lags(
    graph: Bool[Array, "T *B N N"] | Int[Array, "T *B N D"],
    ends: Bool[Array, "T *B"],
    now: Callable[[Bool[Array, "*B N N"]], Bool[Array, "*B N N"]],
    emit: Callable[[Int[Array, ""], Int[Array, "*B N N"]], Any],
    max_degree: int | None = None,
) -> Any:
    """The recursion in the module docstring, backwards in time; stacks `emit(t, lag[t])` over t.

    now: maps the graph of a step to the pairs with lag 0; with neighbour lists these are the edges.

    Holds the lags of one step, in 16 bits if possible: a CPU compares twice as many at a time."""
    n_steps, n_agents = graph.shape[0], graph.shape[-2]
    self_loops = jnp.eye(n_agents, dtype=bool)
    never = jnp.asarray(*(2**14, jnp.int16) if n_steps < 2**14 else (NEVER, jnp.int32))

    def step(later, inputs):
        t, edges, end = inputs
        later = jnp.where(end[..., None, None], never, later)
        if is_lists(graph):
            waiting = jnp.minimum(jnp.minimum(_through(later, edges), later) + 1, never)
            lags = _at_targets(jnp.where(self_loops, 0, waiting), edges)
        else:
            soonest = _earliest(edges | self_loops, later, never, max_degree)
            waiting = jnp.minimum(soonest + 1, never)
            lags = jnp.where(now(edges) | self_loops, 0, waiting)
        return lags, emit(t, jnp.where(lags < never, lags.astype(jnp.int32), NEVER))

    start = jnp.full((*graph.shape[1:-1], n_agents), never)
    steps = (jnp.arange(n_steps), graph, ends)
    return lax.scan(step, start, steps, reverse=True, unroll=unroll())[1]


def is_lists(graph: Array) -> bool:
    """Whether a graph is given as neighbour lists."""
    return jnp.issubdtype(graph.dtype, jnp.integer)


def degree_bound(
    graph: Bool[Array, "T *B N N"], method: Method, max_degree: int | None
) -> int | None:
    """The degree bound of the neighbour version, or None to use the dense version."""
    n_agents = graph.shape[-1]
    if method not in get_args(Method):
        raise ValueError(f"method must be one of {', '.join(get_args(Method))}, got {method!r}")
    if max_degree is not None and max_degree < 1:
        raise ValueError(
            f"max_degree counts the agent itself and must be at least 1, got {max_degree}"
        )
    if method in ("dense", "lists") or (method == "auto" and n_agents < _DENSE_BELOW):
        return None
    if max_degree is None and not isinstance(graph, Tracer):
        # A multiple of four, so that graphs of nearly the same degree share one compiled program.
        max_degree = -(-int(jnp.max(jnp.sum(graph, axis=-1), initial=1)) // 4) * 4
    if max_degree is None and method == "neighbours":
        raise ValueError(
            "method='neighbours' under jit needs max_degree, an upper bound on the targets of an "
            "agent"
        )
    sparse = max_degree is not None and max_degree <= _SPARSE_SHARE * n_agents
    return max_degree if sparse or method == "neighbours" else None


def boolean_product(
    first: Bool[Array, "*B N N"], second: Bool[Array, "*B N N"]
) -> Bool[Array, "*B N N"]:
    """Entry [j, i]: whether first[j, k] and second[k, i] for some k."""
    return jnp.matmul(first.astype(jnp.float32), second.astype(jnp.float32)) > 0


def max_product(
    first: Float[Array, "*B N N"], second: Float[Array, "*B N N"]
) -> Float[Array, "*B N N"]:
    """Entry [j, i]: the largest first[j, k] * second[k, i] over k."""
    return jnp.max(first[..., :, :, None] * second[..., None, :, :], axis=-2)


def require_graph(
    graph: Bool[Arrays, "T *B N N"] | Int[Arrays, "T *B N D"], method: Method = "auto"
) -> Bool[Array, "T *B N N"] | Int[Array, "T *B N D"]:
    """Convert to a JAX array; a ValueError unless it is Boolean and of shape [T, ..., N, N], or,
    with method "lists", integers that are agents (checked outside jit only)."""
    graph = jnp.asarray(graph)
    if method == "lists":
        n_agents = graph.shape[-2]
        valid = isinstance(graph, Tracer) or bool(jnp.all((graph >= 0) & (graph < n_agents)))
        if not is_lists(graph) or not valid:
            raise ValueError(
                f"method='lists' needs integers from 0 to {n_agents - 1}, the targets of each "
                f"agent, got {graph.dtype}"
            )
        return graph
    if graph.dtype != jnp.bool_:
        raise ValueError(
            f"graph must be Boolean, got {graph.dtype}; use check_graph(graph) for 0/1 values, "
            "soft_graph_gae for weights, method='lists' for neighbour lists"
        )
    return _require_square(graph, "graph")


def require_weights(weights: Float[Arrays, "T *B N N"]) -> Float[Array, "T *B N N"]:
    """Convert to a JAX array; a ValueError unless floats [T, ..., N, N], outside jit in [0, 1]."""
    weights = jnp.asarray(weights)
    if not jnp.issubdtype(weights.dtype, jnp.floating):
        raise ValueError(
            f"weights must be floats in [0, 1], got {weights.dtype}; use meeting_times and "
            "graph_gae for Boolean graphs"
        )
    if not isinstance(weights, Tracer) and not bool(jnp.all((weights >= 0) & (weights <= 1))):
        raise ValueError("weights must lie in [0, 1]; scale or clip them first")
    return _require_square(weights, "weights")


def require_per_step(
    name: str, mask: Bool[Arrays, "*B"], shape: tuple[int, ...]
) -> Bool[Array, "*B"]:
    """Convert to a JAX array; a ValueError unless Boolean, one per step and batch entry."""
    mask = jnp.asarray(mask)
    if mask.dtype != jnp.bool_:
        raise ValueError(f"{name} must be Boolean, got {mask.dtype}; use {name}.astype(bool)")
    if mask.shape != shape:
        raise ValueError(
            f"{name} must have the shape {shape}, one entry per step for all agents, got "
            f"{mask.shape}"
        )
    return mask


def _require_square(matrices: Array, name: str) -> Array:
    if matrices.ndim < 3 or matrices.shape[-1] != matrices.shape[-2]:
        raise ValueError(f"{name} must have the shape [T, ..., N, N], got {matrices.shape}")
    return matrices


@partial(jax.jit, static_argnames="max_degree")
def _meeting_times(graph: Array, ends: Array, max_degree: int | None) -> Array:
    return scan_lags(graph, ends, lambda edges: edges, lambda _, lags: lags, max_degree)


def _earliest(edges: Array, later: Array, never: Array, max_degree: int | None) -> Array:
    """Entry [j, i]: the smallest later[k, i] over the targets k of j."""

    def dense():
        # On a CPU a maximum with "blocked" is three times as fast as a selection by the edge.
        blocked = jnp.where(edges, jnp.zeros_like(never), never)
        return jnp.min(jnp.maximum(blocked[..., :, :, None], later[..., None, :, :]), axis=-2)

    if max_degree is None:
        return dense()
    return lax.cond(
        jnp.max(jnp.sum(edges, axis=-1)) <= max_degree,
        lambda: _through(later, neighbour_lists(edges, max_degree)),
        dense,
    )


@partial(jnp.vectorize, signature="(n,n),(n,d)->(n,n)")
def _through(later: Array, targets: Array) -> Array:
    """Entry [j, i]: the smallest later[k, i] over the listed targets k of j.

    Many targets are compared in parts: XLA does not fuse the look-up with a minimum over 32 or
    more."""
    n_agents, degree = targets.shape
    if degree < 32:
        return jnp.min(later[targets], axis=1)
    n_parts = -(-degree // 16)
    filled = jnp.pad(targets, ((0, 0), (0, 16 * n_parts - degree)), mode="edge")

    def nearer(soonest: Array, part: Array) -> tuple[Array, None]:
        return jnp.minimum(soonest, jnp.min(later[part], axis=1)), None

    parts = jnp.swapaxes(filled.reshape(n_agents, n_parts, 16), 0, 1)
    return lax.scan(nearer, later[targets[:, 0]], parts)[0]


@partial(jnp.vectorize, signature="(n,n),(n,d)->(n,n)")
def _at_targets(lags: Array, targets: Array) -> Array:
    """The lags with 0 at the listed targets."""
    return lags.at[jnp.arange(len(lags))[:, None], targets].set(0)
