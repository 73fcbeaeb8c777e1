"""All runs of the paper and of our ablations.

`GRIDS` lists the runs that `dgmarl grid NAME` trains, `paper_figures.FIGURES` those of a figure of
the paper; both choose from `RUNS`."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from dgmarl.config.methods import find_method
from dgmarl.config.presets import Preset
from dgmarl.config.resolve import resolve
from dgmarl.config.schema import TrainConfig
from dgmarl.config.yaml import override
from dgmarl.runs.reading import graph_tag

BACKBONES = {"ippo": "IPPO", "mappo": "MAPPO"}
SEEDS = 10
LBF_STEPS = 5_000_000
LBF_OTHER_STEPS = 2_000_000
"""Of VDN and QPLEX, which the paper does not have on foraging."""
STAR_SPREAD_STEPS = 1_000_000
SMACLITE_STEPS = {
    "corridor": 5_000_000,
    "25m_vs_30m": 2_000_000,
    "MMM": 1_000_000,
    "MMM2": 2_000_000,
    "bane_vs_bane": 2_000_000,
    "3s5z_vs_3s6z": 3_000_000,
}
"""The paper's maps and steps; the maps it discusses most come first."""
SAMPLED = "interventional:1:2"
"""Interventions with two alternative actions per agent and step, on all maps."""
ALL_ACTIONS = ("MMM", "MMM2")
"""Maps where interventions with all alternative actions are trained as well. At the speeds of
`results/benchmarks/q-battles-h200.txt` a run takes 14 minutes of an H200 on MMM2, 10 on
3s5z_vs_3s6z, 28 on corridor and 36 on 25m_vs_30m; bane_vs_bane was not measured."""
SMACLITE_SEEDS = 5
MIN_EVALUATIONS = 10
"""Minimum number of evaluations per run, also with few steps."""

VANILLA = ("10x10-3p-3f", "15x15-3p-4f", "15x15-4p-3f")
WINNER_TAKES_ALL = ("8x8-2p-4f-coop", "10x10-2p-3f-coop", "15x15-3p-4f-coop")
SIX = (*VANILLA, *WINNER_TAKES_ALL)
"""The paper's foraging scenarios."""
SIZES = ("n5", "n10", "n20", "n50")
"""Star-Spread scenarios by number of agents."""
ALL_SIZES = ("n5", "n7", "n10", "n20", "n50", "n100")
"""With 7 (the paper's scripts) and 100 (the maximum of its code), which the ablations omit."""
LEARNED_SIZES = ALL_SIZES[:-2]
"""Sizes with learned graphs, whose cost grows with the pairs of agents; with 20 agents the star is
no longer found."""
VALUE_BASED = ("iql", "vdn", "qmix", "qplex")
UNREACHED = 0.05
"""Weight of unreached agents' TD errors in the paper's runs, 1 - lambda."""
RANDOM = tuple(f"random:{p}" for p in (0.1, 0.3, 0.5, 0.7, 0.9))


@dataclass(frozen=True, eq=False)
class Run:
    """One configuration with all its seeds. Every run names its preset, so that a change of the
    default preset does not affect it."""

    benchmark: str
    """Folder in `results/`."""
    scenario: str
    """First part of the result's file name."""
    label: str
    """Second part of the file name: method, graph (if the benchmark has several), preset (if not
    the paper's) and what an ablation changes."""
    env: str
    method: str
    steps: int
    """Per seed."""
    graph: str = "oracle"
    """Source of dependence graphs; ignored without graph credit."""
    preset: Preset = "paper"
    overrides: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of the configuration, by dotted names."""
    seeds: int = SEEDS

    @property
    def key(self) -> tuple[str, str, str]:
        """Parts of the result's path."""
        return self.benchmark, self.scenario, self.label

    @property
    def name(self) -> str:
        """Name of the result's file, without .json."""
        return f"{self.scenario}__{self.label}"

    def folder(self, root: Path) -> Path:
        """Its run folder below `root`."""
        return root / self.benchmark / self.name

    def result(self, root: Path) -> Path:
        """Its published file below `root`."""
        return root / self.benchmark / f"{self.name}.json"

    def config(self, seeds: int | None = None, steps: int | None = None) -> TrainConfig:
        """The resolved configuration, optionally with other seeds or steps."""
        given = {
            "graph": self.graph,
            "seeds": self.seeds if seeds is None else seeds,
            "steps": self.steps if steps is None else steps,
        }
        config = resolve(self.env, self.method, self.overrides, self.preset, **given)
        if steps is None:
            return config
        interval = min(config.evaluation.interval, max(steps // MIN_EVALUATIONS, 1))
        return override(config, {"evaluation.interval": interval})


class Variant(NamedTuple):
    """A method with its graph, preset and what an ablation changes."""

    method: str
    graph: str = ""
    """Empty if the benchmark uses the oracle graph only."""
    preset: Preset = "paper"
    changes: str = ""
    """Part of the published file's name. It uses the field names of the first release."""
    overrides: Mapping[str, Any] = {}


FAMILIES = ("star-spread", "lbf", "smaclite")
"""Environment families. Benchmarks other than the main one of a family (`lbf-credit`) have one
preset, which their labels omit."""


def _runs(
    benchmark: str,
    scenarios: Iterable[str],
    variants: Sequence[Variant],
    steps: int,
    seeds: int = SEEDS,
) -> list[Run]:
    """Every variant in every scenario."""
    family = next(family for family in FAMILIES if benchmark.startswith(family))
    runs = []
    for scenario, variant in product(scenarios, variants):
        method, graph, preset, changes, overrides = variant
        named = preset if benchmark == family and preset != "paper" else ""
        label = "-".join(filter(None, (method, graph_tag(graph), named, changes)))
        env = f"{family}/{scenario.removeprefix('n') if family == 'star-spread' else scenario}"
        options = (method, steps, graph or "oracle", preset, overrides, seeds)
        runs.append(Run(benchmark, scenario, label, env, *options))
    return runs


def _as_published(runs: Iterable[Run]) -> Iterator[Run]:
    """Use the graph credit that the presets tuned and fast had at publication: the sum over reached
    agents, with weight 0.3 in foraging teams of three or more."""
    for run in runs:
        large_team = run.env.startswith("lbf/") and "-2p" not in run.env
        credit = {"credit.others": "sum", "credit.cross_weight": 0.3 if large_team else 1.0}
        changed = run.preset != "paper" and find_method(run.method).uses_graph
        yield replace(run, overrides={**credit, **run.overrides}) if changed else run


def credits_of(backbone: str, graph: str = "") -> tuple[str, str, str]:
    """Labels of the three kinds of credit."""
    return f"{backbone}-local", f"{backbone}-global", f"{backbone}-dg{graph}"


BASELINES = tuple(Variant(label) for backbone in BACKBONES for label in credits_of(backbone)[:2])
STAR_SPREAD = tuple(Variant(label) for backbone in BACKBONES for label in credits_of(backbone))
UNSCALED = {"credit.reward_scaling": "none"}
"""A control without reward standardisation, whose statistics differ between credit rules."""
FORAGING = (
    *BASELINES,
    Variant("ippo-dg", "learned"),
    Variant("ippo-dg", "learned", "tuned"),
    Variant("ippo-dg", "oracle"),
    Variant("mappo-dg", "learned"),
    Variant("mappo-dg", "learned", "tuned"),
    Variant("mappo-dg", "oracle"),
    *(Variant("mappo-dg", graph) for graph in RANDOM),
    Variant("iql"),
    Variant("qmix"),
)
"""All methods of the paper, the learned graph also with the tuned preset."""
RIVALS = (
    Variant("ippo-dg", "interventional", "tuned"),
    Variant("mappo-dg", "interventional", "tuned"),
    Variant("ippo-dg", "oracle", "tuned"),
    Variant("ippo-khop", "interventional", "tuned"),
    Variant("ippo-difference", preset="tuned"),
    Variant("ippo-prd", preset="tuned"),
    Variant("mappo-coma", preset="tuned"),
    Variant("mappo-gpae", preset="tuned"),
)
"""Compared credit rules with the default preset, each with the backbone whose critic suits it. For
local and global credit in foraging this preset equals the paper's, so the runs of `lbf` are the
baselines."""
FEW_CRITIC_EPOCHS = {"credit.critic_epochs": 4}
"""COMA with as many critic epochs as policy epochs, a tenth of the default."""
RIVALS_FORAGING = tuple(
    rival._replace(overrides=FEW_CRITIC_EPOCHS) if rival.method == "mappo-coma" else rival
    for rival in RIVALS
)
RIVALS_STAR_SPREAD = (
    *(baseline._replace(preset="tuned") for baseline in BASELINES),
    *(rival for rival in RIVALS if rival.graph != "interventional"),
    Variant("mappo-dg", "oracle", "tuned"),
    Variant("ippo-khop", "oracle", "tuned"),
)
"""Also baselines without the paper's standardisation."""
COMA_FEW_EPOCHS = Variant("mappo-coma", "", "tuned", "critic_epochs=4", FEW_CRITIC_EPOCHS)
ANNEALED = tuple(
    Variant(f"{backbone}-{credit}", graph, "tuned", overrides={"learner.anneal_lr": True})
    for backbone in BACKBONES
    for credit, graph in (("local", ""), ("global", ""), ("dg", "interventional"))
)
"""Whether annealing the learning rate prevents late collapses of seeds."""


def _battles(scenario: str, steps: int) -> list[Variant]:
    """MAPPO with local, global and learned-graph credit (presets fast and paper), with oracle and
    interventional graphs (fast); QMIX and QPLEX."""
    credits = (Variant("mappo-local"), Variant("mappo-global"), Variant("mappo-dg", "learned"))
    # One evaluation of 100 battles costs as much as ten iterations.
    rarely = {"evaluation.interval": max(100_000, steps // 20)}
    fast = [variant._replace(preset="fast", overrides=rarely) for variant in credits]
    fast.append(Variant("mappo-dg", "oracle", "fast", overrides=rarely))
    if scenario in ALL_ACTIONS:
        fast.append(Variant("mappo-dg", "interventional", "fast", overrides=rarely))
    fast.append(Variant("mappo-dg", SAMPLED, "fast", overrides=rarely))
    # 80 battles, then ten gradient steps, instead of 8 and one: a GPU plays more at little cost.
    values = [Variant(method, overrides={"n_envs": 80} | rarely) for method in ("qmix", "qplex")]
    return [*fast, *values, *(variant._replace(overrides=rarely) for variant in credits)]


def _weights(weighted: bool, beta: float) -> tuple[str, dict[str, Any]]:
    """Reachability weights (1 - lambda for unreached TD errors, or plain 0) and the weight of other
    agents' rewards, as part of a file name and as overrides."""
    return (
        f"weighted={'on' if weighted else 'off'}-cross_weight={beta}",
        {"credit.unreached_weight": UNREACHED if weighted else 0.0, "credit.cross_weight": beta},
    )


def _credit_ablations() -> list[Variant]:
    """Options that may help graph credit: weights of others' rewards, forms of the advantage, and
    options of the learned graph."""
    oracle, learned, interventional = (
        partial(Variant, "ippo-dg", graph, "paper")
        for graph in ("oracle", "learned", "interventional")
    )
    found = [Variant("ippo-local"), Variant("ippo-global")]
    for weighted in (True, False):
        found += [oracle(*_weights(weighted, beta)) for beta in (1.0, 0.5, 0.3, 0.2, 0.1)]
    plain_weights = [_weights(False, beta) for beta in (1.0, 0.3)]
    for name, changes in (
        ("form=return", {"credit.advantage_form": "return"}),
        ("normalise_advantage=on", {"learner.normalise_advantage": True}),
    ):
        found += [
            oracle(f"{weights}-{name}", {**values, **changes}) for weights, values in plain_weights
        ]
    found += [interventional(*weights) for weights in plain_weights]
    models = (
        ("", {}),
        ("-sees=local_state", {"graph_model.sees": "local_state"}),
        ("-encoding=8", {"graph_model.encoding": 8}),
    )
    all_weights = (("", {}), _weights(False, 0.3), _weights(False, 0.2))
    for (model, fields), threshold, (weights, values) in product(models, (0.9, 0.7), all_weights):
        name = f"threshold={threshold}{model}{'-' * bool(weights)}{weights}"
        found.append(learned(name, {"graph_model.threshold": threshold, **fields, **values}))
    return found


MODEL_ABLATIONS = tuple(
    Variant("ippo-dg", graph, "tuned", changes, overrides)
    for graph, changes, overrides in (
        ("oracle", "", {}),
        ("oracle", "share_parameters=off", {"learner.share_parameters": False}),
        ("oracle", "critic=own-state", {"learner.critic": "own-state"}),
        ("learned", "", {}),
        ("learned", "gradient_steps=4", {"graph_model.gradient_steps": 4}),
        ("learned", "condition_on_action=on", {"graph_model.condition_on_action": True}),
        ("learned", "encoder=off", {"graph_model.encoder": False}),
        ("learned", "multi_head=on", {"graph_model.multi_head": True}),
    )
)
"""Single options of the critic, with the oracle graph, and of the learned graph's models, for their
effect on the graph and on early learning."""
SMALLER_WEIGHT = Variant(
    "ippo-dg", "learned", "tuned", "cross_weight=0.3", {"credit.cross_weight": 0.3}
)
"""For a scenario in which no agent earns reward alone."""


def _all_runs() -> Iterator[Run]:
    learned = [Variant(f"{backbone}-dg", "learned") for backbone in BACKBONES]
    for size in ALL_SIZES:
        variants = (*STAR_SPREAD, *(learned if size in LEARNED_SIZES else ()))
        yield from _runs("star-spread", [size], variants, STAR_SPREAD_STEPS)
    unscaled = [variant._replace(overrides=UNSCALED) for variant in STAR_SPREAD]
    yield from _runs("star-spread-unscaled", SIZES, unscaled, STAR_SPREAD_STEPS)
    yield from _as_published(_runs("lbf", SIX, FORAGING, LBF_STEPS))
    yield from _runs("lbf", SIX, (Variant("vdn"), Variant("qplex")), LBF_OTHER_STEPS)
    for name, steps in SMACLITE_STEPS.items():
        battles = _runs("smaclite", [name], _battles(name, steps), steps, SMACLITE_SEEDS)
        yield from _as_published(battles)
    # Where local reward learns faster than graph credit, and where it fails.
    for scenario, steps in (("15x15-3p-4f", 3_000_000), ("8x8-2p-4f-coop", 2_000_000)):
        yield from _runs("lbf-levers", [scenario], _credit_ablations(), steps, seeds=5)
    for scenario, variants, steps in (
        ("10x10-2p-3f-coop", [SMALLER_WEIGHT], 2_000_000),
        ("8x8-2p-4f-coop", MODEL_ABLATIONS, 500_000),
        ("15x15-3p-4f", MODEL_ABLATIONS, 1_000_000),
    ):
        yield from _as_published(_runs("lbf-models", [scenario], variants, steps, seeds=3))
    yield from _runs("lbf-credit", SIX, RIVALS_FORAGING, LBF_STEPS)
    yield from _runs("lbf-anneal", SIX, ANNEALED, LBF_STEPS)
    for variants in (RIVALS_STAR_SPREAD, [COMA_FEW_EPOCHS]):
        yield from _runs("star-spread-credit", SIZES, variants, STAR_SPREAD_STEPS)


RUNS: Mapping[tuple[str, str, str], Run] = {run.key: run for run in _all_runs()}
"""By benchmark, scenario and label."""


def choose(benchmark: str, scenarios: Sequence[str], labels: Sequence[str]) -> tuple[Run, ...]:
    """The runs of these scenarios with these labels, scenario by scenario."""
    return tuple(RUNS[benchmark, scenario, label] for scenario in scenarios for label in labels)


def _of_benchmark(benchmark: str) -> tuple[Run, ...]:
    return tuple(run for run in RUNS.values() if run.benchmark == benchmark)


GRIDS: Mapping[str, tuple[Run, ...]] = {
    "star-spread": _of_benchmark("star-spread"),
    "star-spread-unscaled": _of_benchmark("star-spread-unscaled"),
    "lbf": tuple(
        run for run in _of_benchmark("lbf") if run.label not in (*VALUE_BASED, "ippo-dg-oracle")
    ),
    "lbf-oracle": choose("lbf", SIX, credits_of("ippo", "-oracle")),
    "lbf-values": choose("lbf", SIX, VALUE_BASED),
    "lbf-ablations": _of_benchmark("lbf-levers"),
    "lbf-models": _of_benchmark("lbf-models"),
    "lbf-credit": _of_benchmark("lbf-credit"),
    "lbf-anneal": _of_benchmark("lbf-anneal"),
    "star-spread-credit": _of_benchmark("star-spread-credit"),
    # MAPPO with the paper's settings, which takes ten times as long, on one map.
    "smaclite": tuple(
        run
        for run in _of_benchmark("smaclite")
        if run.preset == "fast" or run.method in VALUE_BASED or run.scenario == "MMM"
    ),
}
