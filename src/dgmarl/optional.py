"""Packages that only some features need."""

import importlib
from types import ModuleType

from dgmarl.errors import UsageError


def optional(module: str, extra: str) -> ModuleType:
    """Import a module that needs an optional package, or say which extra of dgmarl installs it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        missing = (error.name or module).partition(".")[0]
        raise UsageError(
            f"{missing} is not installed: `pip install 'dgmarl[{extra}]'` brings it."
        ) from error
