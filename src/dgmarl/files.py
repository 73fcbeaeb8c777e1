"""Atomic and durable file writes."""

import errno
import os
import tempfile
from pathlib import Path

from dgmarl.errors import RunError, UsageError


def write_atomic(path: Path | str, content: str | bytes) -> Path:
    """Write to a temporary file in the same folder, fsync, then rename over `path`."""
    path = Path(path)
    data = content.encode() if isinstance(content, str) else content
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(
            dir=path.parent, prefix=f".{path.name}.", suffix=".tmp"
        )
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except OSError as error:
        if temporary is not None and os.path.exists(temporary):
            os.unlink(temporary)
        raise unwritable(path, error) from None
    return path


def append_line(path: Path | str, content: str) -> None:
    """Append whole lines and fsync. A crash can truncate only the lines being appended."""
    try:
        with open(path, "a", encoding="utf-8") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise unwritable(Path(path), error) from None


def unwritable(path: Path, error: OSError) -> UsageError | RunError:
    """The error for a failed write: a RunError if the disk failed, else a UsageError."""
    kind = (
        RunError
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
        else UsageError
    )
    return kind(
        f"{path} cannot be written ({error.strerror}): choose another place or make room; what "
        "was there is intact."
    )


def refuse_unwritable(path: Path | str) -> None:
    """Raise a UsageError before long work if a file at `path` could not be written afterwards."""
    path = Path(path)
    if path.is_dir():
        raise UsageError(
            f"{path} is a folder, but a file is to be written there: name a file in it, for "
            f"example {path}/page.html."
        )
    parent = path.absolute().parent
    while not parent.exists() and parent != parent.parent:
        parent = parent.parent
    if not parent.is_dir():
        raise UsageError(
            f"{path} cannot be written because {parent} is a file, not a folder: choose another "
            "place."
        )
    if not os.access(parent, os.W_OK):
        raise UsageError(
            f"{path} cannot be written because the folder {parent} is read-only: choose another "
            "place."
        )
