"""Optional dependencies."""

import importlib
from types import ModuleType

from dgmarl.errors import UsageError


def optional(module: str, extra: str) -> ModuleType:
    """Import a module that needs an optional package; the error names the extra of dgmarl."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        missing = (error.name or module).partition(".")[0]
        raise UsageError(
            f"{missing} is not installed: run `pip install 'dgmarl[{extra}]'`."
        ) from error
