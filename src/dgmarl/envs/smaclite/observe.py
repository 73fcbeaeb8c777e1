"""Observations, global state, action masks, oracle graph and local states of a single battle."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .roster import Roster
from .terrain import SIZE
from .types import DIRECTIONS, MOVE_PROBE, SIGHT, TARGETING_RANGE, SmacliteConfig, State


def available_actions(roster: Roster, state: State) -> Bool[Array, "N A"]:
    """No-op for dead units; for living ones stop, moves to walkable cells, targets in range."""
    alive = state.in_play[: roster.n_allies]
    fixed = jnp.stack([~alive, alive], axis=1)
    acts = jnp.concatenate([_moves(roster, state), _targets(roster, state)], axis=1)
    return jnp.concatenate([fixed, acts & alive[:, None]], axis=1)


def _moves(roster: Roster, state: State) -> Bool[Array, "N 4"]:
    """Whether the cell one step ahead is walkable; applied to air units too, as in the original."""
    probe = state.position[: roster.n_allies, None] + MOVE_PROBE * jnp.array(DIRECTIONS)
    cell = jnp.floor(probe).astype(jnp.int32)
    inside = ((cell >= 0) & (cell < SIZE)).all(-1)
    cell = jnp.clip(cell, 0, SIZE - 1)
    return inside & jnp.asarray(roster.walkable)[cell[..., 1], cell[..., 0]]


def _targets(roster: Roster, state: State) -> Bool[Array, "N K"]:
    """Enemies within range; for healers, allies within range that are not healers."""
    n = roster.n_allies
    near = (_offsets(roster, state) ** 2).sum(-1) <= TARGETING_RANGE**2
    near &= state.in_play
    enemies = _padded(near[:, n:], roster.n_targets)
    if not roster.is_healer[:n].any():
        return enemies
    patients = (near[:, :n] & ~roster.is_healer[:n])[:, : roster.n_targets]
    return jnp.where(roster.is_healer[:n, None], _padded(patients, roster.n_targets), enemies)


def _padded(values: Bool[Array, "N J"], width: int) -> Bool[Array, "N K"]:
    return jnp.pad(values, ((0, 0), (0, width - values.shape[1])))


def _offsets(roster: Roster, state: State) -> Float[Array, "N U 2"]:
    """Offset from each ally to each unit."""
    return state.position - state.position[: roster.n_allies, None]


def observe(
    roster: Roster, config: SmacliteConfig, state: State, action_mask: Bool[Array, "N A"]
) -> Float[Array, "N O"]:
    """Available moves, visible enemies, visible other allies, own features, in the original's
    layout; zeros for dead units. Distances and offsets are relative to the sight range."""
    n = roster.n_allies
    alive = state.in_play[:n]
    attackable = action_mask[:, 6 : 6 + roster.n_enemies]
    if not config.healer_flags:
        attackable &= ~roster.is_healer[:n, None]
    offset, health = _offsets(roster, state), _health(roster, state)
    distance = jnp.sqrt((offset**2).sum(-1, keepdims=True))
    of_units = jnp.broadcast_to(health, (n, *health.shape))
    features = jnp.concatenate([distance / SIGHT, offset / SIGHT, of_units], axis=-1)
    enemies = jnp.concatenate([attackable[..., None], features[:, n:]], axis=-1)
    allies = jnp.concatenate([jnp.ones((n, n, 1)), features[:, :n]], axis=-1)
    visible = (distance[..., 0] < SIGHT) & state.in_play
    enemies = _without(enemies, roster.enemies_have_shields, 5) * visible[:, n:, None]
    allies = _without(allies, roster.allies_have_shields, 5) * visible[:, :n, None]
    # Row i without i itself, in order.
    others = jnp.arange(n - 1) + (jnp.arange(n - 1) >= jnp.arange(n)[:, None])
    allies = jnp.take_along_axis(allies, others[..., None], axis=1)
    own = _without(health[:n], roster.allies_have_shields, 1)
    blocks = [action_mask[:, 2:6], enemies.reshape(n, -1), allies.reshape(n, -1), own]
    return jnp.concatenate([block.astype(jnp.float32) for block in blocks], axis=1) * alive[:, None]


def _health(roster: Roster, state: State) -> Float[Array, "U F"]:
    """Relative hit points, relative shield, type."""
    hp, shield = state.hp / roster.max_hp, state.shield / jnp.maximum(roster.max_shield, 1.0)
    return jnp.concatenate([hp[:, None], shield[:, None], roster.one_hot], axis=1)


def _without(features: Float[Array, "*K F"], keep: bool, column: int) -> Float[Array, "*K F"]:
    """The features without the shield column if no unit of the side has a shield."""
    return features if keep else jnp.delete(features, column, axis=-1)


def central_state(roster: Roster, state: State) -> Float[Array, "D"]:
    """Hit points, cooldown or energy and position of every ally, hit points and position of every
    enemy, the last joint action."""
    n = roster.n_allies
    place = (state.position - SIZE / 2) / SIZE
    ready = state.cooldown / jnp.where(roster.max_cooldown > 0, roster.max_cooldown, 1.0)
    ready = jnp.where(roster.is_healer, state.energy / jnp.maximum(roster.max_energy, 1.0), ready)
    health = _health(roster, state)
    allies = jnp.concatenate([health[:n, :1], ready[:n, None], place[:n], health[:n, 1:]], axis=1)
    enemies = jnp.concatenate([health[n:, :1], place[n:], health[n:, 1:]], axis=1)
    allies = _without(allies, roster.allies_have_shields, 4) * state.in_play[:n, None]
    enemies = _without(enemies, roster.enemies_have_shields, 3) * state.in_play[n:, None]
    last = (state.last_action[:, None] == jnp.arange(roster.n_actions)).astype(jnp.float32)
    return jnp.concatenate([allies.reshape(-1), enemies.reshape(-1), last.reshape(-1)])


def observation_size(roster: Roster) -> int:
    """Size O of an observation."""
    types = roster.one_hot.shape[1]
    ally, enemy = types + roster.allies_have_shields, types + roster.enemies_have_shields
    return 4 + roster.n_enemies * (5 + enemy) + (roster.n_allies - 1) * (5 + ally) + 1 + ally


def state_size(roster: Roster) -> int:
    """Size D of the global state."""
    types = roster.one_hot.shape[1]
    ally, enemy = 4 + types + roster.allies_have_shields, 3 + types + roster.enemies_have_shields
    return roster.n_allies * (ally + roster.n_actions) + roster.n_enemies * enemy


def oracle_graph(roster: Roster, config: SmacliteConfig, state: State) -> Bool[Array, "N N"]:
    """Proximity graph of living allies, with self-loops.

    `distance`: edges within `oracle_distance`, symmetric. `nearest`: row j has edges to its
    `oracle_neighbours` nearest allies, itself included, ties to the lower index. The paper's code
    uses the latter but treats dead allies as located at the origin; here dead allies have only
    their self-loop."""
    n = roster.n_allies
    alive = state.in_play[:n]
    both = alive & alive[:, None]
    squared = (_offsets(roster, state)[:, :n] ** 2).sum(-1)
    self_loops = jnp.eye(n, dtype=bool)
    if config.oracle == "distance":
        return self_loops | (both & (squared <= config.oracle_distance**2))
    key = jnp.where(self_loops, -1.0, jnp.where(both, squared, jnp.inf))
    before = jnp.arange(n) < jnp.arange(n)[:, None]
    rank = ((key[:, None] < key[:, :, None]) | ((key[:, None] == key[:, :, None]) & before)).sum(-1)
    return self_loops | (both & (rank < config.oracle_neighbours))


def local_state(roster: Roster, state: State) -> Float[Array, "N 12"]:
    """Agent i's own state: position, velocity, hit points, shield, energy, heal reserve, both
    cooldowns, whether it is in play and whether its target is.

    It contains nothing about other units. So j influences i in one step if it blocks i, heals it,
    kills an attacker or the target of i, or draws enemy fire towards or away from i."""
    n = roster.n_allies
    target = state.target[:n]
    has_target = (target >= 0) & state.in_play[jnp.maximum(target, 0)]
    names = ("hp", "shield", "energy", "heal_reserve", "cooldown", "shield_cooldown", "in_play")
    single = (getattr(state, name)[:, None] for name in names)
    columns = [state.position, state.velocity, *single]
    own = jnp.concatenate([column[:n].astype(jnp.float32) for column in columns], axis=1)
    own = jnp.where(state.in_play[:n, None], own, 0.0)
    return jnp.concatenate([own, has_target[:, None]], axis=1)
