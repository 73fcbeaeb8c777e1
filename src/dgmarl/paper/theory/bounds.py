"""Exact evaluation of the approximate-graph lemma, the mutual-information bound and single steps of
the paper's proofs.

A graph G' that lacks true edges is evaluated with kernels that obey it: `best_kernel`, the nearest
in the norm of the lemma (two local states, one target that lacks parents), and `marginal_kernel`,
the paper's P_G'."""

from itertools import product

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy.random import Generator

from dgmarl.paper.theory.expected_gradient import (
    credited_values,
    dependence_graph_gradient,
    meeting_weight,
    reward_weight,
)
from dgmarl.paper.theory.moments import fixed_graph_credit
from dgmarl.paper.theory.networked_mdp import (
    Array,
    Graph,
    LocalKernel,
    Logits,
    NetworkedMDP,
    agent_scores,
    exact_gradient,
    exact_hessian,
    joint_policy,
    softmax,
    visits,
)
from dgmarl.paper.theory.voter import VoterNetwork


def without_edge(rng: Generator, mdp: NetworkedMDP, graph: Graph | None = None) -> Graph | None:
    """The graph without one edge k -> i in one local state of i; None if no edge is left."""
    graph = (mdp.graph if graph is None else graph).copy()
    choices = [
        (k, i, x)
        for k, i, x in product(range(mdp.n_agents), range(mdp.n_agents), range(mdp.n_states))
        if k != i and graph[mdp.states[:, i] == x, k, i].any()
    ]
    if not choices:
        return None
    k, i, x = choices[rng.integers(len(choices))]
    graph[mdp.states[:, i] == x, k, i] = False
    return graph


def observation_groups(
    mdp: NetworkedMDP, mask: Bool[Array, "joint N"]
) -> Int[Array, "joint joint_action"]:
    """Group numbers: pairs (s, a) with equal states and actions of masked agents share a number."""
    seen_states = np.where(mask, mdp.states, -1)
    seen_actions = np.where(mask[:, None], mdp.actions[None], -1)
    n_joint, n_actions = len(mdp.states), len(mdp.actions)
    seen = np.concatenate(
        [np.repeat(seen_states[:, None], n_actions, axis=1), seen_actions], axis=-1
    )
    _, groups = np.unique(seen.reshape(n_joint * n_actions, -1), axis=0, return_inverse=True)
    return groups.reshape(n_joint, n_actions)


def marginal_kernel(mdp: NetworkedMDP, logits: Logits, graph: Graph) -> LocalKernel:
    """The paper's P^i_G': distribution of the next state given only the parents in `graph`, under
    the discounted visits of the policy."""
    weight = visits(mdp, logits)[:, None] * joint_policy(mdp, logits)
    return np.stack(
        [conditional_laws(mdp, weight, i, graph[:, :, i])[0] for i in range(mdp.n_agents)]
    )


def best_kernel(mdp: NetworkedMDP, graph: Graph) -> LocalKernel:
    """For S = 2: the local kernels on `graph` nearest to the true ones in sup norm, the middle of
    the range over the missing parents.

    If only one target lacks parents, the joint kernel is also the nearest one, since all other
    factors are equal."""
    kernels = []
    for i in range(mdp.n_agents):
        groups = observation_groups(mdp, graph[:, :, i]).ravel()
        up = mdp.local_kernel[i][..., 1].ravel()
        lowest, highest = np.full(groups.max() + 1, np.inf), np.full(groups.max() + 1, -np.inf)
        np.minimum.at(lowest, groups, up)
        np.maximum.at(highest, groups, up)
        middle = ((lowest + highest) / 2)[groups].reshape(mdp.local_kernel[i].shape[:2])
        kernels.append(np.stack([1 - middle, middle], axis=-1))
    return np.stack(kernels)


def kernel_distance(mdp: NetworkedMDP, local: LocalKernel) -> float:
    """epsilon = sup_{s,a} || P(. | s, a) - P'(. | s, a) ||_1."""
    return float(np.abs(mdp.kernel - mdp.product(local)).sum(axis=-1).max())


def score_bound(logits: Logits) -> Float[Array, "N"]:
    """B_j = sup || grad log pi_j(a | x) || for softmax policies: the largest norm of e_a - pi_j(. |
    x)."""
    policy = softmax(logits)
    scores = np.eye(policy.shape[-1])[None, None] - policy[:, :, None]
    return np.linalg.norm(scores, axis=-1).max(axis=(1, 2))


def graph_lemma(mdp: NetworkedMDP, logits: Logits, graph: Graph) -> tuple[float, float, float]:
    """Gradient error, epsilon, and B_j gamma epsilon R / (1-gamma)^2 (a third of the proof's bound)
    for the worst pair (j, i)."""
    error = np.linalg.norm(
        exact_gradient(mdp, logits) - dependence_graph_gradient(mdp, logits, graph), axis=(2, 3)
    )
    # The lemma should hold for any kernel on the graph; the nearer of two is the stricter test.
    candidates = (best_kernel(mdp, graph), marginal_kernel(mdp, logits, graph))
    epsilon = min(kernel_distance(mdp, local) for local in candidates)
    unit = score_bound(logits)[:, None] * mdp.gamma * epsilon / (1 - mdp.gamma) ** 2
    worst = np.unravel_index(np.argmax(error / unit), error.shape)
    return float(error[worst]), epsilon, float(unit[worst[0], 0])


def long_memory_ratio(gamma: float, reach: int = 400) -> float:
    """Gradient error over B gamma epsilon R / (1-gamma)^2 for an agent with a long memory: a family
    in which the lemma's power of 1-gamma is too small.

    Agent j walks on -reach..reach, one step up or down per action, with one logit shared by all
    states (so B = 1/2). Agent i copies 1(s^j > 0) with a vanishing probability epsilon per step,
    otherwise keeps its state, and its reward is its state. Removing the edge j -> i
    drops all of grad_j J^i = gamma epsilon / (1 - gamma (1 - epsilon)) * d/dtheta sum_t gamma^t
    P(s^j_t > 0); the returned limit for epsilon -> 0 grows like (1-gamma)^(-1/2)."""
    size = 2 * reach + 1
    up, down = np.eye(size, k=1), np.eye(size, k=-1)
    up[-1, -1] = down[0, 0] = 1
    system = np.eye(size) - gamma * (up + down) / 2
    positive = (np.arange(size) > reach).astype(float)
    visits_from_middle = np.linalg.solve(system.T, (np.arange(size) == reach).astype(float))
    values_of_positive = np.linalg.solve(system, positive)
    # d/dtheta of the transition matrix at theta = 0 is (up - down) / 4, since pi (1 - pi) = 1/4.
    slope = gamma * visits_from_middle @ ((up - down) / 4) @ values_of_positive
    score_size = 0.5
    return float(slope * (1 - gamma) / score_size)


def recursion_gap(mdp: NetworkedMDP, logits: Logits) -> float:
    """Error of the recursion in the bound on T_2, Q^{ij}(s,a) = E[gamma Q^{ij}(s_1,a_1) + gamma^t'
    r^i_t'] for i != j: largest difference relative to the largest Q^{ij}.

    The recursion ignores that j can have reached i from step 0 several steps before it does so from
    step 1."""
    policy = joint_policy(mdp, logits)
    truncated = credited_values(
        mdp, logits, mdp.graph, mdp.reward, reward_weight(mdp.reward_graph), mdp.gamma
    )
    next_reward = mdp.gamma * np.einsum("sat,tb,itb->isa", mdp.kernel, policy, mdp.reward)
    at_meeting = credited_values(mdp, logits, mdp.graph, next_reward, meeting_weight, mdp.gamma)
    restarted = mdp.gamma * np.einsum("sat,tb,jitb->jisa", mdp.kernel, policy, truncated)
    others = ~np.eye(mdp.n_agents, dtype=bool)
    return float(np.abs(restarted + at_meeting - truncated)[others].max() / truncated[others].max())


def conditional_laws(
    mdp: NetworkedMDP,
    weight: Float[Array, "joint joint_action"],
    target: int,
    mask: Bool[Array, "joint N"],
) -> tuple[Float[Array, "joint joint_action S"], Int[Array, "joint joint_action"]]:
    """P(s^i' | states and actions of the masked agents) at every (s, a), and the group numbers of
    `observation_groups`."""
    groups = observation_groups(mdp, mask)
    flat_groups, flat_weight = groups.ravel(), weight.ravel()
    kernel = mdp.local_kernel[target].reshape(len(flat_groups), -1)
    mass = np.bincount(flat_groups, flat_weight)
    sums = np.stack(
        [np.bincount(flat_groups, flat_weight * column) for column in kernel.T], axis=-1
    )
    return (sums / mass[:, None])[flat_groups].reshape(mdp.local_kernel[target].shape), groups


def root_information(
    mdp: NetworkedMDP,
    weight: Float[Array, "joint joint_action"],
    target: int,
    source: int,
    mask: Bool[Array, "joint N"],
) -> float:
    """E[ sqrt( I(S^i'; (S^j, A^j) | states and actions of the masked agents) ) ] in nats."""
    coarse, groups = conditional_laws(mdp, weight, target, mask)
    seen = mask.copy()
    seen[:, source] = True
    fine, _ = conditional_laws(mdp, weight, target, seen)
    divergence = np.where(fine > 0, fine * np.log(np.where(fine > 0, fine, 1) / coarse), 0).sum(
        axis=-1
    )
    mass = np.bincount(groups.ravel(), weight.ravel())
    information = np.bincount(groups.ravel(), (weight * divergence).ravel()) / mass
    return float(mass @ np.sqrt(np.maximum(information, 0)))


def bridge(
    true: Bool[Array, "joint N"], approximate: Bool[Array, "joint N"]
) -> list[Bool[Array, "joint N"]]:
    """The sets of the bound: the intersection of Pa and Pa_G', then one more missing parent in each
    set, up to Pa_N = Pa."""
    sets = [true & approximate]
    while len(sets) < true.shape[1]:
        missing = true & ~sets[-1]
        first_missing = missing & (np.cumsum(missing, axis=1) == 1)
        sets.append(sets[-1] | first_missing)
    return sets


def information_bound(mdp: NetworkedMDP, logits: Logits, graph: Graph) -> Float[Array, "N 2"]:
    """E || P^i - P^i_G' ||_1 and its mutual-information bound for every target i."""
    weight = visits(mdp, logits)[:, None] * joint_policy(mdp, logits)
    weight = weight / weight.sum()
    distance = np.abs(mdp.local_kernel - marginal_kernel(mdp, logits, graph)).sum(axis=-1)
    pairs = []
    for i in range(mdp.n_agents):
        sets = bridge(mdp.graph[:, :, i], graph[:, :, i])
        total = sum(
            root_information(mdp, weight, i, j, mask) for mask in sets for j in range(mdp.n_agents)
        )
        pairs.append(((weight * distance[i]).sum(), np.sqrt(2) * total))
    return np.array(pairs)


def entropy_objective_gap(mdp: NetworkedMDP, logits: Logits) -> tuple[float, float]:
    """Both sides of equation objective for agents i = 0, j = 1: I(S^i'; A^j | S^i, A^i, S^j) and
    H(A^j|S^j) - H(A^j|S^i,S^j,S^i')."""
    weight = visits(mdp, logits)[:, None] * joint_policy(mdp, logits)
    joint = (weight / weight.sum())[:, :, None] * mdp.local_kernel[0]
    shape = (*[mdp.n_states] * mdp.n_agents, *[mdp.n_actions] * mdp.n_agents, mdp.n_states)
    others = tuple(range(2, mdp.n_agents)) + tuple(range(mdp.n_agents + 2, 2 * mdp.n_agents))
    table = joint.reshape(shape).sum(axis=others)  # [S^i, S^j, A^i, A^j, S^i']
    information = (
        _entropy(table, (0, 1, 2, 3))
        + _entropy(table, (0, 1, 2, 4))
        - _entropy(table, (0, 1, 2))
        - _entropy(table)
    )
    action_entropy = _entropy(table, (1, 3)) - _entropy(table, (1,))
    reverse_entropy = _entropy(table, (0, 1, 3, 4)) - _entropy(table, (0, 1, 4))
    return float(information), float(action_entropy - reverse_entropy)


def _entropy(table: Float[Array, "..."], keep: tuple[int, ...] = (0, 1, 2, 3, 4)) -> float:
    marginal = table.sum(axis=tuple(axis for axis in range(table.ndim) if axis not in keep))
    positive = marginal[marginal > 0]
    return float(-(positive * np.log(positive)).sum())


def score_given_next_state(mdp: NetworkedMDP, logits: Logits, agent: int) -> float:
    """E || E[ grad log pi_j(a_0^j | s_0^j) | s_0, s_1 ] || over E || grad log pi_j ||.

    The proofs of lemmas num2 and block_diag assume zero; it is positive, because the next state
    reveals which action was taken."""
    scores, policy = agent_scores(mdp, logits, agent), joint_policy(mdp, logits)
    joint = mdp.start[:, None] * policy
    posterior = np.einsum("sa,sat,saxb->stxb", joint, mdp.kernel, scores)
    return float(
        np.linalg.norm(posterior, axis=(2, 3)).sum()
        / (joint * np.linalg.norm(scores, axis=(2, 3))).sum()
    )


def cross_term(mdp: NetworkedMDP, logits: Logits) -> float:
    """The largest | E[ <score_0, score_1> 1(1 <= K_ji(3)) ] | over j, i, relative to E || score
    ||^2: zero if lemma num2 holds at t = 3."""
    policy = joint_policy(mdp, logits)
    two_steps = np.einsum("sjk,tki->stji", mdp.graph.astype(int), mdp.graph.astype(int)) > 0
    first, largest = mdp.start[:, None] * policy, 0.0
    for j in range(mdp.n_agents):
        scores = agent_scores(mdp, logits, j)
        earlier = np.einsum("sa,sat,saxb->txb", first, mdp.kernel, scores)
        later = np.einsum(
            "sa,sat,sti,saxb->sixb", policy, mdp.kernel, two_steps[:, :, j].astype(float), scores
        )
        size = (first * (scores**2).sum(axis=(2, 3))).sum()
        largest = max(largest, float(np.abs(np.einsum("txb,tixb->i", earlier, later)).max() / size))
    return largest


def off_diagonal_share(mdp: NetworkedMDP, logits: Logits) -> float:
    """Frobenius norm of off-diagonal blocks over that of the Hessian; 0 by lemma block_diag."""
    hessian = exact_hessian(mdp, logits)
    size = mdp.n_states * mdp.n_actions
    same = np.kron(np.eye(mdp.n_agents), np.ones((size, size))) > 0
    return float(np.linalg.norm(hessian[~same]) / np.linalg.norm(hessian))


def smoothness_ratio(mdp: NetworkedMDP, logits: Logits, gamma_matrix: Float[Array, "N N"]) -> float:
    """|| Hessian || over the lemma's L = R max_j Gamma_j (G^2 + F) / (1-gamma)^2; at most 1 if the
    lemma's conclusion holds."""
    policy = softmax(logits)
    score_variance = (1 - (policy**2).sum(axis=-1)).max()
    slopes = policy[..., None] * (np.eye(mdp.n_actions) - policy[..., None, :])
    curvature = np.linalg.norm(slopes, 2, axis=(-2, -1)).max()
    bound = gamma_matrix.sum(axis=1).max() * (score_variance + curvature) / (1 - mdp.gamma) ** 2
    return float(np.linalg.norm(exact_hessian(mdp, logits), 2) / bound)


def sum_of_squares_ratio(voter: VoterNetwork, n_steps: int) -> float:
    """E || sum_i g_j^i ||^2 over sum_i E || g_j^i ||^2, summed over j, with all rewards 1; the
    proof assumes that it is at most 1."""
    ones = np.ones((n_steps, voter.n_agents))
    together = (fixed_graph_credit(ones, voter.lags, voter.gamma) ** 2).sum()
    apart = 0.0
    for i in range(voter.n_agents):
        only_i = np.where(np.arange(voter.n_agents) == i, voter.lags, np.inf)
        apart += (fixed_graph_credit(ones, only_i, voter.gamma) ** 2).sum()
    return float(together / apart)
