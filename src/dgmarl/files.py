"""Writing files so that a reader, or a crash, never sees half of one."""

import errno
import os
import tempfile
from pathlib import Path

from dgmarl.errors import RunError, UsageError


def write_atomic(path: Path | str, content: str | bytes) -> Path:
    """Write to a temporary neighbour, flush it to disk, then rename: the old file stays whole until
    the new one is."""
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
    """Append whole lines and flush them to disk; a crash can cut only what is being appended."""
    try:
        with open(path, "a", encoding="utf-8") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise unwritable(Path(path), error) from None


def unwritable(path: Path, error: OSError) -> UsageError | RunError:
    """The sentence for a failed write: a mistake of the user's, or a disk that is full."""
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
    """Fail before long work rather than after it: some ancestor of `path` must be a folder one may
    write to."""
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
