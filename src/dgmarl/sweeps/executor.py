"""Trains many runs: equal shapes batched into one program, several programs at a time.

A run with a result file is skipped; one with a run folder is resumed. Programs are launched from
threads, because compilation uses one core and no accelerator. A `Train` function trains in this
process (`train_batch`), in one process per program (`apart`), or on other machines
(`ray_executor`). A GPU executes one program of a process at a time, but under CUDA MPS programs of
several processes in parallel."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from tempfile import TemporaryFile
from threading import Event
from typing import IO, Literal, NamedTuple

from dgmarl.device import shares
from dgmarl.errors import RunError
from dgmarl.runs.callbacks import Progress, TrainResult
from dgmarl.runs.recorder import Recorder
from dgmarl.sweeps.batched import train_all
from dgmarl.sweeps.planned import PlannedRun, batches
from dgmarl.sweeps.published import publish
from dgmarl.sweeps.run_locks import claimed

BATCHED_RUNS = 8
"""Default number of runs of equal shape in one program."""
WORKER = (sys.executable, "-m", "dgmarl.sweeps.worker")
"""Command of a process that trains one batch of runs, given on its standard input."""
POLL_SECONDS = 2.0
"""Interval between checks of runs that another process trains."""
ERROR_CHARACTERS = 2000
"""Length of a failed process's standard error in messages."""


class Outcome(NamedTuple):
    """How a run ended."""

    status: Literal["published", "interrupted", "stopped", "failed", "retried", "elsewhere"]
    """`stopped`: early, by successive halving, and not resumed."""
    message: str


class Listener:
    """Receives the progress of a sweep, possibly from several threads; every method is optional."""

    def on_steps(self, run: PlannedRun, steps: int) -> None:
        """Called after each evaluation. steps: environment steps so far, summed over seeds."""

    def on_end(self, run: PlannedRun, outcome: Outcome) -> None:
        """Called when a run has ended."""


Train = Callable[[Sequence[PlannedRun], Event, Listener], None]
"""`train_batch`, or an equivalent for other processes or machines."""


def execute(
    runs: Iterable[PlannedRun],
    listener: Listener | None = None,
    *,
    workers: int = 1,
    batched_runs: int = BATCHED_RUNS,
    retries: int = 0,
    train: Train | None = None,
) -> None:
    """Train every run that is not done and publish each result when it is complete. Runs claimed by
    another process are waited for at the end, and trained here if that process stops without a
    result.

    Up to `batched_runs` runs of equal shape share a program, and `workers` programs run at a time.
    A program that fails does not stop the others; its runs are retried up to `retries` times, each
    alone, and the error is raised at the end. Ctrl-C stops every program at its next evaluation,
    with a checkpoint if there is a run folder; interrupted runs are not published."""
    listener = listener or Listener()
    train = partial(_train_again, train or train_batch, retries)
    left, reported = list(runs), False
    while left := _execute_once(batches(left, batched_runs), train, listener, workers):
        for run in left if not reported else ():
            listener.on_end(run, Outcome("elsewhere", "is trained by another process"))
        reported = True
        time.sleep(POLL_SECONDS)
        for run in left:
            if run.state == "done":
                listener.on_end(run, Outcome("published", "finished by another process"))


def _execute_once(
    groups: list[list[PlannedRun]], train: Train, listener: Listener, workers: int
) -> list[PlannedRun]:
    """Train each group that can be claimed; returns the runs claimed by other processes."""
    stop, failures, elsewhere = Event(), [], []
    with ThreadPoolExecutor(workers) as pool:
        jobs: dict[Future[list[PlannedRun]], list[PlannedRun]] = {
            pool.submit(_train_claimed, train, group, stop, listener): group for group in groups
        }
        try:
            for job in as_completed(jobs):
                error = job.exception()
                if error is None:
                    elsewhere += job.result()
                elif isinstance(error, Exception):
                    failures.append(error)
                    _report_failure(jobs[job], error, listener)
                else:
                    raise error
        except BaseException:
            stop.set()
            pool.shutdown(cancel_futures=True)
            raise
        finally:
            stop.set()
    if len(failures) == 1:
        raise failures[0]
    if failures:
        raise RunError(
            f"{len(failures)} of {len(jobs)} programs failed. The first: {failures[0]}"
        ) from failures[0]
    return elsewhere


def _train_claimed(
    train: Train, runs: list[PlannedRun], stop: Event, listener: Listener
) -> list[PlannedRun]:
    """Train the runs that no other process trains, and return the others."""
    with claimed(runs) as mine:
        if mine and not stop.is_set():
            for run in mine:
                run.note_failure("")
            train(mine, stop, listener)
    return [run for run in runs if run not in mine and run.state != "done"]


def _train_again(
    train: Train, retries: int, runs: Sequence[PlannedRun], stop: Event, listener: Listener
) -> None:
    """Train, and on failure retry each run alone, so that one run does not fail the others."""
    try:
        train(runs, stop, listener)
    except Exception as error:
        if not retries or stop.is_set():
            raise
        failures: list[Exception] = []
        for run in runs:
            if run.state == "done":
                continue
            listener.on_end(run, Outcome("retried", f"is retried after: {error}"))
            try:
                _train_again(train, retries - 1, [run], stop, listener)
            except Exception as again:
                failures.append(again)
        if failures:
            raise failures[0] from None


def train_batch(runs: Sequence[PlannedRun], stop: Event, listener: Listener) -> None:
    """Train runs of equal shape in one program of this process and publish their results."""
    results = train_all([_recorder(run, stop, listener) for run in runs])
    for run, result in zip(runs, results, strict=True):
        listener.on_end(run, _finish(run, result))


def apart(workers: int) -> Train:
    """`train_apart` with a share of this machine for each of `workers` programs."""
    free: SimpleQueue[dict[str, str]] = SimpleQueue()
    for share in shares(workers):
        free.put(share)

    def train(runs: Sequence[PlannedRun], stop: Event, listener: Listener) -> None:
        share = free.get()
        try:
            train_apart(runs, stop, listener, share)
        finally:
            free.put(share)

    return train


def train_apart(
    runs: Sequence[PlannedRun], stop: Event, listener: Listener, share: dict[str, str]
) -> None:
    """`train_batch` in another process, with the environment variables `share`.

    After each evaluation the process waits for a line on its standard input, and stops if that is
    closed: by `stop`, or by the end of this process. It runs in a new session, so that Ctrl-C
    reaches it only in this way."""
    # By default every process reserves most of the GPU's memory.
    environment = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", **os.environ, **share}
    with TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            WORKER,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=environment,
            text=True,
            start_new_session=True,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        with process:
            _answer(process.stdin, json.dumps([run.to_values() for run in runs]), stop)
            for line in process.stdout:
                report = json.loads(line)
                forward(report, runs, listener)
                if "steps" in report:
                    _answer(process.stdin, "", stop)
        if process.returncode:
            names = ", ".join(run.name for run in runs)
            errors.seek(0)
            raise RunError(
                f"The process that trained {names} ended with exit code {process.returncode}:\n"
                f"{errors.read()[-ERROR_CHARACTERS:].strip()}"
            )


def _answer(stream: IO[str], line: str, stop: Event) -> None:
    # The process may have failed already; its exit code is checked later.
    with suppress(OSError, ValueError):
        if stop.is_set():
            stream.close()
        else:
            stream.write(line + "\n")
            stream.flush()


def forward(report: dict, runs: Sequence[PlannedRun], listener: Listener) -> None:
    """Pass a report of `sweeps.worker` on to the listener."""
    run = runs[report["run"]]
    if "steps" in report:
        listener.on_steps(run, report["steps"])
    else:
        listener.on_end(run, Outcome(report["status"], report["message"]))


def _recorder(run: PlannedRun, stop: Event, listener: Listener) -> Recorder:
    def report(progress: Progress) -> None:
        listener.on_steps(run, int(progress.steps.clip(max=run.config.steps).sum()))
        recorder.interrupted |= stop.is_set()

    recorder = Recorder(run.config, run.run_folder(), [report])
    return recorder


def _finish(run: PlannedRun, result: TrainResult) -> Outcome:
    if result.interrupted:
        again = "it can be resumed" if run.folder else "it has no run folder to resume from"
        return Outcome("interrupted", f"interrupted; {again}")
    publish(result, run.result_file)
    final, timing = result.returns[:, -1].mean(axis=-1), result.timing
    return Outcome(
        "published",
        f"return {final.mean():.3f} ± {final.std():.3f}, {timing['compile_s']:.0f} s compiling, "
        f"{timing['train_s']:.0f} s training",
    )


def _report_failure(runs: Sequence[PlannedRun], error: Exception, listener: Listener) -> None:
    for run in runs:
        if run.state != "done":
            run.note_failure(str(error))
            listener.on_end(run, Outcome("failed", f"failed: {error}"))
