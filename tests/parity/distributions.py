"""SMAClite with orders of our own, as distributions: `python tests/parity/distributions.py
FILE...`.

The order of turns is the only chance there is, so with orders drawn by us a recorded battle must be
one draw among ours.

Single steps: every recorded step is played from its recorded state with its recorded actions and
`ORDERS` orders of ours. The recorded reward and hit points must then have a uniform rank among
ours, which needs no guess at the policy.

Whole battles: the recorded actions are played from the recorded start. With the recorded orders
they must give the recorded return, length and victory. With ours the battle soon unfolds
differently; an action that is not available there is replaced in the spirit of the recorded
behaviour, so the comparison is as good as that guess: the attackers take the weakest enemy within
reach, else the nearest in sight, healers the weakest ally, and those who evade stop.

The exit code is 1 if the recorded orders give another battle, if ranks are not uniform, or if more
than a sixth of the recorded returns lie outside all of ours. (Each recording was made to hold a
victory, so one of its six may be a rare one.)"""

import json
import sys
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import replay
from replay_smaclite import BATCH, _complete, _environment, _states
from scipy import stats

from dgmarl.envs.smaclite import Smaclite, State
from dgmarl.envs.smaclite.types import FIRST_TARGET, NOBODY, STOP

ORDERS = 64
ROUNDING = 2e-3
ALARM = 1e-4
"""Chance of a false alarm; keys are fixed, so a recording that passes goes on passing."""
WHAT = ("return", "length", "won")


def step_ranks(recording: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """For reward and hit points after a step: ranks of the recorded values among ours, 0 to ORDERS,
    where orders matter."""
    env = _environment(_meta(recording)["scenario"])
    episode, step = np.nonzero(
        np.arange(recording["actions"].shape[1]) < recording["length"][:, None]
    )
    states = _states(env, recording, episode, step)
    action = recording["actions"][episode, step].astype(np.int32)
    n = env.spec.n_agents
    health = recording["hp"] * recording["alive"] + recording["shield"] * recording["alive"]
    recorded = {
        "reward": recording["team_reward"][episode, step],
        "allies": health[episode, step + 1, :n].sum(1),
        "enemies": health[episode, step + 1, n:].sum(1),
    }
    drawn = _draw(env, states, action)
    generator = np.random.default_rng(0)
    return {name: _rank(values, drawn[name], generator) for name, values in recorded.items()}


def _draw(env: Smaclite, states: State, action: np.ndarray) -> dict[str, np.ndarray]:
    """[steps, ORDERS] of each kind."""
    parts = []
    per_batch = BATCH * 4 // ORDERS
    for start in range(0, len(action), per_batch):
        index = np.minimum(np.arange(start, start + per_batch), len(action) - 1)
        keys = jax.random.split(jax.random.key(start), (per_batch, ORDERS))
        given = jax.tree.map(lambda leaf, index=index: leaf[index], (states, action))
        parts.append(jax.tree.map(np.asarray, _compiled_draw(env)(keys, *given)))
    return jax.tree.map(lambda *leaves: np.concatenate(leaves)[: len(action)], *parts)


@cache
def _compiled_draw(env: Smaclite):
    n = env.spec.n_agents

    def one(key, state, action):
        after, _, outcome = env.step(key, state, action)
        health = jnp.where(after.in_play, after.hp + after.shield, 0.0)
        return {
            "reward": outcome.reward.sum(),
            "allies": health[:n].sum(),
            "enemies": health[n:].sum(),
        }

    return jax.jit(jax.vmap(jax.vmap(one, in_axes=(0, None, None))))


def _rank(recorded: np.ndarray, drawn: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Ties are broken at random; rounding must not order what is equal."""
    recorded = recorded[:, None]
    below, equal = (
        (drawn < recorded - ROUNDING).sum(1),
        (np.abs(drawn - recorded) <= ROUNDING).sum(1),
    )
    matters = np.ptp(drawn, axis=1) > 4 * ROUNDING
    return (below + generator.integers(0, equal + 1))[matters]


def uniform(ranks: np.ndarray) -> float:
    """The p-value of a chi-squared test with at least five ranks per bin; nan where there are too
    few."""
    bins = min(8, len(ranks) // 5)
    counts = np.histogram(ranks, bins=bins, range=(-0.5, ORDERS + 0.5))[0] if bins > 1 else []
    return float(stats.chisquare(counts).pvalue) if bins > 1 else float("nan")


def battles(recording: dict[str, np.ndarray]) -> list[dict[str, Any]]:
    """One row per episode: what was recorded, what the recorded order gives, and what ours give,
    `[ORDERS]`."""
    meta = _meta(recording)
    env = _environment(meta["scenario"])
    rows = []
    for episode, length in enumerate(recording["length"].astype(int)):
        start = jax.tree.map(
            lambda leaf: leaf[0], _states(env, recording, np.array([episode]), np.array([0]))
        )
        actions, orders = _to_the_horizon(env, recording, episode)
        drawn = np.random.default_rng(episode).permuted(np.tile(orders, (ORDERS, 1, 1, 1)), axis=-1)
        attacks = np.bool_(meta["episode_policy"][episode] == "attack")
        played = _compiled_battle(env)(
            start, actions, attacks, np.concatenate([orders[None], drawn])
        )
        played = {
            name: np.asarray(values, float) for name, values in zip(WHAT, played, strict=True)
        }
        rows.append(
            {
                "recorded": dict(
                    zip(
                        WHAT,
                        (
                            recording["team_reward"][episode, :length].sum(),
                            length,
                            float(recording["battle_won"][episode]),
                        ),
                        strict=True,
                    )
                ),
                "same order": {name: values[0] for name, values in played.items()},
                "own orders": {name: values[1:] for name, values in played.items()},
            }
        )
    return rows


def _to_the_horizon(
    env: Smaclite, recording: dict[str, np.ndarray], episode: int
) -> tuple[np.ndarray, np.ndarray]:
    """The recorded actions and orders, filled up with `NOBODY` and any order: another battle may
    last longer."""
    horizon, length = env.spec.horizon, int(recording["length"][episode])
    actions = np.full((horizon, env.spec.n_agents), NOBODY, np.int32)
    actions[:length] = recording["actions"][episode, :length]
    orders = np.tile(np.arange(env.roster.n_units, dtype=np.int32), (horizon, 8, 1))
    orders[:length] = _complete(recording["unit_order"][episode, :length])
    return actions, orders


@cache
def _compiled_battle(env: Smaclite):
    def one_step(attacks, carry, given):
        state, observation, running = carry
        action, order = given
        fits = (action >= 0) & jnp.take_along_axis(
            observation.action_mask, jnp.maximum(action, 0)[:, None], axis=1
        )[:, 0]
        action = jnp.where(fits, action, _instead(env, state, observation.action_mask, attacks))
        after, seen, outcome = env.step(jax.random.key(0), state, action, order)
        now = (
            jnp.where(running, outcome.reward.sum(), 0.0),
            running,
            running & outcome.info["battle_won"],
        )
        carry = jax.tree.map(
            lambda new, old: jnp.where(running, new, old), (after, seen), (state, observation)
        )
        return (*carry, running & ~(outcome.terminated | outcome.truncated)), now

    def battle(state, actions, attacks, orders):
        start = (state, env.observation(state), jnp.bool_(True))
        _, (reward, running, won) = jax.lax.scan(
            lambda *args: one_step(attacks, *args), start, (actions, orders)
        )
        return reward.sum(), running.sum(), won.any()

    return jax.jit(jax.vmap(battle, in_axes=(None, None, None, 0)))


def _instead(env: Smaclite, state: State, action_mask: jax.Array, attacks: jax.Array) -> jax.Array:
    """What the recorded behaviour might have done where its action is not available."""
    roster, n = env.roster, env.spec.n_agents
    first = np.where(roster.is_healer[:n], 0, n)[:, None]
    unit = np.minimum(first + np.arange(roster.n_targets), roster.n_units - 1)  # [N, targets]
    distance = jnp.sqrt(((state.position[unit] - state.position[:n, None]) ** 2).sum(-1))
    health = (state.hp + state.shield)[unit]
    in_reach = distance <= np.take_along_axis(roster.reach[:n], unit, axis=1)
    heals = health / roster.max_hp[unit]
    key = jnp.where(roster.is_healer[:n, None], heals, jnp.where(in_reach, health, 1000 * distance))
    key = jnp.where(action_mask[:, FIRST_TARGET:], key, jnp.inf)
    target = jnp.where(attacks & (key.min(1) < jnp.inf), FIRST_TARGET + key.argmin(1), STOP)
    return jnp.where(state.in_play[:n], target, 0)


def _meta(recording: dict[str, np.ndarray]) -> dict[str, Any]:
    return json.loads(str(recording["meta_json"]))


def main(paths: list[str]) -> int:
    pooled: dict[str, list[np.ndarray]] = {}
    rows: list[dict[str, Any]] = []
    for path in map(Path, paths):
        recording = replay.read(path)
        print(path.name)
        for name, ranks in step_ranks(recording).items():
            pooled.setdefault(name, []).append(ranks)
        print(
            "  steps in which the order matters:",
            {name: len(ranks[-1]) for name, ranks in pooled.items()},
        )
        print(
            (
                "  recorded: return length won | same order | own orders: return 5 %, median, 95 "
                "%; length; win rate"
            ),
            flush=True,
        )
        for row in battles(recording):
            rows.append(row)
            print(_line(row), flush=True)
    chances = {name: uniform(np.concatenate(ranks)) for name, ranks in pooled.items()}
    for name, p_value in chances.items():
        steps = sum(map(len, pooled[name]))
        print(
            f"{name} of {steps} steps where the order matters: ranks are uniform with p = "
            f"{p_value:.3f}"
        )
    other = sum(
        any(abs(row["same order"][name] - row["recorded"][name]) > ROUNDING for name in WHAT)
        for row in rows
    )
    outside = sum(
        not _among(row["recorded"]["return"], row["own orders"]["return"]) for row in rows
    )
    print(
        f"{len(rows)} battles, {other} differ with the recorded orders, {outside} outside those "
        "with ours"
    )
    return int(other > 0 or outside > len(rows) / 6 or min(chances.values()) < ALARM)


def _among(value: float, values: np.ndarray) -> bool:
    return bool(values.min() - ROUNDING <= value <= values.max() + ROUNDING)


def _line(row: dict[str, Any]) -> str:
    forms = dict(zip(WHAT, ("7.3f", "4.0f", ".0f"), strict=True))
    told = [
        " ".join(f"{row[who][name]:{form}}" for name, form in forms.items())
        for who in ("recorded", "same order")
    ]
    own = row["own orders"]
    returns = " ".join(f"{value:6.2f}" for value in np.quantile(own["return"], (0.05, 0.5, 0.95)))
    return (
        f"  {told[0]} | {told[1]} | {returns}; {own['length'].mean():5.1f}; {own['won'].mean():.2f}"
    )


if __name__ == "__main__":
    replay.forbid_fused_multiply_add()
    sys.exit(main(sys.argv[1:]))
