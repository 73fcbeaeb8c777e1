"""The paper's figures, as grids of cells, and the numbers it gives. Plain data: what is trained,
drawn and compared.

What the paper leaves open (seeds, N, p, scenarios) is chosen here, in `PaperFigure.choices`; a
choice that changes raises the figure's version."""

from collections.abc import Sequence
from dataclasses import dataclass

from dgmarl.report.results import Result

SEEDS = 10
VANILLA = ("10x10-3p-3f", "15x15-3p-4f", "15x15-4p-3f")
WINNER_TAKES_ALL = ("8x8-2p-4f-coop", "10x10-2p-3f-coop", "15x15-3p-4f-coop")
SIX = (*VANILLA, *WINNER_TAKES_ALL)
LBF_STEPS = 5_000_000
SMACLITE_STEPS = {
    "MMM": 1_000_000,
    "MMM2": 2_000_000,
    "corridor": 5_000_000,
    "bane_vs_bane": 2_000_000,
    "25m_vs_30m": 2_000_000,
    "3s5z_vs_3s6z": 3_000_000,
}

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
class Plan:
    """One cell: a method in a scenario, by plain names, so that it can be listed where it cannot be
    run yet."""

    benchmark: str
    scenario: str
    """As in the name of the result's file."""
    label: str
    """The method as in the name of the result's file, with the graph where it is not the usual
    one."""
    env: str
    method: str
    graph: str
    """Where dependence graphs come from; of no matter without graph credit."""
    steps: int
    """Per seed, the paper's code's."""


@dataclass(frozen=True)
class PaperFigure:
    """A figure of the paper."""

    name: str
    version: int
    about: str
    choices: str
    """What the paper does not say and we chose."""
    plans: tuple[Plan, ...]
    also: tuple[str, ...] = ()
    """Beginnings of methods that join the figure where their results are found, in any scenario of
    the benchmark."""

    def shows(self, result: Result) -> bool:
        """Whether a result belongs in it."""
        if result.benchmark not in {plan.benchmark for plan in self.plans}:
            return False
        if (result.scenario, result.method) in {(plan.scenario, plan.label) for plan in self.plans}:
            return True
        return result.method.startswith(self.also) if self.also else False

    def chosen(self, results: Sequence[Result]) -> list[Result]:
        """Those of many results that belong in it."""
        return [result for result in results if self.shows(result)]


def _foraging(scenarios: Sequence[str], methods: Sequence[str]) -> tuple[Plan, ...]:
    """Methods are labels: `mappo-dg-random0.3` is MAPPO-DG with the graph random:0.3."""
    return tuple(
        _plan("lbf", scenario, f"lbf/{scenario}", label, LBF_STEPS)
        for scenario in scenarios
        for label in methods
    )


def _plan(benchmark: str, scenario: str, env: str, label: str, steps: int) -> Plan:
    head, is_graph, tag = label.partition("-dg")
    tag = tag.removeprefix("-") or "oracle"
    graph = f"random:{tag.removeprefix('random')}" if tag.startswith("random") else tag
    return Plan(
        benchmark, scenario, label, env, head + is_graph, graph if is_graph else "oracle", steps
    )


def _credits(backbone: str, graph: str) -> tuple[str, ...]:
    return f"{backbone}-local", f"{backbone}-global", f"{backbone}-dg{graph}"


MOTIVATION = PaperFigure(
    "motivation",
    1,
    (
        "MAPPO with local, global and graph credit in two foraging scenarios: one of many agents, "
        "one that needs cooperation."
    ),
    (
        "Scenarios (the paper names none): 15x15-4p-3f and 8x8-2p-4f-coop. Graph: the oracle's. 10 "
        "seeds."
    ),
    _foraging(("15x15-4p-3f", "8x8-2p-4f-coop"), _credits("mappo", "-oracle")),
)
RANDOM_GRAPHS = PaperFigure(
    "random-graphs",
    1,
    (
        "MAPPO-DG with random graphs of density p, with the oracle's and with learned ones, "
        "between local and global credit."
    ),
    (
        "Scenarios: all six of foraging. p: 0.1, 0.3, 0.5, 0.7 and 0.9 (the script has 0.7, its "
        "default is 0.3). 10 seeds."
    ),
    _foraging(
        SIX,
        (
            *_credits("mappo", "-oracle"),
            "mappo-dg-learned",
            *(f"mappo-dg-random{p}" for p in (0.1, 0.3, 0.5, 0.7, 0.9)),
        ),
    ),
    also=("mappo-dg-random",),
)
MPE = PaperFigure(
    "mpe",
    1,
    "Star-Spread with growing N: IPPO and MAPPO with local, global and oracle-graph credit.",
    "N: 5, 10, 20 and 50 (the scripts have 5, 7, 10 and 20). 10 seeds.",
    tuple(
        _plan("star-spread", f"n{n}", f"star-spread/{n}", label, 1_000_000)
        for n in (5, 10, 20, 50)
        for backbone in ("ippo", "mappo")
        for label in _credits(backbone, "")
    ),
)
LBF = PaperFigure(
    "lbf",
    1,
    (
        "Six foraging scenarios: IPPO and MAPPO with local, global and learned-graph credit, IQL "
        "and QMIX; each, and all together."
    ),
    "10 seeds; the last evaluation counts.",
    _foraging(SIX, (*_credits("ippo", "-learned"), *_credits("mappo", "-learned"), "iql", "qmix")),
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
    (
        "Six SMAClite maps: MAPPO with local, global and learned-graph credit, QMIX and QPLEX; "
        "each, and all together."
    ),
    (
        "10 seeds; returns, not win rates; corridor for 5 million steps with all methods (the QMIX "
        "script has 2 million)."
    ),
    tuple(
        _plan("smaclite", scenario, f"smaclite/{scenario}", label, steps)
        for scenario, steps in SMACLITE_STEPS.items()
        for label in (*_credits("mappo", "-learned"), "qmix", "qplex")
    ),
)
FIGURES = {figure.name: figure for figure in (MOTIVATION, RANDOM_GRAPHS, MPE, LBF, SMACLITE)}
