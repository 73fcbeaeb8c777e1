"""Atomic and durable file writes; reading with bounded size; strict JSON."""

import errno
import hashlib
import json
import os
import tempfile
import tokenize
import zipfile
import zlib
from pathlib import Path
from typing import Any, NoReturn

from dgmarl.errors import RunError, UsageError

MOST_BYTES = 100_000_000
"""Size of the largest file that is read."""
LARGEST = 1e30
"""Numbers of this size and more count as damage: their squares overflow single precision."""

DAMAGE = (
    *(OSError, ValueError, TypeError, KeyError, EOFError, MemoryError, IndexError, RecursionError),
    *(AttributeError, OverflowError, NotImplementedError, SyntaxError, tokenize.TokenError),
    *(zipfile.BadZipFile, zlib.error),
)
"""Exceptions that NumPy may raise when it reads a damaged file."""


def read_bytes(path: Path | str, most: int = MOST_BYTES) -> bytes:
    """The content of a file of at most `most` bytes."""
    try:
        with open(path, "rb") as file:
            content = file.read(most + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(
            f"{path} cannot be read ({reason}): check that it is a readable file."
        ) from None
    if len(content) > most:
        raise UsageError(
            f"{path} has more than {most:,} bytes, the limit for such files: choose another one."
        )
    return content


def sha256(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def from_json(text: str | bytes) -> Any:
    """Parse strict JSON; a ValueError for anything else."""
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def to_json(values: Any, indent: int | None = None) -> str:
    """Strict JSON text; a ValueError for NaN and infinite numbers, which JSON does not have."""
    return json.dumps(values, indent=indent, allow_nan=False)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def is_number(value: Any) -> bool:
    """Whether a value is a finite number below `LARGEST`."""
    return type(value) in (int, float) and abs(value) < LARGEST


def is_count(value: Any) -> bool:
    """Whether a value is a non-negative integer that a double holds exactly."""
    return type(value) is int and 0 <= value <= 2**53


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
    of_disk = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
    kind = RunError if of_disk else UsageError
    return kind(
        f"{path} cannot be written ({error.strerror}): choose another place or free space; what "
        "was there is intact."
    )


LONGEST_NAME = 255
"""Most bytes of a file name on common file systems."""
DEEPEST = 200
"""Most folders in a path; Python creates missing ones recursively."""


def refuse_unwritable(name: Path | str, *, folder: bool = False) -> None:
    """Raise a UsageError, before long work, if the file `name`, or a file in the folder `name`,
    cannot be written.

    Creates an unnamed temporary file in the nearest existing folder; leaves nothing behind."""
    path = Path(name, "file") if folder else Path(name)
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
        shown = str(name) if len(str(name)) < 200 else f"{str(name)[:60]}..."
        raise UsageError(f"{shown} cannot be written ({reason}): choose another place.") from None
