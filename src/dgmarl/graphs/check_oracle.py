"""Check an environment's oracle graph against interventions in its simulator."""

import jax
import jax.numpy as jnp
import numpy as np

from dgmarl.envs.base import Environment
from dgmarl.envs.checker import Finding
from dgmarl.graphs.interventional import intervene_batch
from dgmarl.rollout import act_randomly, collect, reset_envs

N_EPISODES, MAX_STEPS, MAX_NAMED = 8, 20, 5


def check_oracle(env: Environment, seed: int = 0) -> list[Finding]:
    """Report edges that interventions show in random episodes and the oracle lacks. The oracle may
    have more edges than one-step interventions show."""
    if not env.offers("oracle_graph"):
        return []

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
    missing = sorted(np.argwhere(lacking).tolist(), key=lambda edge: -lacking[tuple(edge)])
    if not missing:
        return []
    named = ", ".join(f"{j} -> {i} ({lacking[j, i]})" for j, i in missing[:MAX_NAMED])
    more = f" and {len(missing) - MAX_NAMED} more" if len(missing) > MAX_NAMED else ""
    hint = "add them, because this influence is not credited without them"
    if not (shown & ~oracle.swapaxes(-1, -2)).any():
        hint = "it looks transposed: row = source, column = target"
    sentence = (
        f"oracle_graph lacks edges that interventions show in {valid.sum()} states of random play "
        f"(source -> target, number of states): {named}{more}; {hint}."
    )
    return [Finding("note", sentence)]
