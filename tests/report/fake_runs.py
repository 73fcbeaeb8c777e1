"""Run folders written by hand: curves without training."""

import json
from pathlib import Path

import numpy as np

from dgmarl.config.resolve import resolve
from dgmarl.config.yaml import write_yaml

TIMING = {
    "compile_s": 1.0,
    "train_s": 6.0,
    "steps_per_s": 900.0,
    "peak_memory_mib": 1.0,
    "device": "cpu",
    "jax": "0",
}


def rows(seed: int, finals, steps: int) -> list[dict]:
    """A line per evaluation, whose returns rise to the last one."""
    return [
        {
            "seed": seed,
            "evaluation": k,
            "iteration": 2 * (k + 1),
            "step": steps * (k + 1) // len(finals),
            "wall_s": 0.5 * (k + 1),
            "return_mean": float(value),
            "return_std": 0.1,
            "length_mean": 10.0,
            "graph_density": 0.25,
        }
        for k, value in enumerate(finals)
    ]


def write_run(
    path: Path,
    method: str = "ippo-dg",
    env: str = "lbf/8x8-2p-2f",
    finals=(0.2, 0.6),
    cut: int = 0,
    metrics: dict[str, float] | None = None,
    **values,
) -> Path:
    """A folder with one curve of four evaluations per final return; `cut` characters are missing at
    the end. `metrics` are added to each line."""
    config = resolve(env, method, seeds=len(finals), steps=4000, **values)
    curves = [np.linspace(0, final, 4) for final in finals]
    lines = [
        row
        for k in range(4)
        for seed, curve in enumerate(curves)
        for row in [{**rows(config.seed + seed, curve, 4000)[k], **(metrics or {})}]
    ]
    path.mkdir(parents=True)
    write_yaml(path / "config.yaml", config)
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (path / "metrics.jsonl").write_text(text[: len(text) - cut])
    (path / "timing.json").write_text(json.dumps(TIMING))
    return path
