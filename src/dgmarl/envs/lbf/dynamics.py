"""Transition and rewards: moving and loading."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from .types import EAST, LOAD, NORTH, SOUTH, WEST, LBFConfig, State

# In the order of the action numbers: north, south, west, east.
MOVES = ((-1, 0), (1, 0), (0, -1), (0, 1))


def move(config: LBFConfig, state: State, action: Int[Array, "N"]) -> Int[Array, "N 2"]:
    """Positions after a step. A player moves to its target cell iff no other player has the same
    target.

    The target is the current cell if the player does not move or its move is invalid (off the
    field, onto a food). Collisions are resolved on targets, not on final positions: two players can
    swap, and one can enter the cell of another whose move failed, so that both share it."""
    row, column = state.position[:, 0], state.position[:, 1]
    aim_row = jnp.clip(row + (action == SOUTH) - (action == NORTH), 0, config.size - 1)
    aim_column = jnp.clip(column + (action == EAST) - (action == WEST), 0, config.size - 1)
    food_row, food_column = state.food_position[:, 0], state.food_position[:, 1]
    same_cell = (aim_row[:, None] == food_row) & (aim_column[:, None] == food_column)
    blocked = (same_cell & (state.food_level > 0)).any(1)
    aim_row, aim_column = jnp.where(blocked, row, aim_row), jnp.where(blocked, column, aim_column)
    same_aim = (aim_row[:, None] == aim_row) & (aim_column[:, None] == aim_column)
    clash = same_aim.sum(1) > 1
    row, column = jnp.where(clash, row, aim_row), jnp.where(clash, column, aim_column)
    return jnp.stack([row, column], axis=-1)


def adjacent_food(state: State) -> Bool[Array, "N F"]:
    """Which foods are adjacent to each player: at most one, since foods are at distance >= 3."""
    distance = jnp.abs(state.position[:, None] - state.food_position).sum(-1)
    return (distance == 1) & (state.food_level > 0)


def load(
    config: LBFConfig, state: State, action: Int[Array, "N"]
) -> tuple[Float[Array, "N"], Bool[Array, "F"]]:
    """Rewards, and which foods are collected: those whose loaders' summed level is at least the
    food's level.

    Shared: r_i = level_i * v_f / (W_f * food_total), with W_f the summed levels of all loaders of
    f. Winner-take-all: v_f / food_total to the strongest loader, ties to the lowest index. Loaders
    do not move and each is adjacent to one food only, so the result does not depend on the moves of
    this step or on the order of loaders, and the sums over foods below select that food."""
    loads = adjacent_food(state) & (action == LOAD)[:, None]
    level = jnp.where(loads, state.level[:, None], 0)
    strength = level.sum(0)
    collected = (strength >= state.food_level) & (strength > 0)
    paid = loads & collected
    if config.winner_take_all:  # the highest level, ties to the lowest index
        precedence = level * len(level) - jnp.arange(len(level))[:, None]
        paid &= precedence == precedence.max(0)
    value = jnp.where(paid, state.food_level, 0).sum(1)
    if config.winner_take_all:
        reward = value / jnp.maximum(state.food_total, 1)
    else:
        group = jnp.where(paid, strength, 0).sum(1)
        reward = state.level * value / jnp.maximum(group * state.food_total, 1)
    if config.penalty:
        reward -= config.penalty * (loads & ~collected).any(1)
    return reward, collected


def valid_actions(config: LBFConfig, state: State) -> Bool[Array, "N 6"]:
    """No-op; moves to cells on the field without food; loading next to a food."""
    target = state.position[:, None] + jnp.array(MOVES)
    on_field = ((target >= 0) & (target < config.size)).all(-1)
    on_food = ((target[:, :, None] == state.food_position).all(-1) & (state.food_level > 0)).any(-1)
    can_load = adjacent_food(state).any(1, keepdims=True)
    return jnp.concatenate([jnp.ones_like(can_load), on_field & ~on_food, can_load], axis=1)
