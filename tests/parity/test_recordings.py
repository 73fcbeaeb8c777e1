"""Foraging, Star-Spread and the advantage estimators against recordings of the originals: the
excerpts in `tests/data/golden`, and the full recordings where they are beside the checkout."""

import importlib
from pathlib import Path

import numpy as np
import pytest
from replay import KINDS, read

from tests.conftest import EXCERPTS, FULL_RECORDINGS

PATTERNS = {"lbf": "lbf_*.npz", "star-spread": "star_spread_*.npz", "gae": "gae.npz"}
FORGERIES = {
    ("star-spread", "pos"): (1, 20, 2),
    ("star-spread", "rewards"): (1, 20, 2),
    ("star-spread", "obs"): (1, 20, 2),
    ("star-spread", "oracle_graph"): (0, 1),
    ("lbf", "player_pos"): (1, 5, 0),
    ("lbf", "rewards"): (1, 5, 0),
    ("lbf", "obs"): (1, 5, 0),
    ("gae", "case1_rewards"): (0, 3, 1),
    ("gae", "case7_adv_graph_noise0_f32"): (0, 3, 1),
}
"""Kind and array -> the place at which it is falsified."""


def recordings() -> list:
    return [
        pytest.param(kind, path, id=f"{path.stem}-{name}", marks=marks)
        for kind, pattern in PATTERNS.items()
        for name, folder, marks in (
            ("excerpt", EXCERPTS, ()),
            ("full", FULL_RECORDINGS, pytest.mark.slow),
        )
        for path in sorted(folder.glob(pattern))
    ]


def replayed(kind: str, recording: dict[str, np.ndarray]) -> tuple[int, list[str]]:
    return importlib.import_module(KINDS[kind][0]).replay(recording)


def test_every_kind_of_recording_is_part_of_the_repository():
    for pattern in (*PATTERNS.values(), "smaclite_*.npz"):
        assert list(EXCERPTS.glob(pattern)), pattern


@pytest.mark.parametrize(("kind", "path"), recordings())
def test_a_recording_is_reproduced(kind: str, path: Path):
    count, differences = replayed(kind, read(path))
    assert count >= (4 if kind == "gae" else 200)
    assert differences == []


@pytest.mark.parametrize(("kind", "array"), FORGERIES)
def test_a_falsified_recording_is_noticed(kind, array):
    path = min(EXCERPTS.glob(PATTERNS[kind]), key=lambda path: path.stat().st_size)
    recording = read(path)
    falsified = recording[array].copy()
    falsified[FORGERIES[kind, array]] += 1
    assert replayed(kind, recording | {array: falsified})[1]
