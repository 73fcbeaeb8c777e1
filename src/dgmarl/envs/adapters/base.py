"""Shared by the adapters of JAX environments: padding, horizons and local states."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from dgmarl.envs.base import Environment, EnvSpec, NotOfferedError
from dgmarl.errors import UsageError

LocalState = Sequence[int] | Callable[[Any], Array] | None
"""Columns of the observation that are an agent's own state, or, in Python, a function from the
library's state to [N, L]. None: not offered."""


class AdaptedState(NamedTuple):
    """A library's state with the adapter's additions."""

    inner: Any
    """The library's own state."""
    view: Float[Array, "N O"]
    """The observation of each agent."""
    alive: Bool[Array, "N"]
    step: Int[Array, ""]
    """Steps since the reset."""


class Adapted(Environment[AdaptedState]):
    """An environment of another JAX library."""

    library: ClassVar[str]
    loops_inside = True  # some have loops; without unrolling they compile faster

    def __init__(
        self, env: Any, name: str = "", horizon: int | None = None, local_state: LocalState = None
    ):
        """env: the library's environment. horizon: truncate after this many steps; None: the
        environment's own limit. local_state: columns of the observation, or a function of the
        library's state."""
        self.env, self._local = env, local_state
        self.spec = self._spec(name or f"{self.library}:{type(env).__name__}", horizon)
        if callable(local_state) or local_state is None:
            return
        size = self.spec.obs_size
        is_list = isinstance(local_state, (list, tuple)) and len(local_state) > 0
        if not is_list or not all(isinstance(k, int) and -size <= k < size for k in local_state):
            raise UsageError(
                f"local_state is {local_state!r}, but must be a list of columns of the observation "
                f"of {self.spec.name}, 0 to {size - 1}."
            )

    @abstractmethod
    def _spec(self, name: str, horizon: int | None) -> EnvSpec:
        """The sizes of `env`, after checking that it can be used."""

    def offers(self, method: str) -> bool:
        """`local_state` only if it was given or a subclass defines it."""
        if method == "local_state" and type(self).local_state is Adapted.local_state:
            return self._local is not None
        return super().offers(method)

    def local_state(self, state: Any) -> Float[Array, "N L"]:
        """The given columns of each agent's observation, or what the given function returns."""
        if self._local is None:
            raise NotOfferedError(self, "local_state")
        if callable(self._local):
            return self._local(state.inner)
        return state.view[:, jnp.array(self._local)]


def stacked(rows: Sequence[Array], size: int) -> Float[Array, "N O"]:
    """Arrays of any shapes as rows of `size` floats, flattened and padded with zeros."""
    flat = [jnp.ravel(row).astype(jnp.float32) for row in rows]
    return jnp.stack([jnp.pad(row, (0, size - row.size)) for row in flat])


def checked_horizon(name: str, limit: int | None, horizon: int | None) -> int:
    """The given horizon, or the library's limit.

    limit: steps after which the environment ends an episode; None if it has no limit."""
    if horizon is None and limit is None:
        raise UsageError(
            f"{name} has no step limit of its own: give one, for example horizon=100 (on the "
            "command line --set env_options.horizon=100)."
        )
    if horizon is None:
        return int(limit or 0)
    if not isinstance(horizon, int) or not 1 <= horizon <= (limit or horizon):
        most = f" to {limit}, its own limit" if limit else ""
        raise UsageError(f"horizon of {name} is {horizon!r}, but must be from 1{most}.")
    return horizon
