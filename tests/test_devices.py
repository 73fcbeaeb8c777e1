"""Every preset and kind of learner on one and on two devices; seeds spread over devices are those
of one device."""

import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from dgmarl import UsageError, api, device
from tests.preset_runs import CREDITS, RUNS, alone
from tests.tiny import GIFT, SMALL


@pytest.fixture(scope="module")
def two_devices(tmp_path_factory):
    """All runs in one process with two devices: arrays by name, and tracebacks by run."""
    folder = tmp_path_factory.mktemp("devices")
    environment = os.environ | {
        "JAX_NUM_CPU_DEVICES": "2",
        "PYTHONPATH": os.pathsep.join(
            [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
        ),
    }
    command = [sys.executable, "-m", "tests.preset_runs", str(folder)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return np.load(folder / "found.npz"), json.loads((folder / "problems.json").read_text())


def check(returns: np.ndarray, steps: np.ndarray) -> None:
    """Two seeds, at least two evaluations, all steps done."""
    n_seeds, n_evaluations, _ = returns.shape
    assert n_seeds == 2
    assert n_evaluations >= 2
    assert np.isfinite(returns).all()
    assert (steps[:, -1] >= 40).all()
    assert (np.diff(steps, axis=1) > 0).all()


ON_ONE = [
    pytest.param(name, marks=[] if name == "fast ippo-dg gru" else pytest.mark.slow)
    for name in RUNS
]
"""Most other tests train on one device too, so one of these is enough for every day."""


@pytest.mark.parametrize("name", ON_ONE)
def test_a_preset_trains_on_one_device(name):
    result = alone(RUNS[name].config())
    check(result.returns, result.steps)


@pytest.mark.parametrize("name", RUNS)
def test_a_preset_trains_on_two_devices(name, two_devices):
    arrays, problems = two_devices
    assert name not in problems, problems[name]
    check(arrays[f"{name} returns"], arrays[f"{name} steps"])


def test_seeds_spread_over_devices_are_those_of_one_device(two_devices):
    found, here = two_devices[0], alone(CREDITS[1])
    # The environment variable counts, not the machine's cores.
    assert found["available"] == found["devices"] == 2
    np.testing.assert_array_equal(found["steps"], here.steps)
    for name in ("whole", "batched"):
        np.testing.assert_allclose(found[name], here.metrics["value_loss"], atol=1e-4)


def test_a_resumed_run_on_two_devices_is_the_uninterrupted_one(two_devices):
    found = two_devices[0]
    assert found["interrupted"]
    np.testing.assert_array_equal(found["resumed returns"], found["whole returns"])


def test_determinism_is_asked_for_in_time_or_refused(monkeypatch):
    """The compiler reads its flag at the first computation; a CPU needs none."""
    monkeypatch.setenv("XLA_FLAGS", "")
    jax.devices()  # now it is too late for a GPU
    device.require_determinism()
    assert os.environ["XLA_FLAGS"] == ""
    monkeypatch.setattr(device, "launch_bound", lambda: True)
    with pytest.raises(UsageError, match="has already computed something"):
        api.train(GIFT, "ippo-local", deterministic=True, overrides=SMALL, seeds=1, steps=40)
    monkeypatch.setattr(device, "_backend_is_initialised", lambda: False)
    device.require_determinism()
    assert device.DETERMINISTIC in os.environ["XLA_FLAGS"]
    device.require_determinism()
    assert os.environ["XLA_FLAGS"].count(device.DETERMINISTIC) == 1


def test_processes_divide_cores_and_take_gpus_in_turn(monkeypatch):
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    monkeypatch.delenv("JAX_NUM_CPU_DEVICES", raising=False)
    monkeypatch.setattr(device, "count_cores", lambda: 8)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    cores, gpus = "JAX_NUM_CPU_DEVICES", "CUDA_VISIBLE_DEVICES"
    assert device.shares(3) == [{cores: "2", gpus: gpu} for gpu in ("3", "5", "3")]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert device.shares(16) == [{cores: "1"}] * 16
    monkeypatch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=2")
    assert device.shares(2) == [{}, {}]
    assert device.task_share(2, 1) == {}


def test_a_task_of_ray_gets_its_cores_no_gpu_unasked_and_a_part_of_the_memory(monkeypatch):
    monkeypatch.delenv("JAX_NUM_CPU_DEVICES")
    cores = {"JAX_NUM_CPU_DEVICES": "3"}
    assert device.task_share(3, 0) == {**cores, "JAX_PLATFORMS": "cpu"}
    assert device.task_share(3, 0.25) == {**cores, "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.225"}
    assert device.task_share(3, 2) == cores
