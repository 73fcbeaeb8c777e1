"""What a training run is made of: the methods by name, the paper's numbers per benchmark, and one
frozen configuration."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from dgmarl.config.yaml import build, dotted, override, plain, suggest
from dgmarl.envs.registry import located, make_env
from dgmarl.errors import UsageError
from dgmarl.graphs.learned import GraphModelConfig
from dgmarl.learners.ppo import PPOConfig
from dgmarl.learners.q_learning import QConfig

FORMAT_VERSION = 1
"""Of run folders; a folder with a higher one was written by a newer dgmarl."""

Preset = Literal["tuned", "paper", "fast"]

MOST = 2_000_000_000
"""Steps are counted, and seeds are numbered, with 32 bits."""

PPO_METHODS = tuple(
    f"{backbone}-{credit}" for backbone in ("ippo", "mappo") for credit in ("local", "global", "dg")
)
MIXERS = {"iql": "none", "vdn": "vdn", "qmix": "qmix", "qplex": "qplex"}
"""The value-based methods and what makes them differ."""
METHODS = (*PPO_METHODS, *MIXERS)


@dataclass(frozen=True)
class EvaluationConfig:
    """How a policy is judged: raw team return of whole episodes, the same for every kind of
    credit."""

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
    """Backbone and credit, ippo or mappo, then -local, -global or -dg; or iql, vdn, qmix, qplex."""
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
    """One whole episode per environment and iteration (the paper's), or windows with automatic
    resets (for throughput)."""
    window: int = 0
    """Steps per window; 0: the horizon of the environment."""
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    """How and how often to evaluate."""
    learner: PPOConfig | QConfig = field(default_factory=PPOConfig)
    """Numbers of the learner, which the method decides."""
    graph_model: GraphModelConfig = field(default_factory=GraphModelConfig)
    """Numbers of the learned graph (for graph = learned)."""
    deterministic: bool = False
    """Ask the GPU for bit-identical runs (the command line sets the compiler's flag); a CPU always
    gives them."""
    format: int = FORMAT_VERSION
    """Version of the run folder's format."""

    @classmethod
    def field_types(cls, values: Mapping[str, Any]) -> dict[str, type]:
        """The method decides which fields the learner has."""
        return {"learner": QConfig if values.get("method") in MIXERS else PPOConfig}

    def __post_init__(self) -> None:
        """Refuse what cannot run."""
        if self.format != FORMAT_VERSION:
            raise UsageError(
                f"format is {self.format}, but this dgmarl writes format {FORMAT_VERSION}: leave "
                "it out."
            )
        if self.method not in METHODS:
            raise UsageError(f"method is {self.method!r}, but {suggest(self.method, METHODS)}")
        if isinstance(self.learner, PPOConfig):
            _check_ppo(self.method, self.n_envs, self.learner)
        else:
            _check_q_learning(self.method, self.n_envs, self.collect, self.learner)
        for name in ("seeds", "n_envs", "steps"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} is {getattr(self, name)}, but must be at least 1.")
        for name in ("steps", "seed"):
            if not 0 <= getattr(self, name) <= MOST:
                raise UsageError(
                    f"{name} is {getattr(self, name)}, but must be from 0 to {MOST:,}: counters "
                    "have 32 bits."
                )
        if self.evaluation.interval < 1 or self.evaluation.episodes < 1:
            raise UsageError("evaluation.interval and evaluation.episodes must be at least 1.")
        if self.window < 0 or (self.window and self.collect == "episodes"):
            raise UsageError(
                f"window is {self.window}, but whole episodes need none: leave it 0, or choose "
                "collect = windows."
            )


def _check_ppo(method: str, n_envs: int, learner: PPOConfig) -> None:
    credit = method.partition("-")[2].replace("dg", "graph")
    if credit != learner.credit:
        raise UsageError(
            f"method is {method}, but learner.credit is {learner.credit}: set only the method, it "
            "decides."
        )
    if (method.startswith("ippo")) != (learner.critic in ("agent", "own-state")):
        raise UsageError(
            f"method is {method}, but learner.critic is {learner.critic}: IPPO has the critic "
            "agent or own-state, MAPPO central or central-heads."
        )
    if n_envs % learner.minibatches:
        raise UsageError(
            f"n_envs is {n_envs}, but must be a multiple of learner.minibatches, which is "
            f"{learner.minibatches}."
        )
    if learner.adapt_cross_weight and n_envs < 2:
        raise UsageError(
            f"n_envs is {n_envs}, but learner.adapt_cross_weight compares two halves of the "
            "environments: choose at least 2."
        )


def _check_q_learning(method: str, n_envs: int, collect: str, learner: QConfig) -> None:
    if MIXERS.get(method) != learner.mixer:
        raise UsageError(
            f"method is {method}, but learner.mixer is {learner.mixer}: set only the method, it "
            "decides."
        )
    if collect != "episodes":
        raise UsageError(
            f"collect is {collect}, but {method} replays whole episodes: leave collect out."
        )
    if n_envs % (share := learner.episodes_per_update):
        raise UsageError(
            f"n_envs is {n_envs}, but must be a multiple of learner.episodes_per_update, which is "
            f"{share}."
        )
    if n_envs > learner.buffer_size:
        raise UsageError(
            f"n_envs is {n_envs}, but learner.buffer_size is {learner.buffer_size}: an "
            "iteration's episodes must fit."
        )


# The paper's table of hyperparameters, per benchmark; what is not named is the default of PPOConfig
# and EvaluationConfig.
PRESETS: dict[str, dict[str, Any]] = {
    "lbf": {},
    "star-spread": {
        "learner.hidden": 64,
        "learner.entropy": 0.01,
        "learner.standardise_reward": True,
        "learner.normalise_advantage": True,
        "evaluation.interval": 20_000,
        "graph_model.encoder": False,
        "graph_model.multi_head": True,
    },
    "smaclite": {
        "learner.network": "gru",
        "learner.hidden": 64,
        "evaluation.interval": 10_000,
        "evaluation.greedy": True,
        "graph_model.multi_head": True,
    },
    # Not from the paper: rewards of any scale, so both scalings are on.
    "other": {
        "learner.entropy": 0.01,
        "learner.standardise_reward": True,
        "learner.normalise_advantage": True,
    },
}
_HEADS = ("star-spread", "smaclite")

# For throughput, in every family: what the paper's 10 environments play in eight iterations, 128
# play in one. An update sees as many steps as the paper's (16 environments x 32, against 10
# episodes of about 50), and there are as many updates per step; a learned graph has as many too,
# each on all steps but an eighth of the pairs.
FAST: dict[str, Any] = {
    "n_envs": 128,
    "collect": "windows",
    "window": 32,
    "learner.minibatches": 8,
    "graph_model.gradient_steps": 8,
    "graph_model.pair_fraction": 1 / 8,
    "evaluation.interval": 50_000,
}

# The paper's numbers for the value-based methods; what is not named is the default of QConfig,
# which is EPyMARL's.
Q_PRESETS: dict[str, dict[str, Any]] = {
    # EPyMARL's tuned numbers, used by the paper for IQL and QMIX; VDN and QPLEX take QMIX's, so
    # that the mixer is all that differs. Observations are small whole numbers.
    "lbf": {
        "learner.network": "gru",
        "learner.learning_rate": 3e-4,
        "learner.epsilon_steps": 200_000,
        "learner.evaluation_epsilon": 0.05,
        "learner.target_update": 0.01,
        "learner.buffer_precision": "float16",
    },
    "star-spread": {"evaluation.interval": 20_000},
    # pymarl2's, tuned for SMAC; what is observed is of order 1, so half the memory keeps three
    # decimals.
    "smaclite": {
        "learner.buffer_precision": "float16",
        "n_envs": 8,
        "learner.network": "gru",
        "learner.last_action": True,
        "learner.learning_rate": 1e-3,
        "learner.loss_weight": 0.5,
        "learner.lambda_": 0.6,
        "learner.batch_size": 128,
        "learner.episodes_per_update": 8,
        "learner.target_unit": "episodes",
        "learner.epsilon_steps": 100_000,
        "learner.standardise_reward": False,
        "evaluation.interval": 10_000,
    },
    "other": {},
}
_IQL_PRESETS = {"lbf": {"learner.hidden": 128, "learner.target_update": 200}}


def preset(env: str, method: str, name: Preset = "tuned") -> dict[str, Any]:
    """Numbers for a method on the family of `env`, as dotted overrides of a TrainConfig: the
    published ones, or better, or the better ones with many environments."""
    if name not in ("tuned", "paper", "fast"):
        raise UsageError(f"preset is {name!r}, but must be tuned, paper or fast.")
    if name == "fast" and method in MIXERS:
        raise UsageError(
            f"preset is fast, which plays windows, but {method} replays whole episodes: choose "
            "tuned or paper."
        )
    family = env.partition("/")[0]
    presets = Q_PRESETS if method in MIXERS else PRESETS
    of_family = {
        **presets.get(family, presets["other"]),
        **(_IQL_PRESETS.get(family, {}) if method == "iql" else {}),
    }
    tuned = _tuned(env) if name != "paper" and method.endswith("-dg") else {}
    fast = FAST if name == "fast" else {}
    return {
        **of_family,
        **tuned,
        **fast,
        **{f"learner.{name}": value for name, value in _implied(family, method).items()},
    }


def _tuned(env: str) -> dict[str, Any]:
    """What we found better than the paper's numbers for graph credit (docs/learned-graphs.md),
    where we looked: foraging.

    Others' rewards are mostly noise in a team of three or more, and count less; with one partner
    they are the signal."""
    if not env.startswith("lbf/"):
        return {}
    return {
        "learner.weighted": False,
        "learner.cross_weight": 1.0 if make_env(env).spec.n_agents == 2 else 0.3,
    }


def _implied(family: str, method: str) -> dict[str, str]:
    """The fields of the learner that make the method what it is."""
    if method not in METHODS:
        raise UsageError(f"method is {method!r}, but {suggest(method, METHODS)}")
    if method in MIXERS:
        return {"mixer": MIXERS[method], "credit": "local" if method == "iql" else "global"}
    backbone, _, credit = method.partition("-")
    # The paper's code gives MAPPO-DG a critic with one head per agent where the state is no list of
    # observations.
    central = "central-heads" if credit == "dg" and family in _HEADS else "central"
    return {
        "credit": "graph" if credit == "dg" else credit,
        "critic": "agent" if backbone == "ippo" else central,
    }


def resolve(
    env: str,
    method: str = "ippo-dg",
    overrides: Mapping[str, Any] | None = None,
    preset_name: Preset = "tuned",
    **values: Any,
) -> TrainConfig:
    """The configuration of a run: preset of environment and method, then `values`, then dotted
    `overrides`."""
    implied = {"method": method, "learner": _implied(env.partition("/")[0], method)}
    # What is given of a nested configuration must win over the preset, field by field.
    given = dotted(
        {
            name: plain(values.pop(name))
            for name in ("evaluation", "learner", "graph_model")
            if name in values
        }
    )
    base = {
        **values,
        "env": located(env),
        "graph": located(values.get("graph", "oracle")),
        **implied,
    }
    numbers = {
        name: value
        for name, value in preset(env, method, preset_name).items()
        if name not in values
    }
    return override(build(TrainConfig, base), {**numbers, **given, **(overrides or {})})
