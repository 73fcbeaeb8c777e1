"""Compare an environment's oracle graph with what its simulator shows."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dgmarl.envs.base import Environment
from dgmarl.envs.checker import Finding
from dgmarl.graphs.interventional import intervene_batch
from dgmarl.rollout import act_randomly, collect, reset_envs

N_EPISODES, MAX_STEPS, MAX_NAMED = 8, 20, 5


class OracleCheck(NamedTuple):
    """Edges that interventions found in random episodes and that the oracle lacks."""

    missing: dict[tuple[int, int], int]
    """By (source, target): in how many states."""
    states: int
    transposed: bool
    """The oracle's transpose lacks none of them."""

    def sentence(self) -> str:
        """For people."""
        most = sorted(self.missing.items(), key=lambda item: -item[1])[:MAX_NAMED]
        named = ", ".join(f"{j} -> {i} ({count})" for (j, i), count in most)
        more = f" and {len(self.missing) - len(most)} more" if len(self.missing) > len(most) else ""
        hint = (
            "it looks transposed: row = source, column = target"
            if self.transposed
            else "add them, or they are credited to nobody"
        )
        return (
            f"oracle_graph lacks edges that interventions show in {self.states} states of random "
            f"play (source -> target, number of states): {named}{more}; {hint}."
        )


def check_oracle(env: Environment, seed: int = 0) -> list[Finding]:
    """What to tell the author of an oracle graph; nothing if it lacks no edge."""
    found = compare_oracle(env, seed) if env.offers("oracle_graph") else None
    return [Finding("note", found.sentence())] if found and found.missing else []


def compare_oracle(env: Environment, seed: int = 0) -> OracleCheck:
    """Oracle and interventional graphs in random episodes.

    An oracle may have more edges than one step of interventions shows, so only missing ones count.
    """

    @jax.jit
    def play(key: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        start_key, play_key = jax.random.split(key)
        start = reset_envs(env, start_key, jnp.zeros((N_EPISODES, 0)), N_EPISODES)
        length, needs = min(env.spec.horizon, MAX_STEPS), frozenset({"oracle", "states", "keys"})
        _, batch = collect(env, act_randomly, start, play_key, length, needs, reset=False)
        return batch.extras["oracle"], intervene_batch(env, batch).action_graph, batch.valid

    oracle, shown, valid = map(np.asarray, play(jax.random.key(seed)))
    shown = shown & valid[..., None, None]
    lacking = (shown & ~oracle).sum(axis=(0, 1))
    of_transpose = shown & ~oracle.swapaxes(-1, -2)
    missing = {(int(j), int(i)): int(lacking[j, i]) for j, i in np.argwhere(lacking)}
    return OracleCheck(missing, int(valid.sum()), bool(missing) and not of_transpose.any())
