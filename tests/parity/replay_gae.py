"""Recorded advantages of the original code against `dgmarl.gae` and `dgmarl.graph_gae`.

The original graph version sums at most 100 steps ahead; ours has no such cap, so longer windows are
cut into one window of 100 steps per start before they are compared."""

import json

import numpy as np

from dgmarl.credit.gae import gae
from dgmarl.credit.graph_gae import graph_gae

TOLERANCE = 1e-5
CAP = 100


def replay(recording: dict[str, np.ndarray]) -> tuple[int, list[str]]:
    """How many cases were compared, and a line for each recorded array that differs."""
    meta = json.loads(str(recording["meta_json"]))
    cases = sorted(name[: -len("_rewards")] for name in recording if name.endswith("_rewards"))
    differences = [
        line
        for case in cases
        for line in _compare(recording, case, meta["gamma"], meta["gae_lambda"])
    ]
    return len(cases), differences


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
