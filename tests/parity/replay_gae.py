"""Recorded advantages of the original code against `dgmarl.gae` and `dgmarl.graph_gae`.

The original graph version sums at most 100 steps ahead; ours has no such cap, so longer windows are
cut into one window of 100 steps per start before they are compared."""

import json
from itertools import count

import numpy as np

from dgmarl.credit.gae import gae
from dgmarl.credit.graph_gae import graph_gae

TOLERANCE = 1e-5
CAP = 100


def replay(recording: dict[str, np.ndarray]) -> tuple[int, list[str]]:
    """How many cases were compared, and a line for each recorded array that differs."""
    meta = json.loads(str(recording["meta_json"]))
    differences, n_cases = [], 0
    for case in count():
        if f"case{case}_rewards" not in recording:
            break
        n_cases += 1
        differences += _compare(recording, f"case{case}", meta["gamma"], meta["gae_lambda"])
    return n_cases, differences


def _compare(
    recording: dict[str, np.ndarray], case: str, gamma: float, lambda_: float
) -> list[str]:
    # Time first; the recorded mask is one value per step, repeated over agents.
    reward, values, mask, graph = (
        np.swapaxes(recording[f"{case}_{name}"], 0, 1)
        for name in ("rewards", "values", "mask", "graph")
    )
    valid = mask[1:, :, 0].astype(bool)
    steps = [reward, values[:-1], values[1:], graph.astype(bool), valid, valid]
    windows = steps if len(reward) <= CAP else [_windows(array) for array in steps]
    constants = {"gamma": gamma, "lambda_": lambda_}
    ours = {
        "adv_gae_f32": gae(steps[0], steps[1], steps[2], valid, valid, **constants),
        "adv_gae_f64": gae(steps[0], steps[1], steps[2], valid, valid, **constants),
        "adv_graph_noise1_f32": graph_gae(*windows, **constants, unreached_weight=1 - lambda_),
        "adv_graph_noise0_f32": graph_gae(*windows, **constants),
    }
    differences = []
    for name, advantage in ours.items():
        theirs = np.swapaxes(recording[f"{case}_{name}"], 0, 1)
        advantage = np.asarray(advantage if advantage.shape == theirs.shape else advantage[0])
        gap = float(np.abs(advantage - theirs).max())
        if not gap <= TOLERANCE * max(1.0, float(np.abs(theirs).max())):
            differences.append(f"{case} {name} differs by {gap:.3g}")
    return differences


def _windows(steps: np.ndarray) -> np.ndarray:
    """[T, B, ...] -> [CAP, T, B, ...]: the CAP steps from each start on, zeros beyond the end."""
    padded = np.concatenate([steps, np.zeros((CAP - 1, *steps.shape[1:]), steps.dtype)])
    return np.stack([padded[lag : lag + len(steps)] for lag in range(CAP)])
