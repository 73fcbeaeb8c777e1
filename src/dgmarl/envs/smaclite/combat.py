"""The second half of a tick: units move and fire sequentially, in random order.

The order matters only between shots, and few units fire in one tick. The loop therefore runs over
firing units; the turns of the others (timers, regeneration) are applied in bulk before the next
shot and at the end. Battles are the last axis, `[U, B]`."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from dgmarl.device import has_kernels, launch_bound

from .roster import Roster
from .targeting import Intent
from .types import KILL_REWARD, NOBODY, TICK, State

SHIELD_GROWTH = 2 * TICK
SHIELD_DELAY = 10.0
ENERGY_GROWTH = 0.5625 * TICK
HEAL_PER_TICK = 9 * TICK
HEAL_PER_ENERGY = 3.0
ENERGY_FOR_NEW_TARGET = 5.0
NEVER = jnp.iinfo(jnp.int32).max


class Arms(NamedTuple):
    """Properties of units that turns need, as columns `[U, 1]`."""

    is_ally: Any
    is_healer: Any
    max_hp: Any
    max_shield: Any
    max_energy: Any
    max_cooldown: Any
    hp_growth: Any
    """Hit points regenerated per tick."""
    armor: Any
    attacks: Any
    blast_radius: Any
    radius: Any
    damage: Callable[[Bool[Array, "U B"]], Float[Array, "U B"]]
    """Damage to each unit by a hit of the firing unit, at most one per battle."""
    roster: Roster
    """Decides what is compiled: whether any unit heals or explodes, and the number of hits."""


def columns_of(roster: Roster) -> dict[str, np.ndarray]:
    """The columns of `Arms`, `[U]` each."""
    names = [name for name in Arms._fields if name not in ("hp_growth", "damage", "roster")]
    columns = {name: getattr(roster, name) for name in names}
    return columns | {"hp_growth": roster.hp_regeneration * TICK}


def arms_of(roster: Roster) -> Arms:
    """The properties of a roster, as NumPy columns."""
    columns = {name: values[:, None] for name, values in columns_of(roster).items()}
    return Arms(**columns, damage=partial(_damage, roster.damage), roster=roster)


class Fight(NamedTuple):
    """The loop state of one tick."""

    hp: Float[Array, "U B"]
    shield: Float[Array, "U B"]
    shield_cooldown: Float[Array, "U B"]
    energy: Float[Array, "U B"]
    heal_reserve: Float[Array, "U B"]
    target: Int[Array, "U B"]
    had_turn: Bool[Array, "U B"]
    """The unit's turn is over and its timers are updated."""
    lost_turn: Bool[Array, "U B"]
    """The unit was dead at its turn: no movement, no timers, no shot."""
    reward: Float[Array, "U B"]
    """Raw reward of each unit."""
    pending: Int[Array, "U B"]
    """Turn number of units that have yet to fire, else `NEVER`."""


def take_turns(
    roster: Roster,
    state: State,
    intent: Intent,
    velocity: Float[Array, "U 2 B"],
    turn: Int[Array, "U B"],
    revive: bool,
) -> tuple[State, Float[Array, "U B"]]:
    """The state and raw rewards after all turns. Units act in ascending order of `turn`."""
    used = (
        state._replace(last_action=None, time=None),  # pyright: ignore[reportArgumentType]
        intent._replace(preferred=None),  # pyright: ignore[reportArgumentType]
        velocity,
        turn,
    )
    if has_kernels():
        from .combat_kernel import in_one_kernel

        after, earned = in_one_kernel(roster, partial(_turns, revive), used)
    else:
        after, earned = _turns(revive, arms_of(roster), *used)
    return after._replace(last_action=state.last_action, time=state.time), earned


def _turns(
    revive: bool,
    arms: Arms,
    state: State,
    intent: Intent,
    velocity: Float[Array, "U 2 B"],
    turn: Int[Array, "U B"],
) -> tuple[State, Float[Array, "U B"]]:
    """`take_turns` for the properties `arms`."""
    moved = state.position + velocity * TICK
    cooldown = jnp.maximum(0.0, state.cooldown - TICK)
    executes = state.in_play & intent.attacking & (intent.aim != NOBODY)
    pending = jnp.where(executes & (cooldown == 0), turn, NEVER)
    fight = _begin(arms, state, intent, pending)

    def next_shot(fight: Fight) -> Fight:
        now = fight.pending.min(0)
        actor = (fight.pending == now) & (now < NEVER)  # [U, B], at most one per battle
        fight = _catch_up(arms, fight, turn <= now)
        fires = actor & (fight.hp > 0)
        fight = fight._replace(pending=jnp.where(actor, NEVER, fight.pending))
        victims = _victims(arms, state, moved, fight, intent.aim, fires)
        if arms.roster.is_healer.any():
            fight = _heal(arms, state.target, fight, intent.aim, fires & arms.is_healer, revive)
        return _hit(arms, fight, victims, fires)

    fight = lax.while_loop(lambda fight: fight.pending.min() < NEVER, next_shot, fight)
    fight = _catch_up(arms, fight, jnp.ones_like(fight.had_turn))
    acted = ~fight.lost_turn
    fired = acted & executes & (cooldown == 0)
    after = state._replace(
        position=jnp.where(acted[:, None], moved, state.position),
        velocity=jnp.where(state.in_play[:, None], velocity, state.velocity),
        hp=fight.hp,
        shield=fight.shield,
        energy=jnp.where(acted, fight.energy, state.energy),
        heal_reserve=fight.heal_reserve,
        cooldown=jnp.where(fired, arms.max_cooldown, jnp.where(acted, cooldown, state.cooldown)),
        shield_cooldown=fight.shield_cooldown,
        target=fight.target,
        attacking=intent.attacking & ~(acted & executes),
        in_play=state.in_play & (fight.hp > 0),
    )
    return after, fight.reward


def _begin(arms: Arms, state: State, intent: Intent, pending: Int[Array, "U B"]) -> Fight:
    return Fight(
        hp=state.hp,
        shield=state.shield,
        shield_cooldown=state.shield_cooldown,
        # Only a unit's own turn changes its energy, so regeneration can be applied first; it is
        # undone at the end for lost turns.
        energy=jnp.minimum(arms.max_energy, state.energy + ENERGY_GROWTH),
        heal_reserve=state.heal_reserve,
        target=intent.target,
        had_turn=~state.in_play,
        lost_turn=~state.in_play,
        reward=jnp.zeros_like(state.hp),
        pending=pending,
    )


def _catch_up(arms: Arms, fight: Fight, due: Bool[Array, "U B"]) -> Fight:
    """Apply timers and regeneration of units whose turn is due; dead units lose their turn."""
    due &= ~fight.had_turn
    lives = due & (fight.hp > 0)
    cooldown = jnp.maximum(0.0, fight.shield_cooldown - TICK)
    grown = jnp.minimum(arms.max_shield, fight.shield + SHIELD_GROWTH)
    shield = jnp.where(cooldown == 0, grown, fight.shield)
    hp = jnp.minimum(arms.max_hp, fight.hp + arms.hp_growth)
    return fight._replace(
        hp=jnp.where(lives, hp, fight.hp),
        shield=jnp.where(lives, shield, fight.shield),
        shield_cooldown=jnp.where(lives, cooldown, fight.shield_cooldown),
        had_turn=fight.had_turn | due,
        lost_turn=fight.lost_turn | (due & (fight.hp == 0)),
    )


def _victims(
    arms: Arms,
    state: State,
    moved: Array,
    fight: Fight,
    aim: Int[Array, "U B"],
    fires: Bool[Array, "U B"],
) -> Bool[Array, "U B"]:
    """Units hit by the shot of this turn: the aim, or all units of the other side in the blast
    radius of a unit that explodes.

    A blast requires both the position at the beginning of the tick (within the radius plus that of
    the largest unit) and the current position (within the radius plus the unit's own)."""
    units = jnp.arange(len(fires))[:, None]
    hits = fires & ~arms.is_healer
    aim = jnp.where(hits, aim, NOBODY).max(0)
    victims = units == aim
    if not arms.roster.blast_radius.any():
        return victims
    explodes = fires & (arms.blast_radius > 0)
    centre = jnp.where(explodes[:, None], moved, 0.0).sum(0)
    radius = jnp.where(explodes, arms.blast_radius, 0.0).sum(0)
    now = jnp.where((fight.had_turn & ~fight.lost_turn)[:, None], moved, state.position)
    other_side = arms.is_ally != _any(explodes & arms.is_ally)
    was_near = _within(state.position, centre, radius + arms.roster.largest_radius)
    is_near = _within(now, centre, radius + arms.radius)
    return jnp.where(_any(explodes), state.in_play & other_side & was_near & is_near, victims)


def _within(
    position: Float[Array, "U 2 B"], centre: Float[Array, "2 B"], distance: Array
) -> Bool[Array, "U B"]:
    return ((position - centre) ** 2).sum(1) <= distance**2


def _hit(arms: Arms, fight: Fight, victims: Bool[Array, "U B"], fires: Bool[Array, "U B"]) -> Fight:
    """Apply a volley. Armour protects hit points only; only losses of enemies are rewarded."""
    damage = arms.damage(fires)
    attacks = jnp.where(fires, arms.attacks, 0).max(0)
    hp, shield, shield_cooldown = fight.hp, fight.shield, fight.shield_cooldown
    earned = jnp.zeros_like(hp)
    for blow in range(arms.roster.attacks.max()):
        struck = victims & (hp > 0) & (blow < attacks)
        shield_cooldown = jnp.where(struck & (arms.max_shield > 0), SHIELD_DELAY, shield_cooldown)
        absorbed = jnp.where(struck, jnp.minimum(damage, shield), 0.0)
        lost = jnp.where(struck, jnp.clip(damage - absorbed - arms.armor, 0.0, hp), 0.0)
        shield, hp = shield - absorbed, hp - lost
        earned += absorbed + lost + jnp.where(struck & (hp == 0), KILL_REWARD, 0.0)
    paid = jnp.where(arms.is_ally, 0.0, earned).sum(0)
    reward = fight.reward + jnp.where(fires, paid, 0.0)
    if arms.roster.blast_radius.any():
        explodes = fires & (arms.blast_radius > 0)
        reward += jnp.where(explodes & ~arms.is_ally, fight.hp, 0.0)
        hp = jnp.where(explodes, 0.0, hp)
    return fight._replace(hp=hp, shield=shield, shield_cooldown=shield_cooldown, reward=reward)


def _heal(
    arms: Arms,
    target_before: Int[Array, "U B"],
    fight: Fight,
    aim: Int[Array, "U B"],
    heals: Bool[Array, "U B"],
    revive: bool,
) -> Fight:
    """The healer of this turn restores its aim's missing hit points, at most `HEAL_PER_TICK`, for
    energy.

    It drops an aim with full hit points, and a new aim if its energy is below
    `ENERGY_FOR_NEW_TARGET`. Without `revive` it cannot heal dead units."""
    units = jnp.arange(len(heals))[:, None]
    patient = units == jnp.where(heals, aim, NOBODY).max(0)

    def of(who: Bool[Array, "U B"], values: Array | np.ndarray) -> Array:
        return jnp.where(who, values, 0).sum(0)

    energy, reserve = of(heals, fight.energy), of(heals, fight.heal_reserve)
    hp, max_hp = of(patient, fight.hp), of(patient, arms.max_hp)
    is_new = of(heals, target_before) != of(heals, fight.target)
    lets_go = _any(heals) & ((is_new & (energy < ENERGY_FOR_NEW_TARGET)) | (hp == max_hp))
    wanted = jnp.where(lets_go, 0.0, jnp.minimum(max_hp - hp, HEAL_PER_TICK))
    if not revive:
        wanted = jnp.where(hp > 0, wanted, 0.0)
    spent = jnp.where(reserve < wanted, jnp.minimum(1.0, energy), 0.0)
    reserve += HEAL_PER_ENERGY * spent
    given = jnp.minimum(wanted, reserve)
    return fight._replace(
        hp=jnp.where(patient, fight.hp + given, fight.hp),
        energy=jnp.where(heals, energy - spent, fight.energy),
        heal_reserve=jnp.where(heals, reserve - given, fight.heal_reserve),
        target=jnp.where(heals & lets_go, NOBODY, fight.target),
    )


def _damage(damage: Float[np.ndarray, "U U"], fires: Bool[Array, "U B"]) -> Float[Array, "U B"]:
    """See `Arms`. On an accelerator the sum is fused with what follows, a product is not."""
    if launch_bound():
        return jnp.where(fires[:, None], damage[..., None], 0.0).sum(0)
    return jnp.einsum("uv,ub->vb", damage, fires.astype(jnp.float32), precision="highest")


def _any(units: Bool[Array, "U B"]) -> Bool[Array, "B"]:
    """`any(0)`, which kernels do not support."""
    return units.astype(jnp.int32).max(0) > 0
