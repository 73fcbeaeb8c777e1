"""`python -m dgmarl.paper NAME ...`: equivalent to `dgmarl grid NAME ...`, for machines without
tyro or with the package only on PYTHONPATH."""

import argparse
import sys
from pathlib import Path
from typing import Any

from dgmarl.cli.guard import guarded
from dgmarl.config.yaml import convert
from dgmarl.paper.grids import GRIDS
from dgmarl.paper.training_plan import train_grid
from dgmarl.sweeps.plan import Resources


def main(arguments: list[str] | None = None) -> int:
    """Train a grid; returns the exit code."""
    return guarded(lambda _: _train(**vars(_parser().parse_args(arguments))))


def _train(apart: bool, **options: Any) -> int:
    for name in ("seeds", "steps", "workers", "batched"):
        options[name] = convert(options[name], int | None, f"--{name}")
    used = {name: options.pop(name) for name in ("workers", "batched")}
    train_grid(**options, resources=Resources(**used, apart=apart))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m dgmarl.paper", description=__doc__)
    parser.add_argument("name", metavar="NAME", help=f"one of {', '.join(GRIDS)}")
    parser.add_argument("--out", type=Path, default=Path("results"), help="folder of the results")
    parser.add_argument("--seeds", help="seeds per run; default: the grid's")
    parser.add_argument("--steps", help="environment steps per seed; default: the grid's")
    parser.add_argument("--workers", default=1, help="concurrent programs")
    parser.add_argument("--batched", default=Resources().batched, help="runs in one program")
    parser.add_argument("--only", default="", help="regular expression on SCENARIO__METHOD")
    parser.add_argument("--runs", type=Path, dest="folders", help="folder of run folders")
    parser.add_argument("--apart", action="store_true", help="each program in its own process")
    parser.add_argument("--list", action="store_true", dest="only_list", help="only list the runs")
    return parser


if __name__ == "__main__":
    sys.exit(main())
