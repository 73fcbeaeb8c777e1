"""The figures of the paper as choices of runs, and the numbers that the paper reports.

What the paper leaves open (seeds, N, p, scenarios) is chosen here and stated in
`PaperFigure.choices`; a change of a choice raises the figure's version."""

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
"""Over the six foraging scenarios, with a learned graph; number of seeds not stated."""


@dataclass(frozen=True)
class PaperFigure:
    """A figure of the paper."""

    name: str
    version: int
    about: str
    choices: str
    """What the paper does not state, and what is chosen here."""
    runs: tuple[Run, ...]
    also: tuple[str, ...] = ()
    """Prefixes of further methods, shown where the benchmark has results of them."""

    def shows(self, result: Result) -> bool:
        """Whether a result is part of the figure."""
        if result.benchmark not in {run.benchmark for run in self.runs}:
            return False
        if (result.scenario, result.method) in {(run.scenario, run.label) for run in self.runs}:
            return True
        return bool(self.also) and result.method.startswith(self.also)

    def chosen(self, results: Sequence[Result]) -> list[Result]:
        """The results that are part of the figure."""
        return [result for result in results if self.shows(result)]


MOTIVATION = PaperFigure(
    "motivation",
    1,
    "MAPPO with local, global and graph credit in two foraging scenarios: one of many agents, "
    "one that needs cooperation.",
    "Scenarios (the paper names none): 15x15-4p-3f and 8x8-2p-4f-coop. Graph: the oracle's. 10 "
    "seeds.",
    choose("lbf", ("15x15-4p-3f", "8x8-2p-4f-coop"), credits_of("mappo", "-oracle")),
)
RANDOM_GRAPHS = PaperFigure(
    "random-graphs",
    1,
    "MAPPO-DG with random graphs of density p, with the oracle's and with learned ones, "
    "between local and global credit.",
    "Scenarios: all six of foraging. p: 0.1, 0.3, 0.5, 0.7 and 0.9 (the script has 0.7, its "
    "default is 0.3). 10 seeds.",
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
    "Star-Spread with growing N: IPPO and MAPPO with local, global and oracle-graph credit.",
    "N: 5, 7, 10, 20, 50 and 100 (the scripts have 5, 7, 10 and 20). 10 seeds.",
    choose("star-spread", ALL_SIZES, (*credits_of("ippo"), *credits_of("mappo"))),
    also=("ippo-dg-learned", "mappo-dg-learned"),
)
LBF = PaperFigure(
    "lbf",
    1,
    "Six foraging scenarios: IPPO and MAPPO with local, global and learned-graph credit, IQL "
    "and QMIX; each, and all together.",
    "10 seeds; the last evaluation counts.",
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
    "each, and all together.",
    "5 seeds; returns, not win rates; corridor for 5 million steps with all methods (the QMIX "
    "script has 2 million).",
    choose("smaclite", tuple(SMACLITE_STEPS), (*credits_of("mappo", "-learned"), "qmix", "qplex")),
    also=("mappo-",),
)
FIGURES = {figure.name: figure for figure in (MOTIVATION, RANDOM_GRAPHS, MPE, LBF, SMACLITE)}
