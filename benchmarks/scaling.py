"""How the time of a training iteration grows with seeds, environments, agents and devices, compile
time apart, and a cost model fitted to it.

    python benchmarks/scaling.py --json scaling.json                 # what this machine has
    python benchmarks/scaling.py --axes agents --agents 5 50 500 --graphs oracle self
    JAX_NUM_CPU_DEVICES=8 python benchmarks/scaling.py --axes devices --json scaling.json
    python benchmarks/scaling.py --fit scaling.json                  # the model and projections

A file that exists keeps the rows of the axes that are not measured again. Iterations are those of
`ippo-dg` with the default preset, without evaluations: foraging 10x10-3p-3f for seeds,
environments and devices, Star-Spread for agents. Steps are environment steps of all seeds
together."""

import argparse
import json
import os
import platform
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, NamedTuple, cast

import jax
from rich.console import Console
from rich.table import Table

from dgmarl.config.resolve import resolve
from dgmarl.device import mesh_for, use_all_cores
from dgmarl.training import Trainer, for_seeds, init_seeds, spread

FORAGING = "lbf/10x10-3p-3f"
LAP_S = 0.5
"""How long a measured lap is about."""
COLUMNS = ("axis", "env", "graph", "seeds", "n_envs", "mesh", "iteration_ms", "steps_per_s")
ROOT = Path(__file__).resolve().parents[1]


class Job(NamedTuple):
    """One program to compile and measure."""

    axis: str
    env: str
    graph: str
    seeds: int
    n_envs: int
    devices: int | None = None

    def row(self) -> dict[str, Any]:
        """Its sizes."""
        return self._asdict() | {"agents": Trainer(self.config()).env.spec.n_agents}

    def config(self) -> Any:
        overrides = {"n_envs": self.n_envs} if self.n_envs else {}
        return resolve(
            self.env, "ippo-dg", overrides, graph=self.graph, seeds=self.seeds, steps=10**9
        )


class Program(NamedTuple):
    """A compiled lap of any number of iterations, and what it starts from."""

    lap: Any
    state: Any
    facts: dict[str, Any]


def jobs(options: argparse.Namespace) -> Iterator[Job]:
    """Everything to measure, the most expensive programs of each axis last."""
    if "seeds" in options.axes:
        yield from (Job("seeds", FORAGING, "oracle", n, 10) for n in options.seeds)
    if "environments" in options.axes:
        yield from (
            Job("environments", FORAGING, "oracle", seeds, n)
            for n in options.n_envs
            for seeds in options.seeds_of_envs
        )
    if "agents" in options.axes:
        yield from (
            Job("agents", f"star-spread/{n}", graph, 1, 10)
            for n in options.agents
            for graph in options.graphs
        )
    if "devices" in options.axes:
        counts = [2**k for k in range(jax.device_count().bit_length())]
        sizes = ((8, 16), (1, 128))
        yield from (Job("devices", FORAGING, "oracle", *size, n) for size in sizes for n in counts)


def prepare(job: Job) -> Program:
    """Compile, with the seconds that it took and the memory that it needs per device."""
    trainer = Trainer(job.config())
    mesh = mesh_for(job.seeds, trainer.config.n_envs, job.devices)
    state = spread(init_seeds(trainer), job.seeds, mesh)

    def lap(state: Any, n: Any) -> Any:
        return jax.lax.fori_loop(0, n, lambda _, state: trainer.iterate(state)[0], state)

    began = time.perf_counter()
    compiled = jax.jit(for_seeds(lap, job.seeds, mesh)).lower(state, 1).compile()
    seconds, sizes = time.perf_counter() - began, cast("Any", compiled.memory_analysis())
    needed = sizes.argument_size_in_bytes + sizes.output_size_in_bytes + sizes.temp_size_in_bytes
    facts = {"compile_s": seconds, "memory_mib": needed / 2**20}
    return Program(compiled, state, {**facts, "mesh": [*mesh.shape.values()]})


def measure(program: Program, n_laps: int) -> dict[str, float]:
    """Time of an iteration, the best of some laps after one to warm up, all from the same untrained
    policy; also the time that the threads of this process computed, which other work on the
    machine hardly changes."""

    def timed(n: int) -> tuple[float, float, float]:
        began, computed = time.perf_counter(), time.process_time()
        after = jax.block_until_ready(program.lap(program.state, n))
        took, computed = time.perf_counter() - began, time.process_time() - computed
        return took / n, computed / n, float((after.step - program.state.step).sum()) / n

    timed(1)
    n = max(1, min(200, int(LAP_S / timed(1)[0])))
    seconds, computed, steps = map(min, zip(*(timed(n) for _ in range(n_laps)), strict=True))
    times = {"iteration_ms": 1e3 * seconds, "cpu_ms": 1e3 * computed}
    return {**times, "steps_per_s": steps / seconds}


def finished(future: "Future[Program]", n_laps: int) -> dict[str, Any]:
    """What a program gives, or why it does not run: memory, mostly."""
    facts: dict[str, Any] = {}
    try:
        program = future.result(timeout=0)
        facts = program.facts
        return {**facts, **measure(program, n_laps)}
    except (TimeoutError, CancelledError):
        return {"error": "not compiled in time"}
    except (jax.errors.JaxRuntimeError, ValueError, MemoryError) as error:
        return {**facts, "error": " ".join(str(error).split())[:200]}


def run(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Compile side by side, then measure one after the other; the file is written after each
    program."""
    began, rows, console = time.perf_counter(), [], Console(stderr=True, width=140)
    pool = ThreadPoolExecutor(options.compile_workers)
    programs = {job: pool.submit(prepare, job) for job in jobs(options)}
    wait(programs.values(), timeout=options.limit / 2)
    pool.shutdown(wait=False, cancel_futures=True)
    console.print(f"{time.perf_counter() - began:.0f} s: compiled")
    for job, future in programs.items():
        late = time.perf_counter() - began > options.limit
        found = {"error": "no time left"} if late else finished(future, options.laps)
        rows.append({**job.row(), **found})
        speed = found.get("error") or f"{found['iteration_ms']:.2f} ms"
        took = time.perf_counter() - began
        console.print(f"{took:.0f} s: {' '.join(map(str, job))}: {speed}", highlight=False)
        if options.json:
            save(options, rows)
    return rows


def save(options: argparse.Namespace, rows: list[dict[str, Any]]) -> None:
    """The rows, with those of other axes that the file has."""
    kept = json.loads(options.json.read_text())["rows"] if options.json.exists() else []
    kept = [row for row in kept if row["axis"] not in options.axes]
    facts = {
        "device": jax.devices()[0].device_kind,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "jax": jax.__version__,
        "load": round(os.getloadavg()[0], 1),
        "compile_workers": options.compile_workers,
    }
    ordered = sorted(kept + rows, key=lambda row: [str(row["axis"]), row["agents"], row["graph"]])
    options.json.write_text(json.dumps({**facts, "rows": ordered}, indent=1) + "\n")


def show(rows: list[dict[str, Any]]) -> None:
    table = Table()
    for name in (*COLUMNS, "compile_s", "memory_mib"):
        table.add_column(name, justify="right")
    for row in rows:
        cells = [row.get(name, row.get("error", "")) for name in table_columns(table)]
        table.add_row(*(f"{c:,.1f}" if isinstance(c, float) else str(c) for c in cells))
    Console(width=160).print(table)


def table_columns(table: Table) -> list[str]:
    return [str(column.header) for column in table.columns]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    axes = ("seeds", "environments", "agents", "devices")
    parser.add_argument("--axes", nargs="+", choices=axes, default=axes)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 4, 8, 16, 32, 64])
    parser.add_argument("--n-envs", type=int, nargs="+", default=[10, 40, 160, 640])
    parser.add_argument("--seeds-of-envs", type=int, nargs="+", default=[1])
    agents = [5, 10, 20, 50, 100, 200, 500, 1000]
    parser.add_argument("--agents", type=int, nargs="+", default=agents)
    parser.add_argument("--graphs", nargs="+", default=["oracle", "self"])
    parser.add_argument("--laps", type=int, default=3, help="of which the best counts")
    parser.add_argument("--compile-workers", type=int, default=1, help="programs at a time")
    parser.add_argument("--limit", type=float, default=3600, help="seconds, half to compile")
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    parser.add_argument("--fit", type=Path, nargs="+", help="files to fit instead of measuring")
    options = parser.parse_args()
    if options.fit:
        from scaling_fit import report

        return report(options.fit)
    use_all_cores()
    show(run(options))


if __name__ == "__main__":
    main()
