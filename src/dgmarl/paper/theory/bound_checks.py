"""Checks of bounds, and of steps in the proof of Theorem 1."""

import numpy as np
from jaxtyping import Float
from numpy.random import Generator

from dgmarl.paper.theory import bounds
from dgmarl.paper.theory import networked_mdp as nm
from dgmarl.paper.theory.networked_mdp import Array, linked_graph
from dgmarl.paper.theory.verdicts import EXACT, Claim, Section, Sizes, bound_claim, spread, summary
from dgmarl.paper.theory.voter import TOPOLOGIES, fixed_graph_lags, topology


def approximate_graph_section(rng: Generator, sizes: Sizes) -> Section:
    """Lemma graph-approx: gradient error against its bound, for graphs with edges removed."""
    discounts = (0.5, 0.9, 0.97, 0.99)
    rows, gaps, marginal = [], [], []
    for n in range(sizes.mdps):
        mdp, logits = nm.random_case(rng, linked_graph(rng, 3), discounts[n % len(discounts)])
        gaps.append(bounds.recursion_gap(mdp, logits))
        graph, removed = bounds.without_edge(rng, mdp), 1
        while graph is not None and removed <= 3:
            error, epsilon, unit = bounds.graph_lemma(mdp, logits, graph)
            rows.append((mdp.gamma, removed, error, epsilon, unit))
            if removed == 1:  # only one target differs, so epsilon is minimal
                marginal.append(
                    bounds.kernel_distance(mdp, bounds.marginal_kernel(mdp, logits, graph))
                    / epsilon
                )
            graph, removed = bounds.without_edge(rng, mdp, graph), removed + 1
    table = np.array(rows)
    memory_gammas = np.array([0.9, 0.97, 0.99, 0.995, 0.999])
    memory = np.array([bounds.long_memory_ratio(gamma) for gamma in memory_gammas])
    claims = [
        *_lemma_claims(table, memory_gammas, memory),
        *_lemma_step_claims(np.array(gaps), np.array(marginal)),
    ]
    data = {
        "cases": [
            dict(zip(("gamma", "removed", "error", "epsilon", "unit"), row, strict=True))
            for row in table.tolist()
        ],
        "memory": [
            {"gamma": g, "ratio": r}
            for g, r in zip(memory_gammas.tolist(), memory.tolist(), strict=True)
        ],
    }
    return Section("Approximate graphs", claims, data)


def _lemma_claims(
    table: Float[Array, "cases 5"], memory_gammas: Float[Array, "K"], memory: Float[Array, "K"]
) -> list[Claim]:
    """The lemma's bound as stated and with the power of 1 - gamma that can be proved."""
    where = "lemma graph-approx"
    return [
        bound_claim(
            "Gradient error under a graph that lacks edges, random MDPs",
            where,
            "error <= 3 B gamma epsilon R / (1-gamma)^2",
            table[:, 2] / table[:, 4] / 3,
            "epsilon is the sup distance to the nearest kernel on the smaller graph: exact with "
            "one edge removed, the smaller of two candidates with more. The bound is very loose "
            "on random MDPs.",
        ),
        bound_claim(
            "The same for every discount: an agent with a long memory (a random walk driven by its "
            "actions)",
            where,
            "error <= 3 B gamma epsilon R / (1-gamma)^2",
            memory / 3,
            "The proof drops the factor 1/(1-gamma) of the policy gradient. Here the error grows "
            "like (1-gamma)^(-5/2): the ratio exceeds 1 near gamma = 0.99 and is "
            f"{memory[-1] / 3:.2g} at gamma = {memory_gammas[-1]:g}.",
        ),
        bound_claim(
            "The bound with that factor: 2 B gamma epsilon R / (1-gamma)^3",
            "derived here",
            "error <= 2 B gamma epsilon R / (1-gamma)^3",
            np.concatenate(
                [
                    table[:, 2] / table[:, 4] / 2 * (1 - table[:, 0]),
                    memory / 2 * (1 - memory_gammas),
                ]
            ),
            "Apply the simulation lemma to Q and to the chain augmented by the reached set; no "
            "recursion is needed.",
        ),
    ]


def _lemma_step_claims(gaps: Float[Array, "cases"], marginal: Float[Array, "cases"]) -> list[Claim]:
    """A step of the lemma's proof, and a statement after the lemma."""
    return [
        Claim(
            "Q^{ij}(s,a) = E[gamma Q^{ij}(s_1,a_1) + gamma^t' r_t'] for i != j",
            "proof of lemma graph-approx, bound on T_2",
            "equal",
            f"relative difference {spread(gaps)}",
            "yes" if gaps.max() < EXACT else "no",
            "j can have reached i from step 0 several steps before it does so from step 1; all "
            "rewards in between are missing, not one.",
            summary(gaps),
        ),
        Claim(
            "The marginal P_G' is the best kernel on G' in the lemma's norm",
            "section 4.3, after lemma graph-approx",
            "epsilon(P_G') = smallest epsilon",
            f"epsilon(P_G') / smallest epsilon: median {np.median(marginal):.3g}, largest "
            f"{marginal.max():.3g}",
            "yes" if marginal.max() < 1 + EXACT else "no",
            "It is the best on average (in KL), not in the supremum, where the middle of the range "
            "is the best.",
            summary(marginal),
        ),
    ]


def information_section(rng: Generator, sizes: Sizes) -> Section:
    """The mutual-information bound on || P - P_G' ||_1, and the objective derived from it."""
    pairs, objective = [], []
    for n in range(sizes.mdps):
        mdp, logits = nm.random_case(rng, linked_graph(rng, 3))
        smaller = bounds.without_edge(rng, mdp)
        other = (
            smaller if n % 2 == 0 and smaller is not None else nm.own_state_graph(rng, 3, 2, 0.3)
        )
        pairs.append(bounds.information_bound(mdp, logits, other))
        objective.append(bounds.entropy_objective_gap(mdp, logits))
    both = np.concatenate(pairs)
    both = both[both[:, 0] > EXACT]
    gap = np.array(objective)
    dependent = gap[gap[:, 0] > EXACT]
    share = dependent[:, 1] / dependent[:, 0]
    claims = [
        bound_claim(
            "E || P^i - P^i_G' ||_1 is bounded by mutual information",
            "equation mutual_info_bound",
            "left side <= sqrt(2) sum_{j,n} E sqrt(I)",
            both[:, 0] / both[:, 1],
            "Half of the graphs lack one true edge, half are unrelated to the true graph (edges "
            "missing and superfluous edges). Superfluous edges change P_G' where others are "
            "missing, contrary to case 1 of the derivation, but only towards P.",
        ),
        Claim(
            "I(S^i'; A^j | S^i, A^i, S^j) = H(A^j | S^j) - H(A^j | S^i, S^j, S^i')",
            "equation objective",
            "equal",
            f"right / left: {spread(share)}",
            "yes" if np.abs(share - 1).max() < EXACT else "no",
            "A^i is missing from the last condition. The reverse model estimates a lower bound at "
            "best, so weak edges are missed.",
            summary(share),
        ),
    ]
    return Section(
        "Mutual information",
        claims,
        {"distance": both[:, 0].tolist(), "bound": both[:, 1].tolist()},
    )


def proof_section(rng: Generator, sizes: Sizes) -> Section:
    """Steps in the proof of Theorem 1, checked separately from their conclusions."""
    own, joint = (
        [nm.random_case(rng, linked_graph(rng, 3, draw)) for _ in range(sizes.mdps)]
        for draw in (nm.own_state_graph, nm.joint_state_graph)
    )
    given = np.array([bounds.score_given_next_state(m, p, 0) for m, p in own])
    cross = np.array([bounds.cross_term(m, p) for m, p in own])
    joint_cross = np.array([bounds.cross_term(m, p) for m, p in joint])
    few = max(4, sizes.mdps // 6)
    blocks = np.array([bounds.off_diagonal_share(m, p) for m, p in own[:few]])
    smooth = []
    for n in range(few):
        edges = topology(TOPOLOGIES[n % len(TOPOLOGIES)], 3)
        mdp, logits = nm.random_case(rng, nm.static_graph(edges, 2))
        smooth.append(bounds.smoothness_ratio(mdp, logits, mdp.gamma ** fixed_graph_lags(edges)))
    claims = _score_claims(given, cross, joint_cross) + _hessian_claims(blocks, np.array(smooth))
    return Section("Steps in the proof of Theorem 1", claims, {})


def _score_claims(
    given: Float[Array, "cases"], cross: Float[Array, "cases"], joint_cross: Float[Array, "cases"]
) -> list[Claim]:
    """Claims of the proofs about scores given the states."""
    return [
        Claim(
            "E[ grad log pi_j(a_k | s_k) | s_0 ... s_t ] = 0 for k < t",
            "proofs of lemmas num2 and block_diag",
            "0",
            f"its norm over that of the score: {spread(given)}",
            "yes" if given.max() < EXACT else "no",
            "Later states reveal which action was taken. The next two rows show which conclusions "
            "still hold.",
            summary(given),
        ),
        Claim(
            "Scores up to K_ji(t) are orthogonal",
            "lemma num2",
            "cross term 0",
            f"cross term at t = 3: at most {cross.max():.1e} (own-state graphs); "
            f"{spread(joint_cross)} (joint-state graphs)",
            "yes" if cross.max() < EXACT else "no",
            "True under the paper's assumption, by the argument of Proposition 1 (not meeting is "
            "independent of the action); false without it.",
            {"own_max": float(cross.max()), "joint_max": float(joint_cross.max())},
        ),
    ]


def _hessian_claims(blocks: Float[Array, "cases"], smooth: Float[Array, "cases"]) -> list[Claim]:
    """The smoothness lemma, and the lemma that its proof uses."""
    return [
        Claim(
            "The Hessian of J is block diagonal over agents",
            "lemma block_diag, used in the smoothness lemma",
            "off-diagonal blocks 0",
            f"their share of the Hessian's norm: {spread(blocks)}",
            "yes" if blocks.max() < EXACT else "no",
            "Agents that interact have mixed second derivatives.",
            summary(blocks),
        ),
        bound_claim(
            "|| Hessian of J || <= R max_j Gamma_j (G^2 + F) / (1-gamma)^2",
            "smoothness lemma",
            "L as stated",
            smooth,
            "Not contradicted, although its proof uses the row above. Fixed graphs, so that Gamma "
            "is exact.",
        ),
    ]
