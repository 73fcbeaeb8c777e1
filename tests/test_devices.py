"""Seeds that are spread over devices: the same runs as on one device."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from dgmarl.config.presets import resolve
from dgmarl.training import train
from tests.tiny import GIFT, SMALL

UNSCALED = SMALL | {"learner.standardise_reward": False}
CONFIGS = [
    resolve(GIFT, f"ippo-{credit}", UNSCALED, seeds=2, steps=100) for credit in ("local", "dg")
]
SCRIPT = """
import sys
from pathlib import Path
import jax
import numpy as np
from dgmarl.device import use_all_cores
from dgmarl.sweeps.batched import train_lanes
from dgmarl.runs.folder import RunFolder
from dgmarl.runs.recorder import Recorder
from dgmarl.training import train
from tests.test_devices import CONFIGS

use_all_cores()
folder = Path(sys.argv[1])
assert jax.local_device_count() == 2, "the environment variable counts, not the machine's cores"
whole = train(CONFIGS[1])
assert len(whole.state.step.sharding.device_set) == 2
cut = Recorder(CONFIGS[1], RunFolder(folder))
cut.on_progress = lambda progress: setattr(cut, "interrupted", True)
assert train(CONFIGS[1], cut).interrupted
resumed = train(CONFIGS[1], Recorder(CONFIGS[1], RunFolder(folder)), resume=True)
np.testing.assert_array_equal(resumed.returns, whole.returns)
lanes = train_lanes([Recorder(config) for config in CONFIGS])
np.savez(folder / "found", whole=whole.metrics["value_loss"], lane=lanes[1].metrics["value_loss"], steps=whole.steps)
"""


def test_seeds_spread_over_devices_are_those_of_one_device(tmp_path):
    environment = os.environ | {
        "JAX_NUM_CPU_DEVICES": "2",
        "PYTHONPATH": str(Path(__file__).parents[1]),
    }
    command = [sys.executable, "-c", SCRIPT, str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found, here = np.load(tmp_path / "found.npz"), train(CONFIGS[1])
    np.testing.assert_array_equal(found["steps"], here.steps)
    for name in ("whole", "lane"):
        np.testing.assert_allclose(found[name], here.metrics["value_loss"], atol=1e-4)
