"""What several commands share: types of options, the command protocol, and small helpers."""

from pathlib import Path
from typing import Annotated, Protocol

import tyro

from dgmarl.config.yaml import convert
from dgmarl.errors import UsageError

# So that a number of steps may be written 1e6.
COUNT = tyro.constructors.PrimitiveConstructorSpec(
    nargs=1,
    metavar="INT",
    instance_from_str=lambda texts: convert(texts[0], int, "the number"),
    is_instance=lambda value: isinstance(value, int),
    str_from_instance=lambda value: [str(value)],
)
INTEGERS = tyro.constructors.ConstructorRegistry()
"""Reads every integer of a command line as `COUNT` does."""


@INTEGERS.primitive_rule
def _read_integer(
    info: tyro.constructors.PrimitiveTypeInfo,
) -> tyro.constructors.PrimitiveConstructorSpec | None:
    return COUNT if info.type is int else None


EnvId = tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="ENV")]]
RunPath = tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="RUN")]]
Trust = Annotated[bool, tyro.conf.FlagCreatePairsOff]
Folder = Annotated[Path | None, tyro.conf.arg(metavar="DIR")]
Options = tyro.conf.UseAppendAction[Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME=VALUE")]]
Count = Annotated[int, COUNT]


class Command(Protocol):
    """A dataclass of options that can be run."""

    def run(self) -> int:
        """Do the work and return the exit code."""
        ...


def counted(n: int, noun: str) -> str:
    """`1 seed`, `2 seeds`."""
    return f"{n} {noun}{'s' * (n != 1)}"


def file_name(env_id: str) -> str:
    """`star-spread_5` for star-spread/5, `Relay` for path/to/relay.py:Relay."""
    return env_id.rpartition(":")[2] if ":" in env_id else env_id.replace("/", "_")


def refuse_broken(env, name: str) -> None:
    """An environment that breaks the contract is told so before anything is compiled for it."""
    from dgmarl.envs.checker import check_env

    for finding in check_env(env):
        if finding.kind == "violation":
            raise UsageError(f"{name} breaks the environment contract: {finding.sentence}")


def status(message: str):
    """A spinner on the terminal; silent elsewhere."""
    from rich.console import Console
    from rich.text import Text

    return Console(stderr=True).status(Text(message))


def require_episodes(episodes: int) -> None:
    """Validate --episodes."""
    if episodes < 1:
        raise UsageError(f"--episodes is {episodes}, but at least 1 episode must be played.")
