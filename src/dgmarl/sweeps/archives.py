"""Archives of runs, for machines without a shared disk.

An archive is a ZIP file with `result.json` and, below `folder/`, the run folder. It comes from
another machine: names that point outside are rejected, links do not occur, nothing is executed."""

import io
import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from dgmarl.errors import RunError, UsageError
from dgmarl.files import DAMAGE, unwritable, write_atomic
from dgmarl.runs.checkpoints import indices, path_of
from dgmarl.runs.reading import STOPPED_EARLY
from dgmarl.sweeps.planned import PlannedRun

RESULT, FOLDER = "result.json", "folder"
CHECKPOINTS = f"{FOLDER}/checkpoints/"
MOST_FILES, MOST_UNPACKED = 100_000, 2**36
"""Limits far above the size of a run."""


def pack(run: PlannedRun) -> bytes:
    """The archive of a run, without files that are being written."""
    files = {RESULT: run.result_file} if run.result_file.is_file() else {}
    for path in sorted(run.folder.rglob("*")) if run.folder else ():
        inside = path.relative_to(run.folder or "")
        hidden = any(part.startswith(".") or part.endswith(".writing") for part in inside.parts)
        if path.is_file() and not path.is_symlink() and not hidden and path != run.result_file:
            files[f"{FOLDER}/{inside.as_posix()}"] = path
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, path in files.items():
            archive.write(path, name)
    return buffer.getvalue()


def unpack(content: bytes, run: PlannedRun) -> None:
    """Replace the files of a run by an archive's: checkpoints atomically, the result last."""
    with _opened(content, run) as archive:
        files = _checked_names(archive)
        if run.folder is not None:
            _unpack_folder(archive, [name for name in files if name != RESULT], run.folder)
        if RESULT in files:
            write_atomic(run.result_file, archive.read(RESULT))


@contextmanager
def _opened(content: bytes, run: PlannedRun) -> Iterator[zipfile.ZipFile]:
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            yield archive
    except (RunError, UsageError):
        raise
    except DAMAGE as error:
        raise RunError(
            f"The archive of {run.name} is damaged ({error}): the files on this machine are "
            "intact, so start the sweep again."
        ) from None


def newest_checkpoint(content: bytes, run: PlannedRun) -> int:
    """Number of an archive's newest checkpoint; larger than any if the run is done."""
    with _opened(content, run) as archive:
        names = _checked_names(archive)
    if {RESULT, f"{FOLDER}/{STOPPED_EARLY}"} & {*names}:
        return MOST_UNPACKED
    inside = (name.removeprefix(CHECKPOINTS) for name in names if name.startswith(CHECKPOINTS))
    numbers = (name.partition("/")[0] for name in inside)
    return max((int(number) for number in numbers if number.isdecimal()), default=-1)


def _checked_names(archive: zipfile.ZipFile) -> list[str]:
    entries = archive.infolist()
    if len(entries) > MOST_FILES or sum(entry.file_size for entry in entries) > MOST_UNPACKED:
        raise ValueError("it is larger than a run can be")
    for entry in entries:
        name = PurePosixPath(entry.filename)
        below = entry.filename == RESULT or (name.parts[0] == FOLDER and len(name.parts) > 1)
        plain = name.as_posix() == entry.filename and not {*"\\:"} & {*entry.filename}
        hidden = any(part.startswith(".") for part in name.parts)  # also ".." and locks
        if not below or not plain or hidden or entry.is_dir():
            raise ValueError(f"it has a file {entry.filename[:80]!r}")
    return [entry.filename for entry in entries]


def _unpack_folder(archive: zipfile.ZipFile, names: list[str], folder: Path) -> None:
    """Extract beside the checkpoints, then rename: a crash leaves every checkpoint intact, and
    resuming restores the other files from the newest one."""
    checkpoints = folder / "checkpoints"
    try:
        checkpoints.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(".writing", dir=checkpoints) as arriving:
            archive.extractall(arriving, names)
            arrived = Path(arriving, FOLDER)
            numbers = indices(arrived / "checkpoints")
            for number in numbers:
                shutil.rmtree(path_of(checkpoints, number), ignore_errors=True)
                os.replace(path_of(arrived / "checkpoints", number), path_of(checkpoints, number))
            for old in indices(checkpoints) if numbers else ():
                if old not in numbers:
                    shutil.rmtree(path_of(checkpoints, old), ignore_errors=True)
            for path in arrived.glob("*"):
                if path.is_file():
                    os.replace(path, folder / path.name)
    except OSError as error:
        raise unwritable(folder, error) from None
