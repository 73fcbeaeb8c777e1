"""Several processes, usually on several hosts, that train one run together (`jax.distributed`).

All of them make the same calls in the same order. Process 0 writes the run folder; the others
only compute. With a single process these functions have no effect.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from dgmarl.arrays import unwrap_keys, wrap_keys
from dgmarl.errors import RunError, UsageError

PLACE = re.compile(r"(\d+)/(\d+)@(.+:\d+)")


def join(place: str) -> None:
    """Join the processes of a run, before the first computation. In Python,
    `jax.distributed.initialize` does the same.

    place: `I/N@HOST:PORT`, process I of N, where process 0 listens at HOST:PORT; or `auto` under
      Slurm, Open MPI or Kubernetes."""
    if place == "auto":
        given = {}
    elif (found := PLACE.fullmatch(place)) and int(found[1]) < int(found[2]):
        numbers = {"process_id": int(found[1]), "num_processes": int(found[2])}
        given = {"coordinator_address": found[3], **numbers}
    else:
        raise UsageError(
            f"process is {place!r}, but must be I/N@HOST:PORT, for example 0/2@node1:1234 for the "
            "first of two processes, where HOST:PORT is the address of the first, or auto."
        )
    try:
        jax.distributed.initialize(**given)
    except (RuntimeError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        raise RunError(f"This process cannot join the others ({place}): {reason}") from None


def leads() -> bool:
    """Whether this process writes the run folder."""
    return jax.process_index() == 0


def any_process(flag: bool) -> bool:
    """Whether the flag is set in any process."""
    from jax.experimental.multihost_utils import process_allgather

    return bool(process_allgather(np.array(flag)).any()) if jax.process_count() > 1 else flag


@contextmanager
def all_together() -> Iterator[None]:
    """Context whose failure in one process, for example a full disk, ends all of them."""
    try:
        yield
    except BaseException:
        any_process(True)
        raise
    if any_process(False):
        raise RunError("Another process of this run has failed: see its error message.")


def lost_process(error: Exception) -> RunError | None:
    """The error for a lost connection between processes; None if `error` is something else."""
    if jax.process_count() == 1 or not re.search("gloo|nccl", str(error), re.IGNORECASE):
        return None
    return RunError(
        "The connection to another process of this run is lost: once that process can run again, "
        "start all of them with --resume."
    )


def from_first(tree: Any) -> Any:
    """Broadcast the arrays of process 0 to every process."""
    from jax.experimental.multihost_utils import broadcast_one_to_all

    if jax.process_count() == 1:
        return tree
    return wrap_keys(broadcast_one_to_all(unwrap_keys(tree)), tree)


def place(tree: Any, sharding: NamedSharding) -> Any:
    """Distribute arrays that every process has over the devices of all processes."""

    def put(leaf: Any) -> jax.Array:
        array = np.asarray(leaf)
        return jax.make_array_from_callback(array.shape, sharding, array.__getitem__)

    if jax.process_count() == 1:
        return jax.device_put(tree, sharding)
    return wrap_keys(jax.tree.map(put, unwrap_keys(tree)), tree)


def whole(tree: Any) -> Any:
    """Gather arrays that are distributed over several processes on a device of this one."""
    if jax.process_count() == 1:
        return tree
    copied = _copy_to_all(jax.tree.leaves(tree)[0].sharding.mesh)(tree)
    return jax.tree.map(lambda leaf: leaf.addressable_data(0), copied)


@cache
def _copy_to_all(mesh: Mesh) -> Any:
    return jax.jit(lambda tree: tree, out_shardings=NamedSharding(mesh, PartitionSpec()))
