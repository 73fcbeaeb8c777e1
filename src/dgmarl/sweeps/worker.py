"""A process that trains one batch of runs for `executor.train_apart`.

Standard input: one line, the planned runs as JSON; the end of input asks it to stop. Standard
output: one JSON object per evaluation and per finished run."""

import json
import os
import sys
from contextlib import suppress
from threading import Event, Thread
from typing import IO

from dgmarl.device import use_all_cores
from dgmarl.errors import RunError, UsageError
from dgmarl.sweeps.executor import Outcome, train_batch
from dgmarl.sweeps.planned import PlannedRun

STDIN, STDOUT, STDERR = 0, 1, 2


class LineReports:
    """A listener that writes one JSON object per line."""

    def __init__(self, runs: list[PlannedRun], stream: IO[str]):
        self.indices = {run: k for k, run in enumerate(runs)}
        self.stream = stream

    def on_steps(self, run: PlannedRun, steps: int) -> None:
        """Environment steps of a run."""
        self._write({"run": self.indices[run], "steps": steps})

    def on_end(self, run: PlannedRun, outcome: Outcome) -> None:
        """End of a run."""
        self._write({"run": self.indices[run], **outcome._asdict()})

    def _write(self, report: dict) -> None:
        # Without a reader the runs still end with a checkpoint.
        with suppress(OSError):
            self.stream.write(json.dumps(report) + "\n")
            self.stream.flush()


def main() -> int:
    """Train the runs of the first line of standard input."""
    # Whatever a library prints must not come between the reports.
    reports = os.fdopen(os.dup(STDOUT), "w")
    os.dup2(STDERR, STDOUT)
    runs = [PlannedRun.from_values(values) for values in json.loads(_first_line() or b"[]")]
    stop = Event()
    Thread(target=_stop_at_end_of_input, args=(stop,), daemon=True).start()
    if not runs:
        return 0
    use_all_cores()
    try:
        train_batch(runs, stop, LineReports(runs, reports))
    except (UsageError, RunError) as error:
        print(error, file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1
    return 0


def _first_line() -> bytes:
    """Read unbuffered: a buffered reader would block the exit of the process while a thread waits
    in it."""
    line = b""
    while not line.endswith(b"\n") and (part := os.read(STDIN, 1 << 16)):
        line += part
    return line


def _stop_at_end_of_input(stop: Event) -> None:
    while os.read(STDIN, 1 << 10):
        pass
    stop.set()


if __name__ == "__main__":
    sys.exit(main())
