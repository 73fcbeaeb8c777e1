"""Replay a recording of the original SMAClite: `replay(arrays) -> (transitions, differences,
explained)`.

Every recorded state is injected on its own and the recorded order of turns is used, so one
difference cannot hide or cause another: the dynamics are chaotic. Where the recording holds single
ticks, they are replayed tick by tick as well. A step that differs is explained if
`explain_smaclite` can prove that nothing but an exact tie or the rounding at a cut wall is behind
it."""

import json
from functools import cache

import jax
import numpy as np
from explain_smaclite import explain

from dgmarl.envs.smaclite import Smaclite, SmacliteConfig, State, find_scenario
from dgmarl.envs.smaclite.env import give_commands
from dgmarl.envs.smaclite.rewards import rewards
from dgmarl.envs.smaclite.types import NOBODY, Command

TOLERANCE = 1e-4
# Steps side by side at most; a full recording takes several batches of one program.
BATCH = 256

# Our names of what a unit has, and the recording's; compared for units in play, since the fallen
# are read by nobody.
NUMBERS = {
    "position": "pos",
    "velocity": "velocity",
    "hp": "hp",
    "shield": "shield",
    "energy": "energy",
    "heal_reserve": "healing_available",
    "cooldown": "cooldown",
    "shield_cooldown": "shield_cooldown",
}
EXACT = {"target": "target", "attacking": "attacking"}


def replay(recording: dict[str, np.ndarray]) -> tuple[int, list[str], list[str]]:
    """Number of steps and of single ticks compared, one line for each that differs, and one for
    each that is explained."""
    meta = json.loads(str(recording["meta_json"]))
    env = _environment(meta["scenario"])
    n_steps, differences, explained = _replay_steps(env, recording)
    differences = _static(env, recording, meta) + differences
    n_ticks = 0
    if "sub0_pos" in recording:
        n_ticks, more = _replay_ticks(env, recording)
        differences += more
    return n_steps + n_ticks, differences, explained


@cache
def _environment(scenario: str) -> Smaclite:
    return Smaclite(find_scenario(scenario))


def _static(env: Smaclite, recording: dict[str, np.ndarray], meta: dict) -> list[str]:
    roster, spec = env.roster, env.spec
    pairs = {
        "first positions": (env.reset(jax.random.key(0))[0].position, recording["unit_init_pos"]),
        "order of creation": (roster.creation, recording["unit_id_overall"]),
        "walkable cells": (roster.walkable, recording["terrain_normal"]),
        "sizes": (
            [
                spec.n_agents,
                roster.n_enemies,
                spec.n_actions,
                spec.obs_size,
                spec.state_size,
                spec.horizon,
            ],
            [
                meta[name]
                for name in (
                    "n_agents",
                    "n_enemies",
                    "n_actions",
                    "obs_size",
                    "state_size",
                    "time_limit",
                )
            ],
        ),
        "highest reward": (roster.max_reward, meta["max_reward"]),
    }
    return [
        f"{what} differ"
        for what, (ours, theirs) in pairs.items()
        if not np.allclose(ours, theirs, atol=1e-6)
    ]


def _replay_steps(
    env: Smaclite, recording: dict[str, np.ndarray]
) -> tuple[int, list[str], list[str]]:
    episode, step = np.nonzero(
        np.arange(recording["actions"].shape[1]) < recording["length"][:, None]
    )
    before = _states(env, recording, episode, step)
    action = recording["actions"][episode, step].astype(np.int32)
    order = _complete(recording["unit_order"][episode, step])
    after, observation, look, paid, ended = _in_batches(_compiled_step(env), before, action, order)

    then = (episode, step + 1)
    alive = recording["alive"][then]
    n_agents = env.spec.n_agents
    tie_free = _tie_free(
        recording["pos"][episode, step][:, :n_agents],
        recording["alive"][episode, step][:, :n_agents],
    )
    everywhere = np.ones(len(episode), bool)
    checks = [
        ("alive", after.in_play, alive, 0.0, everywhere),
        *(
            (ours, getattr(after, ours), recording[theirs][then], TOLERANCE, alive)
            for ours, theirs in NUMBERS.items()
        ),
        *(
            (ours, getattr(after, ours), recording[theirs][then], 0.0, alive)
            for ours, theirs in EXACT.items()
        ),
        (
            "reward by source",
            paid["by_source"],
            recording["reward_intended"][episode, step],
            TOLERANCE,
            everywhere,
        ),
        (
            "reward as published",
            paid["as_published"],
            recording["reward_authors"][episode, step],
            TOLERANCE,
            everywhere,
        ),
        (
            "team reward",
            paid["team"].sum(1),
            recording["team_reward"][episode, step],
            TOLERANCE,
            everywhere,
        ),
        ("terminated", ended[0], recording["terminated"][episode, step], 0.0, everywhere),
        ("truncated", ended[1], recording["truncated"][episode, step], 0.0, everywhere),
        (
            "observation after the step",
            observation.agents_view,
            recording["obs"][then],
            TOLERANCE,
            everywhere,
        ),
        (
            "state after the step",
            observation.global_state,
            recording["state"][then],
            TOLERANCE,
            everywhere,
        ),
        (
            "available actions after the step",
            observation.action_mask,
            recording["avail_actions"][then],
            0.0,
            everywhere,
        ),
        ("observation", look[0].agents_view, recording["obs"][episode, step], 1e-5, everywhere),
        ("state", look[0].global_state, recording["state"][episode, step], 1e-5, everywhere),
        (
            "available actions",
            look[0].action_mask,
            recording["avail_actions"][episode, step],
            0.0,
            everywhere,
        ),
        (
            "nearest-neighbour graph",
            look[1],
            recording["oracle_graph_k3"][episode, step],
            0.0,
            tie_free,
        ),
    ]
    differences, explained = [], []
    for k, words in _by_transition(checks).items():
        name = f"episode {episode[k]}, step {step[k]}"
        theirs = {
            ours: recording[theirs][then][k]
            for ours, theirs in {**NUMBERS, **EXACT, "in_play": "alive"}.items()
        }
        theirs["earned"] = recording["unit_sub_rewards"][episode[k], step[k]].sum(0)
        one = jax.tree.map(lambda leaf, k=k: leaf[k], (before, after))
        reason = explain(env, one[0], action[k], order[k], one[1], theirs)
        differences += [] if reason else [f"{name}: {words}"]
        explained += [f"{name}: {words}; {reason}"] if reason else []
    return len(episode), differences, explained


@cache
def _compiled_step(env: Smaclite):
    """The step, what is seen before and after it, and the rewards of every mode, over a batch of
    recorded states."""
    nearest = Smaclite(
        find_scenario(env.roster.name), SmacliteConfig(oracle="nearest", oracle_neighbours=3)
    )

    def one(state: State, action: jax.Array, order: jax.Array):
        after, ticks = env.play(jax.random.key(0), state, action, order)
        n = env.spec.n_agents
        won = ~after.in_play[n:].any()
        over = won | ~after.in_play[:n].any()
        paid = {
            mode: rewards(env.roster, mode, ticks, won)
            for mode in ("by_source", "as_published", "team")
        }
        look = (env.observation(state), nearest.oracle_graph(state))
        return (
            after,
            env.observation(after),
            look,
            paid,
            (over, (after.time >= env.spec.horizon) & ~over),
        )

    return jax.jit(jax.vmap(one))


def _replay_ticks(env: Smaclite, recording: dict[str, np.ndarray]) -> tuple[int, list[str]]:
    """Episode 0 tick by tick: tick k starts from the recorded state after tick k - 1."""
    n_steps, n_ticks = recording["sub0_pos"].shape[:2]
    zero = np.zeros(n_steps, int)
    starts = _states(env, recording, zero, np.arange(n_steps))
    action = recording["actions"][0, :n_steps].astype(np.int32)
    commands = jax.jit(jax.vmap(lambda state, action: give_commands(env.roster, state, action)))(
        starts, action
    )
    before = _tick_states(recording, starts)
    commands = Command(*(np.repeat(np.asarray(leaf), n_ticks, axis=0) for leaf in commands))
    turns = (
        np.argsort(_complete(recording["sub0_order"]), axis=-1)
        .reshape(n_steps * n_ticks, 1, -1)
        .astype(np.int32)
    )
    after, ticks = _in_batches(_compiled_tick(env), before, commands, turns)

    def flat(name: str) -> np.ndarray:
        values = recording[f"sub0_{name}"]
        return values.reshape(n_steps * n_ticks, *values.shape[2:])

    alive = flat("alive")
    checks = [
        ("alive after a tick", after.in_play, alive, 0.0, np.ones(len(alive), bool)),
        *(
            (f"{ours} after a tick", getattr(after, ours), flat(theirs), TOLERANCE, alive)
            for ours, theirs in NUMBERS.items()
        ),
        *(
            (f"{ours} after a tick", getattr(after, ours), flat(theirs), 0.0, alive)
            for ours, theirs in EXACT.items()
        ),
        (
            "reward of a tick",
            ticks.earned[:, 0],
            flat("unit_reward"),
            TOLERANCE,
            np.ones(len(alive), bool),
        ),
    ]
    wrong = _by_transition(checks)
    return len(alive), [
        f"episode 0, step {k // n_ticks}, tick {k % n_ticks}: {words}" for k, words in wrong.items()
    ]


@cache
def _compiled_tick(env: Smaclite):
    return jax.jit(jax.vmap(env.simulate))


def _states(
    env: Smaclite, recording: dict[str, np.ndarray], episode: np.ndarray, step: np.ndarray
) -> State:
    """The recorded states at these places, as ours."""
    n, n_actions = env.spec.n_agents, env.spec.n_actions
    last = recording["state"][episode, step][:, -n * n_actions :].reshape(-1, n, n_actions)
    return State(
        **{
            ours: recording[theirs][episode, step].astype(np.float32)
            for ours, theirs in NUMBERS.items()
        },
        target=recording["target"][episode, step].astype(np.int32),
        attacking=recording["attacking"][episode, step],
        in_play=recording["alive"][episode, step],
        last_action=np.where(last.any(-1), last.argmax(-1), NOBODY).astype(np.int32),
        time=step.astype(np.int32),
    )


def _tick_states(recording: dict[str, np.ndarray], starts: State) -> State:
    """The state before each tick: that of the step, then those after ticks 0 to 6."""
    n_ticks = recording["sub0_pos"].shape[1]

    def joined(first: np.ndarray, name: str | None) -> np.ndarray:
        first = np.asarray(first)[:, None]
        if name is None:
            joint = np.repeat(first, n_ticks, axis=1)
        else:
            joint = np.concatenate(
                [first, recording[f"sub0_{name}"][:, :-1].astype(first.dtype)], axis=1
            )
        return joint.reshape(-1, *joint.shape[2:])

    names = {**NUMBERS, **EXACT, "in_play": "alive", "last_action": None, "time": None}
    return State(**{ours: joined(getattr(starts, ours), theirs) for ours, theirs in names.items()})


def _complete(order: np.ndarray) -> np.ndarray:
    """Orders as permutations of all units: those out of play, which the recording leaves out, come
    last."""
    n_units = order.shape[-1]
    rank = np.full((*order.shape[:-1], n_units + 1), n_units, np.int32)
    np.put_along_axis(
        rank,
        np.where(order < 0, n_units, order).astype(int),
        np.arange(n_units, dtype=np.int32),
        axis=-1,
    )
    listed = np.zeros_like(rank, bool)
    np.put_along_axis(listed, np.where(order < 0, n_units, order).astype(int), True, axis=-1)
    rank = np.where(listed, rank, n_units)[..., :n_units]
    return np.argsort(rank, axis=-1, kind="stable").astype(np.int32)


def _in_batches(function, *arguments):
    """The function over the leading axis, at most `BATCH` at a time, the last batch filled up with
    its first entry."""
    total = len(jax.tree.leaves(arguments)[0])
    size, parts = min(BATCH, total), []
    for start in range(0, total, size):
        index = np.arange(start, start + size)
        index = np.where(index < total, index, start)
        parts.append(
            jax.tree.map(
                np.asarray,
                function(*jax.tree.map(lambda leaf, index=index: leaf[index], arguments)),
            )
        )
    return jax.tree.map(lambda *leaves: np.concatenate(leaves)[:total], *parts)


def _tie_free(position: np.ndarray, alive: np.ndarray) -> np.ndarray:
    """States in which the original's neighbour graph is well defined: nobody has fallen, and no
    distances tie at the cut."""
    distance = np.sort(
        np.linalg.norm(position[:, :, None].astype(np.float64) - position[:, None], axis=-1),
        axis=-1,
    )
    clear = (
        distance[..., 3] - distance[..., 2] > 1e-5
        if distance.shape[-1] > 3
        else np.ones(distance.shape[:-1], bool)
    )
    return clear.all(-1) & alive.all(-1)


def _differences(
    what: str, ours: object, recorded: np.ndarray, tolerance: float, counts: np.ndarray
) -> dict[int, str]:
    """For each transition that differs a few words about the largest difference."""
    ours, recorded = np.asarray(ours, np.float64), np.asarray(recorded, np.float64)
    if ours.shape != recorded.shape:
        raise ValueError(f"{what} has shape {recorded.shape} in the recording, {ours.shape} here")
    gap = np.abs(ours - recorded).reshape(*counts.shape, -1)
    # A comparison that is false for NaN, so that NaN is a difference.
    differs = counts & ~(gap <= tolerance).all(-1)
    return {
        k: f"{what} (by {gap[k][differs[k]].max():.2g})"
        for k in np.flatnonzero(differs.reshape(len(gap), -1).any(-1))
    }


def _by_transition(checks: list[tuple]) -> dict[int, str]:
    """What differs, for each transition in which anything does."""
    found = [_differences(*check) for check in checks]
    wrong = sorted(set().union(*found))
    return {k: ", ".join(words[k] for words in found if k in words) for k in wrong}
