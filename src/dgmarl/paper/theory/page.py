"""The theory page: claims, figures, and errors in the paper's text and proofs."""

import re
from html import escape

from markupsafe import Markup

from dgmarl.paper.theory import plots
from dgmarl.paper.theory.verdicts import Section
from dgmarl.report.figures import inline_svg
from dgmarl.report.html import render

PROOF_NOTES = [
    "Proposition 1, proof: the step from t = 1 to t = 2 averages over a_0 with s_1 held fixed, "
    "although s_1 depends on a_0. The result is correct because 'j has not met i' is determined "
    "by the states of agents that a_0^j has not reached; with joint-state graphs it is not, and "
    "the result fails.",
    "Definition of the proper graph: '(s_2, i) -> (s_2', i)' should end in j. Definition of the "
    "meeting time: 'T_ij = infinity' should be T_ji.",
    "Equations gpomdp and grad_graph: the first has the score of a^i, s^i under pi_j (should be "
    "a^j, s^j); both discount twice (see the table).",
    "Definition of T_ji^H: written as an absolute time, used as a lag (it is added to t); '- t' is "
    "missing.",
    "'T_ji is not a stopping time': it is one, for the states after t (whether i is reached at "
    "t' is determined by s_t ... s_{t'-1}); it is only unknown at t. K_ji(n), which looks "
    "backwards, is not a stopping time.",
    "Second moment, last line before boundK: sum_{k=0}^{K} has K + 1 terms, not K. The next "
    "display counts 1(k <= K(t)) and is correct.",
    "Second moment, summing over targets: || sum_i g^i ||^2 <= sum_i || g^i ||^2 is wrong "
    "without a factor N; so are equations est_joint_grad_var, var_graph_grad, var_gradient and "
    "Theorem 1 as far as they use it.",
    "Equations var_graph_grad and var_gradient: || grad J_H || should be squared. The text "
    "before them says that both estimators have the mean grad J_H; this holds with T_ji^H, since "
    "rewards after H are dropped on both sides.",
    "Smoothness lemma: L carries an index i that it does not have. Its proof uses lemma "
    "block_diag, which is false (see the table).",
    "Lemma graph-approx, proof: the factor 1/(1-gamma) of the policy gradient is dropped; 'grad "
    "log pi Q^{ij} = grad log pi Q^i' holds only after averaging over a; the recursion for T_2 is "
    "wrong, and not needed.",
    "Mutual-information bound: the derivation conditions P_G' once on (s^k, a^k), once on (s^i, "
    "a^k); the first is correct. The sum over n has N terms, of which the last is zero.",
    "GAE derivation: the parents' hop count is written as 1, l, t and t + l in different places; "
    "Algorithm 1 uses l + 1.",
]

WORDS = {
    "epsilon": "ε", "lambda": "λ", "gamma": "γ", "Gamma": "Γ", "theta": "θ", "eta": "η",
    "pi_": "π_", "log pi ": "log π ",
    "grad_{": "∇_{", "grad_0": "∇_0", "grad ": "∇", "sum_": "Σ_", "sqrt": "√", "infinity": "∞",
}  # fmt: skip
OPERATORS = {"<=": "≤", "!=": "≠", "->": "→", "||": "‖"}


def mathematics(text: str) -> Markup:
    """HTML with symbols, superscripts and subscripts for plain-text formulas."""
    for word, symbol in WORDS.items():
        text = re.sub(rf"(?<![A-Za-z_]){re.escape(word)}", symbol, text)
    for operator, symbol in OPERATORS.items():
        text = text.replace(operator, symbol)
    text = escape(text, quote=False)
    group = r"(\{[^}]*\}|\([^)]*\)|-?[^\W_]+(?:\.\d+)?'?)"
    text = re.sub(rf"\^{group}", lambda found: f"<sup>{found[1].strip('{}()')}</sup>", text)
    base = r"((?<![A-Za-z_])(?:max|Pa|[A-Za-zΓΣ∇θπ])|</sup>|‖)"
    lowered = rf"{base}_{group}"
    text = re.sub(lowered, lambda found: f"{found[1]}<sub>{found[2].strip('{}')}</sub>", text)
    return Markup(text)


VERDICTS = {
    "yes": ("yes", "holds"),
    "no": ("no", "does not hold"),
    "not claimed": ("other", "not claimed"),
}
"""CSS class and words per verdict."""


def render_page(sections: list[Section], *, seed: int, quick: bool) -> str:
    """The page as self-contained HTML."""
    claims = [claim for section in sections for claim in section.claims]
    data = {section.title: section.data for section in sections}
    figures = {
        title: (Markup(inline_svg(draw(data[title]))), caption)
        for title, (draw, caption) in FIGURES.items()
    }
    return render(
        "theory_page.html",
        title="Theory checks",
        sections=sections,
        figures=figures,
        counts={verdict: sum(c.holds == verdict for c in claims) for verdict in VERDICTS},
        verdicts=VERDICTS,
        proof_notes=PROOF_NOTES,
        seed=seed,
        quick=quick,
        mathematics=mathematics,
    )


FIGURES = {
    "Expected gradients": (
        plots.error_strips,
        "One dot per random MDP. Blue: equal to the exact gradient up to rounding. Orange: not.",
    ),
    "Algorithm 1: td and return forms": (
        plots.error_strips,
        "One dot per random MDP; lambda = 1 for the first three and the fifth row, 0.95 for the "
        "others.",
    ),
    "Approximate graphs": (
        plots.graph_lemma,
        "Left: errors far below the bound on random MDPs. Right: a family in which the error "
        "exceeds the bound as gamma approaches 1.",
    ),
    "Mutual information": (
        plots.information,
        "One dot per random MDP and target whose kernel differs.",
    ),
    "Second moments": (
        plots.second_moments,
        "Both estimators on the same trajectories. Where a solid line crosses the dashed line of "
        "its colour, the paper's bound fails.",
    ),
    "Samples to a stationary point": (
        plots.sample_counts,
        "Lines: mean over seeds; dots: seeds. Dashed and dotted: growth of the bounds, scaled to "
        "the first measured point, since the bounds have no constants.",
    ),
}
