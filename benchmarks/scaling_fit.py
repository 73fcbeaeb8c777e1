"""The cost model: fitted to what `scaling.py` measured, with the errors of the fit, and what it
says about larger work."""

import json
import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import nnls

COSTS = Path(__file__).resolve().parents[1] / "results" / "costs.json"
SWEEP_RUNS, RUN_STEPS, BATCHED = 10_000, 1_000_000, 64
GPUS = (1, 8, 64)


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


def sizes(row: dict[str, Any]) -> list[float]:
    """1, seeds and environments of all seeds, on the busiest device."""
    seeds, envs = row["mesh"]
    return [1, row["seeds"] / seeds, row["seeds"] * row["n_envs"] / (seeds * envs)]


def of_agents(n: int) -> list[float]:
    return [1, n, n**2]


def measured(rows: list[dict[str, Any]], **wanted: Any) -> list[dict[str, Any]]:
    """The rows that ran, with these values."""
    return [
        row
        for row in rows
        if "iteration_ms" in row and all(row[name] == value for name, value in wanted.items())
    ]


def report(paths: list[Path]) -> None:
    """Print the model of each file; projections from those of a GPU."""
    for path in paths:
        found = json.loads(path.read_text())
        print(f"\n{path}: {found['device']}, {found['machine']}, jax {found['jax']}")
        models = fit_models(found["rows"])
        tell_of_devices(found["rows"])
        compiled = [row["compile_s"] for row in found["rows"] if "compile_s" in row]
        print(
            f"compiling: {np.median(compiled):.0f} s in the median, {max(compiled):.0f} s at most, "
            f"{found['compile_workers']} programs at a time"
        )
        if found["device"] != "cpu":
            project(found["rows"], models, float(np.median(compiled)))


def fit_models(rows: list[dict[str, Any]]) -> dict[str, Fit]:
    """Milliseconds of an iteration, and memory, by what they depend on."""
    models = {}
    foraging = measured(rows, axis="seeds") + measured(rows, axis="environments")
    if foraging:
        terms = ("", "seeds", "seeds*environments")
        times = [row["iteration_ms"] for row in foraging]
        models["foraging"] = fit(terms, [sizes(row) for row in foraging], times)
        print(f"foraging, ms per iteration on a device: {models['foraging']}")
    for graph in sorted({row["graph"] for row in rows if row["axis"] == "agents"}):
        mine = measured(rows, axis="agents", graph=graph)
        values = [of_agents(row["agents"]) for row in mine]
        for name, unit in (("iteration_ms", "ms per iteration"), ("memory_mib", "MiB")):
            model = fit(("", "N", "N^2"), values, [row[name] for row in mine])
            models[f"{graph} {name}"] = model
            print(f"star-spread with N agents, graph {graph}, {unit}: {model}")
        for row in rows:
            if row["axis"] == "agents" and row["graph"] == graph and "error" in row:
                print(f"  {row['agents']} agents: {row['error'][:100]}")
    return models


def tell_of_devices(rows: list[dict[str, Any]]) -> None:
    """Speed-up over one device, for the same work."""
    for one in measured(rows, axis="devices", devices=1):
        size = {"seeds": one["seeds"], "n_envs": one["n_envs"]}
        ups = [
            f"{row['devices']}: {one['iteration_ms'] / row['iteration_ms']:.2f}"
            for row in measured(rows, axis="devices", **size)
        ]
        print(f"speed-up by devices, {one['seeds']} seeds of {one['n_envs']}: {', '.join(ups)}")


def project(rows: list[dict[str, Any]], models: dict[str, Fit], compile_s: float) -> None:
    """The paper's grid, a large sweep and a run of 1,000 agents."""
    costs = [cost for cost in json.loads(COSTS.read_text()) if "NVIDIA" in cost["device"]]
    total, longest = (f(cost["seconds"] for cost in costs) for f in (sum, max))
    runs = sum(cost["cells"] for cost in costs)
    spread = ", ".join(f"{n}: {total / n / 60:.1f}" for n in GPUS)
    print(f"paper's grid, {runs} runs, {total:,} s on one GPU ({COSTS.name}); minutes on {spread}")
    print(f"  not less than its longest run; the longest command took {longest / 60:.0f} minutes")
    alone = measured(rows, axis="seeds", seeds=1)[0]
    iterations = RUN_STEPS / (alone["steps_per_s"] * alone["iteration_ms"] / 1e3)
    seconds = compile_s + iterations * models["foraging"]([1, BATCHED, BATCHED * 10]) / 1e3
    hours = math.ceil(SWEEP_RUNS / BATCHED) * seconds / 3600
    spread = ", ".join(f"{n}: {hours / n:.1f}" for n in GPUS)
    print(
        f"{SWEEP_RUNS:,} foraging runs of one seed and {RUN_STEPS:,} steps, {BATCHED} in a "
        f"program of {seconds:.0f} s; hours on {spread}"
    )
    for graph in ("oracle", "self"):
        if f"{graph} iteration_ms" in models:
            ms = models[f"{graph} iteration_ms"](of_agents(1000))
            gib = models[f"{graph} memory_mib"](of_agents(1000)) / 1024
            hours = RUN_STEPS / 500 * ms / 3.6e6
            print(
                f"1,000 agents, graph {graph}: {ms:,.0f} ms per iteration of 500 steps, "
                f"{gib:.0f} GiB; {hours:.1f} hours for {RUN_STEPS:,} steps"
            )
