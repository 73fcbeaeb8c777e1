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
            dir=path.parent, prefix=f".{path.name[:40]}.", suffix=".tmp"
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


LONGEST_NAME = 255
"""Bytes of a file name, on all usual file systems."""
DEEPEST = 200
"""Folders of a path; Python makes missing ones recursively."""


def refuse_unwritable(path: Path | str) -> None:
    """Raise a UsageError before long work if a file at `path` could not be written afterwards.

    Tried with a nameless file in the nearest folder that exists; nothing is left behind."""
    path = Path(path)
    try:
        if path.is_dir():
            raise UsageError(
                f"{path} is a folder, but a file is to be written there: name a file in it, for "
                f"example {path}/page.html."
            )
        if path.exists() and not path.is_file():
            raise OSError(errno.EINVAL, "it is a device, not a file")
        if max(len(os.fsencode(part)) for part in path.parts) > LONGEST_NAME:
            raise OSError(errno.ENAMETOOLONG, f"a name has over {LONGEST_NAME} bytes")
        if len(path.parts) > DEEPEST:
            raise OSError(errno.ENAMETOOLONG, f"it has over {DEEPEST} folders")
        parent = path.absolute().parent
        while not parent.exists() and parent != parent.parent:
            parent = parent.parent
        if not parent.is_dir():
            raise OSError(errno.ENOTDIR, f"{parent} is a file, not a folder")
        with tempfile.TemporaryFile(dir=parent):
            pass
    except (OSError, ValueError) as error:
        if isinstance(error, UsageError):
            raise
        reason = getattr(error, "strerror", None) or error
        name = str(path) if len(str(path)) < 200 else f"{str(path)[:60]}..."
        raise UsageError(f"{name} cannot be written ({reason}): choose another place.") from None
