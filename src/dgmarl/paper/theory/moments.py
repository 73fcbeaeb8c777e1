"""Second moments E ||g||^2 of the two single-trajectory estimators, and their bounds: the paper's
and corrected ones.

The estimator of source j is g_j = sum_t grad log pi_j(a_t^j | s_t^j) sum_i sum_{k >= t + T_ji}
gamma^k r_k^i (equation grad_graph with one discount, as in the paper's proof); the standard one
(equation gpomdp) has T_ji = 0 throughout."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from numpy.random import Generator

from dgmarl.paper.theory.networked_mdp import Array, softmax
from dgmarl.paper.theory.voter import VoterNetwork, sample_voter


def horizon_for(gamma: float, tolerance: float = 1e-4) -> int:
    """Number of steps H after which gamma^H is below `tolerance`."""
    return int(np.ceil(np.log(tolerance) / np.log(gamma)))


def fixed_graph_credit(
    rewards: Float[Array, "H *B N"], lags: Float[Array, "N N"], gamma: float
) -> Float[Array, "H *B N"]:
    """C[t, j] = sum_i sum_{k = t + T_ji}^{H-1} gamma^k r_k^i on a fixed graph, as one shifted tail
    sum per distinct lag."""
    n_steps = len(rewards)
    discounted = rewards * gamma ** np.arange(n_steps).reshape(-1, *[1] * (rewards.ndim - 1))
    tails = np.cumsum(discounted[::-1], axis=0)[::-1]
    credited = np.zeros_like(tails)
    for lag in np.unique(lags[lags < n_steps]).astype(int):
        credited[: n_steps - lag] += tails[lag:] @ (lags == lag).T.astype(rewards.dtype)
    return credited


def trajectory_gradients(
    voter: VoterNetwork,
    lags: Float[Array, "N N"],
    states: Int[Array, "H *B N"],
    actions: Int[Array, "H *B N"],
    policy: Float[Array, "*P N 2 2"],
) -> Float[Array, "*B N 2 2"]:
    """g_j[x, a] = sum_t (1(a_t = a) - pi_j(a | x)) 1(s_t = x) C[t, j] for each trajectory; `policy`
    must broadcast to `[*B, N, 2, 2]`."""
    rewards = voter.reward[np.arange(voter.n_agents), states, actions]
    credited = fixed_graph_credit(rewards, lags, voter.gamma)
    gradients = []
    for x in (0, 1):
        here = np.where(states == x, credited, 0)
        total, one = here.sum(axis=0), np.where(actions == 1, here, 0).sum(axis=0)
        along = one - policy[..., x, 1] * total
        gradients.append(np.stack([-along, along], axis=-1))
    return np.stack(gradients, axis=-2)


@dataclass(frozen=True)
class SecondMoment:
    """E ||g||^2 of both estimators and its bounds, for one graph and size."""

    topology: str
    n_agents: int
    graph: float
    """Measured E ||g(tau, G)||^2, dependence-graph estimator, random rewards."""
    graph_error: float
    """Its standard error."""
    standard: float
    """Measured E ||g(tau)||^2, standard estimator, random rewards."""
    standard_error: float
    constant_graph: float
    """Exact E ||g(tau, G)||^2 with every reward equal to R = 1."""
    constant_standard: float
    paper_graph_bound: float
    """R^2 G^2 Gamma / (1 - gamma)^3."""
    paper_standard_bound: float
    """R^2 G^2 N^2 / (1 - gamma)^3."""
    proved_graph_bound: float
    """R^2 G^2 sum_j (sum_i sqrt(Gamma_j^i))^2 / (1 - gamma)^3, by Minkowski's inequality."""
    proved_standard_bound: float
    """The same with Gamma_j^i = 1: R^2 G^2 N^3 / (1 - gamma)^3."""
    gamma_total: float
    """Gamma."""
    gamma_max: float
    """max_j Gamma_j."""


def constant_reward_moment(
    lags: Float[Array, "N N"], gamma: float, n_steps: int, score_variance: float
) -> float:
    """Exact E ||g||^2 if every reward is 1: sum_{t,j} G^2 C[t, j]^2, since scores of different
    steps are orthogonal."""
    credited = fixed_graph_credit(np.ones((n_steps, len(lags))), lags, gamma)
    return float(score_variance * (credited**2).sum())


def pair_bound(pairs: Float[Array, "N N"], gamma: float, score_variance: float) -> float:
    """R^2 G^2 sum_j (sum_i sqrt(Gamma_j^i))^2 / (1 - gamma)^3."""
    return float(score_variance * (np.sqrt(pairs).sum(axis=1) ** 2).sum() / (1 - gamma) ** 3)


def measure_second_moment(
    rng: Generator, voter: VoterNetwork, name: str, n_trajectories: int, chunk: int = 500
) -> SecondMoment:
    """Measure both estimators on the same trajectories of uniform policies, for which G^2 = E
    ||grad log pi||^2 = 1/2 in every state."""
    logits = np.zeros((voter.n_agents, 2, 2))
    policy, n_steps, gamma = softmax(logits), horizon_for(voter.gamma), voter.gamma
    no_lags = np.zeros_like(voter.lags)
    squares: dict[str, list[Array]] = {"graph": [], "standard": []}
    for _ in range(n_trajectories // chunk):
        states, actions = sample_voter(rng, voter, logits, n_steps, chunk)
        for kind, lags in (("graph", voter.lags), ("standard", no_lags)):
            gradients = trajectory_gradients(voter, lags, states, actions, policy)
            squares[kind].append((gradients**2).sum(axis=(1, 2, 3)))
    moments = {kind: np.concatenate(parts) for kind, parts in squares.items()}
    pairs, score_variance = voter.gamma_matrix, 0.5
    unit = score_variance / (1 - gamma) ** 3
    return SecondMoment(
        topology=name,
        n_agents=voter.n_agents,
        graph=float(moments["graph"].mean()),
        graph_error=float(moments["graph"].std() / np.sqrt(len(moments["graph"]))),
        standard=float(moments["standard"].mean()),
        standard_error=float(moments["standard"].std() / np.sqrt(len(moments["standard"]))),
        constant_graph=constant_reward_moment(voter.lags, gamma, n_steps, score_variance),
        constant_standard=constant_reward_moment(no_lags, gamma, n_steps, score_variance),
        paper_graph_bound=unit * float(pairs.sum()),
        paper_standard_bound=unit * voter.n_agents**2,
        proved_graph_bound=pair_bound(pairs, gamma, score_variance),
        proved_standard_bound=pair_bound(np.ones_like(pairs), gamma, score_variance),
        gamma_total=float(pairs.sum()),
        gamma_max=float(pairs.sum(axis=1).max()),
    )


def growth_exponent(sizes: Float[Array, "K"], amounts: Float[Array, "K"]) -> float:
    """The slope of log amount over log size."""
    return float(np.polyfit(np.log(sizes), np.log(amounts), 1)[0])
