"""What the benchmarks share: programs in environments of their own, rows that are kept between
calls, and facts about the machine. This process never imports JAX: a GPU belongs to one process."""

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import threading
import time
import tomllib
import venv
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from timing import Found

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
RESULTS = ROOT / "results" / "benchmarks"
PAGE = ROOT / "docs" / "performance.md"
VENVS = ROOT / ".bench"
JOB_LIMIT_S = COMPILE_LIMIT_S = 300
CACHES = ("JAX_COMPILATION_CACHE_DIR", "XLA_FLAGS")
"""What would make compile times those of a cache, or programs those of a test."""
SHARED_GPU = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
"""Room on a GPU for several processes."""
NO_CACHE = {"JAX_ENABLE_COMPILATION_CACHE": "false"}
ALL_CACHED = SHARED_GPU | {
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
}
"""Every program."""
MEDIANS = " Median of the repeats (lowest to highest); compiling apart.\n"
"""What follows `machine` where speeds are shown."""


class Program(NamedTuple):
    """How to call a program that measures."""

    python: str
    script: Path

    def __call__(self, jobs: list[Found], compile_workers: int = 0) -> Iterator[Found]:
        """What it finds, job by job. A job that ends the process or takes too long has an error;
        the others are done by another process.

        compile_workers: so many processes compile the jobs' programs first, for a cache from which
        they are then measured, one after the other."""
        if not compile_workers:
            yield from self._measured(jobs, NO_CACHE)
            return
        with TemporaryDirectory() as folder:
            cache = {**ALL_CACHED, "JAX_COMPILATION_CACHE_DIR": folder}
            prepared = list(self.prepared(jobs, compile_workers, cache))
            ready = [job for job, found in zip(jobs, prepared, strict=True) if "error" not in found]
            say(f"{self.script.stem}: {len(ready)} of {len(jobs)} programs are compiled")
            measured = self._measured(ready, cache)
            for found in prepared:
                yield found if "error" in found else {**next(measured), **found}

    def prepared(
        self, jobs: list[Found], compile_workers: int, cache: dict[str, str]
    ) -> Iterator[Found]:
        """What is known of each job once its program is compiled, nothing measured."""
        with ThreadPoolExecutor(compile_workers) as pool:
            yield from pool.map(lambda job: self._prepared(job, cache), jobs)

    def _prepared(self, job: Found, cache: dict[str, str]) -> Found:
        """Compile a job's program in a process of its own: what is known of it, or an error."""
        command = [self.python, str(self.script), json.dumps(job)]
        env = self._environment(cache | {"BENCH_PREPARE": "1"})
        try:
            done = subprocess.run(
                command, env=env, capture_output=True, text=True, cwd=VENVS, timeout=COMPILE_LIMIT_S
            )
        except subprocess.TimeoutExpired:
            return {"job": job, "error": f"not compiled in {COMPILE_LIMIT_S} s"}
        lines = [line for line in done.stdout.splitlines() if line.startswith('{"job": ')]
        if lines:
            return json.loads(lines[-1])
        return {"job": job, "error": f"no result: {last_line(done.stderr)}"}

    def _environment(self, more: dict[str, str]) -> dict[str, str]:
        """Of its process."""
        env = {name: value for name, value in os.environ.items() if name not in CACHES}
        given = filter(None, env.get("PYTHONPATH", "").split(os.pathsep))
        paths = (HERE, ROOT / "src", *(Path(name).resolve() for name in given))
        VENVS.mkdir(exist_ok=True)
        return env | {"PYTHONPATH": os.pathsep.join(map(str, paths))} | more

    def _measured(self, jobs: list[Found], cache: dict[str, str]) -> Iterator[Found]:
        while jobs:
            for found in self._lines(jobs, cache):
                yield found
                jobs = jobs[1:]
            if jobs:
                yield {"job": jobs[0], "error": f"no result: {self.last_words()}"}
                jobs = jobs[1:]

    def _lines(self, jobs: list[Found], cache: dict[str, str]) -> Iterator[Found]:
        env = self._environment(cache)
        command = [self.python, str(self.script), *map(json.dumps, jobs)]
        with self.log.open("w") as log:
            process = subprocess.Popen(
                command, env=env, stdout=subprocess.PIPE, stderr=log, text=True, cwd=VENVS
            )
            assert process.stdout is not None
            limit = Limit(process, JOB_LIMIT_S, self.log)
            for line in process.stdout:
                if line.startswith('{"job": '):
                    limit.extend()
                    yield json.loads(line)
            limit.stop()

    @property
    def log(self) -> Path:
        """What the process says besides its results."""
        return VENVS / f"{self.script.stem}.log"

    def last_words(self) -> str:
        """The last line of its log."""
        return last_line(self.log.read_text(errors="replace"))


def last_line(text: str) -> str:
    """The last line that says something."""
    lines = text.replace(str(ROOT), ".").split("\n")
    return next((line.strip()[:200] for line in reversed(lines) if line.strip()), "no message")


class Limit:
    """Ends a process that gives nothing for so many seconds, and says so in its log."""

    def __init__(self, process: "subprocess.Popen[str]", seconds: float, log: Path):
        self.process, self.seconds, self.log = process, seconds, log
        self.timer = self._started()

    def _started(self) -> threading.Timer:
        timer = threading.Timer(self.seconds, self._end)
        timer.daemon = True
        timer.start()
        return timer

    def _end(self) -> None:
        self.process.kill()
        with self.log.open("a") as log:
            log.write(f"\nnothing for {self.seconds:g} s\n")

    def extend(self) -> None:
        """From now on again."""
        self.timer.cancel()
        self.timer = self._started()

    def stop(self) -> None:
        """When the process has ended."""
        self.timer.cancel()
        self.process.wait()


def ours() -> Program:
    """dgmarl, in this environment."""
    return Program(sys.executable, HERE / "ours.py")


def peer(name: str) -> Program:
    """Another library in an environment of its own, which is made if its requirements changed; a
    RuntimeError says why not."""
    script = HERE / "peers" / f"{name}_peer.py"
    wanted = requirements(script.read_text())
    folder = VENVS / name
    stamp, python = folder / "requirements.json", folder / "bin" / "python"
    if not stamp.exists() or json.loads(stamp.read_text()) != wanted:
        say(f"installing {', '.join(wanted)}")
        venv.create(folder, clear=True, with_pip=True)
        command = [str(python), "-m", "pip", "install", "--quiet", "--no-compile", *wanted]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            errors = re.findall(r"ERROR: (.*)", done.stderr)
            raise RuntimeError(f"pip install failed: {(errors or ['no message'])[-1][:200]}")
        stamp.write_text(json.dumps(wanted))
    return Program(str(python), script)


def requirements(script: str) -> list[str]:
    """Those in the header of a script (PEP 723)."""
    found = re.search(r"^# /// script\n((?:#.*\n)+?)# ///$", script, re.MULTILINE)
    assert found is not None, "the script has no header"
    return tomllib.loads(re.sub(r"^# ?", "", found[1], flags=re.MULTILINE))["dependencies"]


def facts() -> Found:
    """The machine, and what is measured on it."""
    return {
        "cpu": _first(r"model name\s*: (.*)", Path("/proc/cpuinfo")) or platform.processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "gpu": _said("nvidia-smi", "--query-gpu=name", "--format=csv,noheader"),
        "python": platform.python_version(),
        "commit": commit(),
        "date": time.strftime("%Y-%m-%d"),
        "load": round(os.getloadavg()[0], 1),
    }


def commit() -> str | None:
    """The last commit of what is measured; None where that is changed or unknown."""
    if _said("git", "status", "--porcelain", "src", "benchmarks") != "":
        return None
    return _said("git", "log", "-1", "--format=%h", "--", "src", "benchmarks")


def _said(*command: str) -> str | None:
    """What a command prints; None without that command, or where it fails."""
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    except OSError:
        return None
    return None if done.returncode else done.stdout.strip()


def _first(pattern: str, path: Path) -> str | None:
    found = re.search(pattern, path.read_text()) if path.exists() else None
    return found[1] if found else None


class Rows:
    """The rows of a file, by key; written after each."""

    def __init__(self, path: Path):
        self.path, self.facts = path, facts()
        self.stored = json.loads(path.read_text()) if path.exists() else {"rows": []}
        self.found: dict[str, Found] = {row["key"]: row for row in self.stored["rows"]}

    def done(self, key: str) -> bool:
        """Whether the row was measured at this commit."""
        row, same = self.found.get(key, {}), self.facts["commit"]
        return same is not None and row.get("commit") == same and "error" not in row

    def add(self, key: str, row: Found) -> None:
        """Keep a row, and write the file."""
        self.found[key] = {"key": key, **row, "commit": self.facts["commit"]}
        self.stored = self.facts
        self.write()

    def order(self, keys: list[str]) -> None:
        """Keep only these rows, in this order."""
        self.found = {key: self.found[key] for key in keys if key in self.found}
        self.write()

    def write(self) -> None:
        """The file."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps({**self.stored, "rows": list(self.found.values())}, indent=1)
        self.path.write_text(text + "\n")


def short(number: float) -> str:
    """Three digits: 1.23 million, 45,600, 0.0123."""
    if number >= 1e6:
        return f"{number / 1e6:,.3g} million" if number < 1e9 else f"{number / 1e9:,.3g} billion"
    if number >= 100:
        digits = max(0, len(str(int(number))) - 3)
        return f"{round(number, -digits):,.0f}"
    return f"{number:.3g}"


def table(header: list[str], lines: list[list[str]]) -> str:
    """Markdown; columns after the first two are numbers, but for the last."""
    rule = ["---"] * len(header)
    rows = (f"| {' | '.join(cells)} |" for cells in (header, rule, *lines))
    return "\n".join(rows) + "\n"


def machine(found: Found) -> str:
    """On what and with what it was measured."""
    versions = {}
    for row in found["rows"]:
        versions |= row.get("versions", {})
    device = found["gpu"] or f"{found['cores']} cores of {found['cpu']}"
    programs = ", ".join(f"{name} {versions[name]}" for name in sorted(versions))
    return (
        f"{device}, {found['memory_gib']} GiB of memory; {found['date']}, commit "
        f"{found['commit'] or 'not known'}, load at the start {found['load']}. Python "
        f"{found['python']}, {programs}."
    )


def options_of(description: str | None) -> argparse.ArgumentParser:
    """The options that both scripts have."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gpu", action="store_true", help="sizes for a GPU, nothing installed")
    parser.add_argument("--fresh", action="store_true", help="measure all rows again")
    parser.add_argument("--only", default="", help="rows whose name has this regular expression")
    parser.add_argument("--draw", action="store_true", help="measure nothing: table and plot only")
    parser.add_argument("--compile-workers", type=int, default=0, help="programs at a time")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results")
    return parser


def say(text: str) -> None:
    """Progress."""
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


def plural(n: int, what: str) -> str:
    """`1 seed`, `1,024 environments`."""
    return f"{n:,} {what}{'' if n == 1 else 's'}"
