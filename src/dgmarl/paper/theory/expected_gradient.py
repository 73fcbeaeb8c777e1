"""Exact expected dependence-graph gradients, from the chain of joint states augmented with the set
of agents reached so far.

The set R_t of agents reached from (0, j) starts as {j} and follows R_{t+1} = {i : some k in R_t is
in Pa^i(s_t)}, so (s_t, R_t) is a Markov chain on S^N * 2^N states. Any credit that weights the
signal of agent i at step t by a function of (s_t, R_t) has an exact expectation: one linear system.
All sources j share the chain; only the initial set differs."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Bool, Float

from dgmarl.paper.theory.networked_mdp import (
    Array,
    Graph,
    Logits,
    NetworkedMDP,
    PairGradient,
    Signal,
    StateValues,
    gradient_from,
    joint_policy,
    state_chain,
    values,
    visits,
)

Weight = Callable[[Graph], Float[Array, "N joint sets"]]


def membership(n_agents: int) -> Bool[Array, "sets N"]:
    """All subsets of the agents as flags; set number f contains agent k iff bit k of f is one."""
    return (np.arange(2**n_agents)[:, None] >> np.arange(n_agents)) % 2 == 1


def reached_next(graph: Graph) -> Bool[Array, "joint sets N"]:
    """Agents reached one step after s, if the agents of a set were reached before."""
    return np.einsum("fk,ski->sfi", membership(graph.shape[1]).astype(int), graph.astype(int)) > 0


def reward_weight(reward_graph: Graph) -> Weight:
    """1(some reached k is a reward parent of i); the identity graph gives Proposition 1."""
    return lambda graph: reached_next(reward_graph).transpose(2, 0, 1).astype(float)


def td_weight(lambda_: float, *, weighted: bool) -> Weight:
    """Algorithm 1's weight of the TD error of i at t: 1(i is reached at t + 1), or, if `weighted`,
    lambda * reached + 1 - lambda."""

    def weigh(graph: Graph) -> Float[Array, "N joint sets"]:
        reached = reached_next(graph).transpose(2, 0, 1).astype(float)
        return lambda_ * reached + 1 - lambda_ if weighted else reached

    return weigh


def text_td_weight(graph: Graph) -> Float[Array, "N joint sets"]:
    """The weight in the text above Algorithm 1, one hop shorter: 1(i is reached at t)."""
    reached = membership(graph.shape[1]).T.astype(float)
    return np.repeat(reached[:, None], len(graph), axis=1)


def meeting_weight(graph: Graph) -> Float[Array, "N joint sets"]:
    """1 only at the meeting step M: i is not reached at M, but at M + 1."""
    before = membership(graph.shape[1]).T[:, None]
    return (reached_next(graph).transpose(2, 0, 1) & ~before).astype(float)


def credited_values(
    mdp: NetworkedMDP, logits: Logits, graph: Graph, signal: Signal, weight: Weight, discount: float
) -> Float[Array, "N N joint joint_action"]:
    """E[ sum_t discount^t weight^i(s_t, R_t) signal^i(s_t, a_t) | s_0 = s, a_0 = a, R_0 = {j} ];
    axes source j, target i, s, a."""
    policy, chain = joint_policy(mdp, logits), state_chain(mdp, logits)
    weights = weight(graph)
    following = reached_next(graph) @ (1 << np.arange(mdp.n_agents))  # [s, set]: number of R_{t+1}
    credit = weights * np.einsum("sa,isa->is", policy, signal)[:, :, None]
    later = np.zeros_like(credit)
    for reached in reversed(range(credit.shape[2])):
        # With self-loops sets only grow, and a larger set has a larger number, so the next set is
        # either solved already or this one.
        after = following[:, reached]
        following_credit = np.einsum("st,its->is", chain, later[:, :, after])
        known = credit[:, :, reached] + discount * following_credit
        stays = discount * chain * (after == reached)[:, None]
        later[:, :, reached] = np.linalg.solve(np.eye(len(chain)) - stays, known.T).T
    by_source = []
    for j in range(mdp.n_agents):
        first = 1 << j
        # [i, s', s]: value at s' with the set that follows s
        arrived = later[:, :, following[:, first]]
        by_source.append(
            weights[:, :, first, None] * signal
            + discount * np.einsum("sat,its->isa", mdp.kernel, arrived)
        )
    return np.stack(by_source)


def dependence_graph_gradient(
    mdp: NetworkedMDP,
    logits: Logits,
    graph: Graph | None = None,
    reward_graph: Graph | None = None,
    start_discount: float | None = None,
) -> PairGradient:
    """Proposition 1 and Proposition with reward graphs (appendix); graphs default to the true ones.

    `start_discount` = gamma^2 is equation grad_graph as printed, with gamma^t before the score and
    gamma^k before the reward."""
    graph = mdp.graph if graph is None else graph
    reward_graph = mdp.reward_graph if reward_graph is None else reward_graph
    signal = credited_values(mdp, logits, graph, mdp.reward, reward_weight(reward_graph), mdp.gamma)
    return gradient_from(mdp, logits, signal, start_discount)


def own_state_critic(mdp: NetworkedMDP, logits: Logits) -> StateValues:
    """Best critic of s^i alone: V^i averaged over the other agents by discounted visits."""
    exact, weight = values(mdp, logits), visits(mdp, logits)
    critic = np.empty_like(exact)
    for i in range(mdp.n_agents):
        own = np.eye(mdp.n_states)[mdp.states[:, i]]
        critic[i] = own @ ((exact[i] * weight) @ own / (weight @ own))
    return critic


def td_errors(mdp: NetworkedMDP, critic: StateValues) -> Signal:
    """E[ r^i_t + gamma V^i(s_{t+1}) - V^i(s_t) | s_t, a_t ]."""
    return (
        mdp.reward + mdp.gamma * np.einsum("sat,it->isa", mdp.kernel, critic) - critic[:, :, None]
    )


def td_form_gradient(
    mdp: NetworkedMDP,
    logits: Logits,
    critic: StateValues,
    lambda_: float = 1.0,
    weight: Weight | None = None,
) -> PairGradient:
    """Algorithm 1 (`td` form): GAE over the TD errors of i after the meeting step."""
    weight = td_weight(lambda_, weighted=False) if weight is None else weight
    signal = credited_values(
        mdp, logits, mdp.graph, td_errors(mdp, critic), weight, mdp.gamma * lambda_
    )
    return gradient_from(mdp, logits, signal)


def lambda_advantage(
    mdp: NetworkedMDP, logits: Logits, critic: StateValues, lambda_: float
) -> Signal:
    """E[ GAE^i_t | s_t, a_t ] without a graph."""
    delta, decay = td_errors(mdp, critic), mdp.gamma * lambda_
    mean = np.einsum("sa,isa->si", joint_policy(mdp, logits), delta)
    later = np.linalg.solve(np.eye(len(mdp.states)) - decay * state_chain(mdp, logits), mean)
    return delta + decay * np.einsum("sat,ti->isa", mdp.kernel, later)


def return_form_gradient(
    mdp: NetworkedMDP, logits: Logits, critic: StateValues, lambda_: float = 1.0
) -> PairGradient:
    """The `return` form: GAE^j + sum_{i != j} gamma^(M - t) (GAE^i[M] + V^i[M]), without the pair
    baseline, which does not change the expectation."""
    own = lambda_advantage(mdp, logits, critic, lambda_)
    lambda_return = own + critic[:, :, None]
    signal = credited_values(mdp, logits, mdp.graph, lambda_return, meeting_weight, mdp.gamma)
    agents = np.arange(mdp.n_agents)
    signal[agents, agents] = own
    return gradient_from(mdp, logits, signal)


def ungraphed_gae_gradient(
    mdp: NetworkedMDP, logits: Logits, critic: StateValues, lambda_: float
) -> PairGradient:
    """Ordinary GAE of every target with the same critic, for comparison if lambda < 1."""
    signal = lambda_advantage(mdp, logits, critic, lambda_)
    return gradient_from(mdp, logits, [signal] * mdp.n_agents)


def relative_error(measured: Float[Array, "..."], truth: Float[Array, "..."]) -> float:
    """Norm of the difference relative to the norm of `truth`."""
    return float(np.linalg.norm(measured - truth) / np.linalg.norm(truth))
