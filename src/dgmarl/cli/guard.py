"""Runs commands: errors are printed as one sentence, and Ctrl-C stops the command.

The first Ctrl-C asks the command to stop and ends it after `GRACE` seconds if it has not; the
second ends it at once. Python handles a signal in the main thread between two instructions, which
a compilation or a program on the device delays; so a thread that the signal wakes up ends the
process. Files are written atomically, so they are intact at any time."""

import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NoReturn

from dgmarl.errors import RunError, UsageError, out_of_memory, raised_by_callback

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_STOPPED = 130
GRACE = 10.0
"""Seconds between the first Ctrl-C and the end."""
AGAIN = "run the same command again."
SHOW_CURSOR = "\x1b[?25h"


class Interrupts:
    """A context that counts Ctrl-C and ends the process if the command does not stop."""

    def __init__(self):
        self.count = 0
        self.advice: Callable[[], str] = lambda: AGAIN
        """What to do after a stop; the end of a sentence."""
        self._pipe: tuple[int, int] | None = None
        self._leaving = threading.Lock()
        self._said = threading.Event()

    def __enter__(self) -> "Interrupts":
        if threading.current_thread() is threading.main_thread():
            self._pipe = os.pipe()
            os.set_blocking(self._pipe[1], False)
            self._before = signal.set_wakeup_fd(self._pipe[1], warn_on_full_buffer=False)
            self._hook, sys.unraisablehook = sys.unraisablehook, self._unraisable
            threading.Thread(target=self._watch, args=(self._pipe[0],), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._pipe is not None:
            signal.set_wakeup_fd(self._before)
            sys.unraisablehook = self._hook
            os.close(self._pipe[1])  # ends the thread, which closes the other end

    def _unraisable(self, error: Any) -> None:
        """Python drops a KeyboardInterrupt in a finaliser, such as JAX's at garbage collections."""
        if error.exc_type is KeyboardInterrupt:
            self.leave()
        self._hook(error)

    def _watch(self, wake_up: int) -> None:
        while received := os.read(wake_up, 1):
            if received[0] != signal.SIGINT:
                continue
            self.count += 1
            if self.count > 1:
                self.leave()
            _say(f"stopping, within {GRACE:.0f} s; Ctrl-C again stops at once")
            self._said.set()
            timer = threading.Timer(GRACE, self.leave)
            timer.daemon = True
            timer.start()
        os.close(wake_up)

    def by_signal(self) -> bool:
        """Whether a KeyboardInterrupt came from a signal, which the thread may see later."""
        return self._pipe is not None and self._said.wait(0.5)

    def leave(self) -> NoReturn:
        """End the process without waiting for any thread."""
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # another one would interrupt this method
            self._said.wait(0.5)
        self._leaving.acquire()  # never released: only one thread continues
        if sys.stderr.isatty():
            sys.stderr.write(SHOW_CURSOR)  # a progress display hides it
        _say(f"stopped; {self.advice()}")
        # The reader of a pipe may have stopped reading.
        flush = threading.Thread(target=_flush, daemon=True)
        flush.start()
        flush.join(1)
        os._exit(EXIT_STOPPED)


def guarded(work: Callable[[Interrupts], int]) -> int:
    """Run a command and return its exit code."""
    with Interrupts() as interrupts:
        try:
            code = work(interrupts)
        except KeyboardInterrupt:
            if interrupts.by_signal():
                interrupts.leave()
            _say(f"stopped; {interrupts.advice()}")
            return EXIT_STOPPED
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        except Exception as error:
            # An interrupted library may raise anything.
            if interrupts.count:
                interrupts.leave()
            code, sentence = explain(error)
            if not sentence:
                raise
            _say(sentence)
    return EXIT_STOPPED if interrupts.count else code


def explain(error: Exception) -> tuple[int, str]:
    """Exit code and message of an error; the message is empty for a bug."""
    if isinstance(error, UsageError | RunError):
        return EXIT_USAGE if isinstance(error, UsageError) else EXIT_FAILED, str(error)
    if out_of_memory(error):
        return EXIT_USAGE, (
            "The memory of this machine is exhausted: use fewer seeds, environments (n_envs) or "
            "episodes, smaller networks, or a machine with more."
        )
    if raised := raised_by_callback(error):
        return EXIT_FAILED, f"The environment {raised}: correct it."
    if isinstance(error, OSError) and error.filename is not None:
        name = str(error.filename)
        name = name if len(name) < 200 else f"{name[:60]}..."
        return EXIT_USAGE, f"{name} cannot be used ({error.strerror}): check the path."
    return EXIT_FAILED, ""


def printable(text: str) -> str:
    """The text on one line; control characters, which a name in a file may contain, are escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _say(sentence: str) -> None:
    print(f"dgmarl: {printable(sentence)}", file=sys.stderr)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
