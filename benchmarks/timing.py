"""Timing, with the standard library only (and JAX where it is used): the peers' own environments
import it too.

A program that measures is called with jobs, JSON objects, as arguments, and prints one line of JSON
for each: the job and what it found, or an "error"."""

import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Any, NamedTuple

REPEATS, WINDOW = 5, 10
LAP_S = float(os.environ.get("BENCH_LAP_S", "0.4"))
"""About how many seconds a lap takes."""

Run = Callable[[int], Any]
"""Does so many units of work, waits until they are done and returns what came out."""
Found = dict[str, Any]


class Prepared(NamedTuple):
    """A compiled program, to be measured later."""

    facts: Found
    """Seconds that compiling took, and what else is known without running it."""
    measure: Callable[[], Found]

    def __call__(self) -> Found:
        """What is known, and what is measured now."""
        return self.facts | self.measure()


def timed(run: Run, n: int) -> tuple[float, Any]:
    """Seconds of a call, and its result."""
    began = time.perf_counter()
    result = run(n)
    return time.perf_counter() - began, result


def laps(run: Run, work: float | Callable[[Any], float] = 1, repeats: int = REPEATS) -> list[float]:
    """Work per second of each lap, all of the same length, after some to find the length.

    work: that of one unit, or a function of a lap's result."""
    timed(run, 1)
    n, (took, result) = 1, timed(run, 1)
    while took < LAP_S / 2:
        n = min(10 * n, int(n * LAP_S / took) + 1)
        took, result = timed(run, n)
    done = work(result) if callable(work) else work * n
    return [done / timed(run, n)[0] for _ in range(repeats)]


def compiled(
    step: Callable[[Any], Any], carry: Any, around: Callable[[Any], Any] = lambda loop: loop
) -> tuple[Run, Found]:
    """A JAX function repeated n times, always from the same carry, as a function of n; the seconds
    that compiling took and the memory of the program on one device.

    around: what the whole loop is wrapped in."""
    import jax

    def loop(carry: Any, n: Any) -> Any:
        return jax.lax.fori_loop(0, n, lambda _, carry: step(carry), carry)

    began = time.perf_counter()
    program: Any = jax.jit(around(loop)).lower(carry, 1).compile()
    facts = {"compile_s": time.perf_counter() - began, "memory_mib": memory_mib(program)}
    return lambda n: jax.block_until_ready(program(carry, n)), facts


def memory_mib(program: Any) -> float:
    """What a compiled program needs: its arguments, its results and its scratch space."""
    sizes = program.memory_analysis()
    needed = sizes.argument_size_in_bytes + sizes.output_size_in_bytes + sizes.temp_size_in_bytes
    return (needed - sizes.alias_size_in_bytes) / 2**20


def summary(found: list[float]) -> Found:
    """Median and spread."""
    middle = statistics.median(found)
    return {"value": middle, "low": min(found), "high": max(found), "repeats": len(found)}


def learned(curves: list[tuple[list[float], float]], goal: float) -> Found:
    """When each run reached a return, and where the median run ended; a run is the return of each
    update and the seconds of one."""
    reached = [(first_reaching(curve, goal), took) for curve, took in curves]
    ends = [sum(curve[-WINDOW:]) / len(curve[-WINDOW:]) for curve, _ in curves]
    return {
        "to_goal_s": [None if k is None else k * took for k, took in reached],
        "final_return": statistics.median(ends),
    }


def first_reaching(returns: list[float], goal: float) -> int | None:
    """How many updates until the mean return of the last ten of them is at least `goal`."""
    for k in range(WINDOW, len(returns) + 1):
        if sum(returns[k - WINDOW : k]) / WINDOW >= goal:
            return k
    return None


def serve(kinds: dict[str, Callable[..., Any]], packages: tuple[str, ...]) -> None:
    """Measure the jobs on the command line: a job's `kind` names the function, the rest are its
    arguments. A function that only prepares returns a `Prepared`, which is measured unless
    BENCH_PREPARE is set: then the program is left in the compilation cache.

    packages: whose versions belong to the result."""
    versions = {name: version(name) for name in packages}
    only_prepare = bool(os.environ.get("BENCH_PREPARE"))
    for job in map(json.loads, sys.argv[1:]):
        arguments = {name: value for name, value in job.items() if name != "kind"}
        found = tried(kinds[job["kind"]], **arguments)
        if isinstance(found, Prepared):
            found = found.facts if only_prepare else tried(found)
        print(json.dumps({"job": job, **found, "versions": versions}), flush=True)


def tried(function: Callable[..., Any], **arguments: Any) -> Any:
    """What a call returns, or its error in words."""
    try:
        return function(**arguments)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"}
