"""The configuration of a run, resolved: nothing is looked up anywhere else. No JAX."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dgmarl.config.methods import METHODS, Method, find_method
from dgmarl.config.parts import (
    NETWORKS,
    EvaluationConfig,
    GraphCreditConfig,
    GraphModelConfig,
    PPOConfig,
)
from dgmarl.config.ranges import check_fields
from dgmarl.errors import UsageError, suggest

FORMAT_VERSION = 2
"""Of run folders; a folder with a higher one was written by a newer dgmarl."""


@dataclass(frozen=True)
class TrainConfig:
    """A training run."""

    env: str
    """Environment id, module:Class or file.py:Class."""
    env_options: dict[str, Any] = field(default_factory=dict)
    """Options of the environment."""
    method: str = "ippo-dg"
    """Learner and credit rule: ippo or mappo, then -local, -global, -dg, -khop, -difference, -prd,
    -coma or -gpae; or iql, vdn, qmix, qplex."""
    graph: str = "oracle"
    """Source of the dependence graphs, for -dg and -khop: oracle, interventional[:H], learned,
    attention[:C], self, complete, random:P, fixed:FILE or file.py:Source."""
    seeds: int = 5
    """Independent runs, trained in one program."""
    seed: int = 0
    """The first seed; the others count on from it."""
    steps: int = 1_000_000
    """Environment steps per seed."""
    n_envs: int = 10
    """Parallel environments per seed; 0: enough for 500 steps per update, by the length of
    episodes."""
    rollout_length: int = 0
    """Steps per environment and iteration, with automatic resets; 0: one whole episode each."""
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    """Evaluation."""
    learner: Any = field(default_factory=PPOConfig)
    """The learner; its fields depend on the method."""
    credit: Any = field(default_factory=GraphCreditConfig)
    """The credit rule; its fields depend on the method."""
    graph_model: GraphModelConfig = field(default_factory=GraphModelConfig)
    """The graph's models, for graph = learned or attention."""
    separate_seeds: bool = False
    """Train every seed by itself, instead of all at once: its result is then the same, bit for bit,
    with any number of seeds and devices (on a GPU with `deterministic`, and slowly)."""
    deterministic: bool = False
    """Bit-identical runs on a GPU too, at the price of slower reductions."""
    format: int = FORMAT_VERSION
    """Version of the run folder's format."""

    @classmethod
    def field_types(cls, values: Mapping[str, Any]) -> dict[str, type]:
        """The method decides which fields the learner and the credit rule have."""
        method = METHODS.get(str(values.get("method", cls.method)))
        if method is None:
            return {}
        return {"learner": method.learner_config, "credit": method.credit_config}

    @property
    def names(self) -> dict[str, str]:
        """The fields that may name Python code, for `dgmarl.trust`."""
        fields = {name: str(getattr(self.learner, name, "")) for name in NETWORKS}
        networks = {f"learner.{name}": value for name, value in fields.items()}
        return {"env": self.env, "graph": self.graph, **networks}

    def __post_init__(self) -> None:
        if self.format != FORMAT_VERSION:
            raise UsageError(
                f"format is {self.format}, but this dgmarl writes format {FORMAT_VERSION}: "
                "leave it out."
            )
        method = find_method(self.method)
        check_fields(self)
        _check_learner(method, self)


def _check_learner(method: Method, config: TrainConfig) -> None:
    """The learner's configuration is the method's, and it fits the rollouts."""
    for part, expected in (("learner", method.learner_config), ("credit", method.credit_config)):
        if type(getattr(config, part)) is not expected:
            raise UsageError(f"{part} must be a {expected.__name__} for {method.name}.")
    for name, allowed in method.allowed.items():
        value = getattr(config.learner, name)
        if value not in allowed:
            raise UsageError(
                f"learner.{name} is {value!r}, but for {method.name} {suggest(str(value), allowed)}"
            )
    if method.whole_episodes and config.rollout_length:
        raise UsageError(
            f"rollout_length is {config.rollout_length}, but {method.name} replays whole episodes: "
            "leave it 0."
        )
    for name in ("minibatches", "episodes_per_update"):
        divisor = getattr(config.learner, name, 1)
        if config.n_envs % divisor:
            raise UsageError(
                f"n_envs is {config.n_envs}, but must be a multiple of learner.{name}, which is "
                f"{divisor}."
            )
    if config.n_envs > getattr(config.learner, "buffer_size", config.n_envs):
        raise UsageError(
            f"n_envs is {config.n_envs}, but learner.buffer_size is {config.learner.buffer_size}: "
            "an iteration's episodes must fit."
        )
