"""Environments by id: `lbf/10x10-3p-3f`, `star-spread/10`, `smaclite/MMM`, `matrix/climbing`,
`file.py:Class`, `jaxmarl:2s3z`."""

import importlib
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from types import FunctionType
from typing import Any, get_type_hints

from dgmarl.classes import choices, without_class
from dgmarl.config.schema import TrainConfig
from dgmarl.config.yaml import Config, override
from dgmarl.device import keep_loops_on_gpu
from dgmarl.envs.adapters import ADAPTERS, maker
from dgmarl.envs.adapters.worker import load_file
from dgmarl.envs.base import Environment
from dgmarl.envs.wrappers import Wrapper
from dgmarl.errors import (
    UnknownNameError,
    UsageError,
    did_you_mean,
    one_line,
    place_of,
    suggest,
)
from dgmarl.trust import is_code, require_trust


@dataclass(frozen=True)
class Family:
    """A family of environments that share a prefix."""

    make: Callable[[str, dict[str, Any]], Environment]
    """Makes an environment from the text after the slash and the options."""
    grammar: str
    """Syntax of the text after the slash, shown to users."""
    about: str
    """One line for the table of `dgmarl envs`."""
    examples: tuple[str, ...]
    """Ids that the contract test runs and the table shows."""


def make_env(env_id: str, /, *, trust: bool = True, **options: Any) -> Environment:
    """The environment with this id. `options` change fields of its configuration, for example
    `noise=0`.

    trust: execute `module:Class` or `file.py:Class`. False, for an id that was read from a file:
      only code that this user has trained on or checked before."""
    family, slash, rest = env_id.partition("/")
    if slash and family in FAMILIES:
        return FAMILIES[family].make(rest, options)
    if ":" in env_id:
        require_trust("The caller", env=env_id, trust=trust)
        adapter, _, name = env_id.partition(":")
        if adapter in ADAPTERS:
            return _made(env_id, name, partial(maker(adapter), name), options)
        return _custom(env_id, options)
    if env_id.endswith(".py"):
        raise without_class(env_id, "environment")
    names = [example for entry in FAMILIES.values() for example in entry.examples]
    ways = f"write {', '.join(f'{name}/...' for name in FAMILIES)}, module:Class, file.py:Class or"
    ways += " " + ", ".join(f"{name}:..." for name in ADAPTERS)
    hint = did_you_mean(env_id, names)
    raise UnknownNameError(
        f"{env_id!r} is not a known environment (`dgmarl envs` lists them): {ways}{hint}"
    )


def name_of(env: Environment) -> str:
    """The id with which `make_env` makes an environment of this class, perhaps with other options;
    the bare class name if there is none."""
    family, adapter = env.spec.name.partition("/")[0], env.spec.name.partition(":")[0]
    own = type(env).__module__.startswith("dgmarl.")
    if own and (family in FAMILIES or adapter in ADAPTERS):
        return env.spec.name
    return class_name(type(env))


def class_name(cls: type) -> str:
    """The `module:Class` or `file.py:Class` with which `load_object` finds a class in any process;
    the bare class name if there is none."""
    file = getattr(sys.modules.get(cls.__module__), "__file__", None)
    if file is None or cls.__qualname__ != cls.__name__:
        return cls.__name__
    in_package = "." in cls.__module__
    return f"{cls.__module__ if in_package else Path(file).resolve()}:{cls.__name__}"


def wrapped_family(env: Environment) -> str:
    """The id of the registered environment inside wrappers; empty if there is none."""
    inside: Any = env
    while isinstance(inside, Wrapper):
        inside = getattr(inside, "env", None)  # missing if a subclass does not call __init__
    name = name_of(inside) if isinstance(env, Wrapper) and inside is not None else ""
    return name if name.partition("/")[0] in FAMILIES else ""


def with_wrapped_preset(resolved: Callable[[str], TrainConfig]) -> TrainConfig:
    """`resolved("")`, or `resolved(id)` if its environment wraps the registered environment `id`,
    whose preset then applies. If the environment cannot be made, training reports the error."""
    config = resolved("")
    try:
        found = load_object(config.env, "environment") if is_code(config.env) else None
        if not isinstance(found, FunctionType) and not _is_environment(found, Wrapper):
            return config
        like = wrapped_family(make_env(config.env, **config.env_options))
    except UsageError:
        return config
    return resolved(like) if like else config


def register_family(name: str, family: Family) -> None:
    """Add a family of environments; its name, the text before the slash, must be new."""
    if name in FAMILIES:
        raise UsageError(f"The environment family {name} exists already: choose another name.")
    FAMILIES[name] = family


def _make_lbf(text: str, options: dict[str, Any]) -> Environment:
    from dgmarl.envs.lbf import LevelBasedForaging, parse

    return LevelBasedForaging(_with_options(parse(text), options, "lbf"))


def _make_star_spread(text: str, options: dict[str, Any]) -> Environment:
    from dgmarl.envs.star_spread import StarSpread, StarSpreadConfig

    if not text.isdecimal():
        raise UnknownNameError(
            f"star-spread/{text} needs a number of agents after the slash, for example "
            "star-spread/10."
        )
    config = StarSpreadConfig(n_agents=int(text))
    return StarSpread(_with_options(config, options, "star-spread"))


def _make_smaclite(text: str, options: dict[str, Any]) -> Environment:
    from dgmarl.envs.smaclite import Smaclite, SmacliteConfig, find_scenario

    keep_loops_on_gpu()
    config = _with_options(SmacliteConfig(), options, "smaclite")
    return Smaclite(find_scenario(text), config)


def _with_options(config: Config, options: dict[str, Any], family: str) -> Config:
    """The configuration of an environment of this family with the options of a user."""
    names = [field.name for field in fields(config)]  # pyright: ignore[reportArgumentType]
    for name in options:
        if name.partition(".")[0] not in names:
            raise UsageError(
                f"{name} is not an option of {family} environments; {suggest(name, names)}"
            )
    return override(config, options)


def _make_matrix(text: str, options: dict[str, Any]) -> Environment:
    from dgmarl.envs.matrix import parse_matrix_game

    if options:
        raise UsageError(
            f"matrix/{text} was given the option {next(iter(options))}, but matrix games have "
            "none: leave it out."
        )
    return parse_matrix_game(text)


def _custom(env_id: str, options: dict[str, Any]) -> Environment:
    """`module:Class` or `file.py:Class`, or a function in place of the class; called with the
    options.

    Only subclasses of Environment and functions annotated to return one are called: `os:system`
    with an option `command` would run a shell command."""
    found = load_object(env_id, "environment")
    if not _is_environment(found) and not _returns_environment(found):
        raise UsageError(
            f"{env_id!r} is not an environment: name a subclass of dgmarl.Environment, or a "
            "function `def name(...) -> Environment`."
        )
    return _made(env_id, found.__name__, found, options)


def _made(
    env_id: str, name: str, make: Callable[..., Environment], options: dict[str, Any]
) -> Environment:
    """`make(**options)`; any exception becomes a UsageError."""
    try:
        return make(**options)
    except UsageError:
        raise
    except Exception as error:
        given = ", ".join(f"{option}={value!r}" for option, value in options.items())
        place = place_of(error)
        raise UsageError(
            f"{env_id!r} could not be made: {name}({given}) raised {one_line(error)}"
            f"{f' ({place})' if place else ''}."
        ) from error


def _is_environment(found: Any, kind: type = Environment) -> bool:
    return isinstance(found, type) and issubclass(found, kind)


def _returns_environment(found: Any) -> bool:
    if not isinstance(found, FunctionType):
        return False
    try:
        return _is_environment(get_type_hints(found).get("return"))
    except Exception:  # an annotation may be anything
        return False


def load_object(text: str, what: str) -> Any:
    """Import the object `module:name` or `file.py:name`; errors call it `what`.

    The only place that imports code named by a user. A name that comes from a file must have passed
    `dgmarl.trust.require_trust` before."""
    if text.removesuffix(":").endswith(".py"):
        raise without_class(text.removesuffix(":"), what)
    if not is_code(text):
        raise UnknownNameError(
            f"{text!r} is not a known {what}: write module:Class or file.py:Class."
        )
    place, _, name = text.rpartition(":")
    if os.getcwd() not in sys.path:
        # Modules in the working directory are found after installed ones.
        sys.path.append(os.getcwd())
    is_file = place.endswith(".py")
    if is_file and not Path(place).is_file():
        raise UnknownNameError(f"{text!r}: there is no file {place}; check the path.")
    try:
        module = load_file(place) if is_file else importlib.import_module(place)
    except UsageError:
        raise
    except Exception as error:
        where = f" ({line})" if (line := place_of(error)) else ""
        reason = f"importing {place} failed with {one_line(error)}{where}"
        raise UsageError(f"{text!r}: {reason}.") from error
    if not hasattr(module, name):
        file = getattr(module, "__file__", None) or ""
        there = choices(place, file, what, name)
        raise UnknownNameError(f"{text!r}: {place} has no {name}; name the class{there}")
    return getattr(module, name)


FAMILIES: dict[str, Family] = {
    "lbf": Family(
        _make_lbf,
        "[grid-][2s-]{S}x{S}-{P}p-{F}f[-coop|-coop-shared|-wta][-ind][-pen] | "
        "[Custom-]Foraging-...-v3",
        "Level-Based Foraging: collect food, often several agents together",
        (
            "lbf/10x10-3p-3f",
            "lbf/15x15-3p-4f",
            "lbf/15x15-4p-3f",
            "lbf/8x8-2p-4f-coop",
            "lbf/10x10-2p-3f-coop",
            "lbf/15x15-3p-4f-coop",
            "lbf/8x8-2p-2f-coop-shared",
            "lbf/2s-8x8-3p-2f-wta",
            "lbf/grid-2s-6x6-2p-2f-pen",
            "lbf/Foraging-8x8-2p-3f-v3",
        ),
    ),
    "star-spread": Family(
        _make_star_spread,
        "{N}",
        "Star-Spread: leaves cover landmarks, the hub is rewarded for it; the graph is known",
        ("star-spread/2", "star-spread/5", "star-spread/10", "star-spread/40"),
    ),
    "smaclite": Family(
        _make_smaclite,
        "{map} | {file}.yaml",
        "SMAClite: unit micromanagement, damage rewarded to the agent that dealt it",
        ("smaclite/2s3z",),
    ),
    "matrix": Family(
        _make_matrix,
        "climbing | penalty-{K} | two-step",
        "Matrix games, small enough to check by hand",
        ("matrix/climbing", "matrix/penalty-50", "matrix/two-step"),
    ),
}
