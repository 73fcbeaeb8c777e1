"""A model of the team reward, also for actions that were not taken."""

from math import sqrt

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from dgmarl.nets.layers import Linear, uniform_within


class RewardModel(nn.Module):
    """R(s, a) from the global state and the joint action.

    The first layer is linear in the state and in the one-hot actions, so replacing one agent's
    action only replaces its summand: N A alternatives share the product with the state."""

    hidden: int
    n_agents: int
    n_actions: int

    def setup(self) -> None:
        self.of_state, self.middle, self.last = Linear(self.hidden), Linear(self.hidden), Linear(1)
        draw = uniform_within(1 / sqrt(self.n_agents * self.n_actions))
        self.of_action = self.param("action", draw, (self.n_agents, self.n_actions, self.hidden))

    def __call__(
        self, state: Float[Array, "*B D"], action: Int[Array, "*B N"]
    ) -> Float[Array, "*B"]:
        return self._reward(self.of_state(state) + self._summands(action).sum(axis=-2))

    def alternatives(
        self, state: Float[Array, "*B D"], action: Int[Array, "*B N"]
    ) -> Float[Array, "*B N A"]:
        """Entry [j, b]: the reward if agent j had taken action b, the others' actions fixed."""
        summands = self._summands(action)
        taken = self.of_state(state) + summands.sum(axis=-2)
        without = taken[..., None, :] - summands
        return self._reward(without[..., None, :] + self.of_action)

    def _summands(self, action: Int[Array, "*B N"]) -> Float[Array, "*B N h"]:
        return self.of_action[jnp.arange(self.n_agents), action]

    def _reward(self, x: Float[Array, "*B h"]) -> Float[Array, "*B"]:
        return self.last(nn.relu(self.middle(nn.relu(x))))[..., 0]
