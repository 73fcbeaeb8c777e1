"""Claims, by which several launchers share the runs of a sweep: each trains what it has claimed.

A claim is a file lock next to the result file, which the system frees when the process ends. The
lock file is removed when the run is done, which a process that still waits for it then sees. A
second file names host and process, because trying to lock empties the lock file."""

import os
import platform
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from dgmarl.errors import UsageError
from dgmarl.files import unwritable, write_atomic
from dgmarl.sweeps.planned import PlannedRun


@contextmanager
def claimed(runs: Sequence[PlannedRun]) -> Iterator[list[PlannedRun]]:
    """The runs that are not done and that no other process trains until the block ends."""
    with ExitStack() as held:
        mine = []
        for run in runs:
            path = _lock_path(run)
            lock = FileLock(path, timeout=0)
            if not _acquire(lock, path):
                continue
            held.callback(_release, lock, path, run)
            write_atomic(owner_path(run), f"{platform.node()}, process {os.getpid()}\n")
            if run.state != "done" and not is_written(run):
                mine.append(run)
        yield mine


def owner_of(run: PlannedRun) -> str:
    """Host and process that have claimed a run; empty if unclaimed."""
    path = _lock_path(run)
    if not path.exists():
        return ""
    with suppress(OSError):
        try:
            with FileLock(path, timeout=0):
                return ""
        except Timeout:
            return owner_path(run).read_text().strip()
    return ""


def _lock_path(run: PlannedRun) -> Path:
    return run.result_file.with_name(f".{run.result_file.name[:200]}.lock")


def owner_path(run: PlannedRun) -> Path:
    """The file with host and process of a claim."""
    return _lock_path(run).with_suffix(".owner")


def _acquire(lock: FileLock, path: Path) -> bool:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout:
        return False
    except OSError as error:
        raise unwritable(path, error) from None
    return True


def _release(lock: FileLock, path: Path, run: PlannedRun) -> None:
    owner_path(run).unlink(missing_ok=True)
    if run.state == "done":
        path.unlink(missing_ok=True)
    lock.release()


def is_written(run: PlannedRun) -> bool:
    """Whether a process without a claim, such as `dgmarl train --resume`, writes the run folder."""
    folder = run.run_folder()
    if folder is None or not folder.path.is_dir():
        return False
    with suppress(UsageError), folder.lock():
        return False
    return True
