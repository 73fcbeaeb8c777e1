"""`dgmarl completion`: a script that completes commands and flags in a shell."""

import dataclasses
import typing
from dataclasses import dataclass
from typing import Literal

import tyro

from dgmarl.cli import commands, load_command
from dgmarl.cli.flags import spellings
from dgmarl.cli.overview import summary

BASH = """\
_dgmarl() {{
    local words="" word="${{COMP_WORDS[COMP_CWORD]}}"
    if [ "$COMP_CWORD" -eq 1 ]; then
        words="{names}"
    elif [ "${{word#-}}" != "$word" ]; then
        case "${{COMP_WORDS[1]}}" in
{cases}
        esac
    fi
    COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o default -F _dgmarl dgmarl
"""
ZSH = "autoload -U +X bashcompinit && bashcompinit\n"
"""Lets zsh read the script for bash."""


@dataclass(frozen=True)
class Completion:
    """Print a script that completes commands and flags in bash, zsh or fish."""

    shell: tyro.conf.Positional[Literal["bash", "zsh", "fish"]]
    """The shell to write it for."""

    def run(self) -> int:
        flags = {name: flags_of(name) for name in commands() if " " not in name}
        print(_fish(flags) if self.shell == "fish" else _bash(flags, self.shell), end="")
        return 0


def flags_of(name: str) -> list[str]:
    """The flags of a command, without the dashes."""
    command = load_command(name)
    if hasattr(command, "flag_names"):
        own = command.flag_names()
    else:
        hints = typing.get_type_hints(command, include_extras=True)
        names = [field.name for field in dataclasses.fields(command)]
        positional = tyro.conf.Positional
        own = [name for name in names if positional not in typing.get_args(hints[name])[1:]]
    return [*sorted({spellings(field)[0] for field in own}), "config", "save-config", "help"]


def _bash(flags: dict[str, list[str]], shell: str) -> str:
    cases = "\n".join(
        f'            {name}) words="{" ".join(f"--{flag}" for flag in own)}" ;;'
        for name, own in flags.items()
    )
    return ZSH * (shell == "zsh") + BASH.format(names=" ".join(flags), cases=cases)


def _fish(flags: dict[str, list[str]]) -> str:
    lines = []
    for name, own in flags.items():
        about = summary(commands()[name]).replace("\\", "").replace("'", "\\'")
        lines.append(f"complete -c dgmarl -n __fish_use_subcommand -a {name} -d '{about}'")
        within = f"complete -c dgmarl -n '__fish_seen_subcommand_from {name}'"
        lines += [f"{within} -l {flag}" for flag in own]
    return "\n".join(lines) + "\n"
