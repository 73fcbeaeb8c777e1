"""Runs on several devices and in several processes are those of one device."""

import os
import re
import socket
import subprocess
import sys
import warnings
from pathlib import Path

import jax
import numpy as np
import pytest

from dgmarl import UsageError, api, device, hosts
from tests.preset_runs import ALONE, CREDITS, RUNS, bits, interrupted, numbers
from tests.tiny import GIFT, SMALL

QUICK = ("one: fast ippo-dg fc", "all: fast ippo-dg fc", "credits")
SEPARATE = ("one: separate ippo-dg", "two: separate ippo-dg")
PARTS = ("bits", "steps", "returns")
ALL = tuple(f"{how}: {name}" for name in RUNS for how in ("one", "seeds", "all"))


def start(module: str, *words: object, **variables: str) -> subprocess.Popen:
    """A Python program that sees the tests' package."""
    paths = [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)} | variables
    command = [sys.executable, "-m", module, *map(str, words)]
    out = subprocess.PIPE
    return subprocess.Popen(command, env=environment, stdout=out, stderr=out, text=True)


def on_eight_devices(folder: Path, names: tuple[str, ...], **variables) -> dict[str, np.ndarray]:
    """The runs named, in one process with eight devices: arrays by name."""
    process = start("tests.preset_runs", folder, *names, JAX_NUM_CPU_DEVICES="8", **variables)
    _, errors = process.communicate()
    assert process.returncode == 0, errors
    return dict(np.load(folder / "found.npz"))


@pytest.fixture(scope="module")
def eight(tmp_path_factory):
    """The folder of the quick runs, and what they gave."""
    folder = tmp_path_factory.mktemp("devices")
    return folder, on_eight_devices(folder, QUICK)


@pytest.fixture(scope="module")
def credit_here():
    return api.train_config(CREDITS[1])


def check_same(found, name, other):
    """Equal up to rounding: XLA compiles a program for several devices differently."""
    np.testing.assert_array_equal(found[f"{name} steps"], found[f"{other} steps"])
    for part, tolerance in (("params", 1e-4), ("returns", 1e-3)):
        values = [found[f"{which} {part}"] for which in (name, other)]
        np.testing.assert_allclose(*values, atol=tolerance)


def test_seeds_and_environments_on_eight_devices_are_those_of_one(eight):
    """Rollouts with resets and shuffled minibatches; with memory: the slow test of all runs."""
    _, found = eight
    assert found["available"] == 8
    assert tuple(found["all: fast ippo-dg fc mesh"]) == (2, 4)
    check_same(found, "all: fast ippo-dg fc", "one: fast ippo-dg fc")


def check_identical(found, name, other):
    """All leaves of the final states, bit for bit, and all evaluations."""
    for part in PARTS:
        np.testing.assert_array_equal(found[f"{name} {part}"], found[f"{other} {part}"])


def check_alone(found, name):
    """One of the seeds by itself has the same bits; it may be done before the others."""
    for part in PARTS:
        of_all, alone = found[f"one: {name} {part}"], found[f"alone: {name} {part}"]
        np.testing.assert_array_equal(of_all[ALONE, : alone.shape[1]], alone[0])


def test_two_separate_seeds_are_identical_on_one_device_and_on_one_each(tmp_path):
    """Compiled as for users: without optimisation a loop of one seed, which the compiler writes
    out, is rounded differently."""
    found = on_eight_devices(tmp_path, SEPARATE, XLA_FLAGS="")
    assert tuple(found["two: separate ippo-dg mesh"]) == (2, 1)
    check_identical(found, "two: separate ippo-dg", "one: separate ippo-dg")


@pytest.mark.slow
def test_eight_separate_seeds_are_identical_on_eight_devices(tmp_path):
    """Also with a replay buffer."""
    names = ("separate foraging", "separate qmix")
    hows = ("one", "two", "all", "alone")
    runs = tuple(f"{how}: {name}" for name in names for how in hows)
    found = on_eight_devices(tmp_path, runs, XLA_FLAGS="")
    for name in names:
        assert tuple(found[f"all: {name} mesh"]) == (8, 1)
        for how in ("two", "all"):
            check_identical(found, f"{how}: {name}", f"one: {name}")
        check_alone(found, name)


def test_batched_runs_on_several_devices_are_those_of_one(eight, credit_here):
    """By default as many devices are used as divide the seeds, also with arrays that have no
    elements, such as the memory of a network without one."""
    _, found = eight
    assert tuple(found["default mesh"]) == (2, 1)
    found |= {f"here {part}": array for part, array in numbers(credit_here).items()}
    check_same(found, "batched ippo-dg", "here")


def test_a_run_of_eight_devices_is_resumed_on_one(eight, credit_here):
    folder, found = eight
    assert len(found["stopped steps"][0]) == 1
    resumed = api.resume(folder / "run", devices=1)
    found |= {f"here {part}": array for part, array in numbers(credit_here).items()}
    found |= {f"resumed {part}": array for part, array in numbers(resumed).items()}
    check_same(found, "resumed", "here")


@pytest.mark.slow
def test_every_preset_on_any_devices_is_that_of_one(tmp_path):
    found = on_eight_devices(tmp_path, ALL)
    for name in RUNS:
        for how in ("seeds", "all"):
            check_same(found, f"{how}: {name}", f"one: {name}")
    assert tuple(found["all: one seed mesh"]) == (1, 4)


@pytest.mark.slow
def test_a_resumed_run_is_the_uninterrupted_one(tmp_path, credit_here):
    assert interrupted(CREDITS[1], tmp_path / "run").interrupted
    resumed = api.resume(tmp_path / "run")
    np.testing.assert_array_equal(resumed.returns, credit_here.returns)


def test_seeds_are_divided_first_and_evenly():
    assert device.divide(8, 10, 8) == (8, 1)
    assert device.divide(1, 64, 8) == (1, 8)
    assert device.divide(2, 64, 8) == (2, 4)
    assert device.divide(3, 10, 8) == (3, 2)
    assert device.divide(7, 9, 5) == (1, 3)
    assert device.divide(1, 1, 8) == (1, 1)
    assert device.divide(3, 4, 6, n_processes=2) == (3, 2)
    with pytest.raises(UsageError, match="cannot be divided among 2 processes"):
        device.divide(3, 5, 6, n_processes=2)


def test_devices_that_are_not_there_or_not_used_are_told(monkeypatch):
    for wrong in (0, 2, "some", "-1"):
        with pytest.raises(UsageError, match=f"devices is {wrong}, but must be `all` or from 1"):
            device.mesh_for(1, 1, wrong)
    monkeypatch.setattr(jax, "device_count", lambda: 8)
    with pytest.warns(UserWarning, match="1 of 8 devices are used"):
        device.mesh_for(1, 1, "all")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        device.mesh_for(1, 1, 1)


@pytest.mark.parametrize("wrong", ["", "2/2@a:1", "0/2", "0/2@a", "x/2@a:1"])
def test_a_place_among_processes_that_cannot_be_is_refused(wrong):
    with pytest.raises(UsageError, match=re.escape(f"process is {wrong!r}, but must be I/N@")):
        hosts.join(wrong)


TWO = ["--seeds", "1", "--steps", "40", "--n-envs", "4", "--learner.hidden", "4", "--quiet"]
TWO += ["--evaluation.episodes", "4", "--evaluation.interval", "20"]


def in_two_processes(*words: str) -> list[str]:
    """`dgmarl train` twice, one device each; what each of them said."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    places = [f"{k}/2@{address}" for k in range(2)]
    both = [start("tests.command", "train", *words, "--process", place) for place in places]
    said = [process.communicate(timeout=300) for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    return [out for out, _ in said]


@pytest.mark.slow
def test_two_processes_train_one_run_and_the_first_writes_it(tmp_path):
    first, second = in_two_processes(GIFT, *TWO, "--out", str(tmp_path / "both"))
    assert "after 40 steps" in first
    assert "after 40 steps" not in second
    written = api.load(tmp_path / "both")
    alone = api.train_config(written.config)
    for ours, theirs in zip(*map(jax.tree.leaves, (written.state, alone.state)), strict=True):
        if not jax.dtypes.issubdtype(ours.dtype, jax.dtypes.prng_key):
            np.testing.assert_allclose(ours, theirs, atol=1e-4)


@pytest.mark.slow
def test_separate_seeds_are_identical_in_two_processes(tmp_path):
    words = [*TWO[2:], "--seeds", "2", "--separate-seeds"]
    in_two_processes(GIFT, *words, "--out", str(tmp_path / "both"))
    written = api.load(tmp_path / "both")
    together = api.train_config(written.config)
    np.testing.assert_array_equal(bits(written.state), bits(together.state))


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
