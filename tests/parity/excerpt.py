"""Cut the small recordings in `tests/data/golden` out of the full ones:
`python tests/parity/excerpt.py FOLDER_OF_FULL_RECORDINGS`.

An excerpt has the format of a full recording: the same arrays, with fewer episodes, fewer steps of
an episode, or fewer cases. Nothing in it is recomputed."""

import sys
from pathlib import Path

import numpy as np
from replay import read

TARGET = Path(__file__).resolve().parents[1] / "data" / "golden"
# Recording -> episodes kept. Small boards, with and without cooperation, winner-take-all, partial
# sight and the loading penalty; the last one has four players, hence ties and joint loads.
EPISODES = {
    "lbf_Custom-Foraging-8x8-2p-4f-coop-v3": 10,
    "lbf_Foraging-2s-8x8-2p-2f-coop-v3": 10,
    "lbf_Foraging-8x8-3p-3f-v3_penalty0.1": 20,
    "lbf_Custom-Foraging-10x10-4p-4f-v3": 10,
    "star_spread_n3": 4,
    "star_spread_n5": 4,
}
# Battle -> {episode: steps kept}. A whole lost battle with healers, a whole won one behind walls,
# in which the enemies were created first. Single ticks are recorded of episode 0 only, and kept of
# as many of its steps as `TICKED_STEPS` says.
BATTLES = {"MMM": {3: 36}, "corridor": {0: 6, 4: 38}}
TICKED_STEPS = {"corridor": 4}
# Small cases, and the one that is longer than the cap of the original.
GAE_CASES = (0, 1, 2, 7)
# Arrays without an axis of episodes.
STATIC = ("landmarks", "oracle_graph", "step_sizes")


def first_episodes(recording: dict[str, np.ndarray], n_episodes: int) -> dict[str, np.ndarray]:
    return {
        name: array[:n_episodes] if array.ndim and name not in STATIC else array
        for name, array in recording.items()
    }


def cut_battle(recording: dict[str, np.ndarray], scenario: str) -> dict[str, np.ndarray]:
    steps, ticked_steps = BATTLES[scenario], TICKED_STEPS.get(scenario, 0)
    episodes, kept = list(steps), np.array(list(steps.values()))
    total, longest = recording["actions"].shape[:2]
    cut = {}
    for name, array in recording.items():
        if name.startswith("sub0_"):
            if not ticked_steps:
                continue
            array = array[:ticked_steps]
        elif array.ndim and len(array) == total:
            array = array[episodes]
            if array.ndim > 1 and array.shape[1] in (longest, longest + 1):
                array = array[:, : kept.max() + array.shape[1] - longest]
        cut[name] = array
    return cut | {"length": kept.astype(recording["length"].dtype)}


def cut_cases(recording: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    prefixes = tuple(f"case{case}_" for case in GAE_CASES)
    return {
        name: array
        for name, array in recording.items()
        if name.startswith(prefixes) or name == "meta_json"
    }


def main(source: Path) -> None:
    TARGET.mkdir(parents=True, exist_ok=True)
    excerpts = {
        name: first_episodes(read(source / f"{name}.npz"), kept) for name, kept in EPISODES.items()
    }
    for scenario in BATTLES:
        name = f"smaclite_{scenario}"
        excerpts[name] = cut_battle(read(source / f"{name}.npz"), scenario)
    excerpts["gae"] = cut_cases(read(source / "gae.npz"))
    for name, arrays in excerpts.items():
        np.savez_compressed(TARGET / f"{name}.npz", **arrays)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
