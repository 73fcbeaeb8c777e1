"""Frozen dataclasses from and to plain values and YAML; invalid input raises UsageError.

`build(Class, values)` and `plain(config)` are inverse to each other, so a configuration written to
YAML and read back is equal. YAML is read with the safe loader, without aliases and with bounded
size and depth: a file holds values, never code."""

import copy
import dataclasses
import re
import types
import typing
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar

from dgmarl.errors import UsageError, suggest
from dgmarl.files import read_bytes, write_atomic

Config = TypeVar("Config")
MOST_BYTES = 200_000
"""Size limit of YAML files; configurations and scenarios have a few thousand bytes."""
MOST_LEVELS = 20
"""Limit on the nesting of YAML."""
POWERS = (
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"),
    list("-+0123456789"),
)
"""Resolver for 1e-3 and 1.5e6, which YAML 1.1 reads as text (no point, no sign)."""


def build(cls: type[Config], values: Mapping[str, Any], where: str = "") -> Config:
    """A `cls` from plain values; other fields keep their default. where: dotted path for messages.

    A class method `field_types(values)` may give types of fields that depend on the values."""
    if not isinstance(values, Mapping):
        raise UsageError(
            f"{where or cls.__name__} is {values!r}, but must be a mapping of fields to values."
        )
    chosen = getattr(cls, "field_types", lambda values: {})(values)
    # The default may be of another type than the one that `field_types` chooses.
    values = {**{name: {} for name in chosen}, **values}
    hints = typing.get_type_hints(cls) | chosen
    fields = {field.name: field for field in dataclasses.fields(cls)}  # pyright: ignore[reportArgumentType]
    for name in values:
        if name not in fields:
            raise UsageError(
                f"{_path(where, name)} is not a field of {cls.__name__}; "
                f"{suggest(str(name), fields)}"
            )
    for name, field in fields.items():
        required = field.default is field.default_factory is dataclasses.MISSING
        if required and name not in values:
            raise UsageError(
                f"{_path(where, name)} is missing: {cls.__name__} needs it, so give it a value."
            )
    return cls(
        **{name: convert(value, hints[name], _path(where, name)) for name, value in values.items()}
    )


def plain(config: Any) -> Any:
    """The configuration as nested plain values, ready for YAML or JSON."""
    if dataclasses.is_dataclass(config):
        return {
            field.name: plain(getattr(config, field.name)) for field in dataclasses.fields(config)
        }
    if isinstance(config, tuple | list):
        return [plain(item) for item in config]
    if isinstance(config, dict):
        return {name: plain(value) for name, value in config.items()}
    return str(config) if isinstance(config, Path) else config


def override(config: Config, values: Mapping[str, Any]) -> Config:
    """A copy with some fields changed; nested fields have dotted names such as `learner.gamma`."""
    return build(type(config), nested(values, plain(config)))


def nested(values: Mapping[str, Any], base: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Dotted names as nested values, the inverse of `dotted`, on top of `base`."""
    tree = copy.deepcopy(dict(base or {}))
    for name, value in values.items():
        *parents, last = name.split(".")
        target = tree
        for parent in parents:
            if not isinstance(target.setdefault(parent, {}), dict):
                raise UsageError(
                    f"{name} cannot be set: {parent} has no fields; {suggest(parent, target)}"
                )
            target = target[parent]
        target[last] = value
    return tree


def dotted(
    values: Mapping[str, Any], leave_out: Iterable[str] = (), where: str = ""
) -> dict[str, Any]:
    """Nested values by dotted names: {"learner": {"gamma": 1}} is {"learner.gamma": 1}."""
    flat = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            flat |= dotted(value, where=_path(where, name))
        elif name not in leave_out:
            flat[_path(where, name)] = value
    return flat


def parse_assignments(assignments: Iterable[str]) -> dict[str, Any]:
    """`["noise=0", "layout=grid"]` as a mapping; values are read as YAML scalars."""
    parsed = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals or not name.strip():
            raise UsageError(
                f"--set was given {assignment!r}, but needs NAME=VALUE, for example --set noise=0."
            )
        parsed[name.strip()] = _parse_yaml(value, f"the value of {name.strip()}")
    return parsed


def read_yaml(path: Path | str) -> dict[str, Any]:
    """The mapping in a YAML file; a missing, invalid or unsafe file raises UsageError."""
    path = Path(path)
    try:
        content = read_bytes(path, MOST_BYTES).decode()
    except UnicodeDecodeError:
        raise UsageError(
            f"The configuration file {path} cannot be read (it is not UTF-8 text): check the path."
        ) from None
    values = _parse_yaml(content, f"the configuration file {path}")
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise UsageError(
            f"The configuration file {path} holds a {type(values).__name__}, but must hold "
            "`field: value` lines."
        )
    return values


def write_yaml(path: Path | str, config: Any) -> None:
    """Write a configuration, fields in order of declaration."""
    write_atomic(path, to_yaml(config))


def to_yaml(config: Any) -> str:
    """The text of `write_yaml`."""
    import yaml

    return yaml.dump(plain(config), Dumper=_dumper(), sort_keys=False, allow_unicode=True)


def convert(value: Any, hint: Any, name: str) -> Any:
    """`value` converted to the type `hint`, or a UsageError with the allowed values."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return value
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return value if isinstance(value, hint) else build(hint, value, name)
    if origin is Literal:
        return _one_of(value, arguments, name)
    if origin in (typing.Union, types.UnionType):
        return _any_of(value, arguments, name)
    if origin is tuple:
        return _tuple_of(value, arguments, name)
    if origin is dict or hint is dict:
        return _instance(value, dict, "a mapping", name)
    if hint in (int, float):
        return _number(value, hint, name)
    if hint is Path:
        return Path(_instance(value, str | Path, "a path", name))
    words = {bool: "true or false", str: "text"}
    return _instance(value, hint, words.get(hint, getattr(hint, "__name__", str(hint))), name)


def _one_of(value: Any, allowed: tuple[Any, ...], name: str) -> Any:
    if value in allowed and not isinstance(value, bool):
        return value
    raise UsageError(f"{name} is {value!r}, but {suggest(str(value), allowed)}")


def _any_of(value: Any, hints: tuple[Any, ...], name: str) -> Any:
    if value is None and type(None) in hints:
        return None
    choices = [hint for hint in hints if hint is not type(None)]
    for hint in choices[:-1]:
        with suppress(UsageError):
            return convert(value, hint, name)
    return convert(value, choices[-1], name)


def _tuple_of(value: Any, hints: tuple[Any, ...], name: str) -> tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        raise UsageError(f"{name} is {value!r}, but must be a list.")
    if len(hints) == 2 and hints[1] is Ellipsis:
        hints = (hints[0],) * len(value)
    if len(hints) != len(value):
        raise UsageError(f"{name} has {len(value)} entries, but must have {len(hints)}.")
    return tuple(
        convert(item, hint, f"{name}[{k}]")
        for k, (item, hint) in enumerate(zip(value, hints, strict=True))
    )


def _number(value: Any, kind: type, name: str) -> Any:
    """A finite integer, also written 1e6, or a float; booleans and NaN are rejected."""
    wanted = "a whole number" if kind is int else "a number"
    try:
        number = float(value) if isinstance(value, str) else value
        if isinstance(number, bool) or not isinstance(number, int | float) or number != number:
            raise ValueError
        if kind is int and (abs(number) == float("inf") or number != int(number)):
            raise ValueError
        return kind(number)
    except ValueError:
        raise UsageError(f"{name} is {value!r}, but must be {wanted}.") from None
    except OverflowError:
        raise UsageError(f"{name} has too many digits: give a smaller number.") from None


def _instance(value: Any, kind: Any, wanted: str, name: str) -> Any:
    if isinstance(value, kind):
        return value
    raise UsageError(f"{name} is {value!r}, but must be {wanted}.")


def _parse_yaml(content: str, what: str) -> Any:
    import yaml

    try:
        return yaml.load(content, _loader())
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        problem = " ".join(str(getattr(error, "problem", None) or error).split())
    except ValueError as error:  # such as an invalid date
        place, problem = "", str(error)
    raise UsageError(
        f"In {what}{place}: {problem}; only plain YAML values, indented with spaces, are read."
    )


@cache
def _loader() -> Any:
    """PyYAML's safe loader without aliases, deep nesting and huge integers."""
    import yaml

    class PlainLoader(yaml.SafeLoader):
        levels = 0

        def compose_node(self, parent: Any, index: Any) -> Any:
            event = self.peek_event()
            if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
                raise yaml.MarkedYAMLError(None, None, "an alias or anchor", event.start_mark)
            self.levels += 1
            if self.levels > MOST_LEVELS:
                problem = f"more than {MOST_LEVELS} levels"
                raise yaml.MarkedYAMLError(None, None, problem, event.start_mark)
            node = super().compose_node(parent, index)
            self.levels -= 1
            return node

        def construct_yaml_int(self, node: Any) -> int:
            if len(node.value) > 40 or abs(value := super().construct_yaml_int(node)) >= 2**63:
                problem = "a whole number of more than 64 bits"
                raise yaml.MarkedYAMLError(None, None, problem, node.start_mark)
            return value

    PlainLoader.add_constructor("tag:yaml.org,2002:int", PlainLoader.construct_yaml_int)
    PlainLoader.add_implicit_resolver(*POWERS)
    return PlainLoader


@cache
def _dumper() -> Any:
    """PyYAML's safe dumper, which quotes texts that `_loader` would read as numbers."""
    import yaml

    class PlainDumper(yaml.SafeDumper):
        pass

    PlainDumper.add_implicit_resolver(*POWERS)
    return PlainDumper


def _path(where: str, name: object) -> str:
    return f"{where}.{name}" if where else str(name)
