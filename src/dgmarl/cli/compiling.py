"""Commands keep compiled programs. JAX reads its settings when it is imported, and processes that a
command starts inherit them, so they are environment variables; those that are set already stay."""

import os
from pathlib import Path

LARGEST_CACHE = 2**30
"""Bytes of compiled programs that are kept; those not used for longest are deleted first."""


def keep_programs() -> None:
    """Keep compiled programs between commands.

    JAX finds a program again by its own text, the versions of JAX and of the compiler, the
    compiler's flags and the device. With a limit of size it locks the folder while it reads or
    writes, so several processes may share it."""
    folder = cache_folder()
    if folder is not None and "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        os.environ["JAX_COMPILATION_CACHE_DIR"] = str(folder)
        os.environ.setdefault("JAX_COMPILATION_CACHE_MAX_SIZE", str(LARGEST_CACHE))
        os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")


def cache_folder() -> Path | None:
    """Where compiled programs are kept; None where nothing can be written."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    try:
        folder = Path(base if os.path.isabs(base) else Path.home() / ".cache") / "dgmarl" / "xla"
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):
        return None
    return folder if os.access(folder, os.W_OK) else None
