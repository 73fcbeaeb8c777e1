"""Check an environment's oracle graph against interventions in its simulator."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dgmarl.envs.base import Environment
from dgmarl.envs.checker import Finding
from dgmarl.graphs.interventional import intervene_batch
from dgmarl.rollout import act_randomly, collect, reset_envs

N_EPISODES, MAX_STEPS, MAX_NAMED = 8, 20, 5


class _Played(NamedTuple):
    """What random episodes show, [T, E, ...]."""

    oracle: Any
    action_graph: Any
    reward_graph: Any
    reward: Any
    valid: Any
    continues: Any


def check_oracle(env: Environment, seed: int = 0) -> list[Finding]:
    """Report edges that interventions show in random episodes and the oracle lacks, in local states
    and in rewards. The oracle may have more edges than one-step interventions show."""
    if not env.offers("oracle_graph"):
        return []
    played = _play(env, seed)
    sentences = [_lacking_edges(played)]
    if not env.offers("oracle_reward_graph"):
        sentences.append(_unreached_rewards(played))
    return [Finding("note", sentence) for sentence in sentences if sentence]


def _play(env: Environment, seed: int) -> _Played:
    """Random episodes of at most `MAX_STEPS` steps, with interventions."""

    @jax.jit
    def play(key: jax.Array) -> _Played:
        start_key, play_key = jax.random.split(key)
        start = reset_envs(env, start_key, jnp.zeros((N_EPISODES, 0)), N_EPISODES)
        length, needs = min(env.spec.horizon, MAX_STEPS), frozenset({"oracle", "states", "keys"})
        _, batch = collect(env, act_randomly, start, play_key, length, needs, reset=False)
        shown = intervene_batch(env, batch)
        graphs = (batch.extras["oracle"], shown.action_graph, shown.reward_graph)
        return _Played(*graphs, batch.reward, batch.valid, batch.continues)

    played = _Played(*map(np.asarray, play(jax.random.key(seed))))
    valid = played.valid[..., None, None]
    return played._replace(
        action_graph=played.action_graph & valid, reward_graph=played.reward_graph & valid
    )


def _lacking_edges(played: _Played) -> str:
    """A sentence about edges between local states; empty if none is lacking."""
    shown, oracle = played.action_graph, played.oracle
    lacking = (shown & ~oracle).sum(axis=(0, 1))
    missing = sorted(np.argwhere(lacking).tolist(), key=lambda edge: -lacking[tuple(edge)])
    if not missing:
        return ""
    named = ", ".join(f"{j} -> {i} ({lacking[j, i]})" for j, i in missing[:MAX_NAMED])
    more = f" and {len(missing) - MAX_NAMED} more" if len(missing) > MAX_NAMED else ""
    hint = "add them, because this influence is not credited without them"
    if not (shown & ~oracle.swapaxes(-1, -2)).any():
        hint = "it looks transposed: row = source, column = target"
    return (
        f"oracle_graph lacks edges that interventions show in {played.valid.sum()} states of "
        f"random play (source -> target, number of states): {named}{more}; {hint}."
    )


def _unreached_rewards(played: _Played) -> str:
    """A sentence about influence through rewards only; empty if there is none. Edges that
    `_lacking_edges` reports count as present, and a team reward has a note of its own."""
    if (played.reward == played.reward[..., :1]).all():
        return ""
    unreached = (played.reward_graph & ~_reached(played)).any(axis=(0, 1))
    if not unreached.any():
        return ""
    sources, targets = (np.flatnonzero(unreached.any(axis=axis)).tolist() for axis in (1, 0))
    return (
        f"actions of agents {sources} change rewards of agents {targets} that no path of "
        "oracle_graph reaches: add the edges, define oracle_reward_graph, or train with "
        "--credit.reward-graph measured."
    )


def _reached(played: _Played) -> np.ndarray:
    """[T, E, N, N]: whether a path of edges from j at step t reaches i in the rest of the episode.
    After the last step of an unfinished episode any path through edges of the batch is assumed."""
    edges, eye = played.oracle | played.action_graph, np.eye(played.oracle.shape[-1], dtype=bool)
    anywhere = (edges & played.valid[..., None, None]).any(axis=(0, 1)) | eye
    for _ in range(len(eye).bit_length()):
        anywhere = _followed_by(anywhere, anywhere)
    unfinished = played.valid[-1] & played.continues[-1]
    later, reached = np.where(unfinished[:, None, None], anywhere, eye), []
    for now, valid in zip(edges[::-1], played.valid[::-1], strict=True):
        later = np.where(valid[:, None, None], _followed_by(now | eye, later), later)
        reached.append(later)
    return np.stack(reached[::-1])


def _followed_by(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Whether an edge of the first graph leads to one of the second."""
    return first.astype(np.float32) @ second.astype(np.float32) > 0
