"""Settings of JAX's compiler for commands. JAX reads them when it is imported, and processes that a
command starts inherit them, so they are environment variables; those that are set already stay."""

import os
from pathlib import Path

from dgmarl.optional import has_cuda

LARGEST_CACHE = 2**30
"""Bytes of compiled programs that are kept; those not used for longest are deleted first."""


def configure_compiler() -> None:
    """Keep compiled programs between commands, and compile in three quarters of the time.

    JAX finds a program again by its own text, the versions of JAX and of the compiler, the
    compiler's flags and the device. With a limit of size it locks the folder while it reads or
    writes, so several processes may share it."""
    folder = cache_folder()
    if folder is not None and "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        os.environ["JAX_COMPILATION_CACHE_DIR"] = str(folder)
        os.environ.setdefault("JAX_COMPILATION_CACHE_MAX_SIZE", str(LARGEST_CACHE))
        os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")
    flags, option = os.environ.get("XLA_FLAGS", ""), "--xla_backend_optimization_level"
    # The default, 3, takes a CPU a third longer for programs that are as fast.
    if option not in flags and not has_cuda():
        os.environ["XLA_FLAGS"] = f"{flags} {option}=2".strip()


def cache_folder() -> Path | None:
    """Where compiled programs are kept; None where nothing can be written."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    try:
        folder = Path(base if os.path.isabs(base) else Path.home() / ".cache") / "dgmarl" / "xla"
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):
        return None
    return folder if os.access(folder, os.W_OK) else None
