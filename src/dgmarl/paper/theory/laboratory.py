"""Check all computable claims of the paper's theory on random networked MDPs."""

import json
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path

import numpy as np
from numpy.random import Generator

from dgmarl.config.ranges import check_number
from dgmarl.files import write_atomic
from dgmarl.paper.theory.bound_checks import (
    approximate_graph_section,
    information_section,
    proof_section,
)
from dgmarl.paper.theory.gradient_checks import form_section, gradient_section
from dgmarl.paper.theory.growth_checks import moment_section, sample_section
from dgmarl.paper.theory.page import PROOF_NOTES, render_page
from dgmarl.paper.theory.verdicts import FULL, QUICK, Claim, Section, Sizes


def run_laboratory(
    out: Path,
    *,
    seed: int = 0,
    quick: bool = False,
    progress: Callable[[str, float], None] | None = None,
) -> list[Claim]:
    """Check all claims and write `theory.html` (page) and `theory.json` (claims and numbers) into
    `out`.

    seed: of all random draws. quick: small sizes, for tests. progress: called with the current
      step and the fraction finished, from 0 to 1."""
    check_number("seed", seed)
    sizes = QUICK if quick else FULL
    report = progress or (lambda _what, _fraction: None)
    samples = partial(sample_section, progress=lambda part: report("Theorem 1", 0.3 + 0.68 * part))
    steps: list[tuple[str, float, Callable[[Generator, Sizes], Section]]] = [
        ("Expected gradients", 0.0, gradient_section),
        ("Algorithm 1", 0.06, form_section),
        ("Approximate graphs", 0.14, approximate_graph_section),
        ("Mutual information", 0.16, information_section),
        ("Second moments", 0.18, moment_section),
        ("Proof steps", 0.28, proof_section),
        ("Theorem 1", 0.3, samples),
    ]
    sections = []
    for number, (title, fraction, measure) in enumerate(steps):
        report(title, fraction)
        sections.append(measure(np.random.default_rng([seed, number]), sizes))
    document = {
        "seed": seed,
        "quick": quick,
        "sections": [asdict(s) for s in sections],
        "proof_notes": PROOF_NOTES,
    }
    write_atomic(out / "theory.json", json.dumps(document, indent=1, allow_nan=False) + "\n")
    write_atomic(out / "theory.html", render_page(sections, seed=seed, quick=quick))
    report("Done", 1.0)
    return [claim for section in sections for claim in section.claims]
