"""The cache of compiled programs. JAX reads its settings when it is imported, and child processes
inherit them, so they are set as environment variables, unless the user has set them."""

import os
from pathlib import Path

LARGEST_CACHE = 2**30
"""Size of the cache in bytes; the least recently used programs are deleted first."""


def keep_programs() -> None:
    """Keep compiled programs between commands.

    JAX identifies a program by its text, the versions of JAX and of the compiler, the compiler's
    flags and the device. With a size limit it locks the folder while it reads or writes, so several
    processes may share it."""
    folder = cache_folder()
    if folder is not None and "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        os.environ["JAX_COMPILATION_CACHE_DIR"] = str(folder)
        os.environ.setdefault("JAX_COMPILATION_CACHE_MAX_SIZE", str(LARGEST_CACHE))
        os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")


def cache_folder() -> Path | None:
    """Folder of the cache; None if it cannot be written."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    try:
        folder = Path(base if os.path.isabs(base) else Path.home() / ".cache") / "dgmarl" / "xla"
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):
        return None
    return folder if os.access(folder, os.W_OK) else None
