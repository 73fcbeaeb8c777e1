"""The numbers of one evaluation, as logged by trackers."""

from collections.abc import Iterator

from dgmarl.runs.callbacks import Progress


def scalars(progress: Progress) -> Iterator[tuple[int, dict[str, float]]]:
    """Environment steps and numbers by name, for each seed."""
    for k, steps in enumerate(progress.steps):
        returns = progress.returns[k]
        yield (
            int(steps),
            {
                "evaluation/return_mean": float(returns.mean()),
                "evaluation/return_std": float(returns.std()),
                **{f"train/{name}": float(value[k]) for name, value in progress.metrics.items()},
                "time/seconds": progress.seconds,
                "time/steps_per_s": progress.steps_per_s,
            },
        )
