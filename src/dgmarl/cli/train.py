"""`dgmarl train`."""

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from dgmarl.cli.common import Count, Folder, Options, Trust, counted, file_name, refuse_broken
from dgmarl.config.yaml import build, parse_assignments
from dgmarl.errors import UsageError
from dgmarl.files import refuse_unwritable
from dgmarl.trust import require_trust


@dataclass(frozen=True)
class Train:
    """Train a method on an environment, all seeds side by side, into a run folder that can be
    resumed, watched and loaded."""

    env: tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="ENV")]] = ""
    """Environment id, module:Class or file.py:Class (needed unless --resume or --config names
    one)."""
    method: str = "ippo-dg"
    """ippo or mappo, then -local, -global or -dg; or iql, vdn, qmix, qplex."""
    graph: str = "oracle"
    """For -dg: learned, oracle, interventional[:H], self, complete, random:P, fixed:FILE or
    file.py:Source."""
    preset: Literal["tuned", "paper", "fast"] = "tuned"
    """Numbers that you do not set: the paper's; with what we found better for -dg; or those with
    128 environments (PPO)."""
    seeds: Count = 5
    """How many seeds."""
    seed: Count = 0
    """The first seed."""
    steps: Count = 1_000_000
    """Environment steps per seed; may be written 1e6."""
    out: Folder = None
    """The run folder to write; by default runs/ENV__METHOD."""
    set: Options = ()
    """Any other field of the configuration, such as learner.hidden=64, n_envs=32 or
    env_options.noise=0; several times."""
    resume: Folder = None
    """Continue this run folder to the identical result, with its own configuration."""
    init_from: Folder = None
    """Start from the policy and critic of another run's first seed."""
    keep_every: int = 0
    """Keep every K-th checkpoint for good; 0: only the latest two."""
    deterministic: bool = False
    """Bit-identical runs on a GPU too, at the price of slower reductions; a CPU always is."""
    trust: Trust = False
    """Execute the environment and graph source that a folder or file names (--resume, --init-from,
    --config), even if they were never trained or checked here."""
    quiet: bool = False
    """No progress display."""
    base: tyro.conf.Suppress[dict[str, Any] | None] = None
    """The configuration file, where one was given."""

    @classmethod
    def from_values(cls, values: dict[str, Any]) -> "Train":
        """From a configuration file: a run's config.yaml, or any part of one."""
        own = {
            name: values[name]
            for name in ("env", "method", "graph", "seeds", "seed", "steps", "deterministic")
            if name in values
        }
        return replace(build(cls, own), base=values)

    def run(self) -> int:
        """Train, showing progress; Ctrl-C stops at the next evaluation with a checkpoint."""
        from dgmarl import api
        from dgmarl.device import use_all_cores
        from dgmarl.envs.registry import make_env
        from dgmarl.track.terminal import TrainingDisplay

        use_all_cores()
        config = self.resolved()
        if config.deterministic:  # read when the first computation starts, which is below
            os.environ["XLA_FLAGS"] = (
                f"{os.environ.get('XLA_FLAGS', '')} --xla_gpu_deterministic_ops=true"
            )
        out = self.resume or self.out or Path("runs") / f"{file_name(config.env)}__{config.method}"
        refuse_unwritable(out / "config.yaml")
        if ":" in config.env:
            refuse_broken(make_env(config.env, **config.env_options), config.env)
        label = f"{config.env} {config.method}, {counted(config.seeds, 'seed')}"
        with TrainingDisplay(label, config.steps, self.quiet) as display:
            if self.resume:
                result = api.resume(out, display, trust=self.trust, keep_every=self.keep_every)
            else:
                params = None
                if self.init_from:
                    params = api.load(self.init_from, trust=self.trust).params
                result = api.train_config(config, out, params, display, keep_every=self.keep_every)
        return _summarise(result, out)

    def _config(self):
        from dgmarl.config.resolve import merge_file

        if not self.env:
            raise UsageError(
                "train needs an environment, for example `dgmarl train star-spread/5`, or "
                "--resume RUN."
            )
        given = {
            name: getattr(self, name)
            for name in ("graph", "seeds", "seed", "steps", "deterministic")
        }
        if not self.method.endswith("-dg") and self.graph != (self.base or {}).get(
            "graph", "oracle"
        ):
            raise UsageError(
                f"--graph is {self.graph}, but {self.method} uses no graph: leave it out, or "
                "choose ippo-dg or mappo-dg."
            )
        overrides = parse_assignments(self.set)
        return merge_file(self.base or {}, self.env, self.method, overrides, self.preset, **given)

    def resolved(self):
        """What --save-config writes: the run's whole configuration, the same as its config.yaml."""
        from dgmarl.runs.folder import RunFolder

        if self.keep_every < 0:
            raise UsageError(
                f"--keep-every is {self.keep_every}, but must be 0 (keep the latest two) or more."
            )
        if self.resume is None:
            return self._config()
        given = replace(self, resume=None, keep_every=0, quiet=False, trust=False)
        if given != Train():
            raise UsageError(
                "--resume continues a run with its own configuration: give no other option but "
                "--keep-every, --quiet and --trust."
            )
        config = RunFolder(self.resume).config()
        origin = self.resume / "config.yaml"
        require_trust(origin, env=config.env, graph=config.graph, trust=self.trust)
        return config


def _summarise(result, out: Path) -> int:
    """Say what came out, where it is, and what to do next."""
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
        f"{speed:,.0f} environment steps/s in all; {compile_s:.0f} s compiling, "
        f"{result.timing['train_s']:.0f} s training"
    )
    if result.interrupted:
        print(f"Stopped. Go on with: dgmarl train --resume {out}")
        return 130
    print(f"Watch it with: dgmarl watch {out}")
    return 0
