"""One finished run for all tests of run folders: windows, a recurrent policy, random graphs,
running statistics."""

from pathlib import Path
from typing import NamedTuple

import pytest

from dgmarl import api
from dgmarl.config.resolve import resolve
from dgmarl.config.schema import TrainConfig
from dgmarl.runs.callbacks import TrainResult
from tests.tiny import GIFT, WINDOWS


class Finished(NamedTuple):
    config: TrainConfig
    path: Path
    result: TrainResult


@pytest.fixture(scope="session")
def finished(tmp_path_factory) -> Finished:
    path = tmp_path_factory.mktemp("runs") / "finished"
    config = resolve(GIFT, "ippo-dg", WINDOWS, seeds=2, steps=800, graph="random:0.5")
    return Finished(config, path, api.train_config(config, path, checkpoint_seconds=0))
