"""Conversion of NumPy, PyTorch and other arrays for the credit functions, through DLPack, of random
keys for files and messages; functions of many rows in chunks."""

import sys
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool

Function = TypeVar("Function", bound=Callable[..., Any])


def takes_any_arrays(function: Function) -> Function:
    """Make a function accept arrays of any library that supports DLPack. The result is an array of
    the library of the first such argument, or a JAX array if any argument is one.

    On one device only arrays that JAX cannot read in place are copied: 64-bit numbers, broadcast
    axes, and NumPy arrays that are not writable or not aligned to 64 bytes. Results for NumPy are
    read-only views."""

    @wraps(function)
    def converted(*args: Any, **options: Any) -> Any:
        given = [x for x in (*args, *options.values()) if hasattr(x, "__dlpack__")]
        if not given or any(isinstance(x, jax.Array) for x in given):
            return function(*args, **options)
        options = {name: _to_jax(x) for name, x in options.items()}
        result = function(*map(_to_jax, args), **options)
        if isinstance(result, Tracer):
            return result
        # The caller may overwrite its arrays as soon as this returns.
        jax.block_until_ready(result)
        library = sys.modules[type(given[0]).__module__.partition(".")[0]]
        return getattr(library, "from_dlpack", jnp.asarray)(result)

    return converted  # pyright: ignore[reportReturnType]


def unwrap_keys(tree: Any) -> Any:
    """The tree with random keys as integers, the form that can be stored and sent."""
    return jax.tree.map(lambda x: jax.random.key_data(x) if _is_key(x) else x, tree)


def wrap_keys(tree: Any, like: Any) -> Any:
    """The inverse of `unwrap_keys`. like: a tree with keys in these places."""
    return jax.tree.map(lambda x, y: jax.random.wrap_key_data(x) if _is_key(y) else x, tree, like)


def in_chunks(function: Callable[[Any], Any], rows: Any, at_most: int) -> Any:
    """function(rows), `at_most` rows at a time.

    Chunks have equal size, since a smaller last one would be a second program to compile: the last
    is filled with the first rows, whose second results are dropped."""
    n_rows = jax.tree.leaves(rows)[0].shape[0]
    if n_rows <= at_most:
        return function(rows)
    n_chunks = -(-n_rows // at_most)
    size = -(-n_rows // n_chunks)
    n_filled = n_chunks * size - n_rows

    def split(leaf: Array) -> Array:
        return jnp.concatenate([leaf, leaf[:n_filled]]).reshape(n_chunks, size, *leaf.shape[1:])

    results = jax.lax.map(function, jax.tree.map(split, rows))
    return jax.tree.map(
        lambda leaf: leaf.reshape(n_chunks * size, *leaf.shape[2:])[:n_rows], results
    )


@jax.custom_batching.custom_vmap
def anywhere(flags: Bool[Array, "..."]) -> Bool[Array, ""]:
    """Whether any flag is set, across all enclosing `vmap`s.

    With a batched condition, a loop would copy the carry of finished elements in each iteration."""
    return flags.any()


@anywhere.def_vmap
def _(
    axis_size: int, in_batched: list[bool], flags: Bool[Array, "..."]
) -> tuple[Bool[Array, ""], bool]:
    return anywhere(flags), False


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _to_jax(x: Any) -> Any:
    if not hasattr(x, "__dlpack__"):
        return x
    try:
        return jnp.from_dlpack(x)
    except (BufferError, jax.errors.JaxRuntimeError):
        return jnp.asarray(x if isinstance(x, np.ndarray) else np.from_dlpack(x))
