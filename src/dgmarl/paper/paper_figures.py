"""The paper's figures as lists of runs, and the numbers that the paper reports.

Choices that the paper does not state (seeds, N, p, scenarios) are listed in `PaperFigure.choices`;
changing one increments the figure's version."""

from collections.abc import Sequence
from dataclasses import dataclass

from dgmarl.paper.grids import ALL_SIZES, RANDOM, SIX, SMACLITE_STEPS, Run, choose, credits_of
from dgmarl.report.results import Result

IQM_OF_PAPER = {
    "ippo-dg-learned": 0.89,
    "ippo-local": 0.66,
    "ippo-global": 0.68,
    "mappo-dg-learned": 0.85,
    "mappo-local": 0.58,
    "mappo-global": 0.77,
}
"""IQM over the six foraging scenarios; the paper does not state the number of seeds."""


@dataclass(frozen=True)
class PaperFigure:
    """A figure of the paper."""

    name: str
    version: int
    about: str
    choices: str
    """Choices that the paper does not state."""
    runs: tuple[Run, ...]
    also: tuple[str, ...] = ()
    """Prefixes of further methods, shown if there are results."""

    def shows(self, result: Result) -> bool:
        """Whether a result is part of the figure."""
        if result.benchmark not in {run.benchmark for run in self.runs}:
            return False
        if result.key in {run.key for run in self.runs}:
            return True
        return bool(self.also) and result.method.startswith(self.also)

    def chosen(self, results: Sequence[Result]) -> list[Result]:
        """The results that are part of the figure."""
        return [result for result in results if self.shows(result)]


MOTIVATION = PaperFigure(
    "motivation",
    1,
    "MAPPO with local, global and graph credit in two foraging scenarios: one with four agents, "
    "one that requires two to cooperate.",
    "Scenarios (the paper names none): 15x15-4p-3f and 8x8-2p-4f-coop. Graph: oracle. 10 seeds.",
    choose("lbf", ("15x15-4p-3f", "8x8-2p-4f-coop"), credits_of("mappo", "-oracle")),
)
RANDOM_GRAPHS = PaperFigure(
    "random-graphs",
    1,
    "MAPPO-DG with random graphs of density p, oracle graphs and learned graphs, beside local "
    "and global credit.",
    "Scenarios: all six of foraging. p: 0.1, 0.3, 0.5, 0.7 and 0.9 (the published script sets "
    "0.7, its default is 0.3). 10 seeds.",
    choose(
        "lbf",
        SIX,
        (
            *credits_of("mappo", "-oracle"),
            "mappo-dg-learned",
            *(f"mappo-dg-{graph.replace(':', '')}" for graph in RANDOM),
        ),
    ),
    also=("mappo-dg-random",),
)
MPE = PaperFigure(
    "mpe",
    2,
    "Star-Spread with increasing N: IPPO and MAPPO with local, global and oracle-graph credit.",
    "N: 5, 7, 10, 20, 50 and 100 (the published scripts: 5, 7, 10 and 20). 10 seeds.",
    choose("star-spread", ALL_SIZES, (*credits_of("ippo"), *credits_of("mappo"))),
    also=("ippo-dg-learned", "mappo-dg-learned"),
)
LBF = PaperFigure(
    "lbf",
    1,
    "Six foraging scenarios: IPPO and MAPPO with local, global and learned-graph credit, IQL "
    "and QMIX; per scenario and aggregated.",
    "10 seeds; final returns are those of the last evaluation.",
    choose(
        "lbf",
        SIX,
        (*credits_of("ippo", "-learned"), *credits_of("mappo", "-learned"), "iql", "qmix"),
    ),
    also=(
        "ippo-dg-oracle",
        "mappo-dg-oracle",
        "ippo-dg-learned",
        "mappo-dg-learned",
        "vdn",
        "qplex",
    ),
)
SMACLITE = PaperFigure(
    "smaclite",
    1,
    "Six SMAClite maps: MAPPO with local, global and learned-graph credit, QMIX and QPLEX; "
    "per map and aggregated.",
    "5 seeds; corridor with 5 million steps for all methods (the QMIX script has 2 million). QMIX "
    "and QPLEX play 80 battles, then make ten gradient steps, instead of 8 and one.",
    choose("smaclite", tuple(SMACLITE_STEPS), (*credits_of("mappo", "-learned"), "qmix", "qplex")),
    also=("mappo-",),
)
FIGURES = {figure.name: figure for figure in (MOTIVATION, RANDOM_GRAPHS, MPE, LBF, SMACLITE)}
