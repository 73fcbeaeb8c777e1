"""What a training run is made of: the methods by name, the paper's numbers per benchmark, and one frozen configuration."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from dgmarl.config import build, override, suggest
from dgmarl.envs.registry import located
from dgmarl.errors import UsageError
from dgmarl.learners.ppo import PPOConfig

FORMAT_VERSION = 1
"""Of run folders; a folder with a higher one was written by a newer dgmarl."""

MOST = 2_000_000_000
"""Steps are counted, and seeds are numbered, with 32 bits."""

METHODS = tuple(f"{backbone}-{credit}" for backbone in ("ippo", "mappo") for credit in ("local", "global", "dg"))


@dataclass(frozen=True)
class EvaluationConfig:
    """How a policy is judged: raw team return of whole episodes, the same for every kind of credit."""

    interval: int = 50_000
    """Environment steps between two evaluations (rounded up to whole iterations)."""
    episodes: int = 100
    """Episodes per evaluation."""
    greedy: bool = False
    """Take the most likely action instead of sampling."""


@dataclass(frozen=True)
class TrainConfig:
    """A training run, resolved: nothing is looked up anywhere else."""

    env: str
    """Environment id, module:Class or file.py:Class."""
    env_options: dict[str, Any] = field(default_factory=dict)
    """Options of the environment."""
    method: str = "ippo-dg"
    """Backbone and credit: ippo or mappo, then -local, -global or -dg."""
    graph: str = "oracle"
    """Where dependence graphs come from (for -dg): see `dgmarl.graphs.sources`."""
    seeds: int = 5
    """How many independent runs, trained side by side in one program."""
    seed: int = 0
    """The first seed; the others count on from it."""
    steps: int = 1_000_000
    """Environment steps per seed."""
    n_envs: int = 10
    """Environments played side by side per seed."""
    collect: Literal["episodes", "windows"] = "episodes"
    """One whole episode per environment and iteration (the paper's), or windows with automatic resets (for throughput)."""
    window: int = 0
    """Steps per window; 0: the horizon of the environment."""
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    """How and how often to evaluate."""
    learner: PPOConfig = field(default_factory=PPOConfig)
    """Numbers of the learner."""
    deterministic: bool = False
    """Ask the GPU for bit-identical runs (the command line sets the compiler's flag); a CPU always gives them."""
    format: int = FORMAT_VERSION
    """Version of the run folder's format."""

    def __post_init__(self) -> None:
        """Refuse what cannot run."""
        if self.format != FORMAT_VERSION:
            raise UsageError(f"format is {self.format}, but this dgmarl writes format {FORMAT_VERSION}: leave it out.")
        if self.method not in METHODS:
            raise UsageError(f"method is {self.method!r}, but {suggest(self.method, METHODS)}")
        credit = self.method.partition("-")[2].replace("dg", "graph")
        if credit != self.learner.credit:
            raise UsageError(
                f"method is {self.method}, but learner.credit is {self.learner.credit}: set only the method, it decides."
            )
        if (self.method.startswith("ippo")) != (self.learner.critic == "agent"):
            raise UsageError(
                f"method is {self.method}, but learner.critic is {self.learner.critic}: IPPO has the critic agent, "
                "MAPPO central or central-heads."
            )
        for name in ("seeds", "n_envs", "steps"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} is {getattr(self, name)}, but must be at least 1.")
        for name in ("steps", "seed"):
            if not 0 <= getattr(self, name) <= MOST:
                raise UsageError(f"{name} is {getattr(self, name)}, but must be from 0 to {MOST:,}: counters have 32 bits.")
        if self.evaluation.interval < 1 or self.evaluation.episodes < 1:
            raise UsageError("evaluation.interval and evaluation.episodes must be at least 1.")
        if self.n_envs % self.learner.minibatches:
            raise UsageError(
                f"n_envs is {self.n_envs}, but must be a multiple of learner.minibatches, which is {self.learner.minibatches}."
            )
        if self.window < 0 or (self.window and self.collect == "episodes"):
            raise UsageError(f"window is {self.window}, but whole episodes need none: leave it 0, or choose collect = windows.")


# The paper's table of hyperparameters, per benchmark; what is not named is the default of PPOConfig and EvaluationConfig.
PRESETS: dict[str, dict[str, Any]] = {
    "lbf": {},
    "star-spread": {
        "learner.hidden": 64,
        "learner.entropy": 0.01,
        "learner.standardise_reward": True,
        "learner.normalise_advantage": True,
        "evaluation.interval": 20_000,
    },
    # Not from the paper: rewards of any scale, so both scalings are on.
    "other": {"learner.entropy": 0.01, "learner.standardise_reward": True, "learner.normalise_advantage": True},
}
_HEADS = ("star-spread",)


def preset(env: str, method: str) -> dict[str, Any]:
    """The paper's numbers for a method on the family of `env`, as dotted overrides of a TrainConfig."""
    if method not in METHODS:
        raise UsageError(f"method is {method!r}, but {suggest(method, METHODS)}")
    family = env.partition("/")[0]
    backbone, _, credit = method.partition("-")
    # The paper's code gives MAPPO-DG a critic with one head per agent where the state is no list of observations.
    central = "central-heads" if credit == "dg" and family in _HEADS else "central"
    return {
        **PRESETS.get(family, PRESETS["other"]),
        "learner.credit": "graph" if credit == "dg" else credit,
        "learner.critic": "agent" if backbone == "ippo" else central,
    }


def resolve(env: str, method: str = "ippo-dg", overrides: Mapping[str, Any] | None = None, **values: Any) -> TrainConfig:
    """The configuration of a run: preset of environment and method, then `values`, then dotted `overrides`."""
    base = {**values, "env": located(env), "graph": located(values.get("graph", "oracle"))}
    return override(build(TrainConfig, base), {"method": method, **preset(env, method), **(overrides or {})})
