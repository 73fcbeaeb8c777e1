"""Several launchers of one sweep share its runs: each trains what it has claimed.

A claim is a file lock beside the result file, which the system frees when its process ends, however
that ends. The lock file is removed with the run's completion: whoever still waits for the removed
file finds the run done."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from dgmarl.errors import UsageError
from dgmarl.files import unwritable
from dgmarl.sweeps.planned import PlannedRun


@contextmanager
def claimed(runs: Sequence[PlannedRun]) -> Iterator[list[PlannedRun]]:
    """Those of the runs that are not done and that nobody else trains until the block ends."""
    with ExitStack() as held:
        mine = []
        for run in runs:
            path = run.result_file.with_name(f".{run.result_file.name[:200]}.lock")
            lock = FileLock(path, timeout=0)
            if not _acquire(lock, path):
                continue
            held.callback(_release, lock, path, run)
            if run.state != "done" and not _is_written(run):
                mine.append(run)
        yield mine


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
    if run.state == "done":
        path.unlink(missing_ok=True)
    lock.release()


def _is_written(run: PlannedRun) -> bool:
    """Whether a process that holds no claim writes the run folder: `dgmarl train --resume`, or one
    whose launcher was killed."""
    folder = run.run_folder()
    if folder is None or not folder.path.is_dir():
        return False
    with suppress(UsageError), folder.lock():
        return False
    return True
