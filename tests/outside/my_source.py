"""A graph source of one's own: everybody reaches the next agent, `--graph next` or `next:K`."""

import jax.numpy as jnp

from dgmarl.graphs.sources import GivenSource, register_source


class NextSource(GivenSource):
    """Edges from each agent to the `distance` agents after it."""

    def __init__(self, distance: int):
        self.distance = distance

    def infer(self, graph_state, batch, key):
        n_agents = batch.reward.shape[-1]
        ahead = (jnp.arange(n_agents) - jnp.arange(n_agents)[:, None]) % n_agents
        return jnp.broadcast_to(ahead <= self.distance, (*batch.reward.shape, n_agents))


def register() -> None:
    """Make it known to dgmarl."""
    register_source("next", lambda text, config, env, varying: NextSource(int(text or 1)), "[:K]")
