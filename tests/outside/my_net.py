"""Networks of one's own: two that work, and those that cannot."""

import flax.linen as nn
import jax.numpy as jnp

from dgmarl.nets.actor_critic import FeedForward
from dgmarl.nets.layers import GRU, Linear


class Same(FeedForward):
    """The package's own network under another name."""


class Remembering(FeedForward):
    """With a hidden state of its own size, in half precision."""

    @property
    def hidden_state_size(self):
        return 3

    @nn.compact
    def __call__(self, hidden_state, x, is_first):
        x = nn.relu(Linear(self.hidden, self.n_agents)(x))
        hidden_state, x = GRU(3)(hidden_state, x, is_first)
        return hidden_state, nn.Dense(self.n_outputs, dtype=jnp.bfloat16)(x)


class TooWide(FeedForward):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(self.n_outputs + 1)(x)


class Forgetful(Remembering):
    @nn.compact
    def __call__(self, hidden_state, x, is_first):
        return hidden_state[..., :1], nn.Dense(self.n_outputs)(x)


class Counting(FeedForward):
    @nn.compact
    def __call__(self, x):
        return nn.BatchNorm(use_running_average=False)(nn.Dense(self.n_outputs)(x))


class Flattening(FeedForward):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(self.n_outputs)(x.reshape(4, -1))


class NoFields(nn.Module):
    @nn.compact
    def __call__(self, x):
        return x


not_a_class = NoFields()
