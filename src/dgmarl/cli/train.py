"""`dgmarl train`; its flags are the configuration fields of the chosen method."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, make_dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from dgmarl.cli.common import (
    NUMBERS,
    Folder,
    OptionalFolder,
    Options,
    Trust,
    counted,
    file_name,
    left_out,
    refuse_broken,
)
from dgmarl.cli.flags import flag_class, leaves, scan, spellings, switches_of
from dgmarl.cli.guard import AGAIN
from dgmarl.config.convert import upgrade
from dgmarl.config.methods import find_method
from dgmarl.config.presets import is_tuned
from dgmarl.config.ranges import check_fields
from dgmarl.config.resolve import extend, merge
from dgmarl.config.schema import TrainConfig
from dgmarl.config.yaml import parse_assignments
from dgmarl.errors import UsageError
from dgmarl.files import refuse_unwritable
from dgmarl.trust import is_code, require_trust

WITH_RESUME = {
    *("resume", "steps", "keep-every", "track", "quiet", "no-quiet", "trust", "devices", "process"),
    "accept-changes",
}
"""Flags that may be combined with --resume, and itself."""


@dataclass(frozen=True)
class TrainOptions:
    """Flags of `train` that are not fields of the configuration."""

    preset: Literal["tuned", "paper", "fast"] = "tuned"
    """Default values. paper: the paper's; tuned: with improvements found since, mostly for -dg;
    fast: tuned, with 128 environments (PPO only)."""
    out: OptionalFolder = None
    """Run folder to write; default: runs/ENV__METHOD."""
    resume: Folder = None
    """Continue the run in this folder, with its configuration, as if it had not been interrupted;
    with --steps, a finished run is extended."""
    accept_changes: Trust = False
    """With --resume, continue although the file of the environment, graph source or network has
    changed since the run was trained."""
    init_from: Folder = None
    """Start from the policy and critic of another run's first seed."""
    keep_every: int = 0
    """Keep every K-th checkpoint permanently; 0: only the latest two."""
    set: Options = ()
    """Alternative form of a flag, such as learner.hidden=64. Options of the environment are
    env_options.noise=0, or --env-options.noise 0."""
    trust: Trust = False
    """Execute code (environment, graph, network) that a folder or file names (--resume,
    --init-from, --config), even if never trained or checked on this machine."""
    track: tyro.conf.UseAppendAction[tuple[Literal["tensorboard", "wandb"], ...]] = ()
    """Also log to TensorBoard (files in the run folder) or Weights & Biases (configured by its
    environment variables, such as WANDB_PROJECT and WANDB_MODE=offline)."""
    devices: Annotated[str | None, left_out("N|all")] = None
    """Number of devices, over which the seeds are divided, then the environments of each seed;
    default: as many as divide the seeds."""
    process: Annotated[str | None, left_out("I/N@HOST:PORT")] = None
    """Train one run in N processes, started with the same options: I/N@HOST:PORT is process I, with
    the address of process 0, which writes the run folder; auto: from Slurm or MPI."""
    quiet: bool = False
    """Show no progress display."""


@dataclass(frozen=True)
class Train:
    """Train a method on an environment, all seeds in parallel, and write a run folder that can be
    resumed, watched and loaded."""

    options: TrainOptions
    config: TrainConfig | None
    """None: the configuration of the run to resume."""
    more_steps: int | None = None
    """New number of steps of the run to resume; None: unchanged."""

    @classmethod
    def from_arguments(
        cls,
        arguments: list[str],
        file: Mapping[str, Any] | None = None,
        origin: str = "",
        description: str = "",
    ) -> "Train":
        """Parse the command line; `file` holds the values of `--config`, read from `origin`."""
        arguments, file = _environment_options(arguments), upgrade(file or {})
        given, _ = scan(arguments)
        method = given.get("method") or file.get("method") or TrainConfig.method
        find_method(str(method))
        # The defaults depend on ENV. To distinguish it from the values of flags, it must be known
        # which flags take a value, which is the same for every environment.
        plain_flags = _flags(_default({}, "", str(method), {}))
        given, positional = scan(arguments, switches_of(leaves(plain_flags())))
        env = positional[0] if positional else str(file.get("env", ""))
        default = _default(file, env, str(method), given)
        parsed: Any = tyro.cli(
            _flags(default),
            args=arguments,
            registry=NUMBERS,
            prog="dgmarl train",
            description=description,
        )
        options = TrainOptions(**{f.name: getattr(parsed, f.name) for f in fields(TrainOptions)})
        check_fields(options, flags=True)
        if options.resume is not None:
            if file or positional or given.keys() - WITH_RESUME:
                raise UsageError(
                    "--resume continues a run with its own configuration: give no other options "
                    "than --steps, --accept-changes, --keep-every, --track, --devices, --process, "
                    "--quiet, --trust."
                )
            return cls(options, None, parsed.steps if "steps" in given else None)
        if options.accept_changes:
            raise UsageError(
                "--accept-changes continues a run: give it with --resume RUN, or leave it out."
            )
        if not env:
            raise UsageError(
                "train needs an environment, for example `dgmarl train star-spread/5`, or "
                "--resume RUN."
            )
        typed = {
            name: value
            for name, value in leaves(parsed).items()
            if given.keys() & set(spellings(name))
            if name != "method" and not hasattr(options, name)
        }
        overrides = {**typed, **parse_assignments(options.set)}
        merged = partial(merge, file, env, str(method), overrides, options.preset)
        typed_names = overrides.keys() | ({"env"} if positional else set())
        from_file = {k: name for k, name in merged().names.items() if k not in typed_names}
        require_trust(origin, trust=options.trust, **from_file)
        if not is_code(env):
            return cls(options, merged())
        from dgmarl.device import use_all_cores
        from dgmarl.envs.registry import with_wrapped_preset

        use_all_cores()  # before the first computation
        return cls(options, with_wrapped_preset(merged))

    @classmethod
    def flag_names(cls) -> list[str]:
        """The flags of the default method, for completion."""
        names = leaves(_flags(_default({}, "", TrainConfig.method, {}))())
        return [name for name in names if name != "env"]

    def resolved(self) -> TrainConfig:
        """The run's configuration, as in its config.yaml; written by --save-config."""
        from dgmarl.runs.folder import RunFolder

        if self.config is not None:
            return self.config
        assert self.options.resume is not None
        config = RunFolder(self.options.resume).config()
        origin = self.options.resume / "config.yaml"
        require_trust(origin, trust=self.options.trust, **config.names)
        return extend(config, self.more_steps)

    @property
    def out(self) -> Path:
        """The run folder."""
        if self.config is None:
            assert self.options.resume is not None
            return self.options.resume
        name = f"{file_name(self.config.env)}__{self.config.method}"
        return self.options.out or Path("runs") / name

    def after_stop(self) -> str:
        if (self.out / "config.yaml").is_file():
            return f"continue with: dgmarl train --resume {self.out}"
        return f"nothing was written: {AGAIN}"

    def run(self) -> int:
        """Train and show progress; Ctrl-C stops at the next evaluation with a checkpoint."""
        from dgmarl import api, hosts
        from dgmarl.device import use_all_cores
        from dgmarl.envs.registry import make_env, wrapped_family
        from dgmarl.runs.folder import RunFolder
        from dgmarl.track import make_tracker
        from dgmarl.track.terminal import TrainingDisplay

        use_all_cores()
        options, config, out = self.options, self.resolved(), self.out
        if options.resume and not options.accept_changes:
            RunFolder(out).refuse_changes(config)
        if options.process:
            hosts.join(options.process)
        refuse_unwritable(out, folder=True)
        like = ""
        if ":" in config.env:
            env = make_env(config.env, **config.env_options)
            refuse_broken(env, config.env)
            like = wrapped_family(env)
        label = f"{config.env} {config.method}, {counted(config.seeds, 'seed')}"
        trackers = [make_tracker(name) for name in options.track if hosts.leads()]
        with TrainingDisplay(label, config.steps, options.quiet or not hosts.leads()) as display:
            callbacks = [display, *trackers]
            common = {"devices": options.devices, "keep_every": options.keep_every}
            trust, source = options.trust, options.init_from
            if options.resume:
                result = api.resume(out, callbacks, steps=self.more_steps, trust=trust, **common)
            else:
                params = api.load(source, trust=trust).params if source else None
                result = api.train_config(config, out, params, callbacks, **common)
        if not hosts.leads():
            return 0
        if not display.evaluations and not result.interrupted:
            steps = result.steps[:, -1].min()
            print(f"{out}: already finished ({steps:,} steps): give --steps N to train on")
            return 0
        code = _summarise(result, out)
        if self.config is not None and (like or not is_tuned(config.env)):
            numbers = f"hyperparameters of {like}" if is_tuned(like) else "general hyperparameters"
            print(
                f"{file_name(config.env)} used the {numbers} in preset {options.preset}, with "
                f"{counted(result.config.n_envs, 'environment')} per update"
            )
        return code


def _default(
    file: Mapping[str, Any], env: str, method: str, given: Mapping[str, str]
) -> TrainConfig:
    """The defaults of the flags, from the file and the preset."""
    steps = {"steps": given["steps"]} if "steps" in given else {}
    return merge(file, env, method, steps, given.get("preset", TrainOptions.preset))


def _flags(default: TrainConfig) -> type:
    """The class that tyro parses: ENV, the fields of the configuration, and `TrainOptions`."""
    config = flag_class(default, leave_out=("env", "env_options", "format"))
    options = flag_class(TrainOptions())
    about = tyro.conf.arg(
        metavar="ENV",
        help="Environment id, module:Class or file.py:Class; required without --resume or a "
        "--config that names one.",
        help_behavior_hint="",
    )
    env = ("env", tyro.conf.Positional[Annotated[str, about]], default.env)
    parts = [(f.name, f.type, f.default) for cls in (config, options) for f in fields(cls)]
    return make_dataclass("Train", [env, *parts], frozen=True)


def _environment_options(arguments: list[str]) -> list[str]:
    """Turn `--env-options.noise 0` into `--set env_options.noise=0`: their names are not known."""
    changed, rest = [], iter(arguments)
    for word in rest:
        prefix, dot, option = word.replace("env_options", "env-options", 1).partition(".")
        if prefix != "--env-options" or not dot:
            changed.append(word)
            continue
        name, equals, value = option.partition("=")
        value = value if equals else next(rest, "")
        changed += ["--set", f"env_options.{name.replace('-', '_')}={value}"]
    return changed


def _summarise(result, out: Path) -> int:
    """Print the results and the next command; returns the exit code."""
    from dgmarl.report.statistics import mean_interval

    final = mean_interval(result.returns[:, -1].mean(axis=-1))
    interval = "" if final.low != final.low else f" [{final.low:.3f}, {final.high:.3f}]"
    speed, compile_s = result.timing["steps_per_s"], result.timing["compile_s"]
    seeds = counted(len(result.steps), "seed")
    print(
        f"{out}: return {final.estimate:.3f}{interval} after {result.steps[:, -1].min():,} steps, "
        f"{seeds}"
    )
    print(
        f"{speed:,.0f} environment steps/s in total; {compile_s:.0f} s compiling, "
        f"{result.timing['train_s']:.0f} s training"
    )
    if result.interrupted:
        print(f"Stopped. Continue with: dgmarl train --resume {out}")
        return 130
    print(f"Watch it with: dgmarl watch {out}")
    return 0
