"""Tabular networked MDPs (section 2 of the paper): random instances, and exact values and policy
gradients in float64.

A joint state is one integer in `range(S**N)`; `digits` lists its N local states (agent 0 is the
most significant). Graphs are Boolean arrays over joint states: `graph[s, k, i]` is true if k is in
Pa^i(s). Row = source, column = target, with self-loops. Proposition 1 requires graphs in which
column i depends on s^i alone (`own_state_graph`)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy.random import Generator

Array = np.ndarray
Graph = Bool[Array, "joint N N"]
"""Parent sets in every joint state."""
Logits = Float[Array, "N S A"]
"""Logits of softmax policies on local states."""
LocalKernel = Float[Array, "N joint joint_action S"]
Signal = Float[Array, "N joint joint_action"]
"""A reward, value or TD error of each target, for every joint state and action."""
StateValues = Float[Array, "N joint"]
PairGradient = Float[Array, "N N S A"]
"""grad_{theta_j} J^i: first axis source j, second axis target i."""


def digits(n_agents: int, n_values: int) -> Int[Array, "joint N"]:
    """All joint values of `n_agents` variables with `n_values` values, in order."""
    return np.indices((n_values,) * n_agents).reshape(n_agents, -1).T


def own_state_graph(rng: Generator, n_agents: int, n_states: int, edge_probability: float) -> Graph:
    """A random graph whose parent sets depend on the target's own state, as the paper assumes."""
    # [target, its local state, source]
    parents = rng.random((n_agents, n_states, n_agents)) < edge_probability
    states = digits(n_agents, n_states)
    columns = [parents[i, states[:, i]] for i in range(n_agents)]
    return np.stack(columns, axis=-1) | np.eye(n_agents, dtype=bool)


def joint_state_graph(
    rng: Generator, n_agents: int, n_states: int, edge_probability: float
) -> Graph:
    """A random graph whose parent sets depend on all states, which the paper does not allow."""
    drawn = rng.random((n_states**n_agents, n_agents, n_agents)) < edge_probability
    return drawn | np.eye(n_agents, dtype=bool)


def linked_graph(
    rng: Generator, n_agents: int, draw: Callable[..., Array] = own_state_graph
) -> Graph:
    """A random graph with at least one edge between different agents; two local states each."""
    while True:
        graph = draw(rng, n_agents, 2, 0.4)
        if (graph & ~np.eye(n_agents, dtype=bool)).any():
            return graph


def contact_graph(n_agents: int, n_states: int) -> Graph:
    """Two agents influence each other while they are in the same cell."""
    states = digits(n_agents, n_states)
    return states[:, :, None] == states[:, None, :]


def static_graph(edges: Bool[Array, "N N"], n_states: int) -> Graph:
    """The same graph in every state, with self-loops added."""
    looped = edges | np.eye(len(edges), dtype=bool)
    return np.repeat(looped[None], n_states ** len(edges), axis=0)


@dataclass(frozen=True)
class NetworkedMDP:
    """N agents with S local states and A actions, as tables over joint states and actions."""

    local_kernel: LocalKernel
    """P_i(s^i' | s, a); depends on the parents' entries of s and a only."""
    reward: Signal
    """r^i(s, a) in [0, 1]; depends on the reward parents' entries only (on (s^i, a^i) if the
    reward graph is the identity)."""
    start: Float[Array, "joint"]
    """Distribution of the initial joint state."""
    gamma: float
    """Discount factor."""
    graph: Graph
    """The true state-dependence graph."""
    reward_graph: Graph
    """The true reward-dependence graph."""

    @property
    def n_agents(self) -> int:
        """N."""
        return self.local_kernel.shape[0]

    @property
    def n_states(self) -> int:
        """Local states S of one agent."""
        return self.local_kernel.shape[3]

    @cached_property
    def n_actions(self) -> int:
        """Actions A of one agent."""
        return round(self.local_kernel.shape[2] ** (1 / self.n_agents))

    @cached_property
    def states(self) -> Int[Array, "joint N"]:
        """Local states of every joint state."""
        return digits(self.n_agents, self.n_states)

    @cached_property
    def actions(self) -> Int[Array, "joint_action N"]:
        """Local actions of every joint action."""
        return digits(self.n_agents, self.n_actions)

    @cached_property
    def kernel(self) -> Float[Array, "joint joint_action joint"]:
        """P(s' | s, a)."""
        return self.product(self.local_kernel)

    def product(self, local: LocalKernel) -> Float[Array, "joint joint_action joint"]:
        """Joint kernel of given local kernels."""
        return np.prod([local[i][:, :, self.states[:, i]] for i in range(self.n_agents)], axis=0)


def restrict(
    table: Float[Array, "joint joint_action *rest"], mask: Bool[Array, "joint N"]
) -> Float[Array, "joint joint_action *rest"]:
    """The table made independent of agents outside the mask: for agents k with `mask[s, k]` false,
    the entries of state 0 and action 0 are used."""
    n_agents = mask.shape[1]
    n_states, n_actions = (round(size ** (1 / n_agents)) for size in table.shape[:2])
    state_index = (digits(n_agents, n_states) * mask) @ (n_states ** np.arange(n_agents)[::-1])
    kept_actions = digits(n_agents, n_actions)[None] * mask[:, None]
    action_index = kept_actions @ (n_actions ** np.arange(n_agents)[::-1])
    return table[state_index[:, None], action_index]


def random_mdp(
    rng: Generator, graph: Graph, *, gamma: float = 0.9, reward_graph: Graph | None = None
) -> NetworkedMDP:
    """A networked MDP with two actions, random kernels that obey `graph` and rewards in [0, 1] that
    obey `reward_graph` (default: own reward)."""
    n_joint, n_agents, _ = graph.shape
    n_states = round(n_joint ** (1 / n_agents))
    if reward_graph is None:
        reward_graph = static_graph(np.zeros((n_agents, n_agents), bool), n_states)
    shape = (n_joint, 2**n_agents)
    kernels = rng.dirichlet(np.full(n_states, 0.7), size=(n_agents, *shape))
    rewards = rng.random((n_agents, *shape))
    return NetworkedMDP(
        local_kernel=np.stack([restrict(kernels[i], graph[:, :, i]) for i in range(n_agents)]),
        reward=np.stack([restrict(rewards[i], reward_graph[:, :, i]) for i in range(n_agents)]),
        start=rng.dirichlet(np.ones(n_joint)),
        gamma=gamma,
        graph=graph,
        reward_graph=reward_graph,
    )


def random_logits(rng: Generator, mdp: NetworkedMDP) -> Logits:
    """Logits of a random softmax policy per agent, on its own local state."""
    return rng.normal(size=(mdp.n_agents, mdp.n_states, mdp.n_actions))


def random_case(rng: Generator, graph: Graph, gamma: float = 0.9) -> tuple[NetworkedMDP, Logits]:
    """A random MDP on `graph` and random policies."""
    mdp = random_mdp(rng, graph, gamma=gamma)
    return mdp, random_logits(rng, mdp)


def softmax(logits: Float[Array, "*batch A"]) -> Float[Array, "*batch A"]:
    """pi(a | x) from logits."""
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def joint_policy(mdp: NetworkedMDP, logits: Logits) -> Float[Array, "joint joint_action"]:
    """pi(a | s) = prod_i pi_i(a^i | s^i)."""
    local = softmax(logits)
    agents = range(mdp.n_agents)
    return np.prod([local[i][mdp.states[:, i]][:, mdp.actions[:, i]] for i in agents], axis=0)


def state_chain(mdp: NetworkedMDP, logits: Logits) -> Float[Array, "joint joint"]:
    """P_pi(s' | s)."""
    return np.einsum("sa,sat->st", joint_policy(mdp, logits), mdp.kernel)


def visits(
    mdp: NetworkedMDP, logits: Logits, discount: float | None = None
) -> Float[Array, "joint"]:
    """sum_t discount^t P(s_t = s); with the default, gamma, the paper's rho / (1 - gamma)."""
    discount = mdp.gamma if discount is None else discount
    system = np.eye(len(mdp.states)) - discount * state_chain(mdp, logits).T
    return np.linalg.solve(system, mdp.start)


def values(mdp: NetworkedMDP, logits: Logits) -> StateValues:
    """Exact V^i(s)."""
    expected_reward = np.einsum("sa,isa->si", joint_policy(mdp, logits), mdp.reward)
    system = np.eye(len(mdp.states)) - mdp.gamma * state_chain(mdp, logits)
    return np.linalg.solve(system, expected_reward).T


def action_values(mdp: NetworkedMDP, logits: Logits) -> Signal:
    """Exact Q^i(s, a)."""
    return mdp.reward + mdp.gamma * np.einsum("sat,it->isa", mdp.kernel, values(mdp, logits))


def score_average(
    mdp: NetworkedMDP, logits: Logits, agent: int, signal: Signal, weight: Float[Array, "joint"]
) -> Float[Array, "N S A"]:
    """sum_s weight(s) E_{a ~ pi}[ grad log pi_j(a^j | s^j) signal^i(s, a) ] for source j = `agent`
    and every target i."""
    weighted = weight[:, None] * joint_policy(mdp, logits) * signal
    state_is = np.eye(mdp.n_states)[mdp.states[:, agent]]
    action_is = np.eye(mdp.n_actions)[mdp.actions[:, agent]]
    by_action = np.einsum("isa,sx,ab->ixb", weighted, state_is, action_is)
    return by_action - softmax(logits)[agent] * by_action.sum(axis=-1, keepdims=True)


def agent_scores(
    mdp: NetworkedMDP, logits: Logits, agent: int
) -> Float[Array, "joint joint_action S A"]:
    """grad_{theta_j} log pi_j(a^j | s^j) for every joint state and action."""
    state_is = np.eye(mdp.n_states)[mdp.states[:, agent]]
    action_is = np.eye(mdp.n_actions)[mdp.actions[:, agent]]
    local = action_is[None] - softmax(logits)[agent][mdp.states[:, agent]][:, None]
    return state_is[:, None, :, None] * local[:, :, None, :]


def gradient_from(
    mdp: NetworkedMDP,
    logits: Logits,
    signal: Sequence[Signal] | Float[Array, "N N joint joint_action"],
    start_discount: float | None = None,
) -> PairGradient:
    """sum_t start_discount^t E[ grad log pi_j(a_t^j | s_t^j) signal^{ji}(s_t, a_t) ] for every
    source j and target i."""
    weight = visits(mdp, logits, start_discount)
    return np.stack([score_average(mdp, logits, j, signal[j], weight) for j in range(mdp.n_agents)])


def exact_gradient(mdp: NetworkedMDP, logits: Logits) -> PairGradient:
    """grad_{theta_j} J^i (equation cross-grad)."""
    return gradient_from(mdp, logits, [action_values(mdp, logits)] * mdp.n_agents)


def exact_hessian(mdp: NetworkedMDP, logits: Logits, step: float = 1e-5) -> Float[Array, "D D"]:
    """Hessian of sum_i J^i over all logits, by central differences, accurate to about 1e-9."""
    columns = []
    for shift in step * np.eye(logits.size).reshape(-1, *logits.shape):
        difference = exact_gradient(mdp, logits + shift) - exact_gradient(mdp, logits - shift)
        columns.append(difference.sum(axis=1).ravel() / (2 * step))
    return np.stack(columns, axis=1)
