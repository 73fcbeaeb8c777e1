"""Run functions of one seed for all seeds of a run, on the devices of a mesh."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial, reduce
from typing import Any

import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jax.stages import Compiled, Lowered
from jaxtyping import Array

from dgmarl.device import count_cores, launch_bound, mesh_for, one_core_each
from dgmarl.hosts import place


def for_seeds(
    function: Callable[..., Any], n_seeds: int, mesh: Mesh | None = None, together: bool = False
) -> Callable[..., Any]:
    """Apply `function(state, *common)` to the states of all seeds, on the devices of a mesh, by
    default that of `mesh_for`.

    An accelerator computes the seeds of a device together (vmap), a CPU one after the other: their
    arrays stay in the cache, and no seed waits for the longest episode of another. `together`: also
    on a CPU. A single seed is computed without the axis of seeds: a batch axis of 1 in matrix
    products costs 12 % of the speed on a CPU. Within a seed the compiler divides the environments
    as marked by `over_envs`."""
    devices = mesh or mesh_for(n_seeds)

    def of_device(state: Any, *common: Any) -> Any:
        if n_seeds > devices.shape["seeds"]:
            if together or launch_bound():
                return jax.vmap(function, in_axes=(0, *(None for _ in common)))(state, *common)
            return jax.lax.map(lambda state: function(state, *common), state)
        result = function(jax.tree.map(lambda leaf: leaf[0], state), *common)
        return jax.tree.map(lambda leaf: leaf[None], result)

    def of_all(state: Any, *common: Any) -> Any:
        seeds, replicated = PartitionSpec("seeds"), PartitionSpec()
        return jax.shard_map(
            of_device,
            mesh=devices,
            in_specs=(seeds, *(replicated for _ in common)),
            out_specs=seeds,
            axis_names={"seeds"} if devices.shape["envs"] > 1 else set(devices.axis_names),
            check_vma=False,
        )(state, *common)

    return of_all if devices.size > 1 else of_device


@partial(jax.jit, static_argnums=1)
def of_seed(tree: Any, index: int) -> Any:
    """One seed of arrays with a leading axis of seeds; one program instead of one per leaf."""
    return jax.tree.map(lambda leaf: leaf[index], tree)


def spread(tree: Any, n_seeds: int, mesh: Mesh | None = None) -> Any:
    """Put arrays with a leading axis of seeds on the devices, as `for_seeds` expects them."""
    return place(tree, NamedSharding(mesh or mesh_for(n_seeds), PartitionSpec("seeds")))


def compile_together(
    stages: Sequence[Callable[..., Any]], carried: Any
) -> Callable[[Any, int], Any]:
    """Compile functions of all seeds, for all devices, and chain them: each takes what the previous
    one returns, the first also a number of iterations. Arguments are donated."""
    sharding = jax.tree.leaves(carried)[0].sharding  # outputs are the next call's inputs
    programs = [jax.jit(stage, donate_argnums=0, out_shardings=sharding) for stage in stages]
    return _chain(_compile(_lower(programs, carried)))


def compile_separately(
    stages: Sequence[Callable[..., Any]], carried: Any
) -> Callable[[Any, int], Any]:
    """`compile_together` for functions of one seed, with programs for each device, which compute
    its seeds one after the other.

    Rounding depends on which operations the compiler fuses, hence on the number of vmapped seeds
    and of devices of a program. Here the compiler sees one seed and one device."""
    first = jax.tree.leaves(carried)[0]
    n_seeds, sharding = len(first), first.sharding

    def one_by_one(stage: Callable[..., Any]) -> Any:
        def of_seeds(seeds: Any, *common: Any) -> Any:
            return jax.lax.map(lambda seed: stage(seed, *common), seeds)

        return jax.jit(of_seeds, donate_argnums=0)

    def join(*parts: Array) -> Array:
        shape = (n_seeds, *parts[0].shape[1:])
        return jax.make_array_from_single_device_arrays(shape, sharding, parts)

    def advance_all(carried: Any, n_iterations: int) -> Any:
        pairs = zip(advance, _of_devices(carried), strict=True)
        return jax.tree.map(join, *[of_device(part, n_iterations) for of_device, part in pairs])

    programs = [one_by_one(stage) for stage in stages]
    with one_core_each():
        lowered = [_lower(programs, part) for part in _of_devices(carried)]
    compiled = iter(_compile([program for of_device in lowered for program in of_device]))
    advance = [_chain([next(compiled) for _ in stages]) for _ in lowered]
    return advance_all


def _lower(programs: Sequence[Any], carried: Any) -> list[Lowered]:
    """Lower each program for what the previous one returns."""
    sharding = jax.tree.leaves(carried)[0].sharding

    def output(leaf: Any) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)

    lowered, given = [], (carried, 1)
    for program in programs:
        lowered.append(program.lower(*given))
        given = (jax.tree.map(output, lowered[-1].out_info),)
    return lowered


def _compile(lowered: Sequence[Lowered]) -> list[Compiled]:
    """Compile in parallel; in a fixed order if there are several processes."""
    n_threads = count_cores() if jax.process_count() == 1 else 1
    with ThreadPoolExecutor(n_threads) as threads:
        return list(threads.map(lambda program: program.compile(), lowered))


def _chain(programs: Sequence[Compiled]) -> Callable[[Any, int], Any]:
    """Call the programs one after the other."""

    def run(carried: Any, n_iterations: int) -> Any:
        return reduce(
            lambda given, program: program(given), programs[1:], programs[0](carried, n_iterations)
        )

    return run


def _of_devices(tree: Any) -> list[Any]:
    """The part on each device of this process, of arrays that are distributed by seeds."""
    leaves, treedef = jax.tree.flatten(tree)
    shards = [[shard.data for shard in leaf.addressable_shards] for leaf in leaves]
    return [treedef.unflatten(part) for part in zip(*shards, strict=True)]
