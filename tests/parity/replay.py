"""Replay recordings of the original code and compare: `python tests/parity/replay.py
lbf|smaclite|star-spread|gae FILE...`.

Each recorded state is injected, the recorded action taken, and everything that follows compared.
The last line is `<n> transitions, <m> mismatches`; the exit code is 1 if anything differs, 2 if a
file cannot be read. A step that differs for a reason that was proved (SMAClite only, see
`explain_smaclite.py`) is printed with it and counted in the line before the last."""

import importlib
import os
import platform
import sys
import zipfile
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
KINDS = {
    "lbf": ("replay_lbf", "transitions"),
    "smaclite": ("replay_smaclite", "transitions"),
    "star-spread": ("replay_star_spread", "transitions"),
    "gae": ("replay_gae", "cases"),
}


def forbid_fused_multiply_add() -> None:
    """Compile without it, like the originals: SMAClite's discs rest in exact contact, where the
    last bit counts. Takes effect before the first computation of the process."""
    if platform.machine() in ("x86_64", "AMD64"):
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_max_isa=AVX"


def read(path: Path) -> dict[str, np.ndarray]:
    """All arrays of a recording; never executes anything stored in it."""
    with np.load(path, allow_pickle=False) as recording:
        return {name: recording[name] for name in recording.files}


def main(arguments: list[str]) -> int:
    if len(arguments) < 2 or arguments[0] not in KINDS:
        print(
            f"usage: python tests/parity/replay.py {{{'|'.join(KINDS)}}} FILE...", file=sys.stderr
        )
        return 2
    module, unit = KINDS[arguments[0]]
    replay = importlib.import_module(module).replay
    total, mismatches, ties = 0, 0, 0
    for path in map(Path, arguments[1:]):
        try:
            recording = read(path)
            count, differences, *rest = replay(recording)
        except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
            print(
                (
                    f"{path}: not a readable {arguments[0]} recording ({type(error).__name__}: "
                    f"{error})"
                ),
                file=sys.stderr,
            )
            return 2
        print(f"{path.name}: {count} {unit}, {len(differences)} mismatches")
        for difference in differences[:5]:
            print(f"  {difference}")
        explained = [line for lines in rest for line in lines]
        for line in explained:
            print(f"  explained: {line}")
        total, mismatches, ties = (
            total + count,
            mismatches + len(differences),
            ties + len(explained),
        )
    if ties:
        print(f"{ties} explained, {ties / total:.2%} of all {unit}")
    print(f"{total} {unit}, {mismatches} mismatches")
    return 1 if mismatches else 0


if __name__ == "__main__":
    forbid_fused_multiply_add()
    sys.exit(main(sys.argv[1:]))
