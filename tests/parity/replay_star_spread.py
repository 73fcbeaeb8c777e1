"""Star-Spread recordings against `dgmarl.envs.star_spread`, one step from each recorded state."""

import json

import jax
import jax.numpy as jnp
import numpy as np

from dgmarl.envs.star_spread import StarSpread, StarSpreadConfig, StarSpreadState

TOLERANCE = 1e-6


def replay(recording: dict[str, np.ndarray]) -> tuple[int, list[str]]:
    """How many transitions were compared, and a line for each one that differs."""
    meta = json.loads(str(recording["meta_json"]))
    noise = 1.0 if meta["noisy_rewards"] else 0.0
    if noise:
        raise ValueError("only recordings with reward noise off can be replayed")
    env = StarSpread(StarSpreadConfig(meta["n_agents"], noise=noise, horizon=meta["time_limit"]))
    n_episodes, n_steps = recording["actions"].shape[:2]
    times = np.broadcast_to(np.arange(n_steps + 1), (n_episodes, n_steps + 1))
    states = StarSpreadState(jnp.asarray(recording["pos"]), jnp.asarray(times))
    before = jax.tree.map(lambda leaf: leaf[:, :-1], states)

    def one_step(state: StarSpreadState, action: jax.Array) -> tuple:
        after, observation, outcome = env.step(jax.random.key(0), state, action)
        return (
            after.position,
            outcome.reward,
            observation.agents_view,
            observation.global_state,
            outcome.terminated,
            outcome.truncated,
            outcome.info,
        )

    batched = jax.jit(jax.vmap(jax.vmap(one_step)))(
        before, jnp.asarray(recording["actions"], jnp.int32)
    )
    position, reward, agents_view, state, terminated, truncated, info = jax.tree.map(
        np.asarray, batched
    )
    first = jax.tree.map(
        np.asarray,
        jax.jit(jax.vmap(env.observation))(jax.tree.map(lambda leaf: leaf[:, 0], states)),
    )
    graph = np.asarray(env.oracle_graph(jax.tree.map(lambda leaf: leaf[0, 0], states)))
    compared = {
        "position": (position, recording["pos"][:, 1:]),
        "reward": (reward, recording["rewards"]),
        "observation": (agents_view, recording["obs"][:, 1:]),
        "state": (state, recording["state"][:, 1:]),
        "terminated": (terminated, recording["terminated"]),
        "truncated": (truncated, recording["truncated"]),
        "coverage": (info["coverage"], recording["coverage"][:, 1:]),
        "coverage loss": (info["team_coverage_loss"], recording["team_coverage_loss"][:, 1:]),
        "first observation": (first.agents_view[:, None], recording["obs"][:, :1]),
        "landmarks": (env.landmarks[None, None], recording["landmarks"][None, None]),
        "graph": (graph[None, None], recording["oracle_graph"][None, None]),
    }
    differences = []
    for name, (ours, theirs) in compared.items():
        gap = (
            np.abs(ours.astype(float) - theirs.astype(float))
            .reshape(*ours.shape[:2], -1)
            .max(axis=-1)
        )
        # A sum over landmarks is a number near N: the tolerance is relative beyond 1.
        allowed = TOLERANCE * np.maximum(
            1.0, np.abs(theirs.astype(float)).reshape(*ours.shape[:2], -1).max(axis=-1)
        )
        differences += [
            f"episode {e} step {t}: {name} differs by {gap[e, t]:.3g}"
            for e, t in np.argwhere(gap > allowed)
        ]
    return n_episodes * n_steps, differences
