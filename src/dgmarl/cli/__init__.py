"""The command line. Every command is a frozen dataclass whose fields are its options, with a method
`run() -> exit code`; its module is imported only when the command is called.

Other packages add commands through the entry-point group `dgmarl.commands`.

Every command also takes `--config FILE` (a YAML file of options; those on the command line take
precedence) and `--save-config FILE` (write the resolved options, for `--config`)."""

import sys
import warnings
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from dgmarl import __version__
from dgmarl.cli.compiling import keep_programs
from dgmarl.cli.guard import Interrupts, guarded, printable
from dgmarl.cli.overview import examples, overview
from dgmarl.config.yaml import build, plain, read_yaml, write_yaml
from dgmarl.errors import UsageError, suggest
from dgmarl.files import refuse_unwritable
from dgmarl.trust import require_trust

COMMANDS = {
    "train": "dgmarl.cli.train:Train",
    "sweep": "dgmarl.cli.sweep:Sweep",
    "sweep status": "dgmarl.cli.sweep:SweepStatus",
    "evaluate": "dgmarl.cli.play:Evaluate",
    "table": "dgmarl.cli.results:Table",
    "report": "dgmarl.cli.results:Report",
    "watch": "dgmarl.cli.play:Watch",
    "graph": "dgmarl.cli.play:Graph",
    "export": "dgmarl.cli.play:Export",
    "demo": "dgmarl.cli.demo:Demo",
    "envs": "dgmarl.cli.environments:Envs",
    "check-env": "dgmarl.cli.environments:CheckEnv",
    "new-env": "dgmarl.cli.environments:NewEnv",
    "doctor": "dgmarl.cli.doctor:Doctor",
    "completion": "dgmarl.cli.completion:Completion",
}
"""Commands of this package, as module:Class like entry points."""


@cache
def commands() -> dict[str, str]:
    """All commands by name: those of this package, then those of entry points."""
    others = {entry.name: entry.value for entry in entry_points(group="dgmarl.commands")}
    return {**COMMANDS, **{name: others[name] for name in sorted(others.keys() - COMMANDS.keys())}}


def main(arguments: list[str] | None = None) -> None:
    """Entry point of `dgmarl`."""
    arguments = sys.argv[1:] if arguments is None else arguments
    warnings.showwarning = _show_warning
    sys.exit(guarded(lambda interrupts: _run(arguments, interrupts)))


def _show_warning(message: Warning | str, *_: object) -> None:
    """Print a warning without its source line."""
    print(f"dgmarl: {printable(str(message))}", file=sys.stderr)


def _run(arguments: list[str], interrupts: Interrupts) -> int:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(overview(commands()))
        return 0
    if arguments[0] == "--version":
        print(__version__)
        return 0
    name, rest = split_name(arguments)
    if name not in commands():
        raise UsageError(f"{name!r} is not a command; {suggest(name, commands())}")
    keep_programs()
    command = load_command(name)
    from dgmarl.cli.common import NotANumberError, check_command

    rest, config = _take_option(rest, "--config")
    rest, save = _take_option(rest, "--save-config")
    try:
        parsed = _parse(name, command, rest, config)
    except NotANumberError as error:
        raise UsageError(error.sentence(rest)) from None
    except SystemExit as stop:
        if not stop.code:  # the help has been printed
            print(examples(name))
        raise
    check_command(parsed, rest)
    interrupts.advice = getattr(parsed, "after_stop", interrupts.advice)
    if save:
        options = plain(getattr(parsed, "resolved", lambda: parsed)())
        options.pop("trust", None)
        refuse_unwritable(save)
        write_yaml(save, options)
    return parsed.run()


def split_name(arguments: list[str]) -> tuple[str, list[str]]:
    """The name of a command, which may have two words, and the other arguments."""
    n_words = 2 if " ".join(arguments[:2]) in commands() else 1
    return " ".join(arguments[:n_words]), arguments[n_words:]


def _parse(name: str, command: Any, arguments: list[str], config: str) -> Any:
    """The parsed command; `from_arguments` of a command replaces the parser."""
    import tyro

    from dgmarl.cli.common import NUMBERS

    values = read_yaml(config) if config else {}
    if "trust" in values:
        raise UsageError(
            f"{config} sets trust, which a file may not do: remove it, and give --trust yourself."
        )
    if hasattr(command, "from_arguments"):
        return command.from_arguments(arguments, values, config, _describe(command))
    options: Any = {"default": build(command, values)} if config else {}
    options |= {"prog": f"dgmarl {name}", "description": _describe(command)}
    parsed = tyro.cli(command, args=arguments, registry=NUMBERS, **options)
    _require_trust(config, values, parsed, arguments)
    return parsed


def _require_trust(path: str, values: dict[str, Any], parsed: Any, arguments: list[str]) -> None:
    """Require trust in code named by the file `path`, unless it is on the command line too."""
    typed = {word.partition("=")[2] or word for word in arguments} | set(arguments)
    for option in ("env", "what"):
        name = getattr(parsed, option, None)
        if isinstance(name, str) and name == values.get(option) and name not in typed:
            require_trust(path, env=name, trust=getattr(parsed, "trust", False))


def load_command(name: str) -> Any:
    """Import the class of a command."""
    module, _, attribute = commands()[name].partition(":")
    try:
        return getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise UsageError(
            f"The command {name} ({module}:{attribute}) cannot be loaded ({error}): check the "
            "package that provides it."
        ) from error


def _describe(command: type) -> str:
    about = " ".join((command.__doc__ or "").split())
    return f"{about} --config FILE.yaml reads options, --save-config FILE.yaml writes them."


def _take_option(arguments: list[str], option: str) -> tuple[list[str], str]:
    """Remove `--option VALUE` or `--option=VALUE` from the arguments; the value is empty without
    this option."""
    for k, argument in enumerate(arguments):
        if argument == option:
            value, rest = next(iter(arguments[k + 1 :]), ""), arguments[k + 2 :]
        elif argument.startswith(f"{option}="):
            value, rest = argument.partition("=")[2], arguments[k + 1 :]
        else:
            continue
        if not value:
            raise UsageError(f"{option} needs the path of a YAML file.")
        return arguments[:k] + rest, value
    return arguments, ""
