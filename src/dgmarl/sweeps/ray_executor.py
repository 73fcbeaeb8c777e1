"""Trains batches of runs as tasks of a Ray cluster.

A task starts `sweeps.worker` with its share of the machine and reports to the actor `Post`, which
the launcher reads. Training runs in tasks because they free GPU memory at their end, unlike actors.
If a task finds the launcher's claim, the disk is shared and it writes to the run folders directly;
otherwise it trains in a scratch folder and sends the run back after every checkpoint."""

import logging
import os
import warnings
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event
from typing import Any, NamedTuple
from urllib.parse import quote
from uuid import uuid4

import fsspec
import ray
from ray.exceptions import (
    LocalRayletDiedError,
    NodeDiedError,
    ObjectLostError,
    OutOfMemoryError,
    RayError,
    RayTaskError,
    WorkerCrashedError,
)

from dgmarl.config.yaml import build
from dgmarl.device import task_share
from dgmarl.errors import RunError, UsageError
from dgmarl.files import write_atomic
from dgmarl.runs.checkpoints import indices
from dgmarl.runs.reading import STOPPED_EARLY
from dgmarl.sweeps.archives import newest_checkpoint, pack, unpack
from dgmarl.sweeps.executor import Listener, Outcome, forward, train_apart
from dgmarl.sweeps.grid import Halving
from dgmarl.sweeps.halving import Judge, Standing, standings
from dgmarl.sweeps.plan import Resources
from dgmarl.sweeps.planned import PlannedRun, batches
from dgmarl.sweeps.run_locks import is_written, owner_path

POLL_SECONDS = 0.5
"""Interval between requests for the reports of tasks."""
MOST_LOSSES = 5
"""Number of workers that may be lost without progress of their runs."""
LOSS_SECONDS = 3.0
"""Wait after the first loss; twice as long after the second without progress, and so on."""
LOST = (
    *(LocalRayletDiedError, NodeDiedError, ObjectLostError, OutOfMemoryError),
    WorkerCrashedError,
)
HEAD = {"node:__internal_head__": 0.001}
"""A resource of the head node, which a cluster cannot lose."""


class Job(NamedTuple):
    """The input of a task."""

    key: str
    runs: list[dict[str, Any]]
    owner: str
    """Content of the launcher's claim; a machine that can read it shares the disk."""
    begun: list[Any]
    """Reference to the archive of each run that has been begun, else None."""
    resources: Resources
    halving: bool


@contextmanager
def connected(address: str) -> Iterator[None]:
    """Connect to a Ray cluster; to be called before JAX computes anything. address: `local` starts
    one on this machine. An existing connection is used and kept."""
    if ray.is_initialized():
        yield
        return
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address == "local":
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        quiet |= {"include_dashboard": False, "_node_ip_address": "127.0.0.1"}
    try:
        ray.init(address, **quiet)
    except (RayError, OSError, RuntimeError, ValueError, ImportError) as error:
        raise UsageError(
            f"--address is {address}, but there is no Ray cluster to use ({_line(error)}): start "
            "one with `ray start --head`, or give --address local."
        ) from None
    try:
        yield
    finally:
        ray.shutdown()


class RayExecutor:
    """A `Train` function that trains batches as tasks of the connected cluster."""

    def __init__(self, resources: Resources, runs: Sequence[PlannedRun], halving: Halving | None):
        self.resources, self.halving = resources, halving
        self.storage = Storage(resources.storage) if resources.storage else None
        history = [one for run in runs for one in _judged(run)] if halving else []
        actor: Any = ray.remote(Post)
        self.post = actor.options(num_cpus=0, resources=HEAD).remote(halving, history)
        cpus, gpus = resources.cpus, resources.gpus
        self.remote: Any = ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=0)(train_job)
        machines = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        if not any(m.get("CPU", 0) >= cpus and m.get("GPU", 0) >= gpus for m in machines):
            warnings.warn(
                f"No machine of the Ray cluster has {cpus} CPUs and {gpus:g} GPUs: runs wait until "
                "one joins it.",
                stacklevel=2,
            )

    def __call__(self, runs: Sequence[PlannedRun], stop: Event, listener: Listener) -> None:
        """Train; if workers are lost, retry as long as the runs make progress."""
        n_losses, progress = 0, _Progress(listener)
        while groups := self._left(runs, listener):
            try:
                for group in groups:
                    self._train(group, stop, progress)
                return
            except LOST as error:
                n_losses = 1 if progress.made() else n_losses + 1
                if n_losses > MOST_LOSSES:
                    raise RunError(
                        f"{n_losses} workers were lost without progress ({_line(error)}): see the "
                        "logs of the Ray cluster."
                    ) from None
                again = Outcome("retried", f"is retried, its worker was lost: {_line(error)}")
                for run in runs:
                    if run.state != "done":
                        listener.on_end(run, again)
                stop.wait(LOSS_SECONDS * n_losses)  # until the cluster knows of the loss
            except RayError as error:
                raise RunError(f"Ray: {_line(error)}") from None

    def _left(self, runs: Sequence[PlannedRun], listener: Listener) -> list[list[PlannedRun]]:
        """The batches that are still to be trained, after fetching from the storage."""
        for run in runs if self.storage else ():
            if run.state != "done":
                self._fetch(run)
                if run.state == "done":
                    listener.on_end(run, Outcome("published", "fetched from the storage"))
        return batches(runs, len(runs))

    def _train(self, runs: list[PlannedRun], stop: Event, listener: Listener) -> None:
        # Wait for the process of a lost worker, which stops at its next evaluation.
        while any(map(is_written, runs)) and not stop.wait(POLL_SECONDS):
            pass
        if stop.is_set():
            return
        begun = [ray.put(pack(run)) if run.state == "begun" else None for run in runs]
        owner = owner_path(runs[0]).read_text()
        values = [run.to_values() for run in runs]
        job = Job(uuid4().hex, values, owner, begun, self.resources, self.halving is not None)
        name = f"{runs[0].name} and {len(runs) - 1} more" if runs[1:] else runs[0].name
        task = self.remote.options(name=name).remote(job, self.post)
        try:
            while not ray.wait([task], timeout=POLL_SECONDS)[0]:
                self._receive(job.key, runs, listener)
                if stop.is_set() and not self._has_begun_when_stopped(task, job.key):
                    return
            self._receive(job.key, runs, listener)
        except BaseException:
            with suppress(RayError):
                self._has_begun_when_stopped(task, job.key)
            raise
        if sentence := ray.get(task):
            raise RunError(sentence)

    def _has_begun_when_stopped(self, task: Any, key: str) -> bool:
        """Ask a task to stop at its next evaluation, or cancel one that has not begun."""
        begun: Any = ray.get(self.post.stop.remote(key))
        if not begun:
            ray.cancel(task)
        return begun

    def _receive(self, key: str, runs: list[PlannedRun], listener: Listener) -> None:
        for report in ray.get(self.post.take.remote(key)):
            run = runs[report["run"]]
            if archive := report.pop("archive", b""):
                unpack(archive, run)
            elif "status" in report and self.storage:
                self._fetch(run)
            forward(report, runs, listener)

    def _fetch(self, run: PlannedRun) -> None:
        """Unpack the archive in the storage, if it is newer."""
        assert self.storage is not None
        archive = self.storage.read(run)
        if archive and newest_checkpoint(archive, run) > _newest(run):
            unpack(archive, run)


class _Progress(Listener):
    """A listener that forwards everything and tracks the progress of runs."""

    def __init__(self, listener: Listener):
        self.listener, self.progressed = listener, False
        self.steps: dict[PlannedRun, int] = {}

    def made(self) -> bool:
        """Whether some run has reached more steps than before the last call."""
        progressed, self.progressed = self.progressed, False
        return progressed

    def on_steps(self, run: PlannedRun, steps: int) -> None:
        if steps > self.steps.get(run, 0):
            self.steps[run], self.progressed = steps, True
        self.listener.on_steps(run, steps)

    def on_end(self, run: PlannedRun, outcome: Outcome) -> None:
        self.listener.on_end(run, outcome)


class Post:
    """An actor that passes reports from tasks to their launcher. It ends with the launcher."""

    def __init__(self, halving: Halving | None, history: list[Standing]):
        self.judge = Judge(halving, history) if halving else None
        self.reports: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
        self.begun: set[str] = set()
        self.stopped: set[str] = set()

    def begin(self, key: str) -> bool:
        """Register that a task has begun; returns whether to go on."""
        self.begun.add(key)
        return key not in self.stopped

    def report(self, key: str, report: dict[str, Any], standing: Standing | None = None) -> str:
        """Store a report for the launcher; returns `stop`, `stop early` or an empty text."""
        self.reports[key].append(report)
        if key in self.stopped:
            return "stop"
        early = self.judge and standing and self.judge.stops(standing)
        return "stop early" if early else ""

    def take(self, key: str) -> list[dict[str, Any]]:
        """The reports of a task since the last call."""
        return self.reports.pop(key, [])

    def stop(self, key: str) -> bool:
        """Ask a task to stop at its next evaluation; returns whether it has begun."""
        self.stopped.add(key)
        return key in self.begun


def train_job(job: Job, post: Any) -> str:
    """Train the runs of a job in a Ray task; returns an error message or an empty text."""
    try:
        if ray.get(post.begin.remote(job.key)):
            _train_here(job, post)
    except (UsageError, RunError) as error:
        return str(error)
    return ""


def _train_here(job: Job, post: Any) -> None:
    runs = [build(PlannedRun, values) for values in job.runs]
    with ExitStack() as stack:
        if remote := bool(job.resources.storage) or not _shares_disk(runs[0], job.owner):
            scratch = Path(stack.enter_context(TemporaryDirectory(prefix="dgmarl-sweep-")))
            runs = [_moved(run, scratch / str(k)) for k, run in enumerate(runs)]
            for run, archive in zip(runs, job.begun, strict=True):
                if archive is not None:
                    unpack(ray.get(archive), run)
        stop = Event()
        reports = TaskReports(job, post, runs, stop, remote)
        share = task_share(job.resources.cpus, job.resources.gpus)
        train_apart(runs, stop, reports, share)


class TaskReports(Listener):
    """A listener that reports to the `Post` and follows its answers."""

    def __init__(self, job: Job, post: Any, runs: Sequence[PlannedRun], stop: Event, remote: bool):
        self.job, self.post, self.stop, self.remote = job, post, stop, remote
        self.indices = {run: k for k, run in enumerate(runs)}
        self.storage = Storage(job.resources.storage) if job.resources.storage else None
        self.sent = {run: _newest(run) for run in runs}
        self.early: dict[PlannedRun, str] = {}

    def on_steps(self, run: PlannedRun, steps: int) -> None:
        """Report an evaluation and send a new checkpoint; the run waits meanwhile."""
        report: dict[str, Any] = {"run": self.indices[run], "steps": steps}
        if self.remote and self.sent[run] != (newest := _newest(run)):
            self.sent[run] = newest
            report["archive"] = self._send(run)
        standing = standings(run)[-1] if self.job.halving else None
        answer = ray.get(self.post.report.remote(self.job.key, report, standing))
        if answer == "stop early" and standing is not None:
            self.early[run] = (
                f"stopped early at {standing.steps:,.0f} of {standing.total:,} steps, with return "
                f"{standing.score:.3f}"
            )
        if answer:
            self.stop.set()

    def on_end(self, run: PlannedRun, outcome: Outcome) -> None:
        """Report the end of a run, after its last checkpoint and its result."""
        if (sentence := self.early.get(run)) and outcome.status == "interrupted":
            assert run.folder is not None
            write_atomic(run.folder / STOPPED_EARLY, sentence + "\n")
            outcome = Outcome("stopped", sentence)
        report = {"run": self.indices[run], **outcome._asdict()}
        if self.remote:
            report["archive"] = self._send(run)
        ray.get(self.post.report.remote(self.job.key, report))

    def _send(self, run: PlannedRun) -> bytes:
        """The archive of a run for the launcher; empty if it is sent to the storage."""
        archive = pack(run)
        if self.storage is None:
            return archive
        self.storage.write(run, archive)
        return b""


class Storage:
    """Archives of runs at an fsspec URL such as `s3://bucket/grid` or `file:///folder`."""

    def __init__(self, address: str):
        try:
            self.files, self.root = fsspec.core.url_to_fs(address, auto_mkdir=True)
        except (ImportError, ValueError, OSError) as error:
            raise UsageError(
                f"--storage is {address}, which fsspec cannot open ({_line(error)}): give an "
                "address such as s3://bucket/grid, and install what it needs."
            ) from None

    def write(self, run: PlannedRun, archive: bytes) -> None:
        """Replace the archive of a run atomically."""
        try:
            with self.files.transaction, self.files.open(self._path(run), "wb") as file:
                file.write(archive)
        except OSError as error:
            raise RunError(
                f"{self._path(run)} cannot be written ({_line(error)}): make room or correct "
                "--storage; the previous archive is intact."
            ) from None

    def read(self, run: PlannedRun) -> bytes:
        """The archive of a run; empty if there is none."""
        with suppress(FileNotFoundError):
            return self.files.cat_file(self._path(run))
        return b""

    def _path(self, run: PlannedRun) -> str:
        return f"{self.root}/{quote(run.name)}.zip"


def _judged(run: PlannedRun) -> list[Standing]:
    with suppress(UsageError):  # damaged: training restores it
        return standings(run)
    return []


def _shares_disk(run: PlannedRun, owner: str) -> bool:
    with suppress(OSError):
        return owner_path(run).read_text() == owner
    return False


def _moved(run: PlannedRun, scratch: Path) -> PlannedRun:
    folder = None if run.folder is None else scratch / "folder"
    return replace(run, result_file=scratch / "result.json", folder=folder)


def _newest(run: PlannedRun) -> int:
    return max(indices(run.folder / "checkpoints"), default=-1) if run.folder else -1


def _line(error: Exception) -> str:
    """The message of an error without the traceback that Ray adds."""
    if isinstance(error, RayTaskError):
        error = error.cause if isinstance(error.cause, Exception) else error
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[-1 if isinstance(error, RayTaskError) else 0].strip()[:300]
