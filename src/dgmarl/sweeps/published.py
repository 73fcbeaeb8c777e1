"""The published form of a finished run: one JSON file with the curves of every seed."""

from pathlib import Path
from typing import Any

import numpy as np

from dgmarl.config.methods import find_method
from dgmarl.config.yaml import plain
from dgmarl.files import to_json, write_atomic
from dgmarl.runs.callbacks import TrainResult
from dgmarl.runs.folder import code_version

PUBLISHED_METRICS = (
    "graph_density",
    "graph_ratio",
    *(f"graph_{measure}_oracle" for measure in ("f1", "precision", "recall")),
    *(f"graph_{measure}_interventional" for measure in ("f1", "precision", "recall")),
    "entropy",
    "value_loss",
    "advantage_std",
    "cross_weight",
    "final_battle_won",
    "sampled_return",
    "sampled_final_battle_won",
)


def published(result: TrainResult) -> dict[str, Any]:
    """Configuration, code version, and the steps, returns and metrics that tables and figures use,
    per seed and evaluation."""
    config = result.config
    # Local and global credit batched with graph credit report the self-loop graph.
    without = ("graph_",) if not find_method(config.method).uses_graph else ()
    metrics = {
        name: _rounded(result.metrics[name], 3)
        for name in PUBLISHED_METRICS
        if name in result.metrics and not name.startswith(without)
    }
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
        **metrics,
    }


def publish(result: TrainResult, path: Path) -> Path:
    """Write the published form atomically."""
    return write_atomic(path, to_json(published(result)) + "\n")


def _rounded(values: np.ndarray, digits: int = 5) -> list[list[float]]:
    return [[float(f"{value:.{digits}g}") for value in row] for row in values]
