"""The resolved configuration of a run. No JAX."""

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
"""Format of run folders; folders with a higher number were written by a newer dgmarl."""


@dataclass(frozen=True)
class TrainConfig:
    """Configuration of a training run."""

    env: str
    """Environment id, module:Class or file.py:Class."""
    env_options: dict[str, Any] = field(default_factory=dict)
    """Options of the environment."""
    method: str = "ippo-dg"
    """Learner and credit rule: ippo or mappo, then -local, -global, -dg, -khop, -difference, -prd,
    -coma or -gpae; or iql, vdn, qmix, qplex."""
    graph: str = "oracle"
    """Source of the dependence graphs, for -dg and -khop: oracle, interventional[:H[:K]], learned,
    attention[:C], self, complete, random:P, fixed:FILE or file.py:Source."""
    seeds: int = 5
    """Number of seeds, trained in parallel in one program."""
    seed: int = 0
    """First seed; the others are the next integers."""
    steps: int = 1_000_000
    """Environment steps per seed."""
    n_envs: int = 10
    """Parallel environments per seed; 0: enough for about 500 steps per update."""
    rollout_length: int = 0
    """Steps per environment and iteration, with automatic resets; 0: one whole episode."""
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    """Periodic evaluation by the raw team return of whole episodes."""
    learner: Any = field(default_factory=PPOConfig)
    """Learner; the options depend on the method."""
    credit: Any = field(default_factory=GraphCreditConfig)
    """Credit rule; the options depend on the method."""
    graph_model: GraphModelConfig = field(default_factory=GraphModelConfig)
    """Models of the graph sources learned and attention."""
    separate_seeds: bool = False
    """Train the seeds of a device one after the other instead of vmapped: the result of a seed is
    then bit-identical for any number of seeds and devices (on a GPU with `deterministic`; slow)."""
    deterministic: bool = False
    """Bit-identical runs on a GPU too, with slower reductions."""
    format: int = FORMAT_VERSION
    """Version of the run folder's format."""

    @classmethod
    def field_types(cls, values: Mapping[str, Any]) -> dict[str, type]:
        """The classes of `learner` and `credit`, which depend on the method."""
        method = METHODS.get(str(values.get("method", cls.method)))
        if method is None:
            return {}
        return {"learner": method.learner_config, "credit": method.credit_config}

    @property
    def all_seeds(self) -> range:
        """The seeds of the run."""
        return range(self.seed, self.seed + self.seeds)

    @property
    def names(self) -> dict[str, str]:
        """Fields that may name Python code, for `dgmarl.trust`."""
        networks = {f"learner.{name}": str(getattr(self.learner, name, "")) for name in NETWORKS}
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
    """Check that learner and credit fit the method and the rollouts."""
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
            "the episodes of an iteration must fit into the buffer."
        )
