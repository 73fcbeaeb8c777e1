"""Why a replayed step of SMAClite differs from the recording, where that can be proved.

Two things change nothing but the last bit of a velocity, and ours leaves them open: neighbours at
exactly the same distance, whose order the original takes from the history of a search tree, and
walls, which the original cuts into pieces. Touching discs push each other apart at sixteen times
their overlap, so within the eight ticks of a step that bit can grow to a visible difference, or
decide whether two discs notice each other. A difference counts as explained if the same step with
the scalar collision avoidance gives *our* result with our conventions, and with the original's the
*recorded* one, to the last bit of positions and velocities."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
from scalar_orca import velocities

from dgmarl.envs.smaclite import Smaclite, State
from dgmarl.envs.smaclite.combat import take_turns
from dgmarl.envs.smaclite.env import give_commands
from dgmarl.envs.smaclite.targeting import intend

OURS = {"cut_walls": False, "last_first": False}
THEIRS = {
    "neighbours at exactly the same distance, in the other order": {
        "cut_walls": False,
        "last_first": True,
    },
    "walls cut into pieces": {"cut_walls": True, "last_first": False},
    "walls cut into pieces, and neighbours at exactly the same distance in the other order": {
        "cut_walls": True,
        "last_first": True,
    },
}
TO_THE_LAST_BIT = ("position", "velocity", "target", "attacking")
PRECISION = 1e-5
"""Of everything else, which has double precision in the original."""


def explain(
    env: Smaclite, before: State, action: np.ndarray, order: np.ndarray, ours: State, theirs: dict
) -> str | None:
    """One sentence, or None where there is no proof.

    theirs: the recorded values of each unit after the step, and what it `earned` in it.
    """
    mine = _play(env, before, action, order, **OURS)
    our_result = {name: np.asarray(getattr(ours, name)) for name in theirs if name != "earned"}
    # Where the recorded state is the one we reach, what differs has another cause.
    if not _same(mine, our_result) or _same(mine, theirs):
        return None
    for reason, conventions in THEIRS.items():
        played = _play(env, before, action, order, **conventions)
        if _same(played, theirs):
            gap = np.abs(played["taken"] - mine["taken"]).max(-1)
            tick = int(np.argmax(gap.any(-1)))
            unit = int(np.argmax(gap[tick]))
            return (
                f"with {reason}, it is the recorded one; first at tick {tick}, unit {unit} "
                f"(by {gap[tick, unit]:.1g})"
            )
    return None


def _same(played: dict[str, np.ndarray], values: dict[str, np.ndarray]) -> bool:
    """Whether all earned the same, and those in play are alike: to the last bit what moves, else up
    to its precision."""
    alive = values["in_play"]
    if not np.array_equal(played["in_play"], alive):
        return False
    gaps = {name: np.abs(played[name].astype(np.float64) - value) for name, value in values.items()}
    counted = {name: gap if name == "earned" else gap[alive] for name, gap in gaps.items()}
    return all(
        (gap <= (0 if name in TO_THE_LAST_BIT else PRECISION)).all()
        for name, gap in counted.items()
    )


def _play(
    env: Smaclite, state: State, action: np.ndarray, order: np.ndarray, **conventions: bool
) -> dict[str, np.ndarray]:
    """The units after a step with the scalar collision avoidance, what they `earned`, and the
    velocities `taken` per tick."""
    command, wishes, turns = _compiled(env)
    given = _with_battle(command(state, action))
    earned, chosen = np.zeros(env.roster.n_units), []
    for turn in np.argsort(order, axis=1).astype(np.int32):
        now = _with_battle(state)
        intent = wishes(now, given)
        chosen.append(
            velocities(env.roster, state, np.asarray(intent.preferred)[..., 0], **conventions)
        )
        after = turns(now, intent, *_with_battle((chosen[-1], turn)))
        state, reward = jax.tree.map(lambda leaf: np.asarray(leaf)[..., 0], after)
        earned += reward
    return {**state._asdict(), "earned": earned, "taken": np.stack(chosen)}


def _with_battle(tree):
    """One battle as a batch of battles, which the rules have last."""
    return jax.tree.map(lambda leaf: jnp.asarray(leaf)[..., None], tree)


@cache
def _compiled(env: Smaclite):
    roster = env.roster
    return (
        jax.jit(lambda state, action: give_commands(roster, state, action)),
        jax.jit(lambda state, command: intend(roster, state, command)),
        jax.jit(
            lambda state, intent, velocity, turn: take_turns(
                roster, state, intent, velocity, turn, True
            )
        ),
    )
