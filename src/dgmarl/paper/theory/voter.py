"""Voter networks: networked MDPs on a fixed graph whose exact gradient is the solution of a linear
system of size 2N.

Every agent has two local states and two actions. Agent i listens to one parent k, drawn with
probability `listen[k, i]`, and its next state is 1 with probability `up[k, s^k, a^k]`. Marginals of
single agents then follow a linear recursion, so exact returns and gradients need no joint states,
and growth with N can be compared with exact values up to large N."""

from dataclasses import dataclass
from functools import cached_property

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int
from numpy.random import Generator

from dgmarl.graphs.reach import NEVER, meeting_times, reward_lags
from dgmarl.paper.theory.networked_mdp import Array, softmax

TOPOLOGIES = ("disconnected", "chain", "star", "ring", "complete")


def topology(name: str, n_agents: int) -> Bool[Array, "N N"]:
    """A named graph, row = source, with self-loops; in the star all agents reach agent 0."""
    loops = np.eye(n_agents, dtype=bool)
    edges = {
        "disconnected": loops,
        "chain": loops | np.eye(n_agents, k=1, dtype=bool),
        "star": loops | (np.arange(n_agents) == 0)[None],
        "ring": loops | np.roll(loops, 1, axis=1),
        "complete": np.ones_like(loops),
    }
    return edges[name]


def fixed_graph_lags(edges: Bool[Array, "N N"]) -> Float[Array, "N N"]:
    """The paper's T_ji on a fixed graph: hops from j to i, infinite without a path."""
    n_agents = len(edges)
    repeated = jnp.repeat(jnp.asarray(edges)[None], n_agents, axis=0)
    lags = np.asarray(reward_lags(meeting_times(repeated, jnp.zeros(n_agents, bool))))[0]
    return np.where(lags < NEVER, lags, np.inf)


@dataclass(frozen=True)
class VoterNetwork:
    """N two-state agents on a fixed graph."""

    edges: Bool[Array, "N N"]
    """Who can reach whom in one step, with self-loops."""
    up: Float[Array, "N 2 2"]
    """up[k, x, a]: probability that an agent listening to k moves to state 1 if k is in state x and
    takes action a."""
    reward: Float[Array, "N 2 2"]
    """r^i(s^i, a^i) in [0, 1]."""
    gamma: float
    """Discount factor. Every agent starts in state 0 or 1 with equal probability."""

    @property
    def n_agents(self) -> int:
        """N."""
        return len(self.edges)

    @cached_property
    def listen(self) -> Float[Array, "N N"]:
        """Probability that target i listens to source k: uniform over its parents."""
        return self.edges / self.edges.sum(axis=0, keepdims=True)

    @cached_property
    def lags(self) -> Float[Array, "N N"]:
        """T_ji."""
        return fixed_graph_lags(self.edges)

    @cached_property
    def gamma_matrix(self) -> Float[Array, "N N"]:
        """Gamma_j^i = gamma^T_ji; exact, since on a fixed graph the meeting time does not depend on
        the policy."""
        return self.gamma**self.lags


def random_voter(rng: Generator, edges: Bool[Array, "N N"], gamma: float) -> VoterNetwork:
    """Random influences and random rewards in [0, 1]."""
    shape = (len(edges), 2, 2)
    return VoterNetwork(edges, rng.uniform(0.05, 0.95, shape), rng.random(shape), gamma)


def plain_voter(edges: Bool[Array, "N N"], gamma: float) -> VoterNetwork:
    """Identical agents: action a leads to state a with probability 0.9, state 1 has reward 1."""
    n_agents = len(edges)
    up = np.broadcast_to(np.array([0.1, 0.9]), (n_agents, 2, 2))
    reward = np.broadcast_to(np.array([[0.0], [1.0]]), (n_agents, 2, 2))
    return VoterNetwork(edges, up, reward, gamma)


def _system(
    voter: VoterNetwork, policy: Float[Array, "*runs N 2 2"]
) -> Float[Array, "*runs 2N 2N"]:
    """I - gamma M, where M[(k, x), (i, y)] is the contribution of (k, x) to the next (i, y)."""
    to_one = (policy * voter.up).sum(axis=-1)
    law = np.stack([1 - to_one, to_one], axis=-1)  # [..., k, x, y]
    size = 2 * voter.n_agents
    feeds = np.einsum("ki,...kxy->...kxiy", voter.listen, law).reshape(*law.shape[:-3], size, size)
    return np.eye(size) - voter.gamma * feeds


def _solve(
    system: Float[Array, "*runs 2N 2N"], right: Float[Array, "*runs N 2"]
) -> Float[Array, "*runs N 2"]:
    flat = right.reshape(*right.shape[:-2], -1, 1)
    return np.linalg.solve(system, flat).reshape(right.shape)


def voter_gradient(
    voter: VoterNetwork, logits: Float[Array, "*runs N 2 2"]
) -> Float[Array, "*runs N 2 2"]:
    """Exact grad_{theta_j} sum_i J^i = d_j(x) pi_j(a|x) (q_j(x, a) - v_j(x)), with discounted
    visits d and values q, v of j's influence on all agents."""
    policy = softmax(logits)
    system = _system(voter, policy)
    values = _solve(system, (policy * voter.reward).sum(axis=-1))
    visits = _solve(np.swapaxes(system, -1, -2), np.full(values.shape, 0.5))
    influence = voter.listen @ values  # [..., k, y]: value of k's listeners in state y
    action_values = voter.reward + voter.gamma * (
        voter.up * influence[..., None, 1:] + (1 - voter.up) * influence[..., None, :1]
    )
    advantage = action_values - (policy * action_values).sum(axis=-1, keepdims=True)
    return visits[..., None] * policy * advantage


def sample_voter(
    rng: Generator,
    voter: VoterNetwork,
    logits: Float[Array, "*runs N 2 2"],
    n_steps: int,
    n_trajectories: int,
) -> tuple[Int[Array, "H *runs B N"], Int[Array, "H *runs B N"]]:
    """States and actions of independent trajectories; leading axes of `logits` are runs."""
    act_one = softmax(logits)[..., 1]  # [*runs, N, 2]
    act_one_in_0, act_one_in_1 = (act_one[..., None, :, x] for x in (0, 1))
    shape = (*logits.shape[:-3], n_trajectories, voter.n_agents)
    state, agents = (rng.random(shape) < 0.5).astype(np.int8), np.arange(voter.n_agents)
    states, actions = [], []
    for _ in range(n_steps):
        action = (rng.random(shape) < np.where(state == 1, act_one_in_1, act_one_in_0)).astype(
            np.int8
        )
        states.append(state)
        actions.append(action)
        state = (rng.random(shape) < voter.up[agents, state, action] @ voter.listen).astype(np.int8)
    return np.stack(states), np.stack(actions)
