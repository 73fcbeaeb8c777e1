"""Estimates the duration of a sweep on this machine from short trials."""

from collections.abc import Iterable
from typing import NamedTuple

import jax

from dgmarl.config.methods import find_method
from dgmarl.config.schema import TrainConfig
from dgmarl.config.yaml import override
from dgmarl.device import devices_for
from dgmarl.envs.registry import make_env
from dgmarl.runs.recorder import Recorder
from dgmarl.sweeps.batched import train_all
from dgmarl.sweeps.planned import PlannedRun

TRIAL_EPISODES = 100
"""Enough for updates of Q-learning."""
EVALUATION_STEP = 0.2
"""Cost of an evaluation step relative to a training step."""


class Speed(NamedTuple):
    """Result of a trial."""

    compile_s: float
    agent_steps_per_s: float
    """Steps x agents per second, of all seeds; time is assumed proportional to both."""


def estimate_seconds(runs: Iterable[PlannedRun]) -> float:
    """Seconds for the runs that are not done, trained one after the other.

    There is one trial per family of environments, kind of learner, and use of a learned graph."""
    seconds = 0.0
    speeds: dict[tuple[str, type, bool], Speed] = {}
    for run in runs:
        if run.state == "done":
            continue
        config = run.config
        learns = config.graph.startswith(("learned", "attention"))
        learns_graph = find_method(config.method).uses_graph and learns
        # A custom environment is its own family.
        family = config.env if ":" in config.env else config.env.partition("/")[0]
        kind = (family, type(config.learner), learns_graph)
        if kind not in speeds:
            speeds[kind] = measure_speed(config)
        spec, evaluation = make_env(config.env, **config.env_options).spec, config.evaluation
        steps = run.total_steps * (
            1 + EVALUATION_STEP * evaluation.episodes * spec.horizon / evaluation.interval
        )
        seconds += speeds[kind].compile_s + steps * spec.n_agents / speeds[kind].agent_steps_per_s
    return seconds


def measure_speed(config: TrainConfig) -> Speed:
    """Train for `TRIAL_EPISODES` episodes."""
    spec = make_env(config.env, **config.env_options).spec
    # The first evaluation comes after one iteration.
    steps = (config.n_envs + TRIAL_EPISODES) * spec.horizon
    # A CPU core trains its seeds one after the other, so one seed per core gives the speed of all;
    # an accelerator trains them in parallel.
    seeds = devices_for(config.seeds) if jax.default_backend() == "cpu" else config.seeds
    trial = override(
        config,
        {"seeds": seeds, "steps": steps, "evaluation.interval": steps, "evaluation.episodes": 1},
    )
    (result,) = train_all([Recorder(trial)])
    timing = result.timing
    return Speed(timing["compile_s"], timing["steps_per_s"] * spec.n_agents)
