"""Initial states with the distribution of the original, without rejection sampling.

The original proposes uniform cells until one is allowed, which is a uniform draw from the allowed
cells. The cells allowed for foods are kept as one bit mask per row, so that counting and removing
them costs O(size) instead of O(size^2). Two deliberate deviations: in the original, players avoid
the cells of later players at the end of the previous episode (a leak between episodes), and
placement of foods stops after 1000 proposals even if a free cell remains (probability below 1e-45
on the paper's fields)."""

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Int, PRNGKeyArray, UInt32

from .types import LBFConfig, State


def spawn(config: LBFConfig, key: PRNGKeyArray) -> State:
    """Players on distinct cells, then foods on free interior cells at L1 distances >= 3."""
    size, n_players, n_foods = config.size, config.n_players, config.n_foods
    words = jax.random.bits(key, (1 + n_players + 2 * n_foods,), jnp.uint32)
    player_words, place_words, level_words = jnp.split(words[1:], (n_players, n_players + n_foods))
    player = _distinct(player_words, size * size)
    food = _food_cells(place_words, player, size)
    level = 1 + (words[0] >> jnp.arange(n_players, dtype=jnp.uint32) & 1).astype(jnp.int32)
    # Levels are independent of positions, so they may be assigned after the foods are sorted.
    food_level = jnp.where(food < size * size, _food_levels(config, level, level_words), 0)
    return State(
        position=_row_and_column(player, size),
        level=level,
        food_position=_row_and_column(food, size),
        food_level=food_level,
        food_total=food_level.sum(),
        time=jnp.int32(0),
    )


def _food_levels(
    config: LBFConfig, level: Int[Array, "N"], words: UInt32[Array, "F"]
) -> Int[Array, "F"]:
    """Up to `max_food_level`, or the sum of the three weakest levels (two if the winner takes
    all)."""
    if config.max_food_level is not None:
        highest = jnp.int32(config.max_food_level)
    else:
        weakest = min(config.n_players, 2 if config.winner_take_all else 3)
        # Levels are 1 or 2: each player of level 1 among the weakest lowers the maximum by one.
        highest = 2 * weakest - jnp.minimum((level == 1).sum(), weakest)
    if config.force_coop:
        return jnp.full(config.n_foods, highest)
    return 1 + _below(words, highest)


def _below(word: UInt32[Array, "*K"], bound: int | Int[Array, ""]) -> Int[Array, "*K"]:
    """floor(word * bound / 2^32), uniform on 0..bound-1 up to rounding, for bounds under 2^16."""
    bound = jnp.asarray(bound, jnp.uint32)
    return (((word >> 16) * bound + ((word & 0xFFFF) * bound >> 16)) >> 16).astype(jnp.int32)


def _distinct(words: UInt32[Array, "K"], bound: int) -> Int[Array, "K"]:
    """The first K numbers of a uniform random order of 0..bound-1.

    A Fisher-Yates shuffle that stores only its swaps: no array of length `bound`, no scatter."""
    swaps: list[tuple[Array, Array]] = []

    def number_at(place: Array) -> Array:
        number = place
        for swapped, moved in swaps:
            number = jnp.where(place == swapped, moved, number)
        return number

    chosen = []
    for step in range(len(words)):
        place = step + _below(words[step], bound - step)
        chosen.append(number_at(place))
        swaps.append((place, number_at(jnp.int32(step))))
    return jnp.stack(chosen)


def _food_cells(words: UInt32[Array, "F"], player: Int[Array, "N"], size: int) -> Int[Array, "F"]:
    """Cells of the foods in row-major order; foods not placed come last, with cells >= size^2."""
    row = jnp.arange(size)
    is_inside = (row > 0) & (row < size - 1)
    inside = jnp.where(is_inside, jnp.uint32((1 << (size - 1)) - 2), jnp.uint32(0))
    # Players are on distinct cells, so the sum of their bits is the union.
    bit = jnp.uint32(1) << (player % size).astype(jnp.uint32)
    occupied = jnp.where(row[:, None] == player // size, bit, jnp.uint32(0)).sum(1)
    free, cells = inside & ~occupied, []
    for index in range(len(words)):
        food_row, food_column = _uniform_cell(words[index], free)
        cell = food_row * size + food_column
        cells.append(jnp.where((free > 0).any(), cell, size * size + index))
        free &= ~_too_close(food_row, food_column, size)
    return _sorted(jnp.stack(cells))


def _uniform_cell(
    word: UInt32[Array, ""], free: UInt32[Array, "S"]
) -> tuple[Int[Array, ""], Int[Array, ""]]:
    """Row and column of a uniformly drawn set bit; arbitrary if there is none."""
    size = free.shape[0]
    count = lax.population_count(free).astype(jnp.int32)
    up_to = jnp.cumsum(count)
    nth = _below(word, up_to[-1])
    skipped = up_to <= nth
    row = skipped.sum()
    nth -= jnp.where(skipped, count, 0).sum()
    bits = jnp.where(jnp.arange(size) == row, free, 0).sum(dtype=jnp.uint32)
    mask = (jnp.uint32(2) << jnp.arange(size, dtype=jnp.uint32)) - 1
    up_to_column = lax.population_count(bits & mask)
    return row, (up_to_column.astype(jnp.int32) <= nth).sum()


def _too_close(row: Int[Array, ""], column: Int[Array, ""], size: int) -> UInt32[Array, "S"]:
    """The cells at L1 distance of at most 2, one bit mask per row."""
    reach = 2 - jnp.abs(jnp.arange(size) - row)
    run = (jnp.uint32(2) << (2 * jnp.maximum(reach, 0)).astype(jnp.uint32)) - 1
    # Shifted by two more and back, since the lowest bit of the run can lie off the board.
    shifted = run << (column - reach + 2).astype(jnp.uint32) >> 2
    return jnp.where(reach >= 0, shifted, 0)


def _sorted(numbers: Int[Array, "F"]) -> Int[Array, "F"]:
    """Sort a few distinct numbers by pairwise comparison, which is faster than a sort."""
    rank = (numbers[:, None] > numbers).sum(1)
    return jnp.where(rank == jnp.arange(len(numbers))[:, None], numbers, 0).sum(1)


def _row_and_column(cell: Int[Array, "K"], size: int) -> Int[Array, "K 2"]:
    return jnp.stack([cell // size, cell % size], axis=-1)
