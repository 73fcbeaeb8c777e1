"""Shared by commands: types of options, and small helpers."""

import dataclasses
import typing
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import tyro

from dgmarl.config.ranges import check_fields
from dgmarl.config.yaml import convert
from dgmarl.errors import UsageError
from dgmarl.files import refuse_unwritable

if TYPE_CHECKING:
    from dgmarl.sweeps.plan import Resources


class NotANumberError(Exception):
    """The value of an option is not a number. tyro would print a ValueError in a box of several
    lines."""

    def sentence(self, arguments: list[str]) -> str:
        """The error message, with the option that has this value in a command line."""
        text, wanted = self.args
        flags = [flag for flag, value in pairwise(arguments) if value == text]
        flags += [word.partition("=")[0] for word in arguments if word.endswith(f"={text}")]
        shown = text if len(text) < 40 else f"{text[:20]}..."
        return f"{flags[0] if flags else 'A number'} is {shown!r}, but must be {wanted}."


NUMBERS = tyro.constructors.ConstructorRegistry()
"""Parses all numbers of a command line; an integer may be written 1e6."""


@NUMBERS.primitive_rule
def _number(
    info: tyro.constructors.PrimitiveTypeInfo,
) -> tyro.constructors.PrimitiveConstructorSpec | None:
    kind: Any = info.type
    if kind not in (int, float):
        return None

    def read(texts: list[str]) -> Any:
        try:
            return convert(texts[0], kind, "the number")
        except UsageError:
            wanted = "a whole number" if kind is int else "a number"
            raise NotANumberError(texts[0], wanted) from None

    return tyro.constructors.PrimitiveConstructorSpec(
        nargs=1,
        metavar=kind.__name__.upper(),
        instance_from_str=read,
        is_instance=lambda value: isinstance(value, int | kind) and not isinstance(value, bool),
        str_from_instance=lambda value: [str(value)],
    )


def left_out(metavar: str, name: str | None = None) -> Any:
    """An option whose docstring states its default, so that the help shows no other."""
    return tyro.conf.arg(name=name, metavar=metavar, help_behavior_hint="")


EnvId = tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="ENV")]]
RunPath = tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="RUN")]]
Trust = Annotated[bool, tyro.conf.FlagCreatePairsOff]
Folder = Annotated[Path | None, left_out("DIR")]
Options = tyro.conf.UseAppendAction[Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME=VALUE")]]
OptionalCount = Annotated[int | None, left_out("INT")]


class Output(NamedTuple):
    """Marks an option as an output path."""

    folder: bool = False
    """The path is a folder rather than a file."""
    suffixes: tuple[str, ...] = ()
    """Allowed suffixes of a file; empty: all."""


OutputFile = Annotated[Path, Output()]
PageFile = Annotated[Path, Output(suffixes=(".html", ".htm"))]
OutputFolder = Annotated[Path, Output(folder=True)]
OptionalFolder = Annotated[Path | None, Output(folder=True), left_out("DIR")]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Execution:
    """Options of commands that train many runs."""

    workers: OptionalCount = None
    """Programs to run at a time; default: 1, with Ray as many as the cluster has room for."""
    batched: int = 8
    """Maximum number of runs of equal shape to batch into one program."""
    executor: Literal["local", "ray"] = "local"
    """Train on this machine or on a Ray cluster (pip install 'dgmarl[ray]')."""
    address: str = "local"
    """Address of the Ray cluster: auto, ray://HOST:10001, HOST:PORT, or local to start one."""
    cpus: int = 1
    """CPU cores per program, with Ray."""
    gpus: float = 0.0
    """GPUs per program, with Ray; with 0.25 four programs share a GPU."""
    storage: Annotated[str, left_out("URL")] = ""
    """Storage that transfers runs between machines without a shared disk, such as s3://..."""

    def resources(self, retries: int = 0) -> "Resources":
        """The options as `Resources`, validated."""
        from dgmarl.sweeps.plan import resources_of

        of_ray = {name: getattr(self, name) for name in ("address", "cpus", "gpus", "storage")}
        return resources_of(self.workers, self.batched, retries, self.executor, **of_ray)


def counted(n: int, noun: str) -> str:
    """`1 seed`, `2 seeds`."""
    return f"{n} {noun}{'s' * (n != 1)}"


def file_name(env_id: str) -> str:
    """`star-spread_5` for star-spread/5, `Relay` for path/to/relay.py:Relay, `lane.py` for
    pettingzoo:path/to/lane.py."""
    return Path(env_id.rpartition(":")[2]).name if ":" in env_id else env_id.replace("/", "_")


def refuse_broken(env, name: str) -> None:
    """Raise UsageError for an environment that violates the contract, before compiling."""
    from dgmarl.envs.checker import check_env

    for finding in check_env(env):
        if finding.kind == "violation":
            raise UsageError(f"{name} violates the environment contract: {finding.sentence}")


def status(message: str):
    """A spinner on the terminal; silent elsewhere."""
    from rich.console import Console
    from rich.text import Text

    return Console(stderr=True).status(Text(message))


def check_command(command: Any, arguments: list[str]) -> None:
    """Validate the numbers and output paths of a command before it does anything."""
    options = getattr(command, "options", command)
    if not type(options).__module__.startswith("dgmarl."):
        return  # options of other packages may have other meanings
    check_fields(options, flags=True)
    hints = typing.get_type_hints(type(options), include_extras=True)
    for field in dataclasses.fields(options):
        flag, value = f"--{field.name.replace('_', '-')}", getattr(options, field.name)
        if isinstance(value, Path) and (
            f"{flag}=" in arguments or (flag, "") in pairwise(arguments)
        ):
            raise UsageError(f"{flag} is empty: give a path, or leave it out.")
        for mark in typing.get_args(hints[field.name])[1:]:
            if isinstance(mark, Output) and value is not None:
                _check_output(flag, value, mark)


def _check_output(flag: str, path: Path, mark: Output) -> None:
    """Validate the suffix of an output path and that it can be written."""
    refuse_unwritable(path, folder=mark.folder)
    if mark.suffixes and path.suffix.lower() not in mark.suffixes:
        raise UsageError(
            f"{flag} is {path}, but the file must end in {' or '.join(mark.suffixes)}, which is "
            "its format."
        )
