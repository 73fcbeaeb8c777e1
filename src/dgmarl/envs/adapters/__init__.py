"""Environments of other libraries, written `library:name`: `jaxmarl:MPE_simple_spread_v3`,
`jumanji:LevelBasedForaging-v0`, `pettingzoo:mpe2.simple_spread_v3`,
`gymnasium:Foraging-8x8-2p-1f-v3`."""

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
"""Library name before the colon: adapter module, imported on first use."""


def maker(adapter: str) -> Callable[..., Environment]:
    """The function `make(name, **options)` of a library's adapter; host adapters share one module,
    whose `make` takes the adapter's name first."""
    make = library(ADAPTERS[adapter]).make
    return partial(make, adapter) if adapter in HOST_ADAPTERS else make


def library(module: str) -> ModuleType:
    """Import a module that needs an optional package; the error says how to install it.

    Importing JaxMARL prints, and replaces `sys.stdout` and `sys.stderr`: both are restored."""
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
