"""The library in a few calls: `train`, `sweep`, `evaluate` and `load`, the same as on the command
line."""

import pickle
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from dgmarl import training
from dgmarl.config.presets import Preset
from dgmarl.config.ranges import check_number
from dgmarl.config.resolve import extend, resolve
from dgmarl.config.schema import TrainConfig
from dgmarl.config.yaml import plain, read_yaml
from dgmarl.device import require_determinism
from dgmarl.envs.base import Environment, Observation
from dgmarl.envs.registry import make_env, name_of
from dgmarl.errors import RunError, UsageError
from dgmarl.rollout import Batch, HiddenState, Recording
from dgmarl.runs import playing
from dgmarl.runs.checkpoints import load_latest
from dgmarl.runs.folder import RunFolder
from dgmarl.runs.recorder import Progress, Recorder, TrainResult
from dgmarl.runs.replays import MOST_BYTES, Replay
from dgmarl.sweeps.executor import BATCHED_RUNS, Listener
from dgmarl.sweeps.plan import Plan, begin_sweep, connected, execute_plan, resources_of
from dgmarl.trust import remember, require_trust

Which = Literal["last", "best"]


def train(
    env: str | Environment | type[Environment],
    method: str = "ippo-dg",
    *,
    out: Path | str | None = None,
    overrides: Mapping[str, Any] | None = None,
    init_from: Path | str | None = None,
    preset: Preset = "tuned",
    trust: bool = False,
    on_progress: Callable[[Progress], None] = lambda progress: None,
    **values: Any,
) -> TrainResult:
    """Train `method` on `env` and return the learning curves as arrays (and write a run folder, if
    `out` is given).

    env: an id, module:Class or file.py:Class, or an environment or its class. With `out`, an object
      must be what its class makes of `env_options`, because the run folder can only name these.
      values: fields of `TrainConfig`, for example `graph="oracle"`, `seeds=10`, `steps=1e6`.
      overrides: dotted names, for example `{"learner.hidden": 64}`. preset: what is not given is
      the paper's value for this environment and method, or, with "tuned", one that we found better,
      or, with "fast", the better ones with 128 environments.
      trust: execute the environment and graph source that the folder `init_from` names.

    >>> result = train("star-spread/5", "ippo-dg", seeds=3, steps=1e5)
    >>> result.returns.mean(axis=-1)  # [seeds, evaluations]
    """
    made = None
    if not isinstance(env, str):
        made = env(**values.get("env_options", {})) if isinstance(env, type) else env
        env = name_of(made)
        if out is not None:
            _require_named(made, env, values.get("env_options", {}))
    config = resolve(env, method, overrides, preset, **values)
    params = load(init_from, trust=trust).params if init_from else None
    return train_config(config, out, params, on_progress, env=made)


def _require_named(made: Environment, name: str, options: Mapping[str, Any]) -> None:
    """Refuse an environment that a run folder could not make again from its name and options."""
    try:
        again = make_env(name, **options)
        same = pickle.dumps(vars(again)) == pickle.dumps(vars(made))
    except (UsageError, TypeError, AttributeError, pickle.PicklingError):
        same = False
    if not same:
        raise UsageError(
            f"A run folder could not make this {type(made).__name__} again: put its class in a "
            f"file and give its options by name, dgmarl.train('file.py:{type(made).__name__}', "
            "env_options={...}), or leave out=... away."
        )


def train_config(
    config: TrainConfig,
    out: Path | str | None = None,
    init_params: Any = None,
    on_progress: Callable[[Progress], None] = lambda progress: None,
    env: Environment | None = None,
    **recording: Any,
) -> TrainResult:
    """Train with a resolved configuration. env: instead of the one that it names."""
    if config.deterministic:
        require_determinism()
    trainer = training.Trainer(config, env)
    recorder = Recorder(trainer.config, RunFolder(out) if out else None, on_progress, **recording)
    result = training.train(training.Program(trainer, init_params), [recorder])[0]
    playing.write_final_replay(recorder, trainer, result)
    return result


def resume(
    out: Path | str,
    on_progress: Callable[[Progress], None] = lambda progress: None,
    *,
    steps: int | None = None,
    trust: bool = False,
    **recording: Any,
) -> TrainResult:
    """Continue a run to the identical result; a finished one is returned as it is.

    steps: train on to this many, which the run's configuration says from then on. Only
      `learner.anneal_lr` depends on the total; the evaluation at the old end is one more than a
      longer run would have had.
      trust: execute the environment and graph source that the folder names, even if they were never
      trained or checked here."""
    folder = RunFolder(out)
    config = extend(folder.config(), steps)
    require_trust(folder.path / "config.yaml", env=config.env, graph=config.graph, trust=trust)
    if config.deterministic:
        require_determinism()
    folder.refuse_removed_options()
    recorder = Recorder(config, folder, on_progress, resume=True, **recording)
    program = training.Program(training.Trainer(config))
    result = training.train(program, [recorder])[0]
    playing.write_final_replay(recorder, program.trainer, result)
    remember(env=config.env, graph=config.graph)
    return result


def sweep(
    grid: Mapping[str, Any] | Path | str,
    out: Path | str,
    *,
    workers: int | None = None,
    batched: int = BATCHED_RUNS,
    retries: int = 0,
    executor: Literal["local", "ray"] = "local",
    address: str = "local",
    cpus: int = 1,
    gpus: float = 0.0,
    storage: str = "",
    trust: bool = False,
    listener: Listener | None = None,
) -> Plan:
    """Train every run of a grid that is not finished in `out`, a folder of run folders, and return
    them, with the reasons of those that cannot be trained.

    grid: values of a configuration, where a list is an axis, or the path of a YAML file of them.
      workers: programs at a time, in processes of their own if there are several. batched: runs of
      equal shape in one program. retries: how often a run that fails is tried again. trust: execute
      environments and graph sources that the file names. listener: is told of progress.
      executor: "ray" trains on a Ray cluster. address: of the cluster; "local" starts one. cpus,
      gpus: of each program there. storage: see `Resources`.

    >>> plan = sweep({"env": "star-spread/3", "method": ["ippo-local", "ippo-dg"]}, "runs/both")
    >>> load(plan.runs[0].folder)
    """
    origin = str(grid) if isinstance(grid, Path | str) else ""
    values = read_yaml(origin) if isinstance(grid, Path | str) else plain(dict(grid))
    of_ray = {"address": address, "cpus": cpus, "gpus": gpus, "storage": storage}
    numbers = {"workers": workers, "batched": batched, "retries": retries, **of_ray}
    for name in ("workers", "batched", "retries", "cpus", "gpus"):
        check_number(name, numbers[name])
    resources = resources_of(workers, batched, retries, executor, **of_ray)
    with connected(resources):
        plan = begin_sweep(values, Path(out), origin, trust, executor)
        execute_plan(plan, resources, listener)
    return plan


def first_seed(trainer: training.Trainer, result: TrainResult) -> "Run":
    """The final policy of the first seed of a training that has just ended."""
    return Run(result.config, trainer.env, trainer, result.state, *playing.first_seed(result.state))


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

    def __repr__(self) -> str:
        config = self.config
        return f"Run({config.env!r}, {config.method!r}, seeds={config.seeds}, steps={config.steps})"

    def init_hidden_state(self, n_envs: int) -> HiddenState:
        """The policy's memory at the start of an episode."""
        return self.trainer.learner.init_hidden_state(n_envs)

    def act(
        self, key: Array, observation: Observation, hidden_state: HiddenState, is_first: Array
    ) -> tuple[Array, HiddenState]:
        """Actions [B, N] for the views of B environments and the memory after; sampled, unless
        `evaluation.greedy`. A single view without the axis B gives actions [N]; the memory is that
        of one environment, `init_hidden_state(1)`."""
        n_envs = jnp.size(is_first)
        if observation.agents_view.ndim == 2 and n_envs == 1:
            batch = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], observation)
            action, hidden_state = self.act(key, batch, hidden_state, jnp.reshape(is_first, (1,)))
            return action[0], hidden_state
        views = observation.agents_view.shape
        spec = self.env.spec
        if views != (n_envs, spec.n_agents, spec.obs_size):
            raise UsageError(
                f"observation.agents_view has the shape {views}, but {self.config.env} needs "
                f"({n_envs}, {spec.n_agents}, {spec.obs_size}), with is_first for {n_envs} "
                "environments: use jax.vmap(env.reset) for several, or is_first of one value."
            )
        greedy = self.config.evaluation.greedy
        action, _, hidden_state = self.trainer.learner.act(
            self.params, key, observation, hidden_state, is_first, greedy
        )
        return action, hidden_state

    def record(
        self,
        key: Array,
        n_episodes: int,
        needs: frozenset[str] = frozenset(),
        infer: Callable[[Batch], Any] | None = None,
    ) -> Recording:
        """Whole episodes of the chosen seed; see `playing.record`."""
        return playing.record(self.trainer, self.params, self.graph, key, n_episodes, needs, infer)

    def replay(
        self, key: Array, n_episodes: int, policy: Which = "last", most_bytes: int = MOST_BYTES
    ) -> Replay:
        """Episodes as pages show them: pictures, rewards, graphs and credit weights."""
        recording = self.record(key, n_episodes)
        return playing.replay_of(self.config, self.env, recording, policy, most_bytes)


def load(
    out: Path | str, seed: int | None = None, which: Which = "last", *, trust: bool = False
) -> Run:
    """The policy of a run folder, of its first seed or the one named:
    `dgmarl.load("runs/mine").act(key, observation, ...)`.

    trust: execute the environment and graph source that the folder names, even if they were never
      trained or checked here."""
    folder = RunFolder(out)
    config = folder.config()
    require_trust(folder.path / "config.yaml", env=config.env, graph=config.graph, trust=trust)
    index = 0 if seed is None else seed - config.seed
    if not 0 <= index < config.seeds:
        raise UsageError(
            f"{out} has the seeds {config.seed} to {config.seed + config.seeds - 1}, but not "
            f"{seed}."
        )
    trainer = training.Trainer(config)
    keys = jax.vmap(jax.random.key)(jnp.arange(config.seeds))
    template = jax.eval_shape(jax.vmap(trainer.init), keys)
    _, state = load_latest(folder.checkpoints, template, folder.run_id)
    chosen = jax.tree.map(lambda leaf: leaf[index], (policies(state, which), state.graph_state))
    return Run(config, trainer.env, trainer, state, *chosen)


def policies(state: training.TrainState, which: Which) -> dict[str, Any]:
    """Parameters of all seeds: after the last iteration, or of each seed's best evaluation."""
    return state.best.params if which == "best" else state.learner.params


def evaluate(
    out: Path | str,
    n_episodes: int = 100,
    seed: int = 0,
    which: Which = "last",
    *,
    trust: bool = False,
) -> Float[np.ndarray, "S E"]:
    """Team returns of fresh episodes for every seed of a run. trust: see `load`."""
    check_number("episodes", n_episodes, "n_episodes")
    check_number("seed", seed)
    run = load(out, which=which, trust=trust)
    keys = jax.random.split(jax.random.key(seed), run.config.seeds)
    play = jax.jit(jax.vmap(lambda params, key: run.trainer.evaluate(params, key, n_episodes)))
    returns = np.asarray(play(policies(run.state, which), keys).returns)
    if not np.isfinite(returns).all():
        raise RunError(
            f"The environment {run.config.env} gave a return that is NaN or infinite: check its "
            "rewards."
        )
    return returns
