"""The command line. Every command is a frozen dataclass whose fields are its options; nothing heavy is imported before it runs.

Every command also takes `--config FILE` (a YAML file with values for its options; options on the command line win) and
`--save-config FILE` (write the resolved options, to be given to `--config` later).
"""

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, Protocol

import tyro

from dgmarl import __version__
from dgmarl.config import build, parse_assignments, read_yaml, suggest, write_yaml
from dgmarl.errors import UsageError
from dgmarl.files import refuse_unwritable, write_atomic

EXIT_USAGE = 2

EnvId = tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="ENV")]]
Options = tyro.conf.UseAppendAction[Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME=VALUE")]]


class Command(Protocol):
    """A dataclass of options that can be run."""

    def run(self) -> int:
        """Do the work and return the exit code."""
        ...


@dataclass(frozen=True)
class Envs:
    """List the environments, their sizes and how to write their ids."""

    def run(self) -> int:
        """Print one table, a row per example id."""
        from rich.console import Console
        from rich.table import Table

        from dgmarl.envs.registry import FAMILIES, make_env

        table = Table(
            title="Environments (any id of the grammar works, and file.py:Class or module:Class)", title_justify="left"
        )
        for column in ("id", "agents", "actions", "obs", "state", "horizon", "oracle graph"):
            table.add_column(column, justify="left" if column in ("id", "oracle graph") else "right")
        for name, family in FAMILIES.items():
            table.add_section()
            table.add_row(f"[bold]{name}/[/bold]{family.grammar.replace('[', chr(92) + '[')}")
            table.add_row(f"[italic]{family.about}[/italic]")
            for example in family.examples:
                env = make_env(example)
                spec = env.spec
                sizes = (spec.n_agents, spec.n_actions, spec.obs_size, spec.state_size, spec.horizon)
                table.add_row(f"  {example}", *map(str, sizes), "yes" if env.offers("oracle_graph") else "no")
        Console(width=None if sys.stdout.isatty() else 140).print(table)
        return 0


@dataclass(frozen=True)
class CheckEnv:
    """Run an environment (an id, module:Class or file.py:Class) through the contract and name each violation."""

    env: EnvId
    """Environment id, module:Class or file.py:Class."""
    seed: int = 0
    """Seed of the random play."""
    set: Options = ()
    """An option of the environment; may be given several times."""

    def run(self) -> int:
        """Print the findings; exit code 2 if the contract is violated."""
        from dgmarl.envs.checker import check_env
        from dgmarl.envs.registry import make_env

        findings = check_env(make_env(self.env, **parse_assignments(self.set)), self.seed)
        violations = [finding for finding in findings if finding.kind == "violation"]
        for finding in findings:
            print(f"{finding.kind}: {finding.sentence}", file=sys.stderr if finding.kind == "violation" else sys.stdout)
        if violations:
            print(f"{self.env}: the contract is violated in {len(violations)} place(s).", file=sys.stderr)
            return EXIT_USAGE
        print(
            f"{self.env}: the contract holds (shapes, dtypes, jit, vmap, determinism, finite values, masks, endings, horizon)."
        )
        return 0


@dataclass(frozen=True)
class Watch:
    """Play episodes and write a page in which to watch them, with dependence arrows and credit."""

    env: EnvId
    """Environment id, module:Class or file.py:Class."""
    policy: Literal["random"] = "random"
    """Who plays."""
    episodes: int = 3
    """How many episodes to record."""
    seed: int = 0
    """Seed of the play; the same seed gives the same page."""
    out: Path = Path("replay.html")
    """The page to write."""
    set: Options = ()
    """An option of the environment; may be given several times."""

    def run(self) -> int:
        """Record, draw, write, and say where the page is."""
        if self.episodes < 1:
            raise UsageError(f"--episodes is {self.episodes}, but at least 1 episode must be played.")
        refuse_unwritable(self.out)
        import jax

        from dgmarl.envs.checker import check_env
        from dgmarl.envs.registry import make_env
        from dgmarl.report.replay import replay_page
        from dgmarl.rollout import act_randomly, record_episodes

        env = make_env(self.env, **parse_assignments(self.set))
        for finding in check_env(env, self.seed):
            if finding.kind == "violation":
                raise UsageError(f"{self.env} breaks the environment contract: {finding.sentence}")
        with _status(f"playing {self.episodes} episodes of {self.env}"):
            recording = record_episodes(env, act_randomly, jax.random.key(self.seed), self.episodes)
            page = replay_page(env, recording, self.policy)
        write_atomic(self.out, page)
        print(f"Open {self.out.absolute().as_uri()}")
        return 0


@dataclass(frozen=True)
class Doctor:
    """Say what this installation has: versions, devices, optional parts."""

    def run(self) -> int:
        """Print one line per fact."""
        import importlib.metadata
        import platform
        import shutil

        import jax

        print(f"dgmarl {__version__}, Python {platform.python_version()}, {platform.machine()}, {os.cpu_count()} cores")
        for package in ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy"):
            print(f"{package} {importlib.metadata.version(package)}")
        print(f"devices: {', '.join(str(device) for device in jax.devices())}")
        if jax.default_backend() == "cpu":
            print("no accelerator is in use; with an NVIDIA GPU, `pip install 'dgmarl[cuda]'` brings the GPU build of JAX")
        print(f"chromium (for page tests): {'found' if shutil.which('chromium') else 'not found'}")
        return 0


COMMANDS: dict[str, type[Command]] = {"envs": Envs, "check-env": CheckEnv, "watch": Watch, "doctor": Doctor}


def main(arguments: list[str] | None = None) -> None:
    """Entry point of `dgmarl`."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        code = _run(arguments)
    except UsageError as error:
        print(f"dgmarl: {error}", file=sys.stderr)
        code = EXIT_USAGE
    except KeyboardInterrupt:
        print("dgmarl: stopped", file=sys.stderr)
        code = 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    sys.exit(code)


def _run(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(_help())
        return 0
    if arguments[0] == "--version":
        print(__version__)
        return 0
    name, *rest = arguments
    if name not in COMMANDS:
        raise UsageError(f"{name!r} is not a command; {suggest(name, COMMANDS)}")
    command = COMMANDS[name]
    rest, config = _take_option(rest, "--config")
    rest, save = _take_option(rest, "--save-config")
    given = {} if config is None else {"default": build(command, read_yaml(config))}
    parsed = tyro.cli(command, prog=f"dgmarl {name}", args=rest, description=_describe(command), **given)
    if save is not None:
        write_yaml(save, parsed)
    return parsed.run()


def _help() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {(command.__doc__ or '').splitlines()[0]}" for name, command in COMMANDS.items()]
    return "\n".join(
        [
            "dgmarl: multi-agent reinforcement learning with credit along dependence graphs",
            "",
            "usage: dgmarl COMMAND [options]      (dgmarl COMMAND --help tells its options)",
            "",
            *lines,
            "",
            "Every command takes --config FILE.yaml (values for its options) and --save-config FILE.yaml (writes the resolved",
            "options, to be used with --config again).",
        ]
    )


def _describe(command: type[Command]) -> str:
    return f"{command.__doc__} Also: --config FILE.yaml reads options from a file, --save-config FILE.yaml writes them."


def _take_option(arguments: list[str], option: str) -> tuple[list[str], str | None]:
    """Remove `--option VALUE` or `--option=VALUE` from the arguments."""
    for k, argument in enumerate(arguments):
        if argument == option:
            if k + 1 == len(arguments):
                raise UsageError(f"{option} needs the path of a YAML file after it.")
            return arguments[:k] + arguments[k + 2 :], arguments[k + 1]
        if argument.startswith(f"{option}="):
            return arguments[:k] + arguments[k + 1 :], argument.partition("=")[2]
    return arguments, None


def _status(message: str):
    """A spinner on the terminal; silent elsewhere."""
    from rich.console import Console

    return Console(stderr=True).status(message)
