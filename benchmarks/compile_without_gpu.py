"""CPU seconds to compile the programs of a run on SMAClite for an H200, on a machine without one.

    pip install 'jax[cuda12]'
    python benchmarks/compile_without_gpu.py MAP METHOD GRAPH    # MMM mappo-dg learned
    python benchmarks/compile_without_gpu.py MMM mappo-local self

prints one line per program of a run of MAPPO with five seeds and the preset fast. Matrix products
are cuBLAS's and no variants are tried, which need a GPU. The seconds are those of this process,
without the assembler's. Replaces functions inside JAX that ask for a GPU (0.11.2)."""

import os
import re
import sys
import time
from types import SimpleNamespace
from typing import Any
from unittest import mock

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_gpu_autotune_level=0 --xla_gpu_enable_triton_gemm=false"

import jax
import numpy as np
from jax._src import xla_bridge
from jax.experimental import topologies
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from dgmarl.config.resolve import resolve
from dgmarl.seeds import for_seeds
from dgmarl.training import Trainer, init_seeds

SEEDS = 5
ANSWERS = {
    "jax.default_backend": "gpu",
    "jax._src.pallas.triton.gpu_info.get_gpu_info": SimpleNamespace(compute_capability=90),
    "dgmarl.device.compute_capability": 9.0,
    "dgmarl.nets.recurrent_kernels.compute_capability": 9.0,
}
"""What functions that ask for a GPU return while a program is traced."""
H200 = """
gpu_device_info {
  threads_per_block_limit: 1024
  threads_per_warp: 32
  shared_memory_per_block: 49152
  shared_memory_per_core: 233472
  threads_per_core_limit: 2048
  core_count: 132
  fpus_per_core: 128
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  memory_bandwidth: 4800000000000
  l2_cache_size: 52428800
  clock_rate_ghz: 1.98
  device_memory_size: 150000000000
  shared_memory_per_block_optin: 232448
  cuda_compute_capability { major: 9 }
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
}
platform_name: "CUDA"
dnn_version_info { major: 9 minor: 10 }
runtime_version { major: 12 minor: 9 }
device_description_str: "NVIDIA H200"
"""


def main(name: str, method: str, graph: str) -> None:
    known = xla_bridge.canonicalize_platform
    xla_bridge.canonicalize_platform = lambda asked: "cuda" if asked == "gpu" else known(asked)
    described = topologies.get_topology_desc(platform="cuda", topology="1x1x1", target_config=H200)
    mesh = Mesh(np.array(described.devices).reshape(1, 1), ("seeds", "envs"))
    sharding = NamedSharding(mesh, PartitionSpec("seeds"))
    config = resolve(f"smaclite/{name}", method, {}, "fast", graph=graph, seeds=SEEDS, steps=10**9)
    trainer = Trainer(config)
    # The arguments of the first program: the state, and the number of iterations.
    carried: Any = (jax.eval_shape(lambda: init_seeds(trainer)), 1)
    for function, answer in ANSWERS.items():
        mock.patch(function, mock.Mock(return_value=answer)).start()
    for stage in trainer.stages:
        program = jax.jit(for_seeds(stage, SEEDS, mesh), donate_argnums=0, out_shardings=sharding)
        state, *others = carried
        placed = jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding), state
        )
        lowered = program.lower(placed, *others)
        began = time.process_time()
        compiled = lowered.compile().as_text()
        seconds = time.process_time() - began
        products = len(re.findall(r"cublas\$|= \S+ dot\(", compiled or ""))
        print(f"{stage.__name__}: {seconds:.1f} CPU s, {products} matrix products", flush=True)
        carried = (lowered.out_info,)


if __name__ == "__main__":
    main(*sys.argv[1:4])
