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
    network = _load(learner.network, "network")
    policy = Policy(spec, learner.hidden, network, learner.share_parameters)

    def play(params: Any) -> Any:
        x = jnp.zeros((T, B, spec.n_agents, spec.obs_size))
        return policy.outputs(params, policy.init_hidden_state(B), x, jnp.zeros((T, B), bool))

    _try(learner.network, "network", policy.init, play)
    return policy


def make_value(spec: EnvSpec, learner: Any) -> Value:
    """The critic, as configured."""
    network = _load(learner.critic_network, "critic_network")
    value = Value(spec, learner.hidden, learner.critic, learner.share_parameters, network)

    def play(params: Any) -> Any:
        alive, state = jnp.ones((T, B, spec.n_agents), bool), jnp.zeros((T, B, spec.state_size))
        view = jnp.zeros((*alive.shape, spec.obs_size))
        return value(params, Observation(view, state, alive[..., None], alive))

    _try(learner.critic_network, "critic_network", value.init, play)
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


def _try(name: str, field: str, init: Callable[..., Any], play: Callable[[Any], Any]) -> None:
    """Trace a custom network without computing anything; its errors become a UsageError."""
    if name in OWN_NETWORKS:
        return
    try:
        variables = jax.eval_shape(init, jax.random.key(0))
        if kept := ", ".join(sorted(variables.keys() - {"params"})):
            raise UsageError(
                f"It has {kept}, but only parameters are trained: use layers without other state, "
                "such as LayerNorm."
            )
        jax.eval_shape(play, variables)
    except UsageError as error:
        raise UsageError(f"learner.{field} is {name!r}: {error}") from error
    except Exception as error:
        raise UsageError(
            f"learner.{field} is {name!r}, which failed with {one_line(error)}."
        ) from error
