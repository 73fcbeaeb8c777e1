"""Generalised advantage estimation per agent. Arrays are `[T, ..., N]`."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.core import Tracer
from jaxtyping import Array, Bool, Float

from dgmarl.arrays import takes_any_arrays
from dgmarl.graphs.reach import Arrays, require_per_step


class Steps(NamedTuple):
    """The per-step arguments of `gae` and `graph_gae`."""

    reward: Float[Array, "T *B N"]
    value: Float[Array, "T *B N"]
    next_value: Float[Array, "T *B N"]
    """Value of the true successor, before any reset. Ignored where `bootstrap` is False, even if
    NaN."""
    bootstrap: Bool[Array, "T *B"]
    continues: Bool[Array, "T *B"]


def td_errors(steps: Steps, gamma: float | Float[Array, ""]) -> Float[Array, "T *B N"]:
    """delta^i_t = r^i_t + gamma * bootstrap_t * V^i(successor of t) - V^i_t."""
    gamma = jnp.asarray(gamma, steps.reward.dtype)
    following = jnp.where(steps.bootstrap[..., None], steps.next_value, 0)
    return steps.reward + gamma * following - steps.value


@takes_any_arrays
def gae(
    reward: Float[Arrays, "T *B N"],
    value: Float[Arrays, "T *B N"],
    next_value: Float[Arrays, "T *B N"],
    bootstrap: Bool[Arrays, "T *B"],
    continues: Bool[Arrays, "T *B"],
    gamma: float | Float[Arrays, ""],
    lambda_: float | Float[Arrays, ""],
) -> Float[Array, "T *B N"]:
    """The advantage of every agent with respect to its own reward and value.

        delta^i_t = r^i_t + gamma * bootstrap_t * V^i(successor of t) - V^i_t
        GAE^i_t   = delta^i_t + gamma * lambda * continues_t * GAE^i_{t+1}

    The critic's target is `gae(...) + value`. For a team reward, repeat it for every agent.

    reward, value, next_value: per agent; next_value is the value of the true successor, before any
      reset.
    bootstrap: not terminated.  continues: not (terminated or truncated); the end of the rollout
      need not be marked. Steps after `continues = False` may be padding, even NaN: they do not
      affect earlier steps.

    >>> one = jnp.ones((3, 1))
    >>> true = jnp.ones(3, bool)
    >>> gae(one, 0 * one, 0 * one, true, true, gamma=0.5, lambda_=1.0)[:, 0]
    Array([1.75, 1.5 , 1.  ], dtype=float32)
    """
    steps = require_steps(reward, value, next_value, bootstrap, continues)
    require_fractions(gamma=gamma, lambda_=lambda_)
    return _gae(steps, gamma, lambda_)


@jax.jit
def _gae(steps, gamma, lambda_):
    return discounted_sums(td_errors(steps, gamma), steps.continues, gamma * lambda_)


def discounted_sums(
    signal: Float[Array, "T *B N"], continues: Bool[Array, "T *B"], decay: float | Float[Array, ""]
) -> Float[Array, "T *B N"]:
    """sum over t' >= t in the same episode of decay^(t' - t) * signal[t'].

    The recursion x_t = signal_t + factor_t * x_{t+1} is associative in (factor, signal). It takes
    log T sequential steps instead of T, which saves kernel launches on an accelerator."""
    factor = jnp.where(continues[..., None], jnp.asarray(decay, signal.dtype), 0)

    def combine(later: tuple[Array, Array], now: tuple[Array, Array]) -> tuple[Array, Array]:
        # A factor of 0 must also remove NaN, which padding may contain.
        carried = jnp.where(now[0] == 0, 0, now[0] * later[1])
        return now[0] * later[0], now[1] + carried

    factors = jnp.broadcast_to(factor, signal.shape)
    return lax.associative_scan(combine, (factors, signal), reverse=True)[1]


def require_floats(**arrays: Any) -> list[Array]:
    """Convert to JAX arrays; a ValueError unless floats of one dtype and shape [T, ..., N]."""
    converted = {name: jnp.asarray(array) for name, array in arrays.items()}
    first_name, first = next(iter(converted.items()))
    if first.ndim < 2:
        raise ValueError(f"{first_name} must have the shape [T, ..., N], got {first.shape}")
    for name, array in converted.items():
        if not jnp.issubdtype(array.dtype, jnp.floating):
            raise ValueError(f"{name} must hold floats, got {array.dtype}")
        if array.dtype != first.dtype:
            raise ValueError(
                f"{name} is {array.dtype}, but {first_name} is {first.dtype}; use one dtype for "
                "both"
            )
        if array.shape != first.shape:
            raise ValueError(
                f"{name} has the shape {array.shape}, but {first_name} has {first.shape}; they "
                "must agree"
            )
    return list(converted.values())


def require_steps(
    reward: Any, value: Any, next_value: Any, bootstrap: Any, continues: Any
) -> Steps:
    """Convert to JAX arrays; a ValueError unless floats and masks of matching shapes."""
    floats = require_floats(reward=reward, value=value, next_value=next_value)
    masks = {"bootstrap": bootstrap, "continues": continues}.items()
    shape = floats[0].shape[:-1]
    return Steps(*floats, *(require_per_step(name, mask, shape) for name, mask in masks))


def require_fractions(**numbers: Any) -> None:
    """Raise a ValueError unless all are scalars in [0, 1]; traced values are not checked."""
    for name, number in numbers.items():
        if jnp.ndim(number) != 0:
            raise ValueError(
                f"{name} must be one number, got an array of shape {jnp.shape(number)}"
            )
        if not isinstance(number, Tracer) and not 0 <= float(number) <= 1:
            raise ValueError(f"{name} must lie in [0, 1], got {float(number)}")
