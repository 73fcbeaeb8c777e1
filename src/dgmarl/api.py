"""The library in three calls: `train`, `evaluate` and `load`, the same as on the command line."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from dgmarl import training
from dgmarl.config.presets import Preset, TrainConfig, resolve
from dgmarl.envs.base import Environment, Observation
from dgmarl.errors import UsageError
from dgmarl.learners.ppo import PPOConfig
from dgmarl.rollout import Batch, HiddenState, Recording, record_episodes
from dgmarl.runs.checkpoints import load_latest
from dgmarl.runs.folder import RunFolder
from dgmarl.runs.recorder import Progress, Recorder, TrainResult

Which = Literal["last", "best"]


def train(
    env: str,
    method: str = "ippo-dg",
    *,
    out: Path | str | None = None,
    overrides: Mapping[str, Any] | None = None,
    init_from: Path | str | None = None,
    preset: Preset = "tuned",
    on_progress: Callable[[Progress], None] = lambda progress: None,
    **values: Any,
) -> TrainResult:
    """Train `method` on `env` and return the learning curves as arrays (and write a run folder, if
    `out` is given).

    values: fields of `TrainConfig`, for example `graph="oracle"`, `seeds=10`, `steps=1e6`.
      overrides: dotted names, for example `{"learner.hidden": 64}`. preset: what is not given is
      the paper's value for this environment and method, or, with "tuned", one that we found better,
      or, with "fast", the better ones with 128 environments.

    >>> result = train("star-spread/5", "ippo-dg", seeds=3, steps=1e5)
    >>> result.returns.mean(axis=-1)  # [seeds, evaluations]
    """
    config = resolve(env, method, overrides, preset, **values)
    params = load(init_from).params if init_from else None
    return train_config(config, out, params, on_progress)


def train_config(
    config: TrainConfig,
    out: Path | str | None = None,
    init_params: Any = None,
    on_progress: Callable[[Progress], None] = lambda progress: None,
    **recording: Any,
) -> TrainResult:
    """Train with a resolved configuration."""
    recorder = Recorder(config, RunFolder(out) if out else None, on_progress, **recording)
    return training.train(config, recorder, init_params=init_params)


def resume(
    out: Path | str,
    on_progress: Callable[[Progress], None] = lambda progress: None,
    **recording: Any,
) -> TrainResult:
    """Continue a run to the identical result; a finished one is returned as it is."""
    folder = RunFolder(out)
    config = folder.config()
    return training.train(config, Recorder(config, folder, on_progress, **recording), resume=True)


class Run(NamedTuple):
    """A trained policy with everything needed to use it."""

    config: TrainConfig
    env: Environment
    trainer: training.Trainer
    state: training.TrainState
    """Of all seeds, seeds first."""
    params: dict[str, Any]
    """Of the chosen seed."""
    graph: Any
    """State of the graph source of the chosen seed."""

    def init_hidden_state(self, n_envs: int) -> HiddenState:
        """The policy's memory at the start of an episode."""
        return self.trainer.learner.init_hidden_state(n_envs)

    def act(
        self, key: Array, observation: Observation, hidden_state: HiddenState, is_first: Array
    ) -> tuple[Array, HiddenState]:
        """Actions [B, N] for the views of B environments and the memory after; sampled, unless
        `evaluation.greedy`."""
        greedy = self.config.evaluation.greedy
        action, _, hidden_state = self.trainer.learner.act(
            self.params, key, observation, hidden_state, is_first, greedy
        )
        return action, hidden_state

    def credit_note(self) -> str:
        """How this policy was credited, where that is not just what its dependence graph says."""
        learner = self.config.learner
        if learner.credit != "graph" or not isinstance(learner, PPOConfig):
            return f"This policy was trained with {learner.credit} credit; the graph is the environment's own."
        notes = (
            [f"In training they kept the weight {1 - learner.lambda_:.2g}."]
            if learner.weighted
            else []
        )
        if learner.cross_weight != 1 or learner.adapt_cross_weight:
            at_most = "at most " if learner.adapt_cross_weight else ""
            notes.append(
                "In training the rewards of others had a weight of "
                f"{at_most}{learner.cross_weight:g}."
            )
        if learner.fade != 1:
            notes.append(
                f"In training the rewards of others kept {learner.fade:g} of their weight with "
                "each step."
            )
        if learner.edge_strength != 1:
            notes.append(
                "In training each hop of a path multiplied the rewards it led to by "
                f"{learner.edge_strength:g}."
            )
        return " ".join(notes)

    def credit_options(self) -> dict[str, Any] | None:
        """Arguments with which `credited_rewards` gives the weights of this run's training, or None
        without graph credit."""
        learner = self.config.learner
        if learner.credit != "graph" or not isinstance(learner, PPOConfig):
            return None
        if learner.fade != 1 or learner.edge_strength != 1:
            return None
        return {
            **{"gamma": learner.gamma, "lambda_": learner.lambda_, "form": learner.form},
            **{"weighted": learner.weighted, "cross_weight": learner.cross_weight},
        }

    def record(
        self,
        key: Array,
        n_episodes: int,
        needs: frozenset[str] = frozenset(),
        infer: Callable[[Batch], Any] | None = None,
    ) -> Recording:
        """Whole episodes of the chosen seed, with the graphs its training would have used there.

        infer: other graphs instead, from a batch that holds what the run's own graph source needs,
          and `needs`."""
        act = partial(self.trainer.learner.act, self.params, greedy=self.config.evaluation.greedy)
        source = self.trainer.source
        if infer is None and self.trainer.uses_graph:
            infer = lambda batch: source.infer(self.graph, batch, key)  # noqa: E731
        return record_episodes(
            self.env,
            act,
            key,
            n_episodes,
            self.init_hidden_state(n_episodes),
            source.needs | needs,
            infer,
        )


def load(out: Path | str, seed: int | None = None, which: Which = "last") -> Run:
    """The policy of a run folder, of its first seed or the one named:
    `dgmarl.load("runs/mine").act(key, observation, ...)`."""
    folder = RunFolder(out)
    config = folder.config()
    index = 0 if seed is None else seed - config.seed
    if not 0 <= index < config.seeds:
        raise UsageError(
            f"{out} has the seeds {config.seed} to {config.seed + config.seeds - 1}, but not "
            f"{seed}."
        )
    trainer = training.Trainer(config)
    keys = jax.vmap(jax.random.key)(jnp.arange(config.seeds))
    _, state = load_latest(folder.checkpoints, jax.eval_shape(jax.vmap(trainer.init), keys))
    chosen = jax.tree.map(lambda leaf: leaf[index], (policies(state, which), state.graph))
    return Run(config, trainer.env, trainer, state, *chosen)


def policies(state: training.TrainState, which: Which) -> dict[str, Any]:
    """Parameters of all seeds: after the last iteration, or of each seed's best evaluation."""
    return state.best.params if which == "best" else state.learner.params


def evaluate(
    out: Path | str, n_episodes: int = 100, seed: int = 0, which: Which = "last"
) -> Float[np.ndarray, "S E"]:
    """Team returns of fresh episodes for every seed of a run."""
    run = load(out, which=which)
    keys = jax.random.split(jax.random.key(seed), run.config.seeds)
    play = jax.jit(jax.vmap(lambda params, key: run.trainer.evaluate(params, key, n_episodes)))
    return np.asarray(play(policies(run.state, which), keys).returns)
