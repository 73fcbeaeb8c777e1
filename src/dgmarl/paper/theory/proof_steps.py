"""Exact evaluation of single proof steps of the paper's appendix."""

import numpy as np
from jaxtyping import Float

from dgmarl.paper.theory.moments import fixed_graph_credit
from dgmarl.paper.theory.networked_mdp import (
    Array,
    Logits,
    NetworkedMDP,
    exact_hessian,
    joint_policy,
    softmax,
)
from dgmarl.paper.theory.voter import VoterNetwork


def agent_scores(
    mdp: NetworkedMDP, logits: Logits, agent: int
) -> Float[Array, "joint joint_action S A"]:
    """grad_{theta_j} log pi_j(a^j | s^j) for every joint state and action."""
    state_is = np.eye(mdp.n_states)[mdp.states[:, agent]]
    action_is = np.eye(mdp.n_actions)[mdp.actions[:, agent]]
    local = action_is[None] - softmax(logits)[agent][mdp.states[:, agent]][:, None]
    return state_is[:, None, :, None] * local[:, :, None, :]


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
