"""A process that trains one batch of runs for `executor.train_apart`.

Standard input: one line with the planned runs as JSON, then one line in answer to each reported
evaluation; the end of input asks it to stop. Standard output: one JSON object per evaluation and
per finished run."""

import json
import os
import sys
from contextlib import suppress
from threading import Event
from typing import IO

from dgmarl.config.yaml import build
from dgmarl.device import require_determinism, use_all_cores
from dgmarl.errors import RunError, UsageError
from dgmarl.sweeps.executor import Listener, Outcome, train_batch
from dgmarl.sweeps.planned import PlannedRun

STDIN, STDOUT, STDERR = 0, 1, 2


class LineReports(Listener):
    """A listener that writes one JSON object per line."""

    def __init__(self, runs: list[PlannedRun], stream: IO[str], stop: Event):
        self.indices = {run: k for k, run in enumerate(runs)}
        self.stream, self.stop = stream, stop

    def on_steps(self, run: PlannedRun, steps: int) -> None:
        """Report an evaluation and wait for the answer, which may ask to stop. The run folder does
        not change meanwhile."""
        self._write({"run": self.indices[run], "steps": steps})
        if not os.read(STDIN, 1):
            self.stop.set()

    def on_end(self, run: PlannedRun, outcome: Outcome) -> None:
        self._write({"run": self.indices[run], **outcome._asdict()})

    def _write(self, report: dict) -> None:
        # If the reader is gone, the runs still end with a checkpoint.
        with suppress(OSError):
            self.stream.write(json.dumps(report) + "\n")
            self.stream.flush()


def main() -> int:
    """Train the runs of the first line of standard input."""
    # Output of libraries must not mix with the reports.
    reports = os.fdopen(os.dup(STDOUT), "w")
    os.dup2(STDERR, STDOUT)
    with open(STDIN, "rb", buffering=0, closefd=False) as stdin:  # unbuffered, like the answers
        runs = [build(PlannedRun, values) for values in json.loads(stdin.readline() or b"[]")]
    if not runs:
        return 0
    use_all_cores()
    if any(run.config.deterministic for run in runs):
        require_determinism()
    stop = Event()
    try:
        train_batch(runs, stop, LineReports(runs, reports, stop))
    except (UsageError, RunError) as error:
        print(error, file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
