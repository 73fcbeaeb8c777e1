"""Per-agent rewards. In every mode they add up to the same team reward."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from .roster import Roster
from .types import WIN_REWARD, Ticks


def rewards(roster: Roster, mode: str, ticks: Ticks, won: Bool[Array, ""]) -> Float[Array, "N"]:
    """One reward per agent, scaled so that killing every enemy once gives the team 20.

    by_source: damage and kills are credited to the ally that dealt them; self-inflicted damage of
      enemies and the victory bonus are split evenly.
    team: everything is split evenly.
    as_published: the paper's code. It compares a unit's position in the order of creation over both
      sides with the index of an agent, so where enemies are created first (corridor, bane_vs_bane)
      nearly everything is split evenly."""
    n = roster.n_allies
    if mode == "as_published":
        by_creation = ticks.earned[:, np.argsort(roster.creation)[:n]]
        own = jnp.where(ticks.took_part[:, :n], by_creation, 0.0)
        rest = jnp.maximum(0.0, ticks.earned.sum(1) - own.sum(1)).sum()
        own = own.sum(0)
    elif mode == "by_source":
        own, rest = ticks.earned[:, :n].sum(0), ticks.earned[:, n:].sum()
    else:
        own, rest = jnp.zeros(n), ticks.earned.sum()
    return (own + (rest + jnp.where(won, WIN_REWARD, 0.0)) / n) * roster.reward_scale
