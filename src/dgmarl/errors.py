"""Errors that the command line reports in one sentence, without a traceback."""

import difflib
import logging
import re
import sysconfig
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

JAX_TAIL = re.compile(r"\s*(The error occurred while tracing|See https?://).*", re.DOTALL)
"""What JAX adds to its messages: the traced function's first line, and an address."""
LONGEST = 300
"""Most characters of a message that is embedded in a sentence."""


class UsageError(ValueError):
    """Invalid input: what was given, what is allowed, what to do. Exit code 2."""


class UnknownNameError(UsageError):
    """A name of a method, an environment, a graph source or a class that does not exist, as
    opposed to one that exists and cannot be used here."""


class RunError(RuntimeError):
    """A failure that is not due to invalid input: a full disk, a NaN loss. Exit code 1."""


class WorkerError(RuntimeError):
    """Failure of an environment in a worker process; completes `The environment ...`."""


def raised_by_callback(error: BaseException) -> str:
    """What a Python callback of JAX raised and where, `raised ...`, or the message of a
    `WorkerError`; empty for other errors. JAX passes the traceback on as text."""
    text = str(error)
    if "callback" not in text or "Traceback" not in text:
        return ""
    fault = text.rpartition(f"{WorkerError.__name__}: ")
    if fault[1]:
        return fault[2].partition("\n")[0]
    place, _, reason = text.rpartition('File "')[2].partition("\n")
    place = place.replace('", line', " line").partition(", in ")[0]
    return f"raised {' '.join(reason.split())[:200]} ({place})"


def one_line(error: BaseException) -> str:
    """Type and message of an error, to be embedded in a sentence."""
    text = " ".join(JAX_TAIL.sub("", str(error)).split())
    if len(text) > LONGEST:
        whole = text[:LONGEST].rpartition(". ")[0]
        text = whole or text[:LONGEST]
    return f"{type(error).__name__}: {text}".rstrip(".: ")


def place_of(error: BaseException | None, own: str | None = None) -> str:
    """File, line and function of the user's code that raised an error, `switch.py:41, in step`: the
    innermost frame outside dgmarl, installed packages and Python; empty if there is none.

    own: the user's file, which counts also if it is installed."""
    frames = traceback.extract_tb(error.__traceback__) if error is not None else []
    for frame in reversed(frames):
        if _is_users(frame.filename, own):
            function = "" if frame.name.startswith("<") else f", in {frame.name}"
            return f"{Path(frame.filename).name}:{frame.lineno}{function}"
    return ""


def _is_users(file: str, own: str | None) -> bool:
    """Whether a file of a traceback is the user's code."""
    path = Path(file).resolve()
    if file.startswith("<") or path.is_relative_to(Path(__file__).resolve().parent):
        return False
    if own is not None and path == Path(own).resolve():
        return True
    python = Path(sysconfig.get_path("stdlib")).resolve()
    installed = {"site-packages", "dist-packages"} & set(path.parts)
    return not installed and not path.is_relative_to(python)


@contextmanager
def quiet_callbacks() -> Iterator[None]:
    """Keep JAX from logging tracebacks of callbacks; `raised_by_callback` reports them."""
    logger = logging.getLogger("jax._src.callback")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


def out_of_memory(error: BaseException | None) -> bool:
    """Whether memory was exhausted, on the host or on the device."""
    raised_by_jax = type(error).__name__ in ("JaxRuntimeError", "XlaRuntimeError")
    return isinstance(error, MemoryError) or (raised_by_jax and "RESOURCE_EXHAUSTED" in str(error))


def suggest(given: str, allowed: Iterable[Any]) -> str:
    """End of a sentence: what is allowed, and `did you mean ...?` if a name is similar."""
    names = [str(name) for name in allowed]
    return f"allowed are {', '.join(names)}{did_you_mean(given, names)}"


def did_you_mean(given: str, names: Iterable[str]) -> str:
    """End of a sentence: the most similar name, or a full stop."""
    close = difflib.get_close_matches(given, list(names), n=1, cutoff=0.6)
    return f"; did you mean {close[0]}?" if close else "."
