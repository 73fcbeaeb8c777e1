"""`dgmarl doctor`: versions and devices, a self-test, and possible causes of slow training."""

import importlib.metadata
import os
import platform
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dgmarl import __version__

PACKAGES = ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy")
OPTIONAL = {
    "pandas": "frames",
    "tensorboardX": "track",
    "wandb": "track",
    "ray": "ray",
    "cairosvg": "viz",
    "jaxmarl": "adapters",
    "pettingzoo": "adapters",
}
"""Optional packages, and the extra of dgmarl that installs each."""
SECONDS = 1.0
"""Duration of the self-test, without compilation."""
N_ENVS, LENGTH = 100, 50


@dataclass(frozen=True)
class Doctor:
    """Print versions, optional packages and devices, run a short self-test, and list possible
    causes of slow training."""

    def run(self) -> int:
        import jax

        from dgmarl.device import count_cores, use_all_cores

        use_all_cores()
        system = f"{platform.system()} {platform.machine()}, {count_cores()} cores"
        print(f"dgmarl {__version__}, Python {platform.python_version()}, {system}")
        print(", ".join(f"{name} {_version(name)}" for name in PACKAGES))
        found = (
            f"{name} {_version(name) or f'not installed (dgmarl[{extra}])'}"
            for name, extra in OPTIONAL.items()
        )
        print(f"optional: {', '.join(found)}")
        print(f"chromium (for page tests): {'found' if shutil.which('chromium') else 'not found'}")
        print(f"devices: {', '.join(str(device) for device in jax.devices())}")
        compiling, speed = self_test()
        print(
            f"self-test: foraging, {N_ENVS} environments, compiled in {compiling:.1f} s, "
            f"{speed:,.0f} steps/s with random actions"
        )
        reasons = causes(
            backend=jax.default_backend(),
            gpu_present=any(Path("/dev").glob("nvidia[0-9]*")),
            n_devices=jax.local_device_count(),
            n_cores=count_cores(),
            load=os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0,
            settings=os.environ,
        )
        print("\n  ".join(["possible causes of slow training:", *(reasons or ["none found"])]))
        return 0


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def self_test() -> tuple[float, float]:
    """Take random actions for a second; compile seconds and environment steps per second."""
    import jax

    from dgmarl.envs.registry import make_env
    from dgmarl.rollout import act_randomly, collect, reset_envs

    env = make_env("lbf/8x8-2p-2f")

    @jax.jit
    def play(key):
        start = reset_envs(env, key, None, N_ENVS)
        batch = collect(env, act_randomly, start, key, LENGTH, frozenset(), reset=True)[1]
        return batch.reward.sum() + batch.observation.agents_view.sum()

    begin = time.perf_counter()
    play(jax.random.key(0)).block_until_ready()
    compiled = time.perf_counter()
    rounds = 0
    while time.perf_counter() - compiled < SECONDS:
        rounds += 1
        play(jax.random.key(rounds)).block_until_ready()
    speed = rounds * N_ENVS * LENGTH / (time.perf_counter() - compiled)
    return compiled - begin, speed


def causes(
    backend: str,
    gpu_present: bool,
    n_devices: int,
    n_cores: int,
    load: float,
    settings: Mapping[str, str],
) -> list[str]:
    """Possible causes of slow training, each with what to do.

    backend: of JAX: cpu, gpu or tpu. gpu_present: the system has an NVIDIA GPU. load: average over
    one minute. settings: environment variables."""
    on_cpu, busy = backend == "cpu", load > 1.5 * n_cores
    uncached = "JAX_COMPILATION_CACHE_DIR" not in settings
    reasons = [
        (
            on_cpu and gpu_present,
            "JAX does not use the GPU of this machine: `pip install 'dgmarl[cuda]'`, and leave "
            "JAX_PLATFORMS unset",
        ),
        (
            on_cpu and not gpu_present,
            "no accelerator: expect tens of thousands of steps/s; on a GPU many seeds cost little "
            "more than one (docs/performance.md)",
        ),
        (busy, f"{load:.0f} processes compete for {n_cores} cores: wait or stop some"),
        (
            on_cpu and n_devices < n_cores,
            f"JAX uses {n_devices} of {n_cores} cores for seeds: unset JAX_NUM_CPU_DEVICES and "
            "--xla_force_host_platform_device_count",
        ),
        (
            uncached,
            "compiled programs are not cached: `export JAX_COMPILATION_CACHE_DIR=~/.cache/jax`",
        ),
    ]
    for name in ("JAX_DISABLE_JIT", "JAX_DEBUG_NANS", "JAX_ENABLE_X64"):
        is_set = settings.get(name, "0").lower() not in ("", "0", "false")
        reasons.append((is_set, f"{name} is set, which makes programs slower: unset it"))
    return [reason for applies, reason in reasons if applies]
