"""Resolves names, presets, files and flags to a `TrainConfig`. Builds no environment."""

from collections.abc import Mapping
from math import lcm
from pathlib import Path
from typing import Any

from dgmarl.config.methods import METHODS, Method, find_method
from dgmarl.config.parts import NETWORKS, EvaluationConfig, GraphModelConfig
from dgmarl.config.presets import PRESETS, Preset
from dgmarl.config.schema import TrainConfig
from dgmarl.config.yaml import build, dotted, nested, override, plain
from dgmarl.errors import UsageError
from dgmarl.trust import GRAPH_KINDS, is_code, unknown_graph

SECTIONS = ("evaluation", "learner", "credit", "graph_model")
EVALUATIONS = 10
"""Minimum number of evaluations of a short run, unless the interval is given."""
UPDATE_STEPS = 500
"""Environment steps per update if n_envs is 0; the paper's ten episodes of 50 have as many."""
FEWEST_ENVS, FEWEST_UPDATES = 10, 10
"""If n_envs is 0: at least so many environments, and more only if so many updates are left."""


def resolve(
    env: str,
    method: str = "ippo-dg",
    overrides: Mapping[str, Any] | None = None,
    preset: Preset = "tuned",
    like: str = "",
    **values: Any,
) -> TrainConfig:
    """The configuration of a run: the preset of environment and method, then `values`, then dotted
    `overrides`, of which later ones take precedence.

    like: environment whose preset to use instead, such as the one that `env` wraps."""
    if preset not in PRESETS:
        raise UsageError(f"preset is {preset!r}, but must be tuned, paper or fast.")
    entry = find_method(method)
    _refuse_misplaced(entry, overrides or {}, values)
    graph = str(values.get("graph", TrainConfig.graph))
    # The module of the environment may register further sources.
    if graph.partition(":")[0] not in GRAPH_KINDS and not is_code(graph) and ":" not in env:
        raise unknown_graph(graph)
    # Fields of a section override the preset one by one.
    sections = {name: plain(values.pop(name)) for name in SECTIONS if name in values}
    given = {**dotted(sections), **(overrides or {})}
    networks = {f"learner.{name}" for name in NETWORKS} & given.keys()
    names = {"env": env, "graph": graph, **{name: given[name] for name in networks}}
    defining = {f"learner.{name}": allowed[0] for name, allowed in entry.allowed.items()}
    numbers = {**defining, **entry.preset(like or env, preset)}
    numbers = {name: value for name, value in numbers.items() if name not in values}
    flat = {**values, **numbers, **given, **{k: absolute_name(str(v)) for k, v in names.items()}}
    config = build(TrainConfig, {**nested(flat), "method": method})
    if preset == "paper" or "evaluation.interval" in given:
        return config
    interval = min(config.evaluation.interval, max(config.steps // EVALUATIONS, 1))
    return override(config, {"evaluation.interval": interval})


def _refuse_misplaced(
    method: Method, overrides: Mapping[str, Any], values: Mapping[str, Any]
) -> None:
    """Refuse a field of a section that is given without its section, and a graph that is no name.
    values: the arguments of `dgmarl.train`."""
    if not isinstance(graph := values.get("graph", ""), str):
        raise UsageError(
            f"graph is of type {type(graph).__name__}, but must be text such as 'oracle': save a "
            "matrix with numpy.save('graph.npy', matrix) and give graph='fixed:graph.npy'."
        )
    classes = {"learner": method.learner_config, "credit": method.credit_config}
    classes |= {"evaluation": EvaluationConfig, "graph_model": GraphModelConfig}
    for name in {**overrides, **values}.keys() - TrainConfig.__dataclass_fields__.keys():
        places = [part for part, cls in classes.items() if name in cls.__dataclass_fields__]
        if places:
            full = f"{places[0]}.{name}"
            way = f"overrides={{{full!r}: {values[name]!r}}}" if name in values else full
            raise UsageError(f"{name} is a field of {' and of '.join(places)}: give {way}.")


def merge(
    file: Mapping[str, Any],
    env: str,
    method: str,
    overrides: Mapping[str, Any],
    preset: Any,
    like: str = "",
) -> TrainConfig:
    """The configuration from the preset, the file and the flags, of which later ones take
    precedence.

    If `method` is not the file's, the fields that define the file's method are dropped, and the
    other learner and credit fields too unless both methods have the same class of them."""
    before, after = find_method(str(file.get("method", method))), find_method(method)
    for name in ("env", "method"):
        if name in overrides:
            raise UsageError(f"--set {name}=... is not allowed: give ENV or --method instead.")
    if "graph" in overrides and not after.uses_graph:
        others = ", ".join(name for name, each in METHODS.items() if each.uses_graph)
        raise UsageError(
            f"--graph is {overrides['graph']}, but {method} uses no graph: leave it out, or choose "
            f"one of {others}."
        )
    given = dotted(file, leave_out=("env", "method", "format"))
    if before is not after:
        dropped = [f"learner.{name}" for name in before.allowed]
        if before.learner_config is not after.learner_config:
            dropped.append("learner.")
        if before.credit_config is not after.credit_config:
            dropped.append("credit.")
        given = {k: v for k, v in given.items() if not k.startswith(tuple(dropped))}
    given |= overrides
    graph = given.pop("graph", TrainConfig.graph)
    return resolve(env, method, given, preset, like, graph=graph)


def with_n_envs(config: TrainConfig, horizon: int) -> TrainConfig:
    """The configuration with `n_envs` chosen by the horizon if it is 0."""
    if config.n_envs:
        return config
    length = config.rollout_length or horizon
    most = config.steps // (FEWEST_UPDATES * length)
    wanted = max(FEWEST_ENVS, min(-(-UPDATE_STEPS // length), most))
    unit = lcm(*(getattr(config.learner, n, 1) for n in ("minibatches", "episodes_per_update")))
    return override(config, {"n_envs": -(-wanted // unit) * unit})


def extend(config: TrainConfig, steps: int | None) -> TrainConfig:
    """The configuration of a run extended to `steps`; None: unchanged."""
    if steps is None:
        return config
    longer = override(config, {"steps": steps})
    if longer.steps < config.steps:
        raise UsageError(
            f"steps is {longer.steps:,}, but the run has {config.steps:,} already: give more."
        )
    return longer


def absolute_name(text: str) -> str:
    """`file.py:name`, `fixed:file` or `smaclite/file.yaml` with an absolute path, so that the run
    can be resumed from any folder; other texts unchanged."""
    family, _, scenario = text.partition("/")
    if family == "smaclite" and scenario.endswith((".yaml", ".yml")):
        return f"smaclite/{Path(scenario).resolve()}"
    place, _, name = text.rpartition(":")
    if place == "fixed" and name:
        return f"fixed:{Path(name).resolve()}"
    is_file = place.endswith(".py") and Path(place).is_file()
    return f"{Path(place).resolve()}:{name}" if is_file else text
