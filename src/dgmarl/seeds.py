"""A function of one seed for all seeds of a run, on the devices of a mesh."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array

from dgmarl.device import count_cores, mesh_for
from dgmarl.hosts import place


def for_seeds(
    function: Callable[..., Any], n_seeds: int, mesh: Mesh | None = None
) -> Callable[..., Any]:
    """`function` of one seed's state (and of what is common to all) for all seeds, spread over the
    devices of a mesh, by default that of `mesh_for`.

    Seeds of one device are vmapped. A single one goes without the axis of seeds: matrix products
    with a batch axis of 1 cost a CPU 12 % of its speed. Within a seed the compiler divides the
    environments, from the marks of `over_envs`.
    """
    devices = mesh or mesh_for(n_seeds)

    def of_device(state: Any, *common: Any) -> Any:
        if n_seeds > devices.shape["seeds"]:
            return jax.vmap(function, in_axes=(0, *(None for _ in common)))(state, *common)
        result = function(jax.tree.map(lambda leaf: leaf[0], state), *common)
        return jax.tree.map(lambda leaf: leaf[None], result)

    def of_all(state: Any, *common: Any) -> Any:
        seeds, same = PartitionSpec("seeds"), [PartitionSpec() for _ in common]
        specs = {"in_specs": (seeds, *same), "out_specs": seeds}
        by_hand = {"seeds"} if devices.shape["envs"] > 1 else set(devices.axis_names)
        how = {"mesh": devices, "axis_names": by_hand, "check_vma": False}
        return jax.shard_map(of_device, **how, **specs)(state, *common)

    return of_all if devices.size > 1 else of_device


@partial(jax.jit, static_argnums=1)
def of_seed(tree: Any, index: int) -> Any:
    """What belongs to one seed, of arrays with a leading axis of seeds: as one program, because one
    for each leaf takes a second to compile."""
    return jax.tree.map(lambda leaf: leaf[index], tree)


def spread(tree: Any, n_seeds: int, mesh: Mesh | None = None) -> Any:
    """Arrays with a leading axis of seeds, on the devices where `for_seeds` wants them."""
    return place(tree, NamedSharding(mesh or mesh_for(n_seeds), PartitionSpec("seeds")))


def compile_together(advance: Callable[..., Any], carried: Any) -> Callable[[Any, int], Any]:
    """`advance` of all seeds as one program for all devices. It overwrites what it is given."""
    sharding = jax.tree.leaves(carried)[0].sharding  # what comes out goes in again
    program = jax.jit(advance, donate_argnums=0, out_shardings=sharding)
    return program.lower(carried, 1).compile()


def compile_separately(advance: Callable[..., Any], carried: Any) -> Callable[[Any, int], Any]:
    """`advance` of one seed, for all seeds, as one program for each device, which computes its
    seeds one after the other. Each overwrites what it is given.

    Rounding depends on which operations the compiler fuses, and that on how many seeds are vmapped
    and on whether the program is for several devices. Here it sees one seed and one device."""
    first = jax.tree.leaves(carried)[0]
    n_seeds, sharding = len(first), first.sharding

    @partial(jax.jit, donate_argnums=0)
    def one_by_one(seeds: Any, n_iterations: Array) -> Any:
        return jax.lax.map(lambda seed: advance(seed, n_iterations), seeds)

    def join(*parts: Array) -> Array:
        shape = (n_seeds, *parts[0].shape[1:])
        return jax.make_array_from_single_device_arrays(shape, sharding, parts)

    def advance_all(carried: Any, n_iterations: int) -> Any:
        pairs = zip(programs, _of_devices(carried), strict=True)
        return jax.tree.map(join, *[program(part, n_iterations) for program, part in pairs])

    with ThreadPoolExecutor(count_cores()) as threads:
        lowered = [one_by_one.lower(part, 1) for part in _of_devices(carried)]
        programs = list(threads.map(lambda program: program.compile(), lowered))
    return advance_all


def _of_devices(tree: Any) -> list[Any]:
    """What each device of this process has of arrays that are spread over seeds."""
    leaves, form = jax.tree.flatten(tree)
    shards = [[shard.data for shard in leaf.addressable_shards] for leaf in leaves]
    return [form.unflatten(part) for part in zip(*shards, strict=True)]
