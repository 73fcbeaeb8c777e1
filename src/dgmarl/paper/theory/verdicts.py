"""Rows of the table of claims, and functions that make a row from measurements."""

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from dgmarl.paper.theory.networked_mdp import Array

Holds = Literal["yes", "no", "not claimed"]

EXACT = 1e-8
"""Tolerance for equality: the largest difference of any gradient entry."""


@dataclass(frozen=True)
class Claim:
    """A row of the table: a claim of the paper, what was measured, and whether the claim holds."""

    name: str
    where: str
    """Place in the paper."""
    predicted: str
    measured: str
    holds: Holds
    """"not claimed": the paper's assumptions do not hold, or it makes no such claim; the row shows
    what happens then."""
    note: str
    numbers: dict[str, float] = field(default_factory=dict)
    """The measured numbers, for tests and other programs."""


@dataclass(frozen=True)
class Section:
    """The claims of one topic and the data of its figure."""

    title: str
    claims: list[Claim]
    data: dict[str, Any]


@dataclass(frozen=True)
class Sizes:
    """Numbers and sizes of the random MDPs. The quick sizes cover all claims, for tests."""

    mdps: int
    """Random MDPs for each statement about expected gradients."""
    agents: tuple[int, ...]
    """Numbers of agents of those MDPs, used alternately."""
    trajectories: int
    """Trajectories per measured second moment."""
    moment_agents: tuple[int, ...]
    """N of the second moments."""
    graph_sample_agents: tuple[int, ...]
    """N of the Theorem 1 runs with the dependence-graph estimator."""
    standard_sample_agents: tuple[int, ...]
    """N of the Theorem 1 runs with the standard estimator, whose cost grows like N^5."""
    seeds: int
    """Independent Theorem 1 runs."""


FULL = Sizes(120, (2, 3, 4), 4000, (2, 4, 8, 16, 32), (2, 3, 4, 6, 8, 12, 16), (2, 3, 4, 6, 8), 5)
QUICK = Sizes(8, (2, 3), 500, (2, 4, 8), (2, 4), (2, 4), 2)


@dataclass(frozen=True)
class GradientErrors:
    """Errors of one way of computing the gradient, over many MDPs."""

    entry: Float[Array, "cases"]
    """Largest difference of any entry."""
    relative: Float[Array, "cases"]
    """Norm of the difference over the norm of the exact gradient."""


def summary(values: Float[Array, "cases"]) -> dict[str, float]:
    """Median, extremes and number of cases."""
    return {
        "median": float(np.median(values)),
        "min": float(values.min()),
        "max": float(values.max()),
        "cases": float(len(values)),
    }


def spread(values: Float[Array, "cases"]) -> str:
    """Median and range as text."""
    low, high = values.min(), values.max()
    return f"median {np.median(values):.2g}, from {low:.1g} to {high:.2g}, {len(values)} MDPs"


def identity_claim(name: str, where: str, errors: GradientErrors, note: str) -> Claim:
    """A row for an equality of gradients."""
    holds: Holds = "yes" if errors.entry.max() < EXACT else "no"
    measured = f"largest difference of any entry {errors.entry.max():.1e}, {len(errors.entry)} MDPs"
    return Claim(name, where, "equal, to 1e-8", measured, holds, note, summary(errors.entry))


def bias_claim(
    errors: GradientErrors, name: str, where: str, note: str, claimed: bool = True
) -> Claim:
    """A row for an estimator that should be unbiased."""
    unbiased = errors.entry.max() < EXACT
    holds: Holds = "yes" if unbiased else ("no" if claimed else "not claimed")
    measured = f"relative bias {spread(errors.relative)}"
    return Claim(name, where, "no bias", measured, holds, note, summary(errors.relative))


def bound_claim(
    name: str,
    where: str,
    predicted: str,
    ratios: Float[Array, "cases"],
    note: str,
) -> Claim:
    """A row for an inequality; `ratios` (measured / bound) must be at most 1."""
    broken = int((ratios > 1).sum())
    holds: Holds = "no" if broken else "yes"
    most, n = ratios.max(), len(ratios)
    measured = f"measured / bound at most {most:.3g}; above 1 in {broken} of {n} cases"
    return Claim(
        name, where, predicted, measured, holds, note, summary(ratios) | {"broken": float(broken)}
    )
