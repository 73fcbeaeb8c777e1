"""The theory page: claims, figures, and errors in the paper's text and proofs."""

import re
from html import escape

from markupsafe import Markup

from dgmarl.paper.theory import plots
from dgmarl.paper.theory.verdicts import Claim, Section
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

STYLE = """
.verdict { font-weight: 600; white-space: nowrap; } .yes { color: #1b7f4d; } .no { color: #c2410c; }
.other { color: var(--faint); }
@media (prefers-color-scheme: dark) { .yes { color: #5fd39b; } .no { color: #fb923c; } }
table.claims { font-size: .86rem; }
table.claims th, table.claims td { vertical-align: top; padding: .45rem .8rem .45rem 0; }
table.claims tbody tr { border-top: 1px solid var(--line); }
table.claims th { color: var(--faint); font-weight: 600; }
table.claims td:first-child { width: 36%; }
table.claims sup, table.claims sub, li sup, li sub { line-height: 0; }
.note { color: var(--faint); font-size: .8rem; }
h2 { margin-top: 2rem; font-size: 1.15rem; } figure { margin: 1rem 0; overflow-x: auto; }
figure svg { max-width: 100%; height: auto; }
figcaption { color: var(--faint); font-size: .85rem; } li { margin: .35rem 0; }
.counts { display: flex; gap: 1.5rem; margin: 1rem 0; flex-wrap: wrap; }
.counts b { font-size: 1.5rem; display: block; }
"""

WORDS = {
    "epsilon": "ε", "lambda": "λ", "gamma": "γ", "Gamma": "Γ", "theta": "θ", "eta": "η",
    "pi_": "π_", "log pi ": "log π ",
    "grad_{": "∇_{", "grad_0": "∇_0", "grad ": "∇", "sum_": "Σ_", "sqrt": "√", "infinity": "∞",
}  # fmt: skip
OPERATORS = {"<=": "≤", "!=": "≠", "->": "→", "||": "‖"}


def mathematics(text: str) -> str:
    """Escaped HTML with symbols, superscripts and subscripts for plain-text formulas."""
    for word, symbol in WORDS.items():
        text = re.sub(rf"(?<![A-Za-z_]){re.escape(word)}", symbol, text)
    for operator, symbol in OPERATORS.items():
        text = text.replace(operator, symbol)
    text = escape(text, quote=False)
    group = r"(\{[^}]*\}|\([^)]*\)|-?[^\W_]+(?:\.\d+)?'?)"
    text = re.sub(rf"\^{group}", lambda found: f"<sup>{found[1].strip('{}()')}</sup>", text)
    base = r"((?<![A-Za-z_])(?:max|Pa|[A-Za-zΓΣ∇θπ])|</sup>|‖)"
    return re.sub(
        rf"{base}_{group}", lambda found: f"{found[1]}<sub>{found[2].strip('{}')}</sub>", text
    )


VERDICTS = {
    "yes": ("yes", "holds"),
    "no": ("no", "does not hold"),
    "not claimed": ("other", "not claimed"),
}


def render_page(sections: list[Section], *, seed: int, quick: bool) -> str:
    """The page as self-contained HTML."""
    claims = [claim for section in sections for claim in section.claims]
    counts = "".join(
        f'<div><b class="{css}">{sum(c.holds == verdict for c in claims)}</b>{escape(words)}</div>'
        for verdict, (css, words) in VERDICTS.items()
    )
    notes = "".join(f"<li>{mathematics(note)}</li>" for note in PROOF_NOTES)
    size = " Quick sizes: too few samples for reliable numbers." if quick else ""
    body = (
        f"<style>{STYLE}</style><h1>Theory checks</h1><p>Claims of the theory of "
        "dependence-graph credit, checked by exact computation on random networked MDPs. "
        "Expected gradients, bounds and Hessians are exact (float64, dynamic programming "
        "over joint state and reached set); second moments and sample counts are sampled. Seed "
        f"{seed}.{size}</p>"
        f'<div class="counts">{counts}</div>'
        + "".join(_section(section) for section in sections)
        + f"<h2>Errors in the text and the proofs</h2><ul>{notes}</ul>"
    )
    return render("plain.html", title="Theory checks", body=Markup(body))


def _section(section: Section) -> str:
    rows = "".join(_row(claim) for claim in section.claims)
    head = "".join(
        f"<th>{name}</th>"
        for name in ("Claim", "Where in the paper", "Predicted", "Measured", "Holds?")
    )
    drawn = ""
    if section.title in FIGURES:
        draw, caption = FIGURES[section.title]
        picture = inline_svg(draw(section.data))
        drawn = f"<figure>{picture}<figcaption>{mathematics(caption)}</figcaption></figure>"
    return (
        f"<h2>{escape(section.title)}</h2>{drawn}"
        f'<table class="claims"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>'
    )


def _row(claim: Claim) -> str:
    css, words = VERDICTS[claim.holds]
    note = f'<div class="note">{mathematics(claim.note)}</div>' if claim.note else ""
    cells = "".join(
        f"<td>{mathematics(text)}</td>" for text in (claim.where, claim.predicted, claim.measured)
    )
    verdict = f'<td class="verdict {css}">{escape(words)}</td>'
    return f"<tr><td>{mathematics(claim.name)}{note}</td>{cells}{verdict}</tr>"


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
