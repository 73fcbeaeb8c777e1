"""Environments of other libraries, written `library:name`: `jaxmarl:MPE_simple_spread_v3`,
`jumanji:LevelBasedForaging-v0`, `pettingzoo:mpe2.simple_spread_v3`,
`gymnasium:Foraging-8x8-2p-1f-v3`.

`ADAPTERS` names the module of each library, which is imported when one of its environments is made
and has `make(name, **options)`, after the adapter's name where one module serves two."""

import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from functools import partial
from io import StringIO
from types import ModuleType
from typing import Any

from dgmarl.envs.base import Environment
from dgmarl.optional import optional
from dgmarl.trust import HOST_ADAPTERS

ADAPTERS = {
    "jaxmarl": "dgmarl.envs.adapters.jaxmarl",
    "jumanji": "dgmarl.envs.adapters.jumanji",
    "pettingzoo": "dgmarl.envs.adapters.host",
    "gymnasium": "dgmarl.envs.adapters.host",
}
"""What stands before the colon, and the module that makes the environment."""


def maker(adapter: str) -> Callable[..., Environment]:
    """The function `make(name, **options)` of a library's adapter."""
    make = library(ADAPTERS[adapter]).make
    return partial(make, adapter) if adapter in HOST_ADAPTERS else make


def library(module: str) -> ModuleType:
    """Import a module that needs an optional package, or say how to install it.

    Importing JaxMARL prints, and sets `sys.stdout` and `sys.stderr` to those of the process: they
    are set back."""
    from unittest.mock import patch

    quiet = StringIO()
    with (
        redirect_stdout(quiet),
        redirect_stderr(sys.stderr),
        patch.object(sys, "__stdout__", quiet),
    ):
        return optional(module, "adapters")


def to_pettingzoo(env: Environment) -> Any:
    """An environment as a `pettingzoo.ParallelEnv`."""
    return library("dgmarl.envs.adapters.as_pettingzoo").AsParallelEnv(env)


def to_jaxmarl(env: Environment) -> Any:
    """An environment as a `jaxmarl.environments.MultiAgentEnv`, for JaxMARL's wrappers and training
    scripts."""
    return library("dgmarl.envs.adapters.as_jaxmarl").AsMultiAgentEnv(env)
