"""The main functions: `train`, `resume`, `sweep`, `evaluate` and `load`, as on the command line."""

import pickle
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np
from jaxtyping import Float

from dgmarl import training
from dgmarl.config.presets import Preset
from dgmarl.config.ranges import check_number
from dgmarl.config.resolve import extend, resolve
from dgmarl.config.schema import TrainConfig
from dgmarl.config.yaml import dotted, plain, read_yaml
from dgmarl.device import Devices, require_determinism
from dgmarl.envs.base import Environment
from dgmarl.envs.registry import class_name, make_env, name_of, with_wrapped_preset, wrapped_family
from dgmarl.errors import UsageError
from dgmarl.hosts import leads
from dgmarl.runs import playing
from dgmarl.runs.callbacks import CallbackLike
from dgmarl.runs.checkpoints import load_latest
from dgmarl.runs.folder import RunFolder
from dgmarl.runs.recorder import Recorder
from dgmarl.runs.run import Run, Which
from dgmarl.sweeps.executor import BATCHED_RUNS, Listener
from dgmarl.sweeps.plan import Plan, begin_sweep, connected, execute_plan, resources_of
from dgmarl.trust import remember, require_trust


def train(
    env: str | Environment | type[Environment],
    method: str = "ippo-dg",
    *,
    out: Path | str | None = None,
    overrides: Mapping[str, Any] | None = None,
    network: str | type | None = None,
    init_from: Path | str | None = None,
    preset: Preset = "tuned",
    trust: bool = False,
    callbacks: Iterable[CallbackLike] = (),
    devices: Devices = None,
    resume: bool = False,
    **values: Any,
) -> Run:
    """Train `method` on `env` and return the run: its curves as arrays, and its policy.

    env: an id, module:Class, file.py:Class, or an environment or its class. With `out`, an object
      must equal what its class makes of `env_options`: the run folder stores only these.
    out: run folder to write.
    overrides: fields by dotted name, for example `{"learner.hidden": 64}`.
    network: `learner.network`, or a Flax module class; with `out`, one that is defined in a file.
    init_from: run folder whose policy and critic all seeds start from.
    preset: values of fields that are not given. "paper": the paper's for this environment and
      method; "tuned": better ones that we found; "fast": those with 128 environments.
    trust: execute the code named in the folder `init_from`.
    callbacks: `dgmarl.Callback` objects, or functions of a `Progress`, called at every evaluation.
    devices: number of devices that share the seeds, then the environments, or "all"; default: as
      many as divide the seeds.
    resume: continue the run in `out` if there is one, also to more steps than it had.
    values: fields of `TrainConfig`, for example `graph="oracle"`, `seeds=10`, `steps=1e6`.

    >>> run = train("star-spread/5", "ippo-dg", seeds=3, steps=1e5)
    >>> run.returns.mean(axis=-1)  # [seeds, evaluations]
    """
    made = None
    if network is not None:
        overrides = {**(overrides or {}), "learner.network": _network_name(network, out)}
    if not isinstance(env, str):
        made = env(**values.get("env_options", {})) if isinstance(env, type) else env
        env = name_of(made)
        if out is not None:
            _require_named(made, env, values.get("env_options", {}))

    def resolved(like: str) -> TrainConfig:
        return resolve(env, method, overrides, preset, like, **values)

    config = with_wrapped_preset(resolved) if made is None else resolved(wrapped_family(made))
    if resume and out is not None and (Path(out) / "config.yaml").is_file():
        _refuse_other(RunFolder(out).config(), training.Trainer(config, made).config, out)
        return _resume(out, callbacks, steps=config.steps, trust=True, devices=devices)
    params = load(init_from, trust=trust).params if init_from else None
    return train_config(config, out, params, callbacks, env=made, devices=devices)


def _refuse_other(kept: TrainConfig, wanted: TrainConfig, out: Path | str) -> None:
    """Refuse to resume a run with another configuration."""
    before, now = dotted(plain(kept)), dotted(plain(wanted))
    for name in before.keys() | now.keys():
        if before.get(name) != now.get(name) and name not in ("steps", "evaluation.interval"):
            raise UsageError(
                f"{out} holds a run with {name} = {before.get(name)}, not {now.get(name)}: resume "
                "it with its own values, or choose another folder."
            )


def _network_name(network: str | type, out: Path | str | None) -> str:
    """The name of a network class; without `out`, the class need not be in a file."""
    if isinstance(network, str):
        return network
    name = class_name(network)
    if ":" in name:
        return name
    if out is None and getattr(sys.modules.get(network.__module__), name, None) is network:
        return f"{network.__module__}:{name}"
    raise UsageError(
        f"The network {name} could not be loaded again from a run folder: define it at the top "
        "level of a file."
    )


def _require_named(made: Environment, name: str, options: Mapping[str, Any]) -> None:
    """Refuse an environment that could not be made again from its name and options."""
    try:
        again = make_env(name, **options)
        same = pickle.dumps(vars(again)) == pickle.dumps(vars(made))
    except (UsageError, TypeError, AttributeError, pickle.PicklingError):
        same = False
    if not same:
        raise UsageError(
            f"This {type(made).__name__} could not be made again from a run folder: put its class, "
            "or a function that makes it, in a file and give the options by name, "
            f"dgmarl.train('file.py:{type(made).__name__}', env_options={{...}}), or omit out."
        )


def train_config(
    config: TrainConfig,
    out: Path | str | None = None,
    init_params: Any = None,
    callbacks: Iterable[CallbackLike] = (),
    env: Environment | None = None,
    devices: Devices = None,
    **recording: Any,
) -> Run:
    """Train with a resolved configuration. env: replaces the one it names. devices: see `train`.
    recording: arguments of `Recorder`. If there are several processes, the first writes `out`."""
    if config.deterministic:
        require_determinism()
    trainer = training.Trainer(config, env)
    folder = RunFolder(out) if out and leads() else None
    recorder = Recorder(trainer.config, folder, callbacks, **recording)
    result = training.train(training.Program(trainer, init_params, devices), [recorder])[0]
    playing.write_final_replay(recorder, trainer, result)
    return Run(trainer, result.state, folder=Path(out) if out else None, result=result)


def resume(
    out: Path | str,
    callbacks: Iterable[CallbackLike] = (),
    *,
    steps: int | None = None,
    trust: bool = False,
    devices: Devices = None,
    **recording: Any,
) -> Run:
    """Continue a run to the identical result; a finished one is returned as it is.

    steps: new total, written to the run's configuration. Only `learner.anneal_lr` depends on the
      total. There is one evaluation more than in a run of this length, at the old end.
    trust: execute the code named in the folder, even if it was never trained or checked here.
    devices: see `train`; the number may differ from before."""
    folder = RunFolder(out)
    config = extend(folder.config(), steps)
    require_trust(folder.path / "config.yaml", trust=trust, **config.names)
    folder.refuse_removed_options()
    run = train_config(config, out, None, callbacks, devices=devices, resume=True, **recording)
    remember(**config.names)
    return run


_resume = resume  # for `train`, which has an argument of that name


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
    """Train every run of a grid that is not finished in `out`, a folder of run folders. Returns all
    runs, and the reasons why some cannot be trained.

    grid: values of a configuration, where a list is an axis, or the path of a YAML file.
    workers: number of parallel programs; several run in separate processes.
    batched: most runs of equal shape in one program. retries: attempts after a failure.
    executor: "ray" trains on a Ray cluster. address: of the cluster; "local" starts one. cpus,
      gpus: of each program there. storage: see `Resources`.
    trust: execute the code named in the file. listener: receives progress.

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


def load(
    out: Path | str, seed: int | None = None, which: Which = "last", *, trust: bool = False
) -> Run:
    """Load a run folder, with the policy of `seed` or of the first seed:
    `dgmarl.load("runs/mine").policy.act(observation)`.

    trust: execute the environment, graph source and networks named in the folder, even if they were
      never trained or checked here."""
    folder = RunFolder(out)
    config = folder.config()
    require_trust(folder.path / "config.yaml", trust=trust, **config.names)
    seeds = config.all_seeds
    if seed is not None and seed not in seeds:
        raise UsageError(f"{folder.path} has the seeds {seeds[0]} to {seeds[-1]}, but not {seed}.")
    folder.warn_of_changes(config)
    trainer = training.Trainer(config)
    template = jax.eval_shape(lambda: training.init_seeds(trainer))
    _, state = load_latest(folder.checkpoints, template, folder.run_id)
    return Run(trainer, state, 0 if seed is None else seeds.index(seed), which, folder.path)


def evaluate(
    out: Path | str,
    n_episodes: int = 100,
    seed: int = 0,
    which: Which = "last",
    *,
    trust: bool = False,
) -> Float[np.ndarray, "S E"]:
    """Team returns of new episodes for every seed of a run. trust: see `load`."""
    return load(out, which=which, trust=trust).evaluate(n_episodes, seed)
