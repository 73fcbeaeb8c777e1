"""Training speed in the paper's setting (10 environments, foraging 10x10-3p-3f, hidden 128),
compile time apart.

    python benchmarks/train.py      # one row per credit and graph, for 1 and 10 seeds
    python benchmarks/train.py --seeds 1 10 64 --json train.json
    python benchmarks/train.py --only 'iql|vdn|qmix|qplex' --seeds 1 --iterations 5

Steps are environment steps of all seeds together, training only (no evaluation). The original
PyTorch code does 2,080 of them per second with PPO on 2 cores, and 538 with QMIX (one gradient step
per episode, as here)."""

import argparse
import json
import platform
import re
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from rich.console import Console
from rich.progress import track
from rich.table import Table

from dgmarl import make_env
from dgmarl.config.methods import METHODS
from dgmarl.config.resolve import resolve
from dgmarl.device import devices_for, use_all_cores
from dgmarl.training import Trainer, for_seeds, spread

ORIGINAL_STEPS_PER_S, ORIGINAL_VALUE_BASED = 2080, 538
ROWS = (
    ("ippo-local", "self"),
    ("ippo-global", "self"),
    ("ippo-dg", "self"),
    ("ippo-dg", "complete"),
    ("ippo-dg", "fixed"),
    ("ippo-dg", "random:0.3"),
    ("ippo-dg", "oracle"),
    ("ippo-dg", "interventional"),
    ("ippo-dg", "learned"),
    ("ippo-khop", "interventional"),
    ("ippo-difference", "self"),
    ("ippo-prd", "self"),
    ("mappo-local", "self"),
    ("mappo-global", "self"),
    ("mappo-dg", "oracle"),
    ("mappo-dg", "interventional"),
    ("mappo-coma", "self"),
    ("mappo-gpae", "self"),
    *((name, "self") for name, method in METHODS.items() if method.whole_episodes),
)


def prepare(
    env: str,
    method: str,
    graph: str,
    seeds: int,
    iterations: int,
    preset: Any,
    overrides: dict[str, Any],
) -> tuple[Any, Any, float]:
    """A compiled lap of `iterations` iterations, the state it starts from, and the seconds that
    compiling took."""
    graph = f"fixed:{_ring(env)}" if graph == "fixed" else graph
    trainer = Trainer(
        resolve(env, method, overrides, preset, graph=graph, seeds=seeds, steps=10**9)
    )
    state = spread(
        jax.jit(jax.vmap(trainer.init))(jax.vmap(jax.random.key)(jnp.arange(seeds))), seeds
    )

    def lap(state: Any) -> Any:
        return jax.lax.fori_loop(0, iterations, lambda _, state: trainer.iterate(state)[0], state)

    began = time.perf_counter()
    return jax.jit(for_seeds(lap, seeds)).lower(state).compile(), state, time.perf_counter() - began


def _ring(env: str) -> Path:
    """A file with a graph in which everybody influences the next one."""
    n_agents = make_env(env).spec.n_agents
    path = Path(tempfile.mkdtemp()) / "ring.txt"
    rows = (["01"[i in (j, (j + 1) % n_agents)] for i in range(n_agents)] for j in range(n_agents))
    path.write_text("\n".join(map(" ".join, rows)))
    return path


def measure(programs: list[tuple[Any, Any]], n_laps: int) -> list[float]:
    """Environment steps per second of each, the best of some laps after one to warm up.

    All laps begin with the same untrained policy: a trained one ends its episodes sooner, for the
    same work. Programs take turns, so that other work on the machine, which only ever slows one
    down, falls on all alike."""
    n_steps = [int((lap(state).step - state.step).sum()) for lap, state in programs]
    seconds = [float("inf")] * len(programs)
    for _ in range(n_laps):
        for k, (lap, state) in enumerate(programs):
            began = time.perf_counter()
            jax.block_until_ready(lap(state))
            seconds[k] = min(seconds[k], time.perf_counter() - began)
    return [steps / took for steps, took in zip(n_steps, seconds, strict=True)]


def memory_mib(lap: Any, seeds: int) -> float:
    """What the compiled program needs on all devices: its state, its results and its scratch
    space."""
    sizes = lap.memory_analysis()
    return (
        (
            sizes.argument_size_in_bytes
            + sizes.output_size_in_bytes
            - sizes.alias_size_in_bytes
            + sizes.temp_size_in_bytes
        )
        * devices_for(seeds)
        / 2**20
    )


def show(rows: list[dict[str, Any]], title: str) -> None:
    base = {row["seeds"]: row["steps_per_s"] for row in rows if row["method"] == "ippo-local"}
    table = Table(title=title, title_justify="left")
    for column in ("method", "seeds", "steps/s", "× original", "cost vs local", "compile s", "MiB"):
        table.add_column(column, justify="left" if column == "method" else "right")
    for row in rows:
        value_based = METHODS[row["method"].partition(" ")[0]].whole_episodes
        cost = (
            f"{base[row['seeds']] / row['steps_per_s']:.2f}"
            if row["seeds"] in base and not value_based
            else ""
        )
        original = ORIGINAL_VALUE_BASED if value_based else ORIGINAL_STEPS_PER_S
        times = f"{row['steps_per_s'] / original:,.1f}"
        numbers = (
            f"{row['steps_per_s']:,.0f}",
            times,
            cost,
            f"{row['compile_s']:.0f}",
            f"{row['memory_mib']:,.1f}",
        )
        table.add_row(row["method"], str(row["seeds"]), *numbers)
    Console(width=120).print(table)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--env", default="lbf/10x10-3p-3f")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 10])
    parser.add_argument("--iterations", type=int, default=50, help="per lap")
    parser.add_argument("--laps", type=int, default=3, help="of which the best counts")
    parser.add_argument(
        "--only",
        default="",
        help="only rows in whose method and graph this regular expression is found",
    )
    parser.add_argument(
        "--set",
        nargs="*",
        default=[],
        metavar="NAME=VALUE",
        help="other fields of the configuration",
    )
    parser.add_argument("--preset", default="paper", choices=("paper", "tuned", "fast"))
    parser.add_argument(
        "--compile-workers", type=int, default=1, help="programs compiled at a time"
    )
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    options = parser.parse_args()
    use_all_cores()
    overrides = {
        name: json.loads(value) for name, _, value in (text.partition("=") for text in options.set)
    }
    jobs = [
        (method, graph, n)
        for n in options.seeds
        for method, graph in ROWS
        if re.search(options.only, f"{method} {graph}")
    ]
    rows = []
    common = (options.iterations, options.preset, overrides)
    with ThreadPoolExecutor(options.compile_workers) as pool:
        programs = pool.map(lambda job: prepare(options.env, job[0], job[1], job[2], *common), jobs)
        prepared = list(track(programs, "compiling", len(jobs), console=Console(stderr=True)))
    speeds = measure([(lap, state) for lap, state, _ in prepared], options.laps)
    for (method, graph, n), (lap, _, compile_s), speed in zip(jobs, prepared, speeds, strict=True):
        name = f"{method} {graph if METHODS[method].uses_graph else ''}".strip()
        rows.append(
            {
                "method": name,
                "seeds": n,
                "steps_per_s": speed,
                "compile_s": compile_s,
                "memory_mib": memory_mib(lap, n),
            }
        )
    device = f"{jax.devices()[0].device_kind} ({platform.machine()})"
    show(rows, f"Training on {options.env}, {device}")
    if options.json:
        facts = {
            "device": device,
            "jax": jax.__version__,
            "env": options.env,
            "preset": options.preset,
        }
        facts["compile_workers"] = options.compile_workers
        options.json.write_text(json.dumps({**facts, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
