"""Networks by name: those of the package, or custom Flax modules."""

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from dgmarl.envs.base import EnvSpec, Observation
from dgmarl.envs.registry import load_object
from dgmarl.errors import UsageError, one_line
from dgmarl.nets.actor_critic import OWN_NETWORKS, Policy, Value

T, B = 2, 3
"""Sizes of the batch on which a custom network is tested."""


def make_policy(spec: EnvSpec, learner: Any) -> Policy:
    """The actor, or the agents' network of a Q-learner, as configured."""
    name = learner.network
    policy = Policy(spec, learner.hidden, _load(name, "network"), learner.share_parameters)

    def play(key: jax.Array) -> Any:
        params = _only_parameters(policy.init(key))
        x = jnp.zeros((T, B, spec.n_agents, spec.obs_size))
        return policy.outputs(params, policy.init_hidden_state(B), x, jnp.zeros((T, B), bool))

    _try(name, "network", play)
    return policy


def make_value(spec: EnvSpec, learner: Any) -> Value:
    """The critic, as configured."""
    name = learner.critic_network
    network = _load(name, "critic_network")
    value = Value(spec, learner.hidden, learner.critic, learner.share_parameters, network)

    def play(key: jax.Array) -> Any:
        params, agents = _only_parameters(value.init(key)), (T, B, spec.n_agents)
        view = jnp.zeros((*agents, spec.obs_size))
        alive, state = jnp.ones(agents, bool), jnp.zeros((T, B, spec.state_size))
        return value(params, Observation(view, state, alive[..., None], alive))

    _try(name, "critic_network", play)
    return value


def _load(name: str, field: str) -> type[nn.Module]:
    if name in OWN_NETWORKS:
        return OWN_NETWORKS[name]
    found = load_object(name, "network")
    if not isinstance(found, type) or not issubclass(found, nn.Module):
        raise UsageError(
            f"learner.{field} is {name!r}, which is not a network: name a subclass of "
            "flax.linen.Module."
        )
    return found


def _only_parameters(variables: Any) -> Any:
    """Return the variables of a network, or raise if some are not trained parameters."""
    kept = ", ".join(sorted(variables.keys() - {"params"}))
    if kept:
        raise UsageError(
            f"It has {kept}, but only parameters are trained: use layers without other state, such "
            "as LayerNorm."
        )
    return variables


def _try(name: str, field: str, play: Callable[[jax.Array], Any]) -> None:
    """Trace a custom network without computing anything; its errors become a UsageError."""
    if name in OWN_NETWORKS:
        return
    try:
        jax.eval_shape(play, jax.random.key(0))
    except UsageError as error:
        raise UsageError(f"learner.{field} is {name!r}: {error}") from error
    except Exception as error:
        raise UsageError(
            f"learner.{field} is {name!r}, which failed with {one_line(error)}."
        ) from error
