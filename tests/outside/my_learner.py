"""A learner of one's own: REINFORCE with the advantage that the credit rule assigns."""

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from dgmarl.config.methods import Method, register_method
from dgmarl.credit.base import Values
from dgmarl.learners.base import batched_index, where_active
from dgmarl.nets.actor_critic import FeedForward, Policy


@dataclass(frozen=True)
class ReinforceConfig:
    """REINFORCE."""

    hidden: int = 8
    """Width of the hidden layers."""
    learning_rate: float = 0.01
    """Adam's learning rate."""
    gamma: float = 0.99
    """Discount factor."""
    lambda_: float = 1.0
    """Lambda of GAE; with values of 0 and lambda 1, advantages are returns."""


class ReinforceState(NamedTuple):
    """All that learning changes."""

    params: Any
    opt_state: Any

    def with_params(self, params):
        return self._replace(params=params)


class Reinforce:
    """One gradient step per batch, without a critic: values are 0."""

    needs = frozenset()

    def __init__(self, config, env, varying):
        self.policy = Policy(env.spec, config.learner.hidden, FeedForward, True)
        self.optimiser = optax.adam(varying.learning_rate)

    def init(self, key):
        params = self.policy.init(key)
        return ReinforceState(params, self.optimiser.init(params))

    def init_hidden_state(self, *batch):
        return self.policy.init_hidden_state(*batch)

    def behaviour(self, state, step):
        return partial(self.act, state.params)

    def act(self, params, key, observation, hidden_state, is_first, greedy=False):
        one_step = jax.tree.map(lambda leaf: leaf[None], observation)
        hidden_state, log_probs = self.policy.log_probs(
            params, hidden_state, one_step, is_first[None]
        )
        choices = jnp.where(observation.action_mask, log_probs[0], -jnp.inf)
        action = choices.argmax(axis=-1) if greedy else jax.random.categorical(key, choices)
        return action, batched_index(log_probs[0], action), hidden_state

    def values(self, state, batch):
        return Values(jnp.zeros_like(batch.reward), jnp.zeros_like(batch.reward))

    def update(self, state, batch, credit, key, active):
        def loss(params):
            _, log_probs = self.policy.log_probs(
                params, batch.hidden_state, batch.observation, batch.is_first
            )
            gain = batched_index(log_probs, batch.action) * credit.advantage
            return -jnp.mean(gain, where=batch.valid[..., None])

        value, gradient = jax.value_and_grad(loss)(state.params)
        updates, opt_state = self.optimiser.update(gradient, state.opt_state)
        new = ReinforceState(optax.apply_updates(state.params, updates), opt_state)
        return where_active(active, new, state), {"policy_loss": value}


METHOD = Method(
    "reinforce",
    "REINFORCE from each agent's own reward",
    f"{__name__}:Reinforce",
    "dgmarl.credit.local:LocalRule",
    "REINFORCE",
    "#56B4E9",
    learner_config=ReinforceConfig,
)


def register() -> None:
    """Make it known to dgmarl."""
    register_method(METHOD)
