"""Observations, oracle graph and local states."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from .dynamics import MOVES
from .types import LBFConfig, State


def observe(config: LBFConfig, state: State) -> Float[Array, "N O"]:
    """Observations of all agents, in the layout `config.observation`."""
    return (_vector if config.observation == "vector" else _grid)(config, state)


def _vector(config: LBFConfig, state: State) -> Float[Array, "N 3*(F+N)"]:
    """Triples (row, column, level): visible foods in row-major order, then the agent itself, then
    visible others by index.

    Coordinates are relative to the top-left corner of the agent's window, which is clipped to the
    field. Foods are visible up to `sight` cells away; players in the 2 sight + 1 rows and columns
    from that corner, which is farther than `sight` where the window is clipped, as in the
    original."""
    n_players = config.n_players
    foods = jnp.concatenate([state.food_position, state.food_level[:, None]], axis=1)
    players = _self_first(jnp.concatenate([state.position, state.level[:, None]], axis=1))
    if config.sees_everything:
        packed = _packed(state.food_level > 0, foods)
        foods = jnp.broadcast_to(packed, (n_players, *packed.shape))
    else:
        near = jnp.abs(state.food_position - state.position[:, None]).max(-1) <= config.radius
        corner = jnp.maximum(state.position - config.radius, 0)[:, None]
        offset = jnp.pad(corner, ((0, 0), (0, 0), (0, 1)))
        players = players - offset
        in_window = ((players[..., :2] >= 0) & (players[..., :2] <= 2 * config.radius)).all(-1)
        players = _packed(in_window, players)
        foods = _packed(near & (state.food_level > 0), foods - offset)
    both = [triples.astype(jnp.float32) for triples in (foods, players)]
    return jnp.concatenate(both, axis=1).reshape(n_players, -1)


def _self_first(of_player: Int[Array, "N K"]) -> Int[Array, "N N K"]:
    """Row i: i's entry, then those of 0, ..., i-1, i+1, ..., N-1."""
    n_players = of_player.shape[0]
    agent, slot = jnp.arange(n_players)[:, None, None], jnp.arange(n_players)[:, None]
    others = jnp.where(slot <= agent, jnp.roll(of_player, 1, axis=0), of_player)
    return jnp.where(slot == 0, of_player[:, None], others)


def _packed(visible: Bool[Array, "*B K"], entries: Int[Array, "*B K 3"]) -> Int[Array, "*B K 3"]:
    """The visible triples moved to the front, in order, padded with (-1, -1, 0).

    Each triple is packed into one integer (0: empty slot) and selected by its rank, which avoids
    sorts and gathers."""
    n_slots = visible.shape[-1]
    row, column, level = entries[..., 0], entries[..., 1], entries[..., 2]
    number = (row + 1 << 9) + (column + 1 << 3) + level
    before = visible[..., None, :] & jnp.tri(n_slots, k=-1, dtype=bool)
    rank = jnp.where(visible, before.sum(-1), n_slots)
    in_slot = rank[..., None, :] == jnp.arange(n_slots)[:, None]
    moved = jnp.where(in_slot, number[..., None, :], 0).sum(-1)
    return jnp.stack([(moved >> 9) - 1, (moved >> 3 & 63) - 1, moved & 7], axis=-1)


def _grid(config: LBFConfig, state: State) -> Float[Array, "N 3*W*W"]:
    """Three layers of (2 sight + 1)^2 cells centred on the agent: player levels, food levels, and 1
    for free cells.

    If several players share a cell, the last one is shown, as in the original."""
    here = (state.position[:, None] == state.position).all(-1)
    covered = (here & ~jnp.tri(config.n_players, dtype=bool)).any(1)
    players = _layer(config, state, state.position, jnp.where(covered, 0, state.level))
    foods = _layer(config, state, state.food_position, state.food_level)
    around = state.position[..., None] + jnp.arange(-config.radius, config.radius + 1)
    on_field = (around >= 0) & (around < config.size)
    access = on_field[:, 0, :, None] & on_field[:, 1, None, :] & (players == 0) & (foods == 0)
    layers = jnp.stack([players, foods, access.astype(jnp.float32)], axis=1)
    return layers.reshape(config.n_players, config.obs_size)


def _layer(
    config: LBFConfig, state: State, position: Int[Array, "K 2"], value: Int[Array, "K"]
) -> Float[Array, "N W W"]:
    """Values in each agent's window, by products of one-hot rows and columns, not a scatter."""
    offset = position - state.position[:, None] + config.radius
    one_hot = (offset[..., None] == jnp.arange(2 * config.radius + 1)).astype(jnp.float32)
    value = value.astype(jnp.float32)
    return jnp.einsum("k,nkr,nkc->nrc", value, one_hot[:, :, 0], one_hot[:, :, 1])


def oracle_graph(config: LBFConfig, state: State) -> Bool[Array, "N N"]:
    """Row j points to itself and to the closest others, at most `oracle_neighbours` of them, within
    `oracle_distance` (L1).

    Ties go to the lower index; the row-wise choice makes it asymmetric in general. Two players can
    collide in this step, or be adjacent to the same food, only within distance 2. The paper's text
    uses distance 2 at s_t. The paper's code uses distance 3 and stores the graph of s_{t+1} at t:
    to reproduce it, set `oracle_distance=3` and call this on the state after the step."""
    n_players = config.n_players
    distance = jnp.abs(state.position[:, None] - state.position).sum(-1)
    index, self_loops = jnp.arange(n_players), jnp.eye(n_players, dtype=bool)
    order = jnp.where(self_loops, n_players * 2 * config.size, distance * n_players + index)
    rank = (order[:, None, :] < order[:, :, None]).sum(-1)
    return (distance <= config.oracle_distance) & (rank < config.oracle_neighbours) | self_loops


def local_state(state: State) -> Float[Array, "N 7"]:
    """Agent i's own state: position, level, and the level of the food to the north, south, west and
    east (0: none).

    It contains nothing about other agents, although with full sight i observes them. Changing j's
    action alone therefore changes i's next local state iff j blocks i or collects a food that is
    then adjacent to i. This requires an L1 distance of at most 2, or 3 if i moves next to a food
    that j loads from another side."""
    beside = state.position[:, None] + jnp.array(MOVES)
    matches = (beside[:, :, None] == state.food_position).all(-1)
    foods = jnp.where(matches, state.food_level, 0).sum(-1)
    local = jnp.concatenate([state.position, state.level[:, None], foods], axis=1)
    return local.astype(jnp.float32)
