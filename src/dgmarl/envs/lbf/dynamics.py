"""What actions do: moving, loading, and who is paid."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from .types import EAST, LOAD, NORTH, SOUTH, WEST, LBFConfig, State

# Rows are the four moves in the order of their action numbers, north, south, west, east.
MOVES = ((-1, 0), (1, 0), (0, -1), (0, 1))


def move(config: LBFConfig, state: State, action: Int[Array, "N"]) -> Int[Array, "N 2"]:
    """Positions after a step. A player takes the cell it aims at iff nobody else aims at it.

    A player aims at its own cell when it does not move, or cannot: off the field, onto a food. What
    counts is what players aim at, not where they end: two can swap, and one can enter the cell of
    another that aimed elsewhere in vain, so they share it."""
    row, column = state.position[:, 0], state.position[:, 1]
    aim_row = jnp.clip(row + (action == SOUTH) - (action == NORTH), 0, config.size - 1)
    aim_column = jnp.clip(column + (action == EAST) - (action == WEST), 0, config.size - 1)
    food_row, food_column = state.food_position[:, 0], state.food_position[:, 1]
    on_food = (
        (aim_row[:, None] == food_row)
        & (aim_column[:, None] == food_column)
        & (state.food_level > 0)
    )
    blocked = on_food.any(1)
    aim_row, aim_column = jnp.where(blocked, row, aim_row), jnp.where(blocked, column, aim_column)
    same_aim = (aim_row[:, None] == aim_row) & (aim_column[:, None] == aim_column)
    clash = same_aim.sum(1) > 1
    return jnp.stack(
        [jnp.where(clash, row, aim_row), jnp.where(clash, column, aim_column)], axis=-1
    )


def adjacent_food(state: State) -> Bool[Array, "N F"]:
    """Which foods lie next to each player: at most one, as foods are three steps apart."""
    distance = jnp.abs(state.position[:, None] - state.food_position).sum(-1)
    return (distance == 1) & (state.food_level > 0)


def load(
    config: LBFConfig, state: State, action: Int[Array, "N"]
) -> tuple[Float[Array, "N"], Bool[Array, "F"]]:
    """Rewards, and which foods are taken: those whose loaders are together at least as strong as
    the food.

    Shared: r_i = level_i * v_f / (W_f * food_total), with W_f the summed levels of all loaders of
    f. Winner-take-all: v_f / food_total to the strongest loader, the lowest index among equals.
    Loaders stand still and touch one food each, so neither the moves of this step nor the order of
    loaders matters, and sums over foods below pick that one."""
    loads = adjacent_food(state) & (action == LOAD)[:, None]
    level = jnp.where(loads, state.level[:, None], 0)
    strength = level.sum(0)
    batched_index = (strength >= state.food_level) & (strength > 0)
    paid = loads & batched_index & _wins(level) if config.winner_take_all else loads & batched_index
    value = jnp.where(paid, state.food_level, 0).sum(1)
    if config.winner_take_all:
        reward = value / jnp.maximum(state.food_total, 1)
    else:
        group = jnp.where(paid, strength, 0).sum(1)
        reward = state.level * value / jnp.maximum(group * state.food_total, 1)
    if config.penalty:
        reward -= config.penalty * (loads & ~batched_index).any(1)
    return reward, batched_index


def _wins(level: Int[Array, "N F"]) -> Bool[Array, "N F"]:
    """True for the first player of the highest level at each food."""
    n_players = level.shape[0]
    precedence = level * n_players - jnp.arange(n_players)[:, None]
    return precedence == precedence.max(0)


def valid_actions(config: LBFConfig, state: State) -> Bool[Array, "N 6"]:
    """Which actions do something: standing still always, a move onto the field and onto no food,
    loading next to a food."""
    target = state.position[:, None] + jnp.array(MOVES)
    on_field = ((target >= 0) & (target < config.size)).all(-1)
    on_food = ((target[:, :, None] == state.food_position).all(-1) & (state.food_level > 0)).any(-1)
    can_load = adjacent_food(state).any(1, keepdims=True)
    return jnp.concatenate([jnp.ones_like(can_load), on_field & ~on_food, can_load], axis=1)
