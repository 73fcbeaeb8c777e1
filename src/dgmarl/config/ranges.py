"""Ranges of all numbers in configurations, commands and Python calls. No JAX."""

import dataclasses
import math
from typing import Any, NamedTuple

from dgmarl.errors import UsageError


class Range(NamedTuple):
    """The numbers from `low` to `high`."""

    low: float
    high: float
    above: bool = False
    """`low` itself is excluded."""
    about: str = ""
    """Explanation of a limit, appended to the message."""

    def allows(self, value: float) -> bool:
        """Whether the number is in the range; NaN never is."""
        return (self.low < value if self.above else self.low <= value) and value <= self.high

    def __str__(self) -> str:
        high = _written(self.high)
        if self.above:
            return f"above {_written(self.low)} and at most {high}{self.about}"
        return f"from {_written(self.low)} to {high}{self.about}"


COUNT = Range(1, 2_000_000_000, about=" (counters have 32 bits)")
SEED = COUNT._replace(low=0)
EPISODES = Range(1, 1_000_000)
WIDTH = Range(1, 16_384)
FRACTION = Range(0, 1)
POSITIVE = Range(0, 1e9, above=True)
WEIGHT = Range(0, 1e9)
MANY = Range(1, 1_000_000)

RANGES = {
    # Options of commands.
    "seed": SEED,
    "trained_seed": SEED,
    "seeds": Range(1, 100_000),
    "steps": COUNT,
    "episodes": EPISODES,
    "workers": Range(1, 1_000),
    "batched": Range(1, 10_000),
    "retries": Range(0, 100),
    "cpus": Range(1, 1_000),
    "gpus": Range(0, 100),
    "scale": Range(0.01, 100),
    "keep_every": SEED._replace(about=" (0: keep the latest two)"),
    "interventional": Range(1, 1_000, about=" steps ahead"),
    "alternatives": Range(1, 1_000_000, about=" alternative actions"),
    # Fields of a configuration.
    "n_envs": Range(0, 1_000_000, about=" (0: chosen by the length of episodes)"),
    "rollout_length": Range(0, 1_000_000, about=" (0: whole episodes)"),
    "evaluation.interval": COUNT,
    "evaluation.episodes": EPISODES,
    **dict.fromkeys(("learner.gamma", "learner.lambda_", "learner.clip_eps"), FRACTION),
    **dict.fromkeys(("learner.hidden", "learner.mixer_embedding"), WIDTH),
    **dict.fromkeys(("learner.mixer_hidden", "learner.mixer_heads"), WIDTH),
    **dict.fromkeys(("learner.learning_rate", "learner.max_grad_norm"), POSITIVE),
    **dict.fromkeys(("learner.epochs", "learner.minibatches", "learner.batch_size"), MANY),
    **dict.fromkeys(("learner.buffer_size", "learner.episodes_per_update"), MANY),
    **dict.fromkeys(("learner.target_update_interval", "learner.epsilon_steps"), COUNT),
    **dict.fromkeys(("learner.tau", "learner.epsilon_start", "learner.epsilon_end"), FRACTION),
    "learner.evaluation_epsilon": FRACTION,
    "learner.entropy_coef": WEIGHT,
    "learner.loss_weight": POSITIVE,
    "credit.unreached_weight": FRACTION,
    "credit.cross_weight": FRACTION,
    "credit.threshold": WEIGHT,
    "credit.hops": Range(1, 1_000),
    "credit.critic_epochs": MANY,
    "graph_model.threshold": WEIGHT,
    "graph_model.encoding": WIDTH,
    "graph_model.gradient_steps": MANY,
    "graph_model.learning_rate": POSITIVE,
    "graph_model.pair_fraction": Range(0, 1, above=True),
    # Options of environments.
    "lbf.size": Range(5, 30),
    "lbf.n_players": Range(2, 16),
    "lbf.n_foods": Range(1, 16),
    "lbf.penalty": WEIGHT,
    "lbf.max_food_level": Range(1, 6),
    "lbf.oracle_neighbours": Range(0, 16),
    "star-spread.n_agents": Range(2, 10_000, about=", a hub and at least one leaf"),
    "star-spread.noise": WEIGHT,
    "smaclite.oracle_distance": WEIGHT,
    "smaclite.oracle_neighbours": MANY._replace(about=", including the agent itself"),
    "lbf.horizon": MANY,
    **dict.fromkeys(("star-spread.horizon", "smaclite.horizon"), COUNT),
}
"""By the name of an option, or the dotted name of a field."""


def check_number(name: str, value: float | None, shown: str = "") -> None:
    """Raise UsageError for a number outside the range of `name`. shown: its name in the message."""
    if value is not None and not RANGES[name].allows(value):
        raise UsageError(f"{shown or name} is {_written(value)}, but must be {RANGES[name]}.")


def check_fields(part: Any, section: str = "", *, flags: bool = False) -> None:
    """Check every field with a range of a configuration, or of a section of it. flags: it is a
    command, whose fields are shown as flags."""
    for field in dataclasses.fields(part):
        name = f"{section}.{field.name}" if section else field.name
        shown = f"--{name.replace('_', '-')}" if flags else name
        if name in RANGES:
            check_number(name, getattr(part, field.name), shown)


def _written(value: float) -> str:
    """A number with thousands separators; only the magnitude of very large integers."""
    if isinstance(value, float):
        return f"{value:,g}"
    if abs(value) < 10**15:
        return f"{value:,}"
    return f"about {'-' if value < 0 else ''}1e{int(math.log10(abs(value)))}"
