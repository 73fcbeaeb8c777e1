"""All runs of the paper and of our ablations.

`GRIDS` lists the runs that `dgmarl grid NAME` trains, `paper_figures.FIGURES` those of a figure of
the paper; both choose from `RUNS`."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from dgmarl.config.methods import find_method
from dgmarl.config.presets import Preset
from dgmarl.config.resolve import resolve
from dgmarl.config.schema import TrainConfig
from dgmarl.config.yaml import override

BACKBONES = {"ippo": "IPPO", "mappo": "MAPPO"}
SEEDS = 10
LBF_STEPS = 5_000_000
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
LEARNED_SIZES = ALL_SIZES[:-1]
"""Sizes with learned graphs; N = 100 has 10,000 pairs of agents per step."""
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
    """A method with its graph and preset."""

    method: str
    graph: str = ""
    """Empty if the benchmark uses the oracle graph only."""
    preset: Preset = "paper"


BASELINES = tuple(
    Variant(f"{backbone}-{credit}") for backbone in BACKBONES for credit in ("local", "global")
)


def _run(
    benchmark: str,
    scenario: str,
    variant: Variant,
    steps: int,
    overrides: Mapping[str, Any] | None = None,
) -> Run:
    """A run labelled with its method, graph and preset."""
    method, graph, preset = variant
    parts = (method, graph.replace(":", ""), "" if preset == "paper" else preset)
    env = f"{benchmark}/{scenario.removeprefix('n') if benchmark == 'star-spread' else scenario}"
    return Run(
        benchmark,
        scenario,
        "-".join(filter(None, parts)),
        env,
        method,
        steps,
        graph or "oracle",
        preset,
        overrides or {},
    )


def _as_published(run: Run) -> Run:
    """Use the graph credit that the presets tuned and fast had at publication: the sum over reached
    agents, with weight 0.3 in foraging teams of three or more."""
    if run.preset == "paper" or not find_method(run.method).uses_graph:
        return run
    large_team = run.env.startswith("lbf/") and "-2p" not in run.env
    credit = {"credit.others": "sum", "credit.cross_weight": 0.3 if large_team else 1.0}
    return replace(run, overrides={**credit, **run.overrides})


def _star_spread() -> list[Run]:
    """IPPO and MAPPO with local, global, oracle-graph and learned-graph credit, by size."""
    given = [Variant(method) for backbone in BACKBONES for method in credits_of(backbone)]
    learned = [Variant(f"{backbone}-dg", "learned") for backbone in BACKBONES]
    return [
        _run("star-spread", size, variant, STAR_SPREAD_STEPS)
        for size in ALL_SIZES
        for variant in (*given, *(learned if size in LEARNED_SIZES else ()))
    ]


def _star_spread_unscaled() -> list[Run]:
    """A control without reward standardisation, whose statistics differ between credit rules."""
    return [
        replace(run, benchmark="star-spread-unscaled", overrides={"credit.reward_scaling": "none"})
        for run in _star_spread()
        if run.scenario in SIZES and run.graph == "oracle"
    ]


def _foraging(scenario: str) -> list[Run]:
    """All methods of the paper, the learned graph also with the tuned preset, VDN and QPLEX."""
    variants = [*BASELINES]
    presets: tuple[Preset, ...] = ("paper", "tuned")
    for backbone in BACKBONES:
        variants += [Variant(f"{backbone}-dg", "learned", preset) for preset in presets]
        variants.append(Variant(f"{backbone}-dg", "oracle"))
    variants += [Variant("mappo-dg", graph) for graph in RANDOM]
    variants += [Variant(method) for method in VALUE_BASED]
    return [_as_published(_run("lbf", scenario, variant, LBF_STEPS)) for variant in variants]


RIVALS = (
    Variant("ippo-dg", "interventional"),
    Variant("mappo-dg", "interventional"),
    Variant("ippo-dg", "oracle"),
    Variant("ippo-khop", "interventional"),
    Variant("ippo-difference"),
    Variant("ippo-prd"),
    Variant("mappo-coma"),
    Variant("mappo-gpae"),
)
"""Compared credit rules, each with the backbone whose critic suits it."""


def _rival(family: str, scenario: str, variant: Variant, steps: int) -> Run:
    """A run of `FAMILY-credit` with the default preset."""
    run = _run(family, scenario, variant, steps)
    return replace(run, benchmark=f"{family}-credit", preset="tuned")


def _few_critic_epochs(run: Run) -> Run:
    """COMA with as many critic epochs as policy epochs, a tenth of the default."""
    return replace(run, overrides={"credit.critic_epochs": 4})


def _rivals_foraging() -> list[Run]:
    """Credit rules with the default preset. For local and global credit in foraging it equals the
    paper's, so the runs of `lbf` are the baselines."""
    runs = [_rival("lbf", scenario, variant, LBF_STEPS) for scenario in SIX for variant in RIVALS]
    return [_few_critic_epochs(run) if run.method == "mappo-coma" else run for run in runs]


def _annealed() -> list[Run]:
    """Runs that test whether annealing the learning rate prevents late collapses of seeds."""
    variants = [
        Variant(f"{backbone}-{credit}", graph)
        for backbone in BACKBONES
        for credit, graph in (("local", ""), ("global", ""), ("dg", "interventional"))
    ]
    anneal = {"learner.anneal_lr": True}
    return [
        replace(
            _run("lbf", scenario, variant, LBF_STEPS, anneal),
            benchmark="lbf-anneal",
            preset="tuned",
        )
        for scenario in SIX
        for variant in variants
    ]


def _rivals_star_spread() -> list[Run]:
    """Credit rules with the default preset, and baselines without the paper's standardisation."""
    variants = [*BASELINES, *(rival for rival in RIVALS if rival.graph != "interventional")]
    variants += [Variant("mappo-dg", "oracle"), Variant("ippo-khop", "oracle")]
    runs = [
        _rival("star-spread", size, variant, STAR_SPREAD_STEPS)
        for size in SIZES
        for variant in variants
    ]
    coma = [_few_critic_epochs(run) for run in runs if run.method == "mappo-coma"]
    return [*runs, *(replace(run, label=f"{run.label}-critic_epochs=4") for run in coma)]


def _battles(scenario: str) -> list[Run]:
    """MAPPO with local, global and learned-graph credit (presets fast and paper) and with two given
    graphs (fast); QMIX and QPLEX."""
    credits = (("mappo-local", ""), ("mappo-global", ""), ("mappo-dg", "learned"))
    given = (("mappo-dg", "oracle"), ("mappo-dg", "interventional"))
    variants = [Variant(*credit, "fast") for credit in (*credits, *given)]
    variants += [Variant("qmix"), Variant("qplex"), *(Variant(*credit) for credit in credits)]
    steps = SMACLITE_STEPS[scenario]
    # One evaluation of 100 battles costs as much as ten iterations.
    rarely = {"evaluation.interval": max(100_000, steps // 20)}
    runs = [_run("smaclite", scenario, variant, steps, rarely) for variant in variants]
    return [replace(_as_published(run), seeds=SMACLITE_SEEDS) for run in runs]


class Ablation(NamedTuple):
    """A change of IPPO with some kind of credit."""

    credit: str
    """local, global, or a graph source."""
    changes: str
    """Part of the published file's name. It uses the field names of the first release."""
    overrides: Mapping[str, Any]


def _weights(weighted: bool, beta: float) -> tuple[str, dict[str, Any]]:
    """Reachability weights (1 - lambda for unreached TD errors, or plain 0) and the weight of other
    agents' rewards, as part of a file name and as overrides."""
    return (
        f"weighted={'on' if weighted else 'off'}-cross_weight={beta}",
        {"credit.unreached_weight": UNREACHED if weighted else 0.0, "credit.cross_weight": beta},
    )


def _credit_ablations() -> list[Ablation]:
    """Weights of others' rewards, forms of the advantage, and options of the learned graph."""
    found = [Ablation("local", "", {}), Ablation("global", "", {})]
    for weighted in (True, False):
        found += [
            Ablation("oracle", *_weights(weighted, beta)) for beta in (1.0, 0.5, 0.3, 0.2, 0.1)
        ]
    plain_weights = [_weights(False, beta) for beta in (1.0, 0.3)]
    for name, changes in (
        ("form=return", {"credit.advantage_form": "return"}),
        ("normalise_advantage=on", {"learner.normalise_advantage": True}),
    ):
        found += [
            Ablation("oracle", f"{weights}-{name}", {**values, **changes})
            for weights, values in plain_weights
        ]
    found += [Ablation("interventional", *weights) for weights in plain_weights]
    models = (
        ("", {}),
        ("-sees=local_state", {"graph_model.sees": "local_state"}),
        ("-encoding=8", {"graph_model.encoding": 8}),
    )
    for model, fields in models:
        for threshold in (0.9, 0.7):
            for weights, values in (("", {}), _weights(False, 0.3), _weights(False, 0.2)):
                name = f"threshold={threshold}{model}{'-' * bool(weights)}{weights}"
                changes = {"graph_model.threshold": threshold, **fields, **values}
                found.append(Ablation("learned", name, changes))
    return found


MODEL_ABLATIONS = (
    Ablation("oracle", "", {}),
    Ablation("oracle", "share_parameters=off", {"learner.share_parameters": False}),
    Ablation("oracle", "critic=own-state", {"learner.critic": "own-state"}),
    Ablation("learned", "", {}),
    Ablation("learned", "gradient_steps=4", {"graph_model.gradient_steps": 4}),
    Ablation("learned", "condition_on_action=on", {"graph_model.condition_on_action": True}),
    Ablation("learned", "encoder=off", {"graph_model.encoder": False}),
    Ablation("learned", "multi_head=on", {"graph_model.multi_head": True}),
)
"""Single options of the critic, with the oracle graph, and of the learned graph's models."""


def _ablated(
    benchmark: str,
    scenario: str,
    ablations: Iterable[Ablation],
    steps: int,
    seeds: int,
    preset: Preset = "paper",
) -> list[Run]:
    """IPPO runs with these ablations, labelled with what they change."""
    runs = []
    for credit, changes, overrides in ablations:
        is_graph = credit not in ("local", "global")
        method, graph = ("ippo-dg", credit) if is_graph else (f"ippo-{credit}", "oracle")
        label = "-".join(filter(None, (method, graph if is_graph else "", changes)))
        env = f"lbf/{scenario}"
        runs.append(
            Run(benchmark, scenario, label, env, method, steps, graph, preset, overrides, seeds)
        )
    return runs


def _credit_ablation_runs() -> list[Run]:
    """Runs for options that may help graph credit where local reward learns faster (15x15-3p-4f),
    and for their effect where local reward fails (8x8-2p-4f-coop)."""
    of_scenario = {"15x15-3p-4f": 3_000_000, "8x8-2p-4f-coop": 2_000_000}
    return [
        run
        for scenario, steps in of_scenario.items()
        for run in _ablated("lbf-levers", scenario, _credit_ablations(), steps, seeds=5)
    ]


def _model_ablation_runs() -> list[Run]:
    """Short runs for the effect of single options on the graph and on early learning, and a longer
    one with a smaller weight of the other agent's reward, where no agent earns reward alone."""
    smaller_weight = [Ablation("learned", "cross_weight=0.3", {"credit.cross_weight": 0.3})]
    options: dict[str, Any] = {"seeds": 3, "preset": "tuned"}
    runs = [
        *_ablated("lbf-models", "10x10-2p-3f-coop", smaller_weight, 2_000_000, **options),
        *_ablated("lbf-models", "8x8-2p-4f-coop", MODEL_ABLATIONS, 500_000, **options),
        *_ablated("lbf-models", "15x15-3p-4f", MODEL_ABLATIONS, 1_000_000, **options),
    ]
    return [_as_published(run) for run in runs]


def credits_of(backbone: str, graph: str = "") -> tuple[str, str, str]:
    """Labels of the three kinds of credit."""
    return f"{backbone}-local", f"{backbone}-global", f"{backbone}-dg{graph}"


RUNS: Mapping[tuple[str, str, str], Run] = {
    (run.benchmark, run.scenario, run.label): run
    for run in (
        *_star_spread(),
        *_star_spread_unscaled(),
        *(run for scenario in SIX for run in _foraging(scenario)),
        *(run for scenario in SMACLITE_STEPS for run in _battles(scenario)),
        *_credit_ablation_runs(),
        *_model_ablation_runs(),
        *_rivals_foraging(),
        *_annealed(),
        *_rivals_star_spread(),
    )
}
"""By benchmark, scenario and label: the parts of the result's path."""


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
    "smaclite": _of_benchmark("smaclite"),
}
