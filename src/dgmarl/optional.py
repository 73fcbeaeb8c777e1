"""Optional dependencies."""

import importlib
from importlib.util import find_spec
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


def has_cuda() -> bool:
    """Whether JAX's build for NVIDIA GPUs is installed; without importing JAX."""
    return any(find_spec(plugin) for plugin in ("jax_cuda13_plugin", "jax_cuda12_plugin"))
