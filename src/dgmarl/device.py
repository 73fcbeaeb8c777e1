"""Settings that depend on the backend, and the division of a run among devices."""

import os
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import ContextVar
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, PartitionSpec, get_abstract_mesh
from jaxtyping import Array

from dgmarl.errors import UsageError

_loops_kept = ContextVar("loops_kept", default=False)
_in_kernel = ContextVar("in_kernel", default=False)
_one_core_each = ContextVar("one_core_each", default=False)
USED_MEMORY = 0.9
"""Share of a GPU's memory that its processes may use together."""


def launch_bound() -> bool:
    """Whether kernel launches rather than arithmetic dominate the run time (accelerators)."""
    return jax.default_backend() != "cpu"


def has_kernels() -> bool:
    """Whether the code being traced can use this library's GPU kernels: on NVIDIA GPUs from Ampere
    on, with undivided environments (the compiler cannot divide a kernel)."""
    if jax.default_backend() != "gpu" or envs_divided() or compute_capability() < 8:
        return False
    try:
        from jax.experimental.pallas import triton  # noqa: F401
    except ImportError:  # this JAX has no Triton kernels
        return False
    return True


def in_kernel() -> bool:
    """Whether the body of a GPU kernel is being traced, where loops cost no launches, and gathers
    and indexing are not possible."""
    return _in_kernel.get()


def inside_kernel() -> AbstractContextManager[None]:
    """Context in which `in_kernel` is true."""
    return _set(_in_kernel, True)


def compute_capability() -> float:
    """Compute capability of an NVIDIA GPU; 0 for other devices."""
    given = str(getattr(jax.local_devices()[0], "compute_capability", ""))
    return float(given) if given.replace(".", "").isdecimal() else 0.0


def unroll(at_most: int = 5) -> int:
    """The `unroll` argument of scans over time.

    On an accelerator every loop iteration costs kernel launches: on an H200, a training iteration
    of ten seeds takes 2.2 ms with 5 and 3.1 ms with 1, compilation 17 s and 13 s. A CPU gains
    nothing."""
    return at_most if launch_bound() and not _loops_kept.get() else 1


def loops_kept(kept: bool) -> AbstractContextManager[None]:
    """Context in which `unroll` is 1 if `kept`, for environments whose step has loops: unrolling
    saves few of their kernel launches and nearly doubles the program to compile."""
    return _set(_loops_kept, kept)


@contextmanager
def _set(variable: ContextVar[bool], value: bool) -> Iterator[None]:
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


def keep_loops_on_gpu() -> None:
    """Let XLA evaluate loop conditions on the GPU instead of on the host.

    A SMAClite step consists of small loops of data-dependent length. 4,096 battles of MMM2 take
    159 ms per step with conditions on the host and 10 ms with conditions on the H200. For the other
    environments, whose loops have fixed length, the flag costs 1 to 18 %. XLA reads it once, before
    the first computation; later calls have no effect."""
    has_cuda = any(find_spec(plugin) for plugin in ("jax_cuda13_plugin", "jax_cuda12_plugin"))
    if has_cuda and "command_buffer" not in os.environ.get("XLA_FLAGS", ""):
        flag = "--xla_gpu_enable_command_buffer=+WHILE,+CONDITIONAL"
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {flag}".strip()


def use_all_cores() -> None:
    """Make every CPU core a JAX device, so that seeds are distributed over them (`devices_for`).

    On two cores, ten seeds of LBF train a sixth faster than with `vmap` on one device. Must be
    called before the first computation."""
    if getattr(jax.config, "jax_num_cpu_devices", 0) > 0 or "device_count" in os.environ.get(
        "XLA_FLAGS", ""
    ):
        return  # set by the user
    with suppress(RuntimeError):  # the backend is already initialised
        jax.config.update("jax_num_cpu_devices", count_cores())


def count_cores() -> int:
    """CPU cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cores_per_device() -> int:
    """CPU cores for each device of the program being traced."""
    if _one_core_each.get():
        return 1
    return max(1, count_cores() // max(1, get_abstract_mesh().size))


def one_core_each() -> AbstractContextManager[None]:
    """Context in which `cores_per_device` is 1, for programs that must not depend on the number of
    devices and cores."""
    return _set(_one_core_each, True)


def shares(n_processes: int) -> list[dict[str, str]]:
    """Environment variables that divide this machine among processes: each gets its share of the
    cores as JAX devices and, if there are several GPUs, one of them, round-robin."""
    cores = _cpu_devices(max(1, count_cores() // n_processes))
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    present = [str(k) for k, _ in enumerate(Path("/dev").glob("nvidia[0-9]*"))]
    gpus = present if visible is None else [name for name in visible.split(",") if name]
    if len(gpus) < 2:
        return [cores] * n_processes
    return [{**cores, "CUDA_VISIBLE_DEVICES": gpus[k % len(gpus)]} for k in range(n_processes)]


_only_one = False


def use_one_device() -> None:
    """Use one device for all seeds from now on: Python callbacks from several CPU devices can
    deadlock."""
    global _only_one
    _only_one = True


def task_share(cpus: int, gpus: float) -> dict[str, str]:
    """Environment variables for a Ray task with this many cores and GPUs. Ray chooses the GPUs, but
    does not hide them from a task without any, and does not divide the memory of a shared one."""
    share = _cpu_devices(cpus)
    if not gpus:
        share["JAX_PLATFORMS"] = "cpu"
    elif gpus < 1:
        share["XLA_PYTHON_CLIENT_MEM_FRACTION"] = f"{USED_MEMORY * gpus:.3f}"
    return share


def _cpu_devices(n_cores: int) -> dict[str, str]:
    cores = {"JAX_NUM_CPU_DEVICES": str(n_cores)}
    set_by_user = cores.keys() & os.environ.keys() or "device_count" in os.environ.get(
        "XLA_FLAGS", ""
    )
    return {} if set_by_user else cores


def devices_for(n_seeds: int) -> int:
    """The largest number of local devices that divides `n_seeds`, or 1 after `use_one_device`."""
    if _only_one:
        return 1
    return max(n for n in range(1, jax.local_device_count() + 1) if n_seeds % n == 0)


Devices = int | str | None
"""Number of devices, `all`, or None for the default of `mesh_for`."""


def mesh_for(n_seeds: int, n_envs: int = 1, devices: Devices = None) -> Mesh:
    """The devices of a run as a mesh of seeds x environments.

    devices: number or `all`; default: as many of this process as divide the seeds, or all devices
      of all processes if several train together."""
    n_processes = jax.process_count()
    if devices is None and n_processes == 1:
        shape = (devices_for(n_seeds), 1)
    else:
        n_devices = _count_devices("all" if devices is None else devices)
        shape = divide(n_seeds, n_envs, n_devices, n_processes)
        if (used := shape[0] * shape[1]) < n_devices:
            warnings.warn(
                f"{used} of {n_devices} devices are used, {shape[0]} for seeds x {shape[1]} for "
                "environments: this run cannot be divided evenly among more.",
                stacklevel=3,
            )
    per_process = shape[0] * shape[1] // n_processes
    chosen = [
        device
        for process in range(n_processes)
        for device in jax.local_devices(process)[:per_process]
    ]
    return Mesh(np.array(chosen).reshape(shape), ("seeds", "envs"))


def divide(n_seeds: int, n_envs: int, n_devices: int, n_processes: int = 1) -> tuple[int, int]:
    """Numbers of devices among which seeds, and the environments of each seed, are divided: as many
    in total as divide them evenly, the same number in every process. Seeds are divided first,
    because they do not communicate."""
    pairs = [
        (s, e)
        for s in range(1, n_devices + 1)
        for e in range(1, n_devices // s + 1)
        if n_seeds % s == 0 and n_envs % e == 0 and s * e % n_processes == 0
    ]
    if not pairs:
        raise UsageError(
            f"{n_seeds} seeds of {n_envs} environments cannot be divided among {n_processes} "
            "processes: choose seeds or n_envs as a multiple of their number."
        )
    return max(pairs, key=lambda pair: (pair[0] * pair[1], pair[0]))


def _count_devices(devices: int | str) -> int:
    available = jax.device_count()
    if devices == "all":
        return available
    if not str(devices).isdecimal() or not 1 <= int(devices) <= available:
        raise UsageError(
            f"devices is {devices}, but must be `all` or from 1 to {available}, the number of JAX "
            f"devices here ({jax.default_backend()}); JAX_NUM_CPU_DEVICES sets that of a CPU."
        )
    return int(devices)


def over_envs(tree: Any, axis: int = 0) -> Any:
    """Divide the environment axis of arrays among the devices of the mesh in use
    (`seeds.for_seeds`). Arrays that cannot be divided evenly are replicated."""
    spec = PartitionSpec(*[None] * axis, "envs")

    def mark(leaf: Array) -> Array:
        even = leaf.shape[axis] % get_abstract_mesh().shape["envs"] == 0
        return jax.lax.with_sharding_constraint(leaf, spec) if even else leaf

    return jax.tree.map(mark, tree) if envs_divided() else tree


def envs_divided() -> bool:
    """Whether the code being traced has its environments divided among several devices."""
    return get_abstract_mesh().shape.get("envs", 1) > 1


DETERMINISTIC = "--xla_gpu_deterministic_ops=true"


def require_determinism() -> None:
    """Request bit-identical runs on a GPU; an error if it is too late, because XLA reads its flags
    at JAX's first computation. A CPU needs no flag."""
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
