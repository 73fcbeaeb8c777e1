"""Whole battles without re-synchronisation: `python tests/parity/free_run_smaclite.py FILE...`.

The recorded actions are played from the recorded start, once with the recorded order of turns, which should give the recorded
return, length and victory, and `RUNS` times with an order of our own. The latter shows how much chance decides; its returns are
lower, because the actions were chosen for another battle, and those not available in the one that unfolds count as stop.
"""

import json
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import replay
from replay_smaclite import _complete, _environment, _states

RUNS = 64


def free_run(recording: dict[str, np.ndarray]) -> list[dict[str, float]]:
    """One row per episode: the recording, the run with its order, and the distribution over our own orders."""
    env = _environment(json.loads(str(recording["meta_json"]))["scenario"])
    rows = []
    play = jax.jit(jax.vmap(lambda *given: _play(env, *given)))
    for episode, length in enumerate(recording["length"].astype(int)):
        start = jax.tree.map(lambda leaf: leaf[0], _states(env, recording, np.array([episode]), np.array([0])))
        actions = recording["actions"][episode].astype(np.int32)
        orders = _complete(recording["unit_order"][episode])
        generator = np.random.default_rng(episode)
        drawn = generator.permuted(np.tile(orders, (RUNS, 1, 1, 1)), axis=-1)
        everything = np.concatenate([orders[None], drawn])
        many = jax.tree.map(lambda leaf: np.repeat(np.asarray(leaf)[None], RUNS + 1, axis=0), (start, actions))
        total, steps, won = (np.asarray(values, float) for values in play(*many, everything))
        rows.append(
            {
                "recorded return": recording["team_reward"][episode, :length].sum(),
                "recorded length": length,
                "recorded won": float(recording["battle_won"][episode]),
                "return": total[0],
                "length": steps[0],
                "won": won[0],
                "mean return": total[1:].mean(),
                "deviation": total[1:].std(),
                "mean length": steps[1:].mean(),
                "win rate": won[1:].mean(),
            }
        )
    return rows


def _play(env, state, actions, orders):
    def one_step(carry, given):
        state, running = carry
        after, _, outcome = env.step(jax.random.key(0), state, *given)
        state = jax.tree.map(lambda new, old: jnp.where(running, new, old), after, state)
        won = running & outcome.info["battle_won"]
        now = (jnp.where(running, outcome.reward.sum(), 0.0), running, won)
        return (state, running & ~(outcome.terminated | outcome.truncated)), now

    _, (reward, running, won) = jax.lax.scan(one_step, (state, jnp.bool_(True)), (actions, orders))
    return reward.sum(), running.sum(), won.any()


def main(paths: list[str]) -> int:
    print("recorded: return length won | same order: return length won | own orders: return (deviation) length win rate")
    for path in map(Path, paths):
        print(path.name)
        for row in free_run(replay.read(path)):
            print(
                f"  {row['recorded return']:7.3f} {row['recorded length']:4.0f} {row['recorded won']:.0f} | "
                f"{row['return']:7.3f} {row['length']:4.0f} {row['won']:.0f} | "
                f"{row['mean return']:7.3f} ({row['deviation']:.3f}) {row['mean length']:6.1f} {row['win rate']:.2f}"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
