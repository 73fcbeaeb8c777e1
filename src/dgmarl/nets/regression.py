"""Regression of a critic's values to lambda-returns, for critics outside the learner."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from dgmarl.blocks import as_rows, leaves_out_padding, sum_of
from dgmarl.device import over_envs, unroll
from dgmarl.rollout import Batch


class Fitted(NamedTuple):
    """Parameters and optimiser state."""

    params: Any
    opt_state: Any


class Examples(NamedTuple):
    """What a gradient step needs of a batch; [T, B, ...]."""

    inputs: Any
    target: Float[Array, "T B N"]
    mask: Bool[Array, "T B N"]
    """Steps that count in the loss."""


class Regression(NamedTuple):
    """Adam on the squared distance of `values(params, inputs)`, [T, B, N], from lambda-returns."""

    values: Callable[[Any, Any], Float[Array, "T B N"]]
    """Function of the parameters and the inputs of a batch, a pytree of arrays [T, B, ...]."""
    gamma: float
    lambda_: float
    learning_rate: Any
    max_grad_norm: float
    epochs: int
    minibatches: int = 1

    @property
    def optimiser(self) -> optax.GradientTransformation:
        """Clipped Adam on one flat vector: a few operations per update instead of per layer."""
        clip = optax.clip_by_global_norm(self.max_grad_norm)
        return optax.flatten(optax.chain(clip, optax.adam(self.learning_rate)))

    def init(self, params: Any) -> Fitted:
        return Fitted(params, self.optimiser.init(params))

    def update(
        self,
        fitted: Fitted,
        inputs: Any,
        batch: Batch,
        reward: Float[Array, "T B N"],
        key: PRNGKeyArray,
    ) -> tuple[Fitted, Float[Array, ""]]:
        """Epochs on targets that are computed with the given parameters; also the mean loss."""
        value = self.values(fitted.params, inputs)
        target = lambda_returns(reward, value, batch, self.gamma, self.lambda_)
        mask = jnp.broadcast_to(batch.valid[..., None], target.shape)
        whole = Examples(inputs, target, mask)
        blocks, n_used = jax.tree.map(lambda leaf: leaf[None], whole), 1
        if self.minibatches == 1 and leaves_out_padding(batch):
            places = as_rows(batch.valid)
            blocks, n_used = places.take(whole), places.n_used
            blocks = blocks._replace(mask=blocks.mask & places.present[..., None])

        def loss(params: Any, scale: Array, part: Examples) -> Float[Array, ""]:
            error = self.values(params, part.inputs) - part.target
            return jnp.sum(error**2, where=part.mask) * scale

        def step(fitted: Fitted, chosen: Int[Array, "b"] | None) -> tuple[Fitted, Array]:
            parts = blocks
            if chosen is not None:
                part = over_envs(jax.tree.map(lambda x: x[:, chosen], whole), 1)
                parts = jax.tree.map(lambda leaf: leaf[None], part)
            given = (fitted.params, 1 / jnp.maximum(parts.mask.sum(), 1))
            found, gradient = sum_of(partial(jax.value_and_grad(loss), *given), parts, n_used)
            updates, opt_state = self.optimiser.update(gradient, fitted.opt_state, fitted.params)
            return Fitted(optax.apply_updates(fitted.params, updates), opt_state), found

        sizes = (batch.valid.shape[1], self.epochs, self.minibatches)
        parts = None if self.minibatches == 1 else shuffled(key, *sizes)
        n_updates = self.epochs * self.minibatches
        fitted, losses = jax.lax.scan(step, fitted, parts, length=n_updates, unroll=unroll())
        return fitted, losses.mean()


def shuffled(
    key: PRNGKeyArray, n_envs: int, epochs: int, minibatches: int
) -> Int[Array, "updates b"]:
    """The environments of each minibatch, shuffled in each epoch."""
    keys = jax.random.split(key, epochs)
    orders = jax.vmap(lambda key: jax.random.permutation(key, n_envs))(keys)
    return orders.reshape(epochs * minibatches, n_envs // minibatches)


def lambda_returns(
    reward: Float[Array, "T *B N"],
    value: Float[Array, "T *B N"],
    batch: Any,
    gamma: float,
    lambda_: float,
) -> Float[Array, "T *B N"]:
    """TD(lambda) targets for the values of the actions taken:

        G_t = r_t + gamma * ((1 - lambda) * value_{t+1} + lambda * G_{t+1})

    and r_t where the episode terminated. At a time-out and at the end of the batch the next action
    is unknown: there G_t = value_t, so nothing is learned from the step.

    batch: has `terminated` and `continues`, [T, ...]."""
    known = recorded_successor(batch)[..., None] | batch.terminated[..., None]

    def step(later: tuple[Array, Array], now: tuple[Array, ...]) -> tuple[Any, Array]:
        reward, value, terminated, known = now
        following = jnp.where(terminated, 0, (1 - lambda_) * later[0] + lambda_ * later[1])
        target = jnp.where(known, reward + gamma * following, value)
        return (value, target), target

    steps = (reward, value, batch.terminated[..., None], known)
    start = (jnp.zeros_like(value[0]), jnp.zeros_like(value[0]))
    return jax.lax.scan(step, start, steps, reverse=True, unroll=unroll())[1]


def recorded_successor(batch: Any) -> Bool[Array, "T *B"]:
    """Whether the next step of the same episode is in the batch."""
    return batch.continues.at[-1].set(False)
