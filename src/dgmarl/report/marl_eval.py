"""Read and write the marl-eval JSON format:

environment -> task -> algorithm -> run -> {step_1: {step_count, return: [one value per episode, or
their mean]}, ..., absolute_metrics: {return: [...]}}. In that format the absolute metric is a
longer evaluation of the best policy; we write the last evaluation, as selecting the best is biased.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from dgmarl.errors import UsageError
from dgmarl.files import is_number, to_json, write_atomic
from dgmarl.report.results import Result, read_json, read_steps

METRIC = "return"
ABSOLUTE = "absolute_metrics"


def write_marl_eval(results: Iterable[Result], path: Path) -> Path:
    """Write results, with environments and tasks in lower case, as marl-eval expects."""
    found: dict[str, Any] = {}
    for result in results:
        episodes = result.facts.get("episode_returns")
        values = result.returns[..., None] if episodes is None else np.asarray(episodes, float)
        names = result.facts.get("seeds", range(len(values)))
        task = found.setdefault(result.benchmark.lower(), {}).setdefault(
            result.scenario.lower(), {}
        )
        task[result.method] = {
            f"seed_{name}": _run(steps, curve)
            for name, steps, curve in zip(names, result.steps, values, strict=True)
        }
    return write_atomic(path, to_json(found, indent=1) + "\n")


def read_marl_eval(path: Path) -> list[Result]:
    """Read results; all runs of an algorithm must have the same number of evaluations."""
    content = read_json(path)
    try:
        return [
            _result(environment, task, algorithm, runs)
            for environment, tasks in content.items()
            for task, algorithms in tasks.items()
            for algorithm, runs in algorithms.items()
        ]
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise UsageError(
            f"{path} is not in the marl-eval format ({reason}): it needs environment, task, "
            f"algorithm, run, step_1 with step_count and {METRIC}."
        ) from None


def _run(steps: np.ndarray, curve: np.ndarray) -> dict[str, Any]:
    logged = {
        f"step_{k + 1}": {"step_count": int(step), METRIC: values.tolist()}
        for k, (step, values) in enumerate(zip(steps, curve, strict=True))
    }
    return {**logged, ABSOLUTE: {METRIC: curve[-1].tolist()}}


def _result(environment: str, task: str, algorithm: str, runs: dict[str, Any]) -> Result:
    logged = [[values for name, values in run.items() if name != ABSOLUTE] for run in runs.values()]
    counts = sorted({len(steps) for steps in logged})
    if len(counts) != 1 or counts == [0]:
        raise ValueError(f"runs of {algorithm} in {task} have {counts} evaluations")
    steps = read_steps([[step["step_count"] for step in run] for run in logged], "step_count")
    returns = np.array([[_mean(step[METRIC]) for step in run] for run in logged])
    env = f"{environment}/{task}"
    return Result(
        environment,
        task,
        algorithm,
        env,
        steps,
        returns,
        {"config": {"env": env}, "seeds": list(runs)},
    )


def _mean(values: Any) -> float:
    """Mean of one value per episode, or of the mean alone."""
    listed = values if isinstance(values, list) else [values]
    if not listed or not all(map(is_number, listed)):
        raise ValueError(f"{METRIC} is {str(values)[:40]}, not a list of finite numbers")
    return float(np.mean(listed))
