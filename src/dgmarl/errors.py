"""Errors that the command line reports in one sentence, without a traceback."""

import difflib
import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any


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
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}".rstrip(".: ")


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
