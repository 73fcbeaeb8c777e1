"""Targets and preferred velocities: the first half of a tick.

Allies follow their commands. Enemies walk to the attack point and attack visible allies: healers
first, then the nearest. Battles are the last axis, `[U, B]`."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from . import precise
from .batch import first_least, pick
from .precise import Pair
from .roster import Roster
from .types import NOBODY, Command, State

# Sort key of an ally that is a candidate only because it targets the enemy: after all visible ones.
FAR = 2e9


class Intent(NamedTuple):
    """Targets and preferred velocities of one tick."""

    target: Int[Array, "U B"]
    aim: Int[Array, "U B"]
    """The unit to fire at: the commanded one, dead or alive; for enemies their target."""
    attacking: Bool[Array, "U B"]
    preferred: Float[Array, "U 2 B"]
    """Velocity before collision avoidance."""


def intend(roster: Roster, state: State, command: Command) -> Intent:
    """Targets and preferred velocities of all units."""
    n = roster.n_allies
    cleaned = keep_targets(roster, state, command)
    enemy_target = _enemy_targets(roster, state, cleaned)
    target = jnp.concatenate([cleaned[:n], enemy_target])
    aim = jnp.concatenate([command.aim, enemy_target])
    units = jnp.arange(roster.n_units)
    can_hit = jnp.asarray(roster.can_hit)[units[:, None], aim]
    fires = (aim != NOBODY) & _in_reach(roster, state.position, units, aim) & can_hit
    speed = _speeds(roster, state, cleaned)
    preferred = jnp.where(fires[:, None], 0.0, _towards(roster, state, command, aim, speed))
    attacking = state.attacking | (fires & state.in_play)
    return Intent(target, aim, attacking, jnp.where(state.in_play[:, None], preferred, 0.0))


def keep_targets(roster: Roster, state: State, command: Command) -> Int[Array, "U B"]:
    """Targets after the update at the start of a tick.

    An ally's target is the commanded unit while that has hit points. An enemy keeps a target that
    is in range or that targets it. For this test it reads the current targets of allies created
    before it and the previous targets of the others."""
    n = roster.n_allies
    ally_target = jnp.where(pick(state.hp, command.aim) > 0, command.aim, NOBODY)
    old = state.target[n:]
    enemies = jnp.arange(n, roster.n_units)
    now = jnp.concatenate([ally_target, old])
    is_updated = jnp.asarray(roster.creation)[old] < roster.creation[n:, None]
    targets_me = jnp.where(is_updated, pick(now, old), pick(state.target, old)) == enemies[:, None]
    in_reach = _in_reach(roster, state.position, enemies, old)
    keeps = (pick(state.hp, old) > 0) & (targets_me | in_reach)
    return jnp.concatenate([ally_target, jnp.where((old != NOBODY) & keeps, old, NOBODY)])


def _enemy_targets(roster: Roster, state: State, cleaned: Int[Array, "U B"]) -> Int[Array, "E B"]:
    """Damage dealers without a target select one; while an allied healer is in play, those that
    target other units select again."""
    n = roster.n_allies
    old = cleaned[n:]
    distance = _distance(state.position[n:, None], state.position[None, :n])  # [enemy, ally, B]
    listed = state.in_play[None, :n] & roster.can_hit[n:, :n, None]
    targets_me = cleaned[None, :n] == jnp.arange(n, roster.n_units)[:, None, None]
    scan = roster.scan_range[n:, None]
    nearby = distance**2 <= ((scan + roster.largest_radius) ** 2)[..., None]
    visible = listed & nearby & ((distance < (scan + roster.radius[:n])[..., None]) | targets_me)
    picked = _first_choice(
        roster, jnp.where(visible, distance, jnp.where(listed & targets_me, FAR, jnp.inf))
    )
    target = jnp.where(old == NOBODY, picked, old)
    if roster.is_healer[:n].any():
        healer_in_play = (state.in_play[:n] & roster.is_healer[:n, None]).any(0)
        other = _first_choice(roster, jnp.where(visible, distance, jnp.inf))
        has_other = (old != NOBODY) & ~jnp.asarray(roster.is_healer)[old]
        reselects = healer_in_play & has_other & (other != NOBODY)
        target = jnp.where(reselects, other, target)
    if roster.is_healer[n:].any():
        healing = _heal_targets(roster, state, old, target)
        target = jnp.where(
            roster.is_healer[n:, None], jnp.where(old == NOBODY, healing, old), target
        )
    return target


def _first_choice(roster: Roster, key: Float[Array, "E N B"]) -> Int[Array, "E B"]:
    """The ally with the smallest key, healers first, then by index; NOBODY if all are infinite."""
    least, place = first_least(key, axis=1)
    chosen = jnp.where(least < jnp.inf, place, NOBODY)
    healers = roster.is_healer[: roster.n_allies]
    if healers.any():
        least, place = first_least(jnp.where(healers[:, None], key, jnp.inf), axis=1)
        chosen = jnp.where(least < jnp.inf, place, chosen)
    return chosen


def _heal_targets(
    roster: Roster, state: State, old: Int[Array, "E B"], picked: Int[Array, "E B"]
) -> Int[Array, "E B"]:
    """For each enemy as a healer: the weakest visible unit of its side, damaged or engaged."""
    n = roster.n_allies
    position, hp = state.position[n:], state.hp[n:]
    distance = _distance(position[:, None], position[None])
    creation = roster.creation[n:]
    # Enemies select in order of creation, so a healer reads new targets only of those before it.
    is_updated = (creation < creation[:, None])[..., None]
    engaged = jnp.where(is_updated, picked[None], old[None]) != NOBODY
    scan = (roster.scan_range[n:, None] + roster.radius[n:])[..., None]
    sees = _healable(roster, state) & (distance < scan)
    eligible = sees & ((hp < roster.max_hp[n:, None])[None] | engaged)
    least, place = first_least(jnp.where(eligible, hp[None], jnp.inf), axis=1)
    return jnp.where(least < jnp.inf, n + place, NOBODY)


def _healable(roster: Roster, state: State) -> Bool[Array, "E E B"]:
    """Entry [healer, unit]: whether the unit can be healed and is within the search radius."""
    n = roster.n_allies
    distance = _distance(state.position[n:, None], state.position[None, n:])
    listed = roster.can_hit[n:, n:] & ~np.eye(roster.n_enemies, dtype=bool)
    nearby = distance**2 <= ((roster.scan_range[n:, None] + roster.largest_radius) ** 2)[..., None]
    return state.in_play[None, n:] & listed[..., None] & nearby


def _speeds(roster: Roster, state: State, cleaned: Int[Array, "U B"]) -> Pair:
    """[U, B] the unit's speed; a scripted healer is limited to the slowest unit on its list.

    The list holds the units it can heal if it has no target. If it has one, the list holds the
    allies that target it, and only while some enemy is selecting a target."""
    n = roster.n_allies
    own = precise.pair(roster.speed[:, None])
    shape = cleaned.shape
    if not roster.is_healer[n:].any():
        return Pair(jnp.broadcast_to(own.high, shape), jnp.broadcast_to(own.low, shape))
    idle = cleaned[n:] == NOBODY
    some_selecting = (state.in_play[n:] & idle & ~roster.is_healer[n:, None]).any(0)
    followed = _healable(roster, state) & idle[:, None]
    targets_me = cleaned[None, :n] == jnp.arange(n, roster.n_units)[:, None, None]
    listed = state.in_play[None, :n] & roster.can_hit[n:, :n, None]
    chased = targets_me & listed & some_selecting & ~idle[:, None]
    on_list = jnp.concatenate([chased, followed], axis=1)
    slowest = jnp.where(on_list, own.high, jnp.inf).min(1)
    limited = roster.is_healer[n:, None] & (slowest < jnp.inf)
    of_slowest = on_list & (own.high == slowest[:, None])
    low = jnp.where(of_slowest, own.low, jnp.inf).min(1)
    high = jnp.where(limited, slowest, own.high[n:])
    low = jnp.where(limited, low, own.low[n:])
    allies = (jnp.broadcast_to(part[:n], (n, shape[1])) for part in own)
    return Pair(*(jnp.concatenate(both) for both in zip(allies, (high, low), strict=True)))


def _towards(
    roster: Roster, state: State, command: Command, aim: Int[Array, "U B"], speed: Pair
) -> Array:
    """Full speed towards the aim, the commanded position or the attack point, without slowing down
    at it; zero for units that stop."""
    has_aim = (aim != NOBODY)[:, None]
    n_battles = aim.shape[-1]
    walks = jnp.concatenate([command.moves, jnp.ones((roster.n_enemies, n_battles), bool)])[:, None]
    chase = _at_speed(pick(state.position, aim) - state.position, speed.high)
    return jnp.where(has_aim, chase, jnp.where(walks, _walk(roster, state, command, speed), 0.0))


def _at_speed(way: Float[Array, "U 2 B"], speed: Float[Array, "U B"]) -> Float[Array, "U 2 B"]:
    length = jnp.sqrt((way**2).sum(1))
    divisor = jnp.where(length > 0, length, 1.0)
    # Per component: XLA would replace the division by a broadcast array with a product, which
    # differs in the last bit.
    return jnp.stack([way[:, k] * speed / divisor for k in range(2)], axis=1)


def _walk(roster: Roster, state: State, command: Command, speed: Pair) -> Float[Array, "U 2 B"]:
    """Towards the commanded position or the attack point, in double precision like the original."""
    shape = (roster.n_enemies, 2, state.hp.shape[-1])
    waypoint = precise.pair(roster.attack_point[:, None])
    goal = jnp.concatenate([command.origin, jnp.broadcast_to(waypoint.high, shape)])
    rest = jnp.concatenate([command.offset, jnp.broadcast_to(waypoint.low, shape)])
    way = precise.add(goal, -state.position)
    way = precise.plus(way, Pair(rest, jnp.zeros_like(rest)))
    squared = precise.times(way, way)
    length = precise.root(
        precise.plus(*(Pair(squared.high[:, k], squared.low[:, k]) for k in range(2)))
    )
    nonzero = length.high > 0
    length = Pair(jnp.where(nonzero, length.high, 1.0)[:, None], length.low[:, None])
    scaled = precise.times(way, Pair(speed.high[:, None], speed.low[:, None]))
    return jnp.where(nonzero[:, None], precise.divide(scaled, length), 0.0)


def _in_reach(
    roster: Roster, position: Float[Array, "U 2 B"], who: Int[Array, "K"], aim: Int[Array, "K B"]
) -> Array:
    """Whether `aim[k]` is in the weapon range of unit `who[k]`."""
    distance = _distance(position[who], pick(position, aim))
    return distance <= jnp.asarray(roster.reach)[who[:, None], aim]


def _distance(one: Float[Array, "*K 2 B"], other: Float[Array, "*K 2 B"]) -> Float[Array, "*K B"]:
    return jnp.sqrt(((one - other) ** 2).sum(-2))
