"""A model of what training costs, fitted to measured times, with the errors of the fit, and what it
says about larger work.

    python benchmarks/cost_model.py results/benchmarks/scaling-h200.json

`growth.py` writes such files; those named `scaling` have the same measurements in an older form."""

import json
import math
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import nnls

RESULTS = Path(__file__).resolve().parents[1] / "results"
COSTS, TRAINING = RESULTS / "costs.json", RESULTS / "benchmarks" / "train-h200.json"
SWEEP_RUNS, RUN_STEPS, BATCHED = 10_000, 1_000_000, 64
GPUS = (1, 8, 64)
GPU_GIB = 139


class Fit(NamedTuple):
    """A sum of terms with coefficients that are not negative, fitted by relative error."""

    terms: tuple[str, ...]
    coefficients: np.ndarray
    errors: np.ndarray

    def __call__(self, values: list[float]) -> float:
        """The value of the model for the values of its terms."""
        return float(self.coefficients @ np.array(values, float))

    def __str__(self) -> str:
        pairs = zip(self.coefficients, self.terms, strict=True)
        shown = [f"{c:.3g}{' ' + term if term else ''}" for c, term in pairs if c > 0]
        errors = np.abs(self.errors)
        return (
            f"{' + '.join(shown)}  ({len(errors)} programs; relative error "
            f"{np.median(errors):.0%} in the median, {errors.max():.0%} at most)"
        )


def fit(terms: tuple[str, ...], values: list[list[float]], found: list[float]) -> Fit:
    """Least squares of model / found - 1."""
    x, y = np.array(values, float), np.array(found, float)
    coefficients, _ = nnls(x / y[:, None], np.ones(len(y)))
    return Fit(terms, coefficients, x @ coefficients / y - 1)


def of_agents(n: int) -> list[float]:
    return [1, n, n**2]


def measured(rows: list[dict[str, Any]], **wanted: Any) -> list[dict[str, Any]]:
    """The rows that ran, with these values."""
    return [
        row
        for row in rows
        if "iteration_ms" in row and all(row[name] == value for name, value in wanted.items())
    ]


def rows_of(found: dict[str, Any]) -> list[dict[str, Any]]:
    """The training rows of a file, in the form of the older ones."""

    def in_old_form(row: dict[str, Any]) -> dict[str, Any]:
        job = row["job"]
        sizes = {"seeds": job.get("seeds", 1), "n_envs": job["overrides"]["n_envs"]}
        graph = "none" if job["method"] == "ippo-local" else job["graph"]
        time = {"iteration_ms": 1e3 * row["steps_per_iteration"] / row["value"]}
        return {**row, **sizes, **time, "graph": graph, "steps_per_s": row["value"]}

    trained = (row for row in found["rows"] if row.get("job", {}).get("kind") == "train")
    new = [in_old_form(row) for row in trained if "error" not in row]
    return new or found["rows"]


def seeds_of_training(path: Path) -> list[dict[str, Any]]:
    """The rows of `ippo-dg oracle` in a file of `train.py`: 10 environments per seed, whose
    untrained policies use all 50 steps of an episode."""
    rows = json.loads(path.read_text())["rows"]
    own = [(row["seeds"], row["steps_per_s"]) for row in rows if row["method"] == "ippo-dg oracle"]
    return [{"seeds": n, "n_envs": 10, "iteration_ms": 5e5 * n / speed} for n, speed in own]


def report(paths: list[Path]) -> None:
    """Print the model of each file; projections from that of a GPU. On a CPU, time is that of all
    threads where a file has it: the wall clock of a busy machine says little."""
    for path in paths:
        found = json.loads(path.read_text())
        rows = rows_of(found)
        on_cpu = not found.get("gpu") and found.get("device", "cpu") == "cpu"
        compiled = [row["compile_s"] for row in rows if "compile_s" in row]
        print(f"\n{path.name}: {found.get('gpu') or found.get('device') or found['cpu']}")
        of_threads = on_cpu and "cpu_ms" in rows[0]
        models = fit_models(rows, "cpu_ms" if of_threads else "iteration_ms", not on_cpu)
        print(
            f"compiling: {np.median(compiled):.0f} s in the median, {max(compiled):.0f} s at most, "
            f"{found.get('compile_workers', 1)} programs at a time"
        )
        if of_threads:
            tell_of_devices(rows)
        elif not on_cpu:
            project(rows, models, float(np.median(compiled)))


def fit_models(rows: list[dict[str, Any]], time: str, with_training: bool) -> dict[str, Fit]:
    """Milliseconds of an iteration, and memory, by what they depend on."""
    foraging = measured(rows, axis="seeds") + measured(rows, axis="environments")
    foraging += seeds_of_training(TRAINING) if with_training else []
    values = [[1, row["seeds"] * row["n_envs"]] for row in foraging]
    model = fit(("", "seeds*environments"), values, [row[time] for row in foraging])
    print(f"foraging, ms per iteration: {model}")
    models = {"foraging": model}
    for graph in sorted({row["graph"] for row in measured(rows, axis="agents")}):
        mine = measured(rows, axis="agents", graph=graph)
        values = [of_agents(row["agents"]) for row in mine]
        for name, unit in ((time, "ms per iteration"), ("memory_mib", "MiB")):
            model = fit(("", "N", "N^2"), values, [row[name] for row in mine])
            models[f"{graph} {unit}"] = model
            print(f"star-spread with N agents, graph {graph}, {unit}: {model}")
    return models


def tell_of_devices(rows: list[dict[str, Any]]) -> None:
    """How much more all devices compute together than one, for the same work."""
    for one in measured(rows, axis="devices", devices=1):
        size = {"seeds": one["seeds"], "n_envs": one["n_envs"]}
        more = [
            f"{row['devices']}: {row['cpu_ms'] / one['cpu_ms']:.2f}"
            for row in measured(rows, axis="devices", **size)
        ]
        print(
            f"CPU time relative to one device, {one['seeds']} seeds of {one['n_envs']} "
            f"environments on {', '.join(more)}"
        )


def project(rows: list[dict[str, Any]], models: dict[str, Fit], compile_s: float) -> None:
    """The paper's grid, a large sweep and a run of 1,000 agents."""
    costs = [cost for cost in json.loads(COSTS.read_text()) if "NVIDIA" in cost["device"]]
    total, longest = (f(cost["seconds"] for cost in costs) for f in (sum, max))
    runs = sum(cost["cells"] for cost in costs)
    spread = ", ".join(f"{n}: {total / n / 60:.1f}" for n in GPUS)
    print(f"paper's grid, {runs} runs, {total:,} s on one GPU ({COSTS.name}); minutes on {spread}")
    print(f"  not less than its longest run; the longest command took {longest / 60:.0f} minutes")
    seconds = compile_s + RUN_STEPS / 500 * models["foraging"]([1, BATCHED * 10]) / 1e3
    hours = math.ceil(SWEEP_RUNS / BATCHED) * seconds / 3600
    spread = ", ".join(f"{n}: {hours / n:.2f}" for n in GPUS)
    print(
        f"{SWEEP_RUNS:,} foraging runs of one seed and {RUN_STEPS:,} steps, {BATCHED} in a "
        f"program of {seconds:.0f} s; hours on {spread}"
    )
    for row in measured(rows, axis="agents", agents=1000):
        minutes = RUN_STEPS / row["steps_per_s"] / 60
        print(
            f"1,000 agents, graph {row['graph']}, measured: {row['iteration_ms']:,.0f} ms per "
            f"iteration, {row['memory_mib'] / 1024:.0f} GiB; {minutes:.0f} minutes for "
            f"{RUN_STEPS:,} steps"
        )
        memory = models[f"{row['graph']} MiB"]
        most = max(n for n in range(1, 10_000) if memory(of_agents(n)) < GPU_GIB * 1024)
        print(f"  {GPU_GIB} GiB are full at about {most:,} agents, or with fewer in more seeds")


if __name__ == "__main__":
    report([Path(name) for name in sys.argv[1:]])
