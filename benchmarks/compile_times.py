"""Seconds that runs of the paper on SMAClite take to compile, per map and method.

    python benchmarks/compile_times.py                        # results/benchmarks/compile-cpu.*
    python benchmarks/compile_times.py --gpu --compile-workers 4
    python benchmarks/compile_times.py --only 'learned'

Of runs with five seeds, without a compile cache: from a traced program to one that runs, for the
iteration, the evaluation of the policy and that of the graph together. Nothing is trained."""

import json
import re
import sys
from pathlib import Path

from common import NO_CACHE, SHARED_GPU, Rows, machine, options_of, ours, say, table
from timing import Found

MAPS = ("MMM", "MMM2", "corridor", "bane_vs_bane", "25m_vs_30m", "3s5z_vs_3s6z")
RUNS = (
    ("mappo-local", "self", "fast"),
    ("mappo-dg", "oracle", "fast"),
    ("mappo-dg", "interventional", "fast"),
    ("mappo-dg", "learned", "fast"),
    ("qmix", "self", "tuned"),
    ("qplex", "self", "tuned"),
)
SEEDS = 5


def label(method: str, graph: str) -> str:
    return method if graph == "self" else f"{method} {graph}"


def write_markdown(path: Path) -> None:
    """A line per map, a column per method."""
    found = json.loads(path.read_text())
    columns = [label(method, graph) for method, graph, _ in RUNS]
    cells = {
        (row["map"], row["run"]): row.get("error") or f"{row['compile_s']:.0f}"
        for row in found["rows"]
    }
    lines = [[name, *(cells.get((name, run), "") for run in columns)] for name in MAPS]
    workers = found["rows"][0]["compile_workers"]
    beside = f" {workers} runs at a time." if workers > 1 else ""
    text = [f"# Seconds to compile, {path.stem.removeprefix('compile-')}\n"]
    text += [f"{machine(found)}{beside}\n", table(["map", *columns], lines)]
    path.with_suffix(".md").write_text("\n".join(text))


def jobs() -> dict[str, Found]:
    """What is compiled, by name."""
    return {
        f"{name}: {label(method, graph)}": {
            "kind": "compile",
            "env": f"smaclite/{name}",
            "method": method,
            "graph": graph,
            "preset": preset,
            "seeds": SEEDS,
        }
        for method, graph, preset in RUNS
        for name in MAPS
    }


def main() -> int:
    options = options_of(__doc__).parse_args()
    path = options.out / f"compile-{'gpu' if options.gpu else 'cpu'}.json"
    rows, workers, every = Rows(path), max(options.compile_workers, 1), jobs()
    left = [] if options.draw else [key for key in every if re.search(options.only, key)]
    left = [key for key in left if options.fresh or not rows.done(key)]
    compiled = ours().prepared([every[key] for key in left], workers, NO_CACHE | SHARED_GPU)
    for key, found in zip(left, compiled, strict=True):
        name, _, run = key.partition(": ")
        rows.add(key, {"map": name, "run": run, "compile_workers": workers, **found})
        say(f"{key}: {found.get('error') or round(found['compile_s'], 1)}")
    if rows.found:
        write_markdown(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
