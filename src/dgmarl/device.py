"""What differs between a CPU and an accelerator."""

import os
from contextlib import suppress
from importlib.util import find_spec

import jax

from dgmarl.errors import UsageError

PLUGINS = ("jax_cuda13_plugin", "jax_cuda12_plugin")


def launch_bound() -> bool:
    """Whether it is the number of operations that costs time, rather than the arithmetic in them:
    on an accelerator."""
    return jax.default_backend() != "cpu"


def unroll() -> int:
    """How many trips of a short loop to compile as one.

    Every trip costs an accelerator a launch, whatever it computes: an iteration of ten seeds on an
    H200 takes 2.2 ms with 5 and 3.1 ms with 1, for 17 s instead of 13 s of compilation. A CPU gains
    nothing."""
    return 5 if launch_bound() else 1


def keep_loops_on_gpu() -> None:
    """Let a GPU decide by itself whether a loop goes on, instead of asking the host before each
    trip.

    SMAClite's step is made of small loops of unknown length. 4,096 battles of MMM2 take 159 ms a
    step when the host decides and 10 ms when the H200 does; where all loops are of known length, as
    with the other environments, it costs 1 to 18 %. The compiler reads this setting once, before
    the first computation: later calls come too late and change nothing."""
    if any(find_spec(plugin) for plugin in PLUGINS) and "command_buffer" not in os.environ.get(
        "XLA_FLAGS", ""
    ):
        os.environ["XLA_FLAGS"] = (
            f"{os.environ.get('XLA_FLAGS', '')} --xla_gpu_enable_command_buffer=+WHILE,+CONDITIONAL".strip()
        )


def use_all_cores() -> None:
    """Let every core of a CPU be a device of its own, so that seeds spread over them (see
    `devices_for`).

    On two cores ten seeds of foraging train a sixth faster so than vmapped on one device. Like the
    above it must come before the first computation."""
    if getattr(jax.config, "jax_num_cpu_devices", 0) > 0 or "device_count" in os.environ.get(
        "XLA_FLAGS", ""
    ):
        return  # somebody else has decided
    n_cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    with suppress(RuntimeError):  # too late
        jax.config.update("jax_num_cpu_devices", n_cores)


def devices_for(n_seeds: int) -> int:
    """Over how many devices seeds spread evenly."""
    return max(n for n in range(1, jax.local_device_count() + 1) if n_seeds % n == 0)


DETERMINISTIC = "--xla_gpu_deterministic_ops=true"


def require_determinism() -> None:
    """Ask for bit-identical runs on a GPU, or refuse: the compiler reads its flag once, at JAX's
    first computation. A CPU needs no flag."""
    flags = os.environ.get("XLA_FLAGS", "")
    if DETERMINISTIC in flags:
        return
    if not _backend_is_initialised():
        os.environ["XLA_FLAGS"] = f"{flags} {DETERMINISTIC}".strip()
    elif launch_bound():
        raise UsageError(
            "deterministic is set, but JAX has already computed something in this process without "
            f"it: set XLA_FLAGS={DETERMINISTIC} before, or train first."
        )


def _backend_is_initialised() -> bool:
    from jax._src import xla_bridge

    return xla_bridge.backends_are_initialized()
