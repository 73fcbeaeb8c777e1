"""dgmarl beside other libraries, on the same work in the same call.

    python benchmarks/bench.py           # two cores: results/benchmarks/bench-cpu.{json,md,svg}
    python benchmarks/bench.py --gpu     # bench-gpu.*; only peers that can be imported here
    python benchmarks/bench.py --check   # a few rows again; exit status 1 if one is slower
    python benchmarks/bench.py --only 'training.*jaxmarl' --jaxmarl-checkout DIR

Peers are installed with pip into environments of their own (`.bench/`). Rows that were measured at
this commit are not measured again, unless --fresh. JaxMARL's training scripts are not in its
package: --jaxmarl-checkout names a clone of its repository."""

import argparse
import json
import os
import re
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from common import HERE, RESULTS, Program, Rows, options_of, ours, peer, plural, say
from report import compare, plot, publish, show_check, write_markdown
from timing import Found

CAPTION = "Median and spread of each row; dgmarl is blue"
FORAGING, SPREAD, BATTLE = "lbf/10x10-3p-3f", "MPE_simple_spread_v3", "3s5z_vs_3s6z"
BATCHES = {False: (1, 64, 1024), True: (16_384, 131_072, 1_048_576)}
BATTLES = {False: (1, 64, 1024), True: (16_384,)}
"""Environments side by side, on a CPU and on a GPU."""
SETTINGS = {
    "n_envs": 256,
    "length": 26,
    "hidden": 64,
    "epochs": 4,
    "minibatches": 4,
    "learning_rate": 5e-4,
    "entropy": 0.01,
    "max_grad_norm": 10.0,
}
"""Of training, for all libraries; 26 steps are an episode."""
TRAINED_STEPS, GOAL, PEER_LIMIT_S = 399_360, -65.0, 45
RULES = (
    ("ippo-local", "self"),
    ("ippo-global", "self"),
    ("ippo-dg", "oracle"),
    ("ippo-dg", "interventional"),
    ("ippo-dg", "learned"),
    ("ippo-khop", "interventional"),
    ("ippo-difference", "self"),
    ("ippo-prd", "self"),
    ("mappo-local", "self"),
    ("mappo-coma", "self"),
    ("mappo-gpae", "self"),
    ("qmix", "self"),
)
GPU_RULES = (
    ("ippo-local", "self"),
    ("ippo-dg", "oracle"),
    ("ippo-dg", "learned"),
    ("qmix", "self"),
)
CREDIT = {
    False: ((10, 50, 3, 2), (10, 50, 25, 2), (10, 150, 25, 2), (1, 50, 1000, 8)),
    True: ((10, 150, 25, 2), (1, 50, 1000, 8), (1, 50, 10_000, 8)),
}
"""Batch, steps, agents and other agents that one reaches, on a CPU and on a GPU."""
CHECKED = re.compile(
    r"foraging.* dgmarl, 1,024|spread.* dgmarl, 1,024|battle.* dgmarl, 64"
    r"|(ippo-local|ippo-dg learned), 1 seed|25 agents, 150 steps: graph_gae"
)


class Row(NamedTuple):
    """One line of the table."""

    section: str
    task: str
    program: str
    size: str
    job: Found
    note: str = ""

    @property
    def key(self) -> str:
        """What names it."""
        return f"{self.section}: {self.task}: {self.program}, {self.size}"


def environments(gpu: bool) -> Iterator[Row]:
    """Random play."""
    section, sizes = "environments", {"size": 10, "players": 3, "foods": 3}
    tasks = ("foraging, 10x10-3p-3f", "spread, 3 agents", "battle, 3s5z against 3s6z")
    another = "another game: landmarks on a circle, no collisions, noise on rewards"
    simpler = "SMAX is another game: units are pushed apart, SMAClite's avoid one another (ORCA)"
    for n in BATCHES[gpu]:
        size, play = plural(n, "environment"), {"kind": "play", "batch": n}
        yield Row(section, tasks[0], "dgmarl", size, {**play, "env": FORAGING})
        yield Row(section, tasks[0], "jumanji", size, {**play, **sizes})
        yield Row(section, tasks[1], "dgmarl", size, {**play, "env": "star-spread/3"}, another)
        yield Row(section, tasks[1], "jaxmarl", size, {**play, "env": SPREAD})
    for n in BATTLES[gpu]:
        size, play = plural(n, "environment"), {"kind": "play", "batch": n}
        yield Row(section, tasks[2], "dgmarl", size, {**play, "env": f"smaclite/{BATTLE}"})
        yield Row(section, tasks[2], "jaxmarl", size, {**play, "env": BATTLE}, simpler)
    if gpu:
        job = {"kind": "play", "batch": 16_384, "env": "smaclite/MMM2"}
        yield Row(section, "battle, MMM2", "dgmarl", plural(16_384, "environment"), job)
    else:
        one = plural(1, "environment")
        env = {"kind": "play", "env": "Foraging-10x10-3p-3f-v3"}
        yield Row(section, tasks[0], "lbforaging", one, env)
        yield Row(section, tasks[1], "mpe2", one, {"kind": "play", "n_agents": 3})
        yield Row(section, tasks[2], "smaclite", one, {"kind": "play", "env": BATTLE})


def training(gpu: bool) -> Iterator[Row]:
    """Whole runs in simple spread."""
    run = {"settings": SETTINGS, "steps": TRAINED_STEPS, "goal": GOAL}
    own = {"kind": "learn", "env": f"jaxmarl:{SPREAD}", **run}
    vmas = "in VMAS's simple spread, the same rewards; one run, stopped after 45 s"
    for seeds in (1, 64) if gpu else (1,):
        size = plural(seeds, "seed")
        job = {**own, "method": "ippo-local", "seeds": seeds}
        yield Row("training", "IPPO, simple spread", "dgmarl", size, job)
        job = {"kind": "train", "env": SPREAD, "seeds": seeds, **run}
        yield Row("training", "IPPO, simple spread", "jaxmarl", size, job)
    job = {**own, "method": "mappo-local", "seeds": 1}
    yield Row("training", "MAPPO, simple spread", "dgmarl", "1 seed", job)
    if gpu:
        return
    for name in ("ippo", "mappo"):
        job = {"kind": "train", "algorithm": name, **run, "limit_s": PEER_LIMIT_S}
        task = f"{name.upper()}, simple spread"
        yield Row("training", task, "benchmarl", "1 seed", job, vmas)


def credit(gpu: bool) -> Iterator[Row]:
    """Graph advantages alone, and what credit rules cost a training iteration."""
    for batch, n_steps, n_agents, degree in CREDIT[gpu]:
        sizes = {"batch": batch, "n_steps": n_steps, "n_agents": n_agents, "degree": degree}
        task = f"advantages, {n_agents:,} agents, {n_steps} steps"
        loops = () if n_agents > 100 else ("compiled loop", "numpy loop")[: 1 if gpu else 2]
        for how in ("graph_gae", *loops):
            job = {"kind": "credit", **sizes, "how": how}
            yield Row("credit", task, how, f"batch {batch}", job)
    for seeds in (1, 10, 64) if gpu else (1,):
        size = plural(seeds, "seed")
        for method, graph in GPU_RULES if gpu else RULES:
            job = {"kind": "train", "env": FORAGING, "method": method, "graph": graph}
            name = method if graph == "self" else f"{method} {graph}"
            yield Row("rules", "training, foraging 10x10-3p-3f", name, size, job | {"seeds": seeds})
    if gpu:
        job = {"kind": "train", "env": "smaclite/MMM2", "method": "mappo-global", "preset": "fast"}
        task = "training, SMAClite MMM2"
        yield Row("rules", task, "mappo-global", plural(10, "seed"), job | {"seeds": 10})


def program_of(row: Row) -> str:
    """The program that measures a row, and on a GPU the process: battles need a flag of XLA that
    costs others speed."""
    if row.section in ("credit", "rules") or row.program == "dgmarl":
        return "battles" if "smaclite" in json.dumps(row.job) else "dgmarl"
    return row.program


def called(name: str, gpu: bool) -> Program | str:
    """The program of that name, or why there is none."""
    if name in ("dgmarl", "battles"):
        return ours()
    if name == "smaclite":
        return "not on PyPI"
    if gpu:
        installed = find_spec(name) is not None
        here = Program(sys.executable, HERE / "peers" / f"{name}_peer.py")
        return here if installed else f"{name} is not installed on this machine"
    try:
        return peer(name)
    except RuntimeError as error:
        return str(error)


def measure(wanted: list[Row], rows: Rows, options: argparse.Namespace) -> None:
    """Measure what is not there yet, program by program."""
    left = [row for row in wanted if options.fresh or not rows.done(row.key)]
    say(f"{len(wanted)} rows, {len(wanted) - len(left)} of this commit already measured")
    for name, group in groupby(sorted(left, key=program_of), program_of):
        mine, program = list(group), called(name, options.gpu)
        if isinstance(program, str):
            results: Any = ({"error": program} for _ in mine)
        else:
            results = program([row.job for row in mine], options.compile_workers)
        for row, found in zip(mine, results, strict=True):
            value = found.get("error") or f"{found['value']:,.4g} per second"
            say(f"{row.key}: {value}")
            rows.add(row.key, {**row._asdict(), **found})


def main() -> int:
    parser = options_of(__doc__)
    parser.add_argument("--check", action="store_true", help="compare with the stored rows")
    parser.add_argument("--jaxmarl-checkout", type=Path, help="a clone of JaxMARL's repository")
    options = parser.parse_args()
    if options.jaxmarl_checkout:  # not in the jobs: no path of this machine in the results
        os.environ["JAXMARL_CHECKOUT"] = str(options.jaxmarl_checkout.resolve())
    every = [
        *environments(options.gpu),
        *training(options.gpu),
        *credit(options.gpu),
    ]
    wanted = [row for row in every if re.search(options.only, row.key)]
    path = options.out / f"bench-{'gpu' if options.gpu else 'cpu'}.json"
    if options.check:
        return check([row for row in wanted if CHECKED.search(row.key)], path, options)
    rows = Rows(path)
    if not options.draw:
        measure(wanted, rows, options)
    rows.order([row.key for row in every])
    write_markdown(path)
    publish(path, options.out == RESULTS, plot, CAPTION)
    return 0


def check(wanted: list[Row], path: Path, options: argparse.Namespace) -> int:
    """Some rows again, as ratios to the calibration; 1 if one is slower than the stored. A row that
    seems slower is measured up to three times: other work may have come between."""
    now = Rows(path.with_name("bench-check.tmp"))
    stored, verdicts = json.loads(path.read_text())["rows"], {}
    for _ in range(3):
        now.found = {}
        measure(wanted, now, options)
        verdicts |= {found.key: found for found in compare(stored, list(now.found.values()))}
        wanted = [row for row in wanted if verdicts[row.key].slower]
        if not wanted:
            break
    show_check(list(verdicts.values()))
    now.path.unlink()
    return int(bool(wanted))


if __name__ == "__main__":
    sys.exit(main())
