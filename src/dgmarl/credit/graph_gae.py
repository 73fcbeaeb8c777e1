"""Advantages through dependence graphs (Algorithm 1 of the paper): each agent is credited with the
rewards that it could have influenced.

In Algorithm 1 the TD error of agent i at step t counts in the advantage of agent j at t0 if a path
from (t0, j) has reached i by then. Agents reach themselves, so an agent that is reached stays
reached, and the double loop over t0 and t reduces to one look-up: the ordinary GAE of agent i at
the meeting time. `meeting_tails` is that look-up."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from dgmarl.arrays import anywhere, takes_any_arrays
from dgmarl.config.parts import AdvantageForm, OthersWeight
from dgmarl.credit.gae import discounted_sums, require_fractions, require_steps, td_errors
from dgmarl.graphs.reach import (
    NEVER,
    Arrays,
    Method,
    boolean_product,
    degree_bound,
    is_lists,
    max_product,
    require_graph,
    require_weights,
    scan_lags,
)


@takes_any_arrays
def graph_gae(
    reward: Float[Arrays, "T *B N"],
    value: Float[Arrays, "T *B N"],
    next_value: Float[Arrays, "T *B N"],
    graph: Bool[Arrays, "T *B N N"] | Int[Arrays, "T *B N D"],
    bootstrap: Bool[Arrays, "T *B"],
    continues: Bool[Arrays, "T *B"],
    gamma: float | Float[Arrays, ""],
    lambda_: float | Float[Arrays, ""],
    *,
    unreached_weight: float | Float[Arrays, ""] = 0.0,
    advantage_form: AdvantageForm = "td",
    pair_baseline: Float[Arrays, "T *B N N"] | None = None,
    reward_graph: Bool[Arrays, "... N N"] | None = None,
    cross_weight: float | Float[Arrays, "..."] = 1.0,
    others: OthersWeight = "sum",
    per_pair: bool = False,
    method: Method = "auto",
    max_degree: int | None = None,
    own: Float[Array, "T *B N"] | None = None,
) -> Float[Array, "T *B N"] | Float[Array, "T *B N N"]:
    """The advantage of every agent from the rewards it could have influenced.

    M is the first step at which a path from (t, j) reaches i (`t + meeting_times`), GAE^i the
    ordinary GAE of agent i, R^i = GAE^i + V^i its lambda-return, and c the credit of the pair (0 if
    i is never reached):

        form "td", Algorithm 1:  c[t, j, i] = (gamma*lambda)^(M-t) * GAE^i[M]
        form "return":           c[t, j, i] = gamma^(M-t) * R^i[M]  for i != j,  GAE^j[t]  for i = j
        with u = unreached_weight:  c <- (1 - u) * c + u * (the same with M = t)
        Adv[t, j] = c[t, j, j]
                    + sum over i != j of cross_weight * (c[t, j, i] - pair_baseline[t, j, i])

    If agent i's critic sees more than i's own state, its value may already include an effect before
    M; the "td" form loses that credit. The "return" form does not, but needs a baseline to reduce
    its variance.

    With others = "mean" ("td" form) the TD errors of others are averaged at each step instead of
    summed. With w[t', i] = 1 from M on and u before,

        Adv[t, j] = GAE^j[t] + cross_weight * sum over t' >= t, i != j of
                    (gamma*lambda)^(t'-t) * w[t', i] / max(1, sum over k != j of w[t', k])
                    * delta^i_t'

    reward, value, next_value: per agent; next_value is the value of the true successor, before any
      reset.
    graph: A[t, j, i], Boolean: j's action at t can influence i's next state. Row = source, column =
      target.
    bootstrap: not terminated.  continues: not (terminated or truncated); cuts both GAE and paths.
      Steps after `continues = False` may be padding: they do not affect earlier steps.
    unreached_weight: weight of agents that have not been reached; 1 - lambda in the paper's runs.
    pair_baseline: expectation of c[t, j, i] given j's observation at t, before its action; "return"
      form only.
    reward_graph: B[k, i] = k's action affects i's reward in the same step. The TD error of i at t
      counts from the first step at which some k reached earlier has A[t, k, i] or B[k, i]. Constant
      in time ([N, N] or [..., N, N]): no extra cost. One per step (shape of `graph`), "td" form
      only: if they differ, weights may become 0 again, computed exactly in O(T^2 N^3). Default:
      only i itself.
    cross_weight: a scalar, one per pair (broadcast to [..., N, N]), or one per step and pair (shape
      of `graph`).
    others: "sum" or "mean" of the reached others. The mean costs O(T N^2) more for each different
      lag at which an agent meets others, at most min(N - 1, T).
    per_pair: return the summands [T, ..., j, i] instead of their sum over i.
    method, max_degree: see `meeting_times`.
    own: the result of `gae` on the same arguments, if already computed.

    A chain 0 -> 1 -> 2 in which agent 2 earns 1 at the second step: agent 0 reaches agent 2 in two
    steps, not in one.

    >>> chain = jnp.array([[1, 1, 0], [0, 1, 1], [0, 0, 1]], bool)
    >>> reward, zero, on = jnp.zeros((2, 3)).at[1, 2].set(1.0), jnp.zeros((2, 3)), jnp.ones(2, bool)
    >>> graph_gae(reward, zero, zero, jnp.stack([chain] * 2), on, on, 1.0, 1.0)
    Array([[1., 1., 1.],
           [0., 1., 1.]], dtype=float32)
    """
    steps = require_steps(reward, value, next_value, bootstrap, continues)
    graph = _require_agents(require_graph(graph, method), steps.reward, "graph")
    require_fractions(gamma=gamma, lambda_=lambda_, unreached_weight=unreached_weight)
    if is_lists(graph) and reward_graph is not None:
        raise ValueError("reward_graph needs a Boolean graph, not method='lists'")
    shape = (*steps.reward.shape, steps.reward.shape[-1])
    _check_options(advantage_form, pair_baseline, reward_graph, cross_weight, shape)
    _check_others(others, advantage_form)
    return _graph_gae(
        steps,
        graph,
        gamma,
        lambda_,
        unreached_weight,
        pair_baseline,
        reward_graph,
        cross_weight,
        own,
        form=advantage_form,
        others=others,
        per_pair=per_pair,
        max_degree=degree_bound(graph, method, max_degree),
    )


@takes_any_arrays
def soft_graph_gae(
    reward: Float[Arrays, "T *B N"],
    value: Float[Arrays, "T *B N"],
    next_value: Float[Arrays, "T *B N"],
    weights: Float[Arrays, "T *B N N"],
    bootstrap: Bool[Arrays, "T *B"],
    continues: Bool[Arrays, "T *B"],
    gamma: float | Float[Arrays, ""],
    lambda_: float | Float[Arrays, ""],
    *,
    unreached_weight: float | Float[Arrays, ""] = 0.0,
    cross_weight: float | Float[Arrays, "..."] = 1.0,
    others: OthersWeight = "sum",
    per_pair: bool = False,
) -> Float[Array, "T *B N"] | Float[Array, "T *B N N"]:
    """Algorithm 1 with soft edges: the TD error of i is weighted by the strongest path that has
    reached it, not by 0 or 1.

        Adv[t0, j] = sum over i, t >= t0 of (gamma*lambda)^(t-t0) * w * delta^i_t
        w = (1 - unreached_weight) * S + unreached_weight
        S = largest product of weights along a path from (t0, j) to (t, i)

    weights: floats in [0, 1], row = source, column = target; every agent reaches itself with weight
      1. The other arguments are those of `graph_gae`, which gives the same for weights 0 and 1.
      Costs O(T^2 N^3)."""
    steps = require_steps(reward, value, next_value, bootstrap, continues)
    weights = _require_agents(require_weights(weights), steps.reward, "weights")
    require_fractions(gamma=gamma, lambda_=lambda_, unreached_weight=unreached_weight)
    _check_cross_weight(cross_weight, weights.shape)
    _check_others(others, "td")
    pairs = _soft_pairs(
        steps, weights, gamma, lambda_, cross_weight, unreached_weight, others=others
    )
    return pairs if per_pair else pairs.sum(-1)


@takes_any_arrays
def credited_rewards(
    graph: Bool[Arrays, "T N N"],
    ends: Bool[Arrays, "T"],
    t: int | Int[Array, ""],
    agent: int | Int[Array, ""],
    gamma: float,
    lambda_: float,
    **options: Any,
) -> Float[Array, "T N"]:
    """The weight of every reward in the credit of `agent`'s action at step t: entry [t', i] is the
    weight of r^i_{t'}.

    The advantage is linear in the rewards, so the weights are its derivative; in the "td" form they
    are also the weights of the TD errors. options: those of `graph_gae` that affect the weights
    (unreached_weight, advantage_form, reward_graph, cross_weight, others)."""
    graph, ends = require_graph(graph), jnp.asarray(ends)
    if graph.ndim != 3:
        raise ValueError(f"graph must have the shape [T, N, N], got {graph.shape}")
    zero = jnp.zeros(graph.shape[:-1])

    def advantage(reward):
        steps = (reward, zero, zero, graph, ~ends, ~ends)
        return graph_gae(*steps, gamma, lambda_, **options)[t, agent]

    return jax.grad(advantage)(zero)


def meeting_tails(
    table: Float[Array, "T *B N"],
    decay: Float[Array, ""],
    graph: Bool[Array, "T *B N N"],
    ends: Bool[Array, "T *B"],
    now: Callable[[Array], Array],
    finish: Callable[[Int[Array, ""], Float[Array, "*B N N"]], Any],
    max_degree: int | None = None,
) -> Any:
    """Stack `finish(t, tail)` over t, where tail[j, i] = decay^lag * table[t + lag, i] with the lag
    of the pair, 0 if it never meets.

    now: maps the graph of a step to the pairs with lag 0 (see `scan_lags`). Only the pairs of one
      step are in memory at a time."""
    powers = decay ** jnp.arange(graph.shape[0], dtype=table.dtype)

    def emit(t, lags):
        met = lags < NEVER
        lag = jnp.where(met, lags, 0)
        tail = jnp.take_along_axis(table[..., None, :], (t + lag)[None], axis=0)[0]
        return finish(t, jnp.where(met, powers[lag] * tail, 0))

    return scan_lags(graph, ends, now, emit, max_degree)


def mean_tails(
    table: Float[Array, "T *B N"],
    decay: Float[Array, ""],
    lags: Int[Array, "T *B N N"],
    unreached: Float[Array, ""],
) -> Float[Array, "T *B N N"]:
    """The summands of `others = "mean"` without the diagonal, from the lags of all pairs.

    The weights of a start (t, j) change only when it meets an agent. So the weighted sum over later
    steps is a sum over these lags, of the change of the weights times one tail."""
    other = ~jnp.eye(table.shape[-1], dtype=bool)
    lags = jnp.where(other, lags, NEVER)
    at_first = _mean_weights(jnp.broadcast_to(unreached, lags.shape), other)
    powers = decay ** jnp.arange(len(table), dtype=table.dtype)
    step = jnp.arange(len(table)).reshape(-1, *(1,) * (lags.ndim - 1))

    def meet(total, last, before):
        lag = jnp.min(jnp.where(lags > last, lags, NEVER), axis=-1, keepdims=True)
        weights = _mean_weights(jnp.where(lags <= lag, 1, unreached), other)
        change = jnp.where(lag < NEVER, weights - before, 0)
        ahead = jnp.where(lag < NEVER, lag, 0)
        tail = jnp.take_along_axis(table[..., None, :], step + ahead, axis=0)
        total += jnp.where(change == 0, 0, change * powers[ahead] * tail)
        return total, lag, weights

    def next_meeting(carry, _):
        # Usually there are few different lags: skip the rest.
        return lax.cond(anywhere(carry[1] < NEVER), meet, lambda *same: same, *carry), None

    never_yet = jnp.full_like(lags[..., :1], -1)
    start = (at_first * table[..., None, :], never_yet, at_first)
    n_meetings = min(table.shape[-1] - 1, len(table))
    return lax.scan(next_meeting, start, length=n_meetings)[0][0]


def _mean_weights(weight: Float[Array, "... N"], other: Bool[Array, "... N"]) -> Array:
    """The weights of other agents, divided by their sum if that exceeds 1."""
    weight = jnp.where(other, weight, 0)
    return weight / jnp.maximum(1, weight.sum(axis=-1, keepdims=True))


@partial(jax.jit, static_argnames=("form", "others", "per_pair", "max_degree"))
def _graph_gae(
    steps,
    graph,
    gamma,
    lambda_,
    unreached_weight,
    baseline,
    reward_graph,
    cross_weight,
    own,
    *,
    form,
    others,
    per_pair,
    max_degree,
):
    delta, computed, gamma, lambda_ = _plain_credit(steps, gamma, lambda_)
    own = computed if own is None else own
    table = own if form == "td" else own + steps.value
    unreached = _rounded(unreached_weight, steps.reward.dtype)
    mean = others == "mean"

    def finish(t, credit):
        def at_t(array):
            if array is None or jnp.ndim(array) < graph.ndim:
                return array
            return array[t]

        kept = 0 if mean else unreached
        pairs = _pair_summands(credit, own[t], table[t], kept, at_t(baseline), at_t(cross_weight))
        return pairs if per_pair else pairs.sum(-1)

    def finish_all(credit):
        return jax.vmap(finish)(jnp.arange(graph.shape[0]), credit)

    def by_lags(reward_graph):
        def now(edges):
            return edges if reward_graph is None else edges | reward_graph

        decay, ends = gamma * lambda_ if form == "td" else gamma, ~steps.continues
        if not mean:
            return meeting_tails(table, decay, graph, ends, now, finish, max_degree)
        lags = scan_lags(graph, ends, now, lambda _, lags: lags, max_degree)
        return finish_all(mean_tails(table, decay, lags, unreached))

    def by_steps(reward_graph):
        edges = graph | jnp.eye(graph.shape[-1], dtype=bool)
        weigh = partial(_mean_of_strengths, unreached) if mean else None
        masks = (edges | reward_graph, edges, steps.continues)
        return finish_all(path_sums(delta, *masks, gamma * lambda_, boolean_product, weigh))

    if reward_graph is None or jnp.ndim(reward_graph) < graph.ndim:
        return by_lags(reward_graph)
    changes = anywhere(jnp.any(reward_graph != reward_graph[:1]))
    return lax.cond(changes, by_steps, lambda edges: by_lags(edges[0]), reward_graph)


@partial(jax.jit, static_argnames="others")
def _soft_pairs(steps, weights, gamma, lambda_, cross_weight, unreached_weight, *, others):
    delta, own, gamma, lambda_ = _plain_credit(steps, gamma, lambda_)
    loops = jnp.eye(weights.shape[-1], dtype=weights.dtype)
    edges = jnp.maximum(weights, loops).astype(delta.dtype)
    unreached, mean = _rounded(unreached_weight, own.dtype), others == "mean"
    weigh = partial(_mean_of_strengths, unreached) if mean else None
    masks = (edges, edges, steps.continues)
    credit = path_sums(delta, *masks, gamma * lambda_, max_product, weigh)
    return _pair_summands(credit, own, own, 0 if mean else unreached, None, cross_weight)


def _mean_of_strengths(unreached, strength):
    """The weights of `others = "mean"`, from the strength with which each agent is reached."""
    strength = strength.astype(unreached.dtype)
    # An agent reaches itself with strength 1 until the episode ends.
    running = jnp.diagonal(strength, axis1=-2, axis2=-1)[..., None]
    weight = (1 - unreached) * strength + unreached * running
    return _mean_weights(weight, ~jnp.eye(strength.shape[-1], dtype=bool))


def _rounded(unreached_weight, dtype):
    """The unreached weight, rounded as 1 - (1 - weight): 0.05 becomes the 1 - lambda of the paper's
    runs exactly."""
    return 1 - jnp.asarray(1 - unreached_weight, dtype)


def _plain_credit(steps, gamma, lambda_):
    """TD errors and GAE of each agent, and gamma and lambda in the dtype of the rewards."""
    gamma, lambda_ = (jnp.asarray(number, steps.reward.dtype) for number in (gamma, lambda_))
    delta = td_errors(steps, gamma)
    return delta, discounted_sums(delta, steps.continues, gamma * lambda_), gamma, lambda_


def _pair_summands(credit, own, start, unreached, baseline, cross_weight):
    """What each target i adds to the advantage of j: its own GAE on the diagonal, weighted credit
    elsewhere. start: the tail at lag 0, with the weight `unreached`."""
    credit = (1 - unreached) * credit + unreached * start[..., None, :]
    if baseline is not None:
        credit = credit - baseline
    cross = jnp.asarray(cross_weight, credit.dtype) * credit
    return jnp.where(jnp.eye(credit.shape[-1], dtype=bool), own[..., None, :], cross)


def path_sums(signal, now, edges, continues, decay, product, weigh=None):
    """Entry [t0, j, i]: sum over t >= t0 of decay^(t-t0) * w * signal[t, i], where w is the
    strength with which paths from (t0, j) meet i at t.

    One forward pass for all starts: `reached[t0, j, k]` is the strength with which (t0, j) has
    reached k before t, and w its product with now[t]. weigh: maps strengths to weights."""
    n_steps = signal.shape[0]
    starts = jnp.arange(n_steps).reshape(-1, *(1,) * (edges.ndim - 1))
    loops = jnp.eye(edges.shape[-1], dtype=edges.dtype)

    def step(carry, inputs):
        reached, total = carry
        t, signal_t, now_t, edges_t, goes_on = inputs
        reached = jnp.where(starts == t, loops, reached)
        strength = product(reached, now_t[None])
        weight = (weigh(strength) if weigh else strength) * decay ** jnp.maximum(t - starts, 0)
        total = total + jnp.where(weight > 0, weight * signal_t[..., None, :], 0)
        reached = jnp.where(
            goes_on[..., None, None], product(reached, edges_t[None]), jnp.zeros_like(reached)
        )
        return (reached, total), None

    carry = (jnp.zeros_like(edges), jnp.zeros(edges.shape, signal.dtype))
    return lax.scan(step, carry, (jnp.arange(n_steps), signal, now, edges, continues))[0][1]


def _require_agents(graph: Array, reward: Array, name: str) -> Array:
    expected = (*reward.shape, graph.shape[-1] if is_lists(graph) else reward.shape[-1])
    if graph.shape != expected:
        raise ValueError(
            f"{name} must have the shape {expected} for rewards of shape {reward.shape}, got "
            f"{graph.shape}"
        )
    return graph


def _check_cross_weight(cross_weight: Any, expected: tuple[int, ...]) -> None:
    shape, pairs = jnp.shape(cross_weight), expected[1:]
    broadcasts = len(shape) <= len(pairs) and all(
        n in (1, m) for n, m in zip(shape[::-1], pairs[::-1], strict=False)
    )
    if shape != expected and not broadcasts:
        raise ValueError(
            f"cross_weight must be a scalar, broadcast to {pairs} or have the shape "
            f"{expected}, got {shape}"
        )


def _check_others(others: str, form: str) -> None:
    if others not in ("sum", "mean"):
        raise ValueError(f"others must be 'sum' or 'mean', got {others!r}")
    if others == "mean" and form != "td":
        raise ValueError("others='mean' averages TD errors: it needs advantage_form='td'")


def _check_options(
    form: str, pair_baseline: Any, reward_graph: Any, cross_weight: Any, pairs: tuple[int, ...]
) -> None:
    """pairs: the shape [T, ..., N, N] of one entry per step and pair."""
    if form not in ("td", "return"):
        raise ValueError(f"advantage_form must be 'td' or 'return', got {form!r}")
    if pair_baseline is not None and form != "return":
        raise ValueError(
            "pair_baseline is for advantage_form='return'; the TD errors of the 'td' form contain "
            "their baseline"
        )
    if pair_baseline is not None and jnp.shape(pair_baseline) != pairs:
        raise ValueError(
            f"pair_baseline must have the shape {pairs} of the graph, got "
            f"{jnp.shape(pair_baseline)}"
        )
    _check_cross_weight(cross_weight, pairs)
    if reward_graph is None:
        return
    shape, dtype = jnp.shape(reward_graph), jnp.asarray(reward_graph).dtype
    if dtype != jnp.bool_:
        raise ValueError(f"reward_graph must be Boolean, got {dtype}")
    if shape not in (pairs, pairs[1:], pairs[-2:]):
        raise ValueError(
            f"reward_graph must have the shape {pairs[-2:]}, {pairs[1:]} or {pairs}, got {shape}"
        )
    if form == "return" and len(shape) == len(pairs):
        raise ValueError(
            "advantage_form='return' needs a reward_graph that is constant in time: its credit "
            "starts once and does not stop"
        )
