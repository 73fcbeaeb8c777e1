"""Run a grid of cells and publish one small file per cell: `python -m dgmarl.paper.grids
star-spread --out results`.

A cell is one configuration with all its seeds. A finished cell has its file and is skipped; with
`--runs`, one that was cut off goes on where it stopped. Cells of equal shape run as lanes of one
program; several programs are worked on at once, because compiling uses one core and no accelerator.
With `--apart` each has a process of its own: a GPU runs one program of a process at a time, but
under CUDA's multi-process service several processes' at once."""

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from rich.console import Console
from rich.progress import Progress, TimeElapsedColumn

from dgmarl.config.presets import MIXERS, PPO_METHODS, Preset, TrainConfig, resolve
from dgmarl.config.yaml import plain
from dgmarl.device import use_all_cores
from dgmarl.files import write_atomic
from dgmarl.runs.folder import RunFolder, code_version
from dgmarl.runs.recorder import Recorder, TrainResult
from dgmarl.sweeps.batched import shape, train_all

PUBLISHED_METRICS = (
    "graph_density",
    "graph_ratio",
    "graph_f1_oracle",
    "graph_precision_oracle",
    "graph_recall_oracle",
    "graph_f1_interventional",
    "entropy",
    "value_loss",
    "advantage_std",
    "cross_weight",
    "final_battle_won",
)


BACKBONES, CREDITS = ("ippo", "mappo"), ("local", "global")


@dataclass(frozen=True, eq=False)
class Cell:
    """One configuration of a grid."""

    benchmark: str
    """Folder below `results/`."""
    scenario: str
    """First part of the file name."""
    method: str
    """Second part of the file name: the method, with the graph where it is not the usual one."""
    config: TrainConfig

    def path(self, out: Path) -> Path:
        """Where its result goes."""
        return out / self.benchmark / f"{self.scenario}__{self.method}.json"


def star_spread(
    seeds: int = 10, steps: int = 1_000_000, sizes: Iterable[int] = (5, 10, 20, 50)
) -> list[Cell]:
    """The paper's sweep over the number of agents: IPPO and MAPPO with local, global and
    oracle-graph credit."""
    return [
        Cell(
            "star-spread",
            f"n{n}",
            method,
            resolve(f"star-spread/{n}", method, seeds=seeds, steps=steps),
        )
        for n in sizes
        for method in PPO_METHODS
    ]


LBF = (
    "15x15-4p-3f",
    "15x15-3p-4f",
    "10x10-3p-3f",
    "8x8-2p-4f-coop",
    "10x10-2p-3f-coop",
    "15x15-3p-4f-coop",
)
"""The paper's six foraging scenarios."""
RANDOM = tuple(f"random:{p}" for p in (0.1, 0.3, 0.5, 0.7, 0.9))


def lbf(seeds: int = 10, steps: int = 5_000_000) -> list[Cell]:
    """The paper's foraging result and its random-graph figure, and beside them the learned graph as
    we tuned it."""
    options: dict[str, Any] = {"seeds": seeds, "steps": steps}
    cells = [
        _foraging(scenario, f"{name}-{credit}", **options)
        for scenario in LBF
        for name in BACKBONES
        for credit in CREDITS
    ]
    for scenario in LBF:
        for preset in ("paper", "tuned"):
            cells += [
                _foraging(scenario, f"{name}-dg", "learned", preset, **options)
                for name in BACKBONES
            ]
        cells += [
            _foraging(scenario, "mappo-dg", graph, **options) for graph in ("oracle", *RANDOM)
        ]
    return cells


def lbf_oracle(seeds: int = 10, steps: int = 5_000_000) -> list[Cell]:
    """Where local reward fails and where global reward is slow: IPPO with local, global and
    oracle-graph credit."""
    credits = (("ippo-local", ""), ("ippo-global", ""), ("ippo-dg", "oracle"))
    scenarios = ("8x8-2p-4f-coop", "15x15-3p-4f")
    return [
        _foraging(scenario, *credit, seeds=seeds, steps=steps)
        for scenario in scenarios
        for credit in credits
    ]


def _named(
    family: str,
    overrides: dict[str, Any],
    scenario: str,
    method: str,
    graph: str = "",
    preset: Preset = "paper",
    **options: Any,
) -> Cell:
    """A cell that is named for its method and graph, and for its preset if that is not the
    paper's."""
    name = "-".join(
        filter(None, (method, graph.replace(":", ""), "" if preset == "paper" else preset))
    )
    config = resolve(
        f"{family}/{scenario}", method, overrides, preset, graph=graph or "oracle", **options
    )
    return Cell(family, scenario, name, config)


_foraging = partial(_named, "lbf", {})
# A hundred battles of an evaluation cost as much as ten iterations.
_battle = partial(_named, "smaclite", {"evaluation.interval": 100_000})


CREDIT_LEVERS: tuple[dict[str, Any], ...] = (
    {"learner.edge_strength": 0.5},
    {"learner.edge_strength": 0.2},
    {"learner.fade": 0.9},
    {"learner.fade": 0.5},
    {"learner.share_parameters": False},
    {"learner.critic": "own-state"},
)
"""One change of the credit with a given graph each: soft edges, influence that fades, a critic (and
policy) per agent, and one that sees only what belongs to the agent."""
MODEL_LEVERS: tuple[dict[str, Any], ...] = (
    {"graph_model.gradient_steps": 4},
    {"graph_model.gradient_steps": 4, "graph_model.replay": 8},
    {"graph_model.warm_up": 500},
    {"graph_model.mask_unavailable": True},
    {"graph_model.condition_on_action": True},
    {"graph_model.encoder": False},
    {"graph_model.multi_head": True},
    {"graph_model.keep": 0.3, "graph_model.keep_of": "state"},
    {"graph_model.keep": 0.3, "graph_model.keep_of": "agent"},
)
"""One change of the learned graph's models each."""


def lbf_levers(seeds: int = 5, steps: int = 3_000_000) -> list[Cell]:
    """What might help a graph where local reward learns faster (15x15-3p-4f), and must not hurt
    where it fails (8x8)."""
    levers: list[tuple[str, dict[str, Any]]] = [("local", {}), ("global", {})]
    betas = (1.0, 0.5, 0.3, 0.2, 0.1)
    levers += [("oracle", _weights(weighted, beta)) for weighted in (True, False) for beta in betas]
    levers += [
        ("oracle", {"learner.weighted": weighted, "learner.adapt_cross_weight": True})
        for weighted in (True, False)
    ]
    plain_weights = [_weights(False, beta) for beta in (1.0, 0.3)]
    levers += [("oracle", {**weights, "learner.form": "return"}) for weights in plain_weights]
    levers += [
        ("oracle", {**weights, "learner.normalise_advantage": True}) for weights in plain_weights
    ]
    levers += [("interventional", weights) for weights in plain_weights]
    for model in ({}, {"graph_model.sees": "local_state"}, {"graph_model.encoding": 8}):
        for threshold in (0.9, 0.7):
            for weights in ({}, _weights(False, 0.3), _weights(False, 0.2)):
                levers += [("learned", {"graph_model.threshold": threshold, **model, **weights})]
    of_scenario = {"15x15-3p-4f": steps, "8x8-2p-4f-coop": steps * 2 // 3}
    return [
        _lever("lbf-levers", scenario, *lever, seeds, steps)
        for scenario, steps in of_scenario.items()
        for lever in levers
    ]


def lbf_models(seeds: int = 3, steps: int = 500_000) -> list[Cell]:
    """What single options of credit and of the graph's models do to the graph and to early
    learning: short runs.

    And longer, whether two who never earn alone (10x10-2p-3f-coop) find each other when others'
    rewards count less."""
    levers: list[tuple[str, dict[str, Any]]] = [
        ("oracle", {}),
        *(("oracle", change) for change in CREDIT_LEVERS),
    ]
    levers += [("learned", {}), *(("learned", change) for change in MODEL_LEVERS)]
    of_scenario = {"8x8-2p-4f-coop": steps, "15x15-3p-4f": steps * 2}
    cells = [("10x10-2p-3f-coop", "learned", {"learner.cross_weight": 0.3}, seeds, steps * 4)]
    cells += [
        (scenario, *lever, seeds, steps)
        for scenario, steps in of_scenario.items()
        for lever in levers
    ]
    return [_lever("lbf-models", *cell, "tuned") for cell in cells]


def _weights(weighted: bool, beta: float) -> dict[str, Any]:
    return {"learner.weighted": weighted, "learner.cross_weight": beta}


def _lever(
    benchmark: str,
    scenario: str,
    graph: str,
    overrides: dict[str, Any],
    seeds: int,
    steps: int,
    preset: Preset = "paper",
) -> Cell:
    """A cell whose name says what it changes."""
    is_graph = graph not in ("local", "global")
    method = "ippo-dg" if is_graph else f"ippo-{graph}"
    changes = [f"{name.rpartition('.')[2]}={value}" for name, value in overrides.items()]
    name = (
        "-".join([method, *([graph] if is_graph else []), *changes])
        .replace("True", "on")
        .replace("False", "off")
    )
    options = {"seeds": seeds, "steps": steps, "graph": graph if is_graph else "oracle"}
    return Cell(
        benchmark, scenario, name, resolve(f"lbf/{scenario}", method, overrides, preset, **options)
    )


def lbf_values(seeds: int = 10, steps: int = 5_000_000) -> list[Cell]:
    """The paper's value-based baselines on its six scenarios, IQL with local and QMIX with global
    reward, and VDN and QPLEX."""
    return [
        Cell("lbf", scenario, method, resolve(f"lbf/{scenario}", method, seeds=seeds, steps=steps))
        for scenario in LBF
        for method in MIXERS
    ]


def smaclite(seeds: int = 5, steps: int = 1_000_000) -> list[Cell]:
    """MMM first, then 3s5z_vs_3s6z: MAPPO with local, global and learned-graph credit as in the
    paper, QMIX with pymarl2's numbers, and MAPPO once more with many environments."""
    options: dict[str, Any] = {"seeds": seeds, "steps": steps}
    credits = (("mappo-local",), ("mappo-global",), ("mappo-dg", "learned"))
    battles = [partial(_battle, scenario, **options) for scenario in ("MMM", "3s5z_vs_3s6z")]
    cells = [battle(*credit) for battle in battles for credit in credits]
    cells += [battle("qmix") for battle in battles]
    return cells + [battle(*credit, preset="fast") for battle in battles for credit in credits]


GRIDS = {
    "star-spread": star_spread,
    "lbf-oracle": lbf_oracle,
    "lbf": lbf,
    "lbf-levers": lbf_levers,
    "lbf-models": lbf_models,
    "lbf-values": lbf_values,
    "smaclite": smaclite,
}


def published(result: TrainResult) -> dict[str, Any]:
    """What is kept of a run: its configuration, the code, and every seed's curve; enough for every
    table and figure."""
    config = result.config
    # Lanes of local and global credit have a graph of self-loops, which is nothing to publish.
    without = ("graph_",) if config.learner.credit != "graph" else ()
    kept = [
        name
        for name in PUBLISHED_METRICS
        if name in result.metrics and not name.startswith(without)
    ]
    extra = {name: _rounded(result.metrics[name], 3) for name in kept}
    return {
        "config": plain(config),
        "code": code_version(),
        "device": result.timing["device"],
        "jax": result.timing["jax"],
        "seeds": list(range(config.seed, config.seed + config.seeds)),
        "episodes_per_evaluation": config.evaluation.episodes,
        "steps": result.steps.tolist(),
        "return_mean": _rounded(result.returns.mean(axis=-1)),
        "return_std": _rounded(result.returns.std(axis=-1)),
        **extra,
    }


def run_grid(
    cells: list[Cell],
    out: Path,
    workers: int = 1,
    lanes: int = 8,
    runs: Path | None = None,
    run: Callable[[dict[Cell, Recorder], Path], str] | None = None,
) -> None:
    """Train every cell that has no result yet, up to `lanes` in a program and `workers` programs at
    a time.

    runs: where cells keep run folders, so that one that was cut off, or that is now wanted for more
      steps, goes on instead of beginning again. run: how to run a program and what to say of it; by
      default in a thread."""
    run = run or _run_program
    waiting = [cell for cell in cells if not cell.path(out).exists()]
    console = Console(stderr=True)
    with (
        Progress(*Progress.get_default_columns(), TimeElapsedColumn(), console=console) as bar,
        ThreadPoolExecutor(workers) as pool,
    ):
        task = bar.add_task("cells", total=len(cells), completed=len(cells) - len(waiting))
        recorders = {cell: Recorder(cell.config, _run_folder(cell, runs)) for cell in waiting}
        # Lanes that go on and lanes that begin would not be evaluated at the same steps.
        parts = [
            [cell for cell in waiting if recorders[cell].has_begun == begun]
            for begun in (True, False)
        ]
        together = [program for part in parts for program in programs(part, lanes)]
        jobs = {
            pool.submit(run, {cell: recorders[cell] for cell in cells}, out): cells
            for cells in together
        }
        try:
            for job in as_completed(jobs):
                bar.update(task, advance=len(jobs[job]))
                console.print(job.result())
        except (
            KeyboardInterrupt
        ):  # what runs stops after its next evaluation, the rest is not begun
            for recorder in recorders.values():
                recorder.interrupted = True
            pool.shutdown(cancel_futures=True)
            raise


def programs(cells: Iterable[Cell], lanes: int) -> list[list[Cell]]:
    """Cells of equal shape together, at most `lanes` of them."""
    groups: dict[str, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(shape(cell.config), []).append(cell)
    return [group[k : k + lanes] for group in groups.values() for k in range(0, len(group), lanes)]


def _run_folder(cell: Cell, runs: Path | None) -> RunFolder | None:
    return RunFolder(cell.path(runs).with_suffix("")) if runs else None


def _run_program(recorders: dict[Cell, Recorder], out: Path) -> str:
    lines = []
    for cell, result in zip(recorders, train_all(list(recorders.values())), strict=True):
        if result.interrupted:
            continue
        write_atomic(cell.path(out), json.dumps(published(result)) + "\n")
        final = result.returns[:, -1].mean(axis=-1)
        seconds = f"{result.timing['compile_s']:.0f} s compiling, {result.timing['train_s']:.0f} s training"
        lines.append(f"{cell.path(out)}: return {final.mean():.3f} ± {final.std():.3f}, {seconds}")
    return "\n".join(lines)


def _run_apart(arguments: list[str], recorders: dict[Cell, Recorder], out: Path) -> str:
    """The same in a process of its own, called with these arguments."""
    names = "|".join(re.escape(f"{cell.scenario}__{cell.method}") for cell in recorders)
    command = [
        sys.executable,
        "-m",
        "dgmarl.paper.grids",
        *arguments,
        "--only",
        f"^({names})$",
        "--workers",
        "1",
    ]
    began = time.perf_counter()
    # By default every process would take most of the GPU's memory for itself.
    done = subprocess.run(
        command,
        env={"XLA_PYTHON_CLIENT_PREALLOCATE": "false", **os.environ},
        capture_output=True,
        text=True,
    )
    missing = [cell.method for cell in recorders if not cell.path(out).exists()]
    if done.returncode or missing:
        raise RuntimeError(
            f"{' '.join(command)} left {', '.join(missing) or 'nothing'} "
            f"undone:\n{done.stderr[-2000:]}"
        )
    return f"{', '.join(str(cell.path(out)) for cell in recorders)}: {time.perf_counter() - began:.0f} s"


def _rounded(values: np.ndarray, digits: int = 5) -> list[list[float]]:
    return [[float(f"{value:.{digits}g}") for value in row] for row in values]


def main() -> None:
    """Command line of this module."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("grid", choices=GRIDS)
    parser.add_argument("--out", type=Path, default=Path("results"))
    parser.add_argument(
        "--seeds", type=int, help="default: the grid's own, 10 where it is published"
    )
    parser.add_argument(
        "--steps", type=float, help="environment steps per seed; default: the paper's"
    )
    parser.add_argument("--workers", type=int, default=4, help="programs at a time")
    parser.add_argument("--lanes", type=int, default=8, help="cells of equal shape in one program")
    parser.add_argument(
        "--only", default="", help="only cells whose SCENARIO__METHOD this regular expression finds"
    )
    parser.add_argument(
        "--runs", type=Path, help="also keep run folders here: a cell that was cut off goes on"
    )
    parser.add_argument(
        "--apart",
        action="store_true",
        help="each program in its own process: under CUDA MPS they then share a GPU",
    )
    options = parser.parse_args()
    if options.apart:  # this process only waits: it must not take a place on the GPU
        jax.config.update("jax_platforms", "cpu")
    use_all_cores()
    given = {"seeds": options.seeds, "steps": options.steps and int(options.steps)}
    cells = GRIDS[options.grid](
        **{name: value for name, value in given.items() if value is not None}
    )
    chosen = [cell for cell in cells if re.search(options.only, f"{cell.scenario}__{cell.method}")]
    own = {
        "--out": options.out,
        "--lanes": options.lanes,
        **{f"--{name}": value for name, value in given.items()},
    }
    passed = [
        str(part)
        for name, value in {**own, "--runs": options.runs}.items()
        if value is not None
        for part in (name, value)
    ]
    run = partial(_run_apart, [options.grid, *passed]) if options.apart else None
    run_grid(chosen, options.out, options.workers, options.lanes, options.runs, run)


if __name__ == "__main__":
    main()
