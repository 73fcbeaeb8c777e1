"""Errors that are told to a person in one sentence, without a traceback."""

import difflib
import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any


class UsageError(ValueError):
    """Bad input: what was given, what is allowed, what to do. The command line exits with code
    2."""


class RunError(RuntimeError):
    """Something failed that no input could have avoided: a full disk, a loss that became NaN. Exit
    code 1."""


class WorkerError(RuntimeError):
    """What an environment in a worker process did wrong, as the end of `The environment ...`."""


def raised_by_callback(error: BaseException) -> str:
    """What Python code that JAX called back raised and where, `raised ...`, or what an environment
    in a worker process did; empty for any other error. JAX passes the traceback on as text."""
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
    """The kind of an error and what it says, for a sentence that goes on."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}".rstrip(".: ")


@contextmanager
def quiet_callbacks() -> Iterator[None]:
    """Keep JAX from logging tracebacks of what it called back: `raised_by_callback` tells them."""
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
    """The end of a sentence: what is allowed, and `did you mean ...?` if something is close."""
    names = [str(name) for name in allowed]
    return f"allowed are {', '.join(names)}{did_you_mean(given, names)}"


def did_you_mean(given: str, names: Iterable[str]) -> str:
    """The very end of a sentence: the nearest name, or a full stop."""
    close = difflib.get_close_matches(given, list(names), n=1, cutoff=0.6)
    return f"; did you mean {close[0]}?" if close else "."
