"""The table of methods. The rest of the package reads everything it needs from a method's entry.

No other module tests a method's name or the type of its configuration. To add a method:

    register_method(Method("ippo-mine", "IPPO with my rule", ..., rule="my_module:MyRule"))
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from dgmarl.config.parts import (
    COMACreditConfig,
    CreditConfig,
    CriticCreditConfig,
    DifferenceCreditConfig,
    GraphCreditConfig,
    KHopCreditConfig,
    PPOConfig,
    PRDCreditConfig,
    QConfig,
)
from dgmarl.config.presets import (
    Overrides,
    Preset,
    central_graph_preset,
    graph_preset,
    iql_preset,
    ppo_preset,
    q_preset,
)
from dgmarl.errors import UnknownNameError, UsageError, suggest

SOLID, DASHED, DOTTED = "", "7 3", "2 2.5"
LOCAL, TEAM, GRAPH = "#E69F00", "#0072B2", "#009E73"
PPO_LEARNER, Q_LEARNER = "dgmarl.learners.ppo:PPO", "dgmarl.learners.q_learning:QLearner"


@dataclass(frozen=True)
class Method:
    """A named combination of a learner and a credit rule."""

    name: str
    about: str
    """Description in one line."""
    learner: str
    """Class of the learner, module:Class; imported when the method is used."""
    rule: str
    """Class of the credit rule, module:Class."""
    label: str
    """Label in legends and tables, followed by the graph source if the method uses one."""
    colour: str
    """Line colour, one per credit rule."""
    dash: str = SOLID
    """SVG dash pattern of the line, one per learner."""
    learner_config: type = PPOConfig
    credit_config: type = CreditConfig
    allowed: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    """Learner fields that define the method and their allowed values; the first is the default."""
    preset: Callable[[str, Preset], Overrides] = lambda env, preset: {}
    """Dotted overrides for an environment and a preset."""
    uses_graph: bool = False
    """The rule uses a dependence graph, so `--graph` applies."""
    whole_episodes: bool = False
    """The learner replays whole episodes, so `rollout_length` must be 0."""


METHODS: dict[str, Method] = {}


def register_method(method: Method) -> Method:
    """Add a method under a new name."""
    if method.name in METHODS:
        raise UsageError(f"The method {method.name} exists already: choose another name.")
    METHODS[method.name] = method
    return method


def find_method(name: str) -> Method:
    """The entry of a method; an unknown name raises UsageError."""
    if name not in METHODS:
        raise UnknownNameError(f"method is {name!r}, but {suggest(name, METHODS)}")
    return METHODS[name]


def method_of_label(label: str) -> tuple[Method | None, str]:
    """Split a result's name into its method and the rest, such as the graph's tag."""
    names = [name for name in METHODS if f"{label}-".startswith(f"{name}-")]
    name = max(names, key=len, default="")
    return METHODS.get(name), label[len(name) :].removeprefix("-") if name else label


class _Rule(NamedTuple):
    """A credit rule of both IPPO and MAPPO."""

    name: str
    """Second part of the method's name."""
    label: str
    """Suffix to the learner's name in legends."""
    rule: str
    """module:Class within `dgmarl.credit`."""
    colour: str
    about: str
    credit_config: type = CreditConfig
    uses_graph: bool = False


_RULES = (
    _Rule("local", " local", "local:LocalRule", LOCAL, "each agent credited with its own reward"),
    _Rule("global", " global", "team:TeamRule", TEAM, "credited with the sum of all rewards"),
    _Rule(
        "dg",
        "-DG",
        "graph:GraphRule",
        GRAPH,
        "credit along the dependence graph",
        GraphCreditConfig,
        uses_graph=True,
    ),
    _Rule(
        "khop",
        " k-hop",
        "khop:KHopRule",
        "#CC79A7",
        "credited with all agents within k hops in the step's graph",
        KHopCreditConfig,
        uses_graph=True,
    ),
    _Rule(
        "difference",
        " difference",
        "difference:DifferenceRule",
        "#56B4E9",
        "credited with the change in team reward that an action makes",
        DifferenceCreditConfig,
    ),
    _Rule(
        "prd",
        " PRD",
        "prd:PRDRule",
        "#AD1F4C",
        "credited with the rewards of agents whose action-value attends to it",
        PRDCreditConfig,
    ),
    _Rule(
        "coma",
        " COMA",
        "coma:COMARule",
        "#204ECF",
        "counterfactual credit for the team's reward",
        COMACreditConfig,
    ),
    _Rule(
        "gpae",
        " GPAE",
        "gpae:GPAERule",
        "#E2A198",
        "counterfactual credit for the team's reward over several steps",
        CriticCreditConfig,
    ),
)
for _learner, _critics, _dash, _graph_preset in (
    ("IPPO", ("agent", "own-state"), SOLID, graph_preset),
    ("MAPPO", ("central", "central-heads"), DASHED, central_graph_preset),
):
    for _rule in _RULES:
        register_method(
            Method(
                f"{_learner.lower()}-{_rule.name}",
                f"{_learner}, {_rule.about}",
                PPO_LEARNER,
                f"dgmarl.credit.{_rule.rule}",
                f"{_learner}{_rule.label}",
                _rule.colour,
                _dash,
                credit_config=_rule.credit_config,
                allowed={"critic": _critics},
                preset=_graph_preset if _rule.name == "dg" else ppo_preset,
                uses_graph=_rule.uses_graph,
            )
        )
for _name, _mixer, _colour, _about in (
    ("iql", "none", "#A04000", "independent Q-learning from each agent's own reward"),
    ("vdn", "vdn", "#447788", "Q-learning of the team reward with a sum of agents' values"),
    ("qmix", "qmix", "#5B3FFF", "Q-learning of the team reward with a monotonic mixer"),
    ("qplex", "qplex", "#FF5566", "Q-learning of the team reward with a duplex dueling mixer"),
):
    register_method(
        Method(
            _name,
            _about,
            Q_LEARNER,
            "dgmarl.credit.local:LocalRule" if _name == "iql" else "dgmarl.credit.team:TeamRule",
            _name.upper(),
            _colour,
            DOTTED,
            learner_config=QConfig,
            allowed={"mixer": (_mixer,)},
            preset=iql_preset if _name == "iql" else q_preset,
            whole_episodes=True,
        )
    )
