"""Flags of the command line from the fields of a configuration: `--learner.hidden`, `--n-envs`.

The classes made here have the fields, types and docstrings of a configuration and its values as
defaults, but none of its checks: values are validated where the configuration is resolved."""

import ast
import dataclasses
import inspect
import textwrap
import typing
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Annotated, Any

import tyro


def flag_class(config: Any, leave_out: Iterable[str] = ()) -> type:
    """A dataclass for tyro with the fields of `config`, whose values are the defaults; nested
    configurations become groups of flags."""
    docs = _field_docs(type(config))
    hints = typing.get_type_hints(type(config), include_extras=True)
    fields = []
    for field in dataclasses.fields(config):
        if field.name in leave_out:
            continue
        value, hint = getattr(config, field.name), hints[field.name]
        if dataclasses.is_dataclass(value):
            hint = flag_class(value)
            value = hint()
        argument = tyro.conf.arg(name=field.name.rstrip("_"), help=docs.get(field.name))
        fields.append((field.name, Annotated[hint, argument], dataclasses.field(default=value)))
    made = dataclasses.make_dataclass(type(config).__name__, fields, frozen=True)
    made.__doc__ = type(config).__doc__
    return made


def leaves(parsed: Any, where: str = "") -> dict[str, Any]:
    """Values by dotted name, `learner.hidden`, of an instance of a `flag_class`."""
    found = {}
    for field in dataclasses.fields(parsed):
        name, value = f"{where}{field.name}", getattr(parsed, field.name)
        found |= leaves(value, f"{name}.") if dataclasses.is_dataclass(value) else {name: value}
    return found


def spellings(name: str) -> tuple[str, str]:
    """The flag of a dotted name as tyro writes it, without leading dashes, and its negation."""
    *groups, last = (part.rstrip("_").replace("_", "-") for part in name.split("."))
    return ".".join([*groups, last]), ".".join([*groups, f"no-{last}"])


def scan(
    arguments: Iterable[str], switches: Iterable[str] = ()
) -> tuple[dict[str, str], list[str]]:
    """The values of a command line by flag, without leading dashes and with hyphens for
    underscores, and its positional words. switches: flags that take no value."""
    options, positional, no_value = {}, [], {"h", "help", *switches}
    rest = [*arguments]
    while rest:
        word = rest.pop(0)
        if not word.startswith("-") or word == "-":
            positional.append(word)
            continue
        name, equals, value = word.lstrip("-").partition("=")
        name = name.replace("_", "-")
        if not equals and name not in no_value and rest and not rest[0].startswith("--"):
            value = rest.pop(0)
        options[name] = value
    return options, positional


def switches_of(values: Mapping[str, Any]) -> set[str]:
    """The flags that take no value, among those of `leaves`."""
    names = [name for name, value in values.items() if isinstance(value, bool)]
    return {spelling for name in names for spelling in spellings(name)}


def _field_docs(cls: type) -> dict[str, str]:
    """The string below each field in the source of a class and its bases."""
    docs: dict[str, str] = {}
    for base in reversed(cls.__mro__[:-1]):
        tree = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0]
        body = tree.body if isinstance(tree, ast.ClassDef) else []
        for field, below in pairwise(body):
            if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
                continue
            if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
                docs[field.target.id] = " ".join(str(below.value.value).split())
    return docs
