"""Checks of expected gradients: Proposition 1 and Algorithm 1's two forms."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.random import Generator

from dgmarl.paper.theory import bounds, moments
from dgmarl.paper.theory import expected_gradient as eg
from dgmarl.paper.theory import networked_mdp as nm
from dgmarl.paper.theory.networked_mdp import Logits, NetworkedMDP, PairGradient, linked_graph
from dgmarl.paper.theory.sampling import sample_trajectories, sampled_gradients
from dgmarl.paper.theory.verdicts import (
    EXACT,
    Claim,
    GradientErrors,
    Section,
    Sizes,
    bias_claim,
    identity_claim,
    spread,
    summary,
)
from dgmarl.paper.theory.voter import topology

Case = tuple[NetworkedMDP, Logits]
Gradient = Callable[[NetworkedMDP, Logits], PairGradient]


def _cases(rng: Generator, sizes: Sizes, draw: Callable[[int], NetworkedMDP]) -> list[Case]:
    """Random MDPs with random policies, alternating between the numbers of agents."""
    mdps = [draw(sizes.agents[n % len(sizes.agents)]) for n in range(sizes.mdps)]
    return [(mdp, nm.random_logits(rng, mdp)) for mdp in mdps]


def _errors(cases: list[Case], gradient: Gradient) -> GradientErrors:
    """Errors of one way of computing the gradient, over all cases."""
    entries, relative = [], []
    for mdp, logits in cases:
        exact, other = nm.exact_gradient(mdp, logits), gradient(mdp, logits)
        entries.append(np.abs(other - exact).max())
        relative.append(eg.relative_error(other, exact))
    return GradientErrors(np.array(entries), np.array(relative))


class Bias(NamedTuple):
    """Text of the row for a gradient that should be unbiased."""

    name: str
    where: str
    note: str
    claimed: bool = True


BROKEN = {
    "reward sets without i": Bias(
        "... for any reward parent sets",
        "Proposition with reward graphs (appendix), Pa_rw^i(s^i) any subset",
        "If the set depends on s^i but does not contain i, agents that influence s^i influence the "
        "reward uncredited. Required: i in Pa_rw^i(s^i).",
    ),
    "joint-state graphs": Bias(
        "... for graphs that depend on the joint state (random)",
        "outside section 2's assumption",
        "Whether j has met i then depends on a^j, so dropping the rewards before the meeting "
        "causes a bias.",
        claimed=False,
    ),
    "contact graphs": Bias(
        "... for contact graphs (edge while two agents share a cell)",
        "outside section 2's assumption",
        "As in physical environments, including level-based foraging. There the method is a "
        "heuristic, with this bias on random MDPs.",
        claimed=False,
    ),
    "two discounts": Bias(
        "The estimators as printed, gamma^t before the score and gamma^k before the reward",
        "equations gpomdp and grad_graph",
        "Discounted twice, so later steps have too little weight. The proof in the appendix uses "
        "gamma^k alone, which is correct.",
    ),
    "transposed flags": Bias(
        "Reached flags as printed, f^i' = 1(i in union of Pa^k(s^k) over reached k)",
        "proof of lemma graph-approx, bound on T_2",
        "Source and target are exchanged; correct is f^i' = 1(some reached k is in Pa^i(s^i)).",
    ),
}
"""The formula of Proposition 1 with an assumption violated or an index of the paper changed."""


def gradient_section(rng: Generator, sizes: Sizes) -> Section:
    """Proposition 1, its generalisation to reward graphs, and violated assumptions."""

    def selfless_mdp(n: int) -> NetworkedMDP:
        """Reward parent sets that depend on s^i but never contain i."""
        graph, rewards = linked_graph(rng, n), linked_graph(rng, n) & ~np.eye(n, dtype=bool)
        return nm.random_mdp(rng, graph, reward_graph=rewards)

    own, rewarded, selfless, joint, contact = (
        _cases(rng, sizes, draw)
        for draw in (
            lambda n: nm.random_mdp(rng, linked_graph(rng, n)),
            lambda n: nm.random_mdp(rng, linked_graph(rng, n), reward_graph=linked_graph(rng, n)),
            selfless_mdp,
            lambda n: nm.random_mdp(rng, linked_graph(rng, n, nm.joint_state_graph)),
            lambda n: nm.random_mdp(rng, nm.contact_graph(n, 3 if n < 4 else 2)),
        )
    )
    formula = eg.dependence_graph_gradient
    checked: dict[str, tuple[list[Case], Gradient]] = {
        "Proposition 1": (own, formula),
        "reward graphs": (rewarded, formula),
        "one edge removed": (own, lambda m, p: formula(m, p, bounds.without_edge(rng, m))),
        "reward sets without i": (selfless, formula),
        "joint-state graphs": (joint, formula),
        "contact graphs": (contact, formula),
        "two discounts": (own, lambda m, p: formula(m, p, start_discount=m.gamma**2)),
        "transposed flags": (own, lambda m, p: formula(m, p, m.graph.transpose(0, 2, 1))),
    }
    errors = {name: _errors(*check) for name, check in checked.items()}
    claims = [
        identity_claim(
            "The expected dependence-graph gradient is the policy gradient",
            "Proposition 1",
            errors["Proposition 1"],
            "Parent sets depend on the target's own local state, policies on their own; "
            "infinite horizon, gamma = 0.9.",
        ),
        identity_claim(
            "The same with reward-dependence graphs",
            "Proposition with reward graphs (appendix)",
            errors["reward graphs"],
            "Reward parent sets contain i itself. The printed formula lacks the factor "
            "1/(1-gamma) of Proposition 1.",
        ),
        _planted_claim(errors["one edge removed"]),
        *(bias_claim(errors[name], *bias) for name, bias in BROKEN.items()),
        sampling_claim(rng, sizes),
    ]
    data = {name: found.relative.tolist() for name, found in errors.items()}
    return Section("Expected gradients", claims, data)


def _planted_claim(errors: GradientErrors) -> Claim:
    broken = int((errors.entry > EXACT).sum())
    return Claim(
        "A planted wrong graph (one true edge removed in one local state) breaks it",
        "Proposition 1, converse",
        "every case differs by more than 1e-8",
        f"{broken} of {len(errors.entry)} broke; relative bias {spread(errors.relative)}",
        "yes" if broken == len(errors.entry) else "no",
        "Shows that the check above can fail.",
        summary(errors.relative)
        | {"broken": float(broken), "smallest_entry": float(errors.entry.min())},
    )


def sampling_claim(rng: Generator, sizes: Sizes) -> Claim:
    """The estimators of `dgmarl.credit` against the exact gradient, on graphs that change."""
    furthest, ratios = [], []
    for n_agents in sizes.agents:
        mdp, logits = nm.random_case(rng, linked_graph(rng, n_agents), gamma=0.8)
        exact = nm.exact_gradient(mdp, logits).sum(axis=1)
        drawn = sample_trajectories(
            rng, mdp, logits, 2 * sizes.trajectories, moments.horizon_for(0.8)
        )
        sampled = sampled_gradients(drawn, mdp.gamma)
        for estimates in sampled.values():
            standard_error = estimates.std(axis=0) / np.sqrt(len(estimates))
            furthest.append(np.abs((estimates.mean(axis=0) - exact) / standard_error).max())
        variance = {name: estimates.var(axis=0).sum() for name, estimates in sampled.items()}
        ratios.append(variance["standard"] / variance["graph"])
    return Claim(
        "Sampled estimators (gpomdp, graph_gpomdp) have the exact gradient as their mean",
        "equations gpomdp and grad_graph, one discount",
        "within sampling error: fewer than 4.5 standard errors for every entry",
        f"at most {max(furthest):.1f} standard errors; variance standard / graph "
        f"{min(ratios):.2g} to {max(ratios):.2g}",
        "yes" if max(furthest) < 4.5 else "no",
        f"{2 * sizes.trajectories} trajectories on each of {len(sizes.agents)} MDPs, graphs "
        "that change with the state.",
        {"furthest": float(max(furthest)), "smallest_variance_ratio": float(min(ratios))},
    )


CRITICS = {
    "td, own-state critic": Bias(
        "td form, lambda = 1, critic sees s^i alone",
        "Algorithm 1",
        "Any function of s^i is a valid critic.",
    ),
    "td, full-state critic": Bias(
        "td form, lambda = 1, exact critic of the full state",
        "Algorithm 1",
        "A critic with more input reflects a^j at once: the credit is in TD errors before the "
        "meeting step, which are dropped.",
    ),
}
"""Algorithm 1 with lambda = 1, for critics with different inputs."""
VARIANTS = {
    "return, full-state critic": Bias(
        "return form, lambda = 0.95, exact critic of the full state",
        "not in the paper",
        "The lambda-return from the meeting step on. The meeting step is a stopping time of the "
        "states, so no credit is lost.",
        claimed=False,
    ),
    "return, own-state critic": Bias(
        "return form, lambda = 1, critic sees s^i alone", "not in the paper", "", claimed=False
    ),
    "td as in the text, own-state critic": Bias(
        "td form with l-hop parents at lag l, as in the text, own-state critic",
        "appendix, derivation above Algorithm 1",
        "One hop too few: the TD error at lag l contains V(s_{t+l+1}). Algorithm 1 uses l + 1 "
        "hops, which is correct.",
    ),
    "td weighted, full-state critic": Bias(
        "td form, weights 0.95 * reached + 0.05, lambda = 0.95, exact critic of the full state",
        "Algorithm 1, the paper's setting",
        "Ordinary GAE with this critic has no bias.",
    ),
}
"""The return form, the text's index, and the paper's weights."""


def form_section(rng: Generator, sizes: Sizes) -> Section:
    """Algorithm 1's `td` form with two critics against the `return` form."""
    cases = _cases(rng, sizes, lambda n: nm.random_mdp(rng, linked_graph(rng, n)))
    own, full, td = eg.own_state_critic, nm.values, eg.td_form_gradient
    weighted = eg.td_weight(0.95, weighted=True)
    forms: dict[str, Gradient] = {
        "td, own-state critic": lambda m, p: td(m, p, own(m, p)),
        "td, full-state critic": lambda m, p: td(m, p, full(m, p)),
        "td as in the text, own-state critic": lambda m, p: td(
            m, p, own(m, p), weight=eg.text_td_weight
        ),
        "return, full-state critic": lambda m, p: eg.return_form_gradient(m, p, full(m, p), 0.95),
        "return, own-state critic": lambda m, p: eg.return_form_gradient(m, p, own(m, p)),
        "td weighted, full-state critic": lambda m, p: td(m, p, full(m, p), 0.95, weighted),
        "td weighted, own-state critic": lambda m, p: td(m, p, own(m, p), 0.95, weighted),
        "plain GAE, own-state critic": lambda m, p: eg.ungraphed_gae_gradient(
            m, p, own(m, p), 0.95
        ),
    }
    errors = {name: _errors(cases, gradient) for name, gradient in forms.items()}
    claims = [
        *(bias_claim(errors[name], *bias) for name, bias in CRITICS.items()),
        _chain_claim(rng, sizes),
        *(bias_claim(errors[name], *bias) for name, bias in VARIANTS.items()),
        bias_claim(
            errors["td weighted, own-state critic"],
            "td form, weights 0.95 * reached + 0.05, lambda = 0.95, critic sees s^i alone",
            "Algorithm 1, the paper's setting",
            "This is the bias of GAE with an inexact critic: ordinary GAE has "
            f"{np.median(errors['plain GAE, own-state critic'].relative):.2g} (median) here.",
            claimed=False,
        ),
    ]
    data = {name: found.relative.tolist() for name, found in errors.items()}
    return Section("Algorithm 1: td and return forms", claims, data)


def _chain_claim(rng: Generator, sizes: Sizes) -> Claim:
    """Share of the two-hop gradient 0 -> 2 that the td form keeps on the chain 0 -> 1 -> 2."""
    kept = {"own": [], "full": []}
    for _ in range(sizes.mdps):
        mdp, logits = nm.random_case(rng, nm.static_graph(topology("chain", 3), 2))
        exact = nm.exact_gradient(mdp, logits)[0, 2]
        for name, critic in (("own", eg.own_state_critic), ("full", nm.values)):
            kept[name].append(
                np.linalg.norm(eg.td_form_gradient(mdp, logits, critic(mdp, logits))[0, 2])
                / np.linalg.norm(exact)
            )
    own, full = np.array(kept["own"]), np.array(kept["full"])
    return Claim(
        "Two-hop credit on the chain 0 -> 1 -> 2 survives the td form",
        "Algorithm 1",
        "all of grad_0 J^2 kept, for every critic",
        f"kept: own-state critic {own.min():.4f} to {own.max():.4f}; full-state critic at most "
        f"{full.max():.1e}",
        "yes" if full.min() > 1 - EXACT else "no",
        "With a full-state critic no credit beyond the first hop remains.",
        {"own_min": float(own.min()), "own_max": float(own.max()), "full_max": float(full.max())},
    )
