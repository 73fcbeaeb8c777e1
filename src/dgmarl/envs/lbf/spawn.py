"""First states, drawn from the law of the original without its rejection loops.

The original proposes uniform cells until one is allowed, which is a uniform draw from the allowed cells. The allowed cells are
kept as one bit mask per row: counting and removing them costs O(size), not O(size^2). Two deliberate deviations: the original's
players avoid the cells where later players stood at the end of the previous episode (a leak between episodes), and it gives up
placing foods after 1000 proposals even if a free cell remains (probability below 1e-45 on the paper's fields).
"""

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Int, PRNGKeyArray, UInt32

from .types import LBFConfig, State


def spawn(config: LBFConfig, key: PRNGKeyArray) -> State:
    """Players on distinct cells anywhere, then foods off the border, on free cells, pairwise at L1 distance of at least 3."""
    size, n_players, n_foods = config.size, config.n_players, config.n_foods
    words = jax.random.bits(key, (n_players + 2 * n_foods + 1,), jnp.uint32)
    player_words, cell_words, level_words = jnp.split(words[1:], (n_players, n_players + n_foods))
    free = jnp.full(size, (1 << size) - 1, jnp.int32)
    players = []
    for word in player_words:
        cell = _uniform_cell(free, word)
        players.append(cell)
        free &= ~_diamond(cell, size, radius=0)
    row = jnp.arange(size)
    free &= jnp.where((row > 0) & (row < size - 1), (1 << (size - 1)) - 2, 0)
    foods = []
    for index, word in enumerate(cell_words):
        cell = _uniform_cell(free, word)
        # A food without a place gets a number past the board's cells, and a different one each, for the sort below.
        foods.append(jnp.where(free.any(), cell, size * size + index))
        free &= ~_diamond(cell, size, radius=2)
    food = _sorted(jnp.stack(foods))
    level = 1 + (words[0] >> jnp.arange(n_players, dtype=jnp.uint32) & 1).astype(jnp.int32)
    # Levels are independent of places, so giving them out after sorting changes nothing.
    food_level = jnp.where(food < size * size, _food_levels(config, level, level_words), 0)
    return State(
        position=_row_and_column(jnp.stack(players), size),
        level=level,
        food_position=_row_and_column(food, size),
        food_level=food_level,
        food_total=food_level.sum(),
        time=jnp.int32(0),
    )


def highest_food_level(config: LBFConfig, level: Int[Array, "N"]) -> Int[Array, ""]:
    """M: the summed levels of the three weakest players, of the two weakest under winner-take-all; or the fixed one."""
    if config.max_food_level is not None:
        return jnp.int32(config.max_food_level)
    weakest = min(config.n_players, 2 if config.winner_take_all else 3)
    # Levels are 1 or 2: of the weakest k players, as many have level 1 as there are level-1 players, up to k.
    return 2 * weakest - jnp.minimum((level == 1).sum(), weakest)


def _food_levels(config: LBFConfig, level: Int[Array, "N"], words: UInt32[Array, "F"]) -> Int[Array, "F"]:
    highest = highest_food_level(config, level)
    if config.force_coop:
        return jnp.full(config.n_foods, highest)
    return 1 + _below(words, highest)


def _below(word: UInt32[Array, "..."], bound: Int[Array, ""]) -> Int[Array, "..."]:
    """floor(word * bound / 2^32): uniform on 0..bound-1 to one part in 2^32, for bounds under 2^16."""
    bound = bound.astype(jnp.uint32)
    return (((word >> 16) * bound + ((word & 0xFFFF) * bound >> 16)) >> 16).astype(jnp.int32)


def _uniform_cell(free: Int[Array, "S"], word: UInt32[Array, ""]) -> Int[Array, ""]:
    """A uniform cell among the set bits of `free`, as row * size + column."""
    size = free.shape[0]
    count = lax.population_count(free)
    up_to = jnp.tril(jnp.ones((size, size), jnp.int32)) @ count
    nth = _below(word, up_to[-1])
    full_rows = up_to <= nth
    row = full_rows.sum()
    nth -= jnp.where(full_rows, count, 0).sum()
    bits = jnp.where(jnp.arange(size) == row, free, 0).sum()
    up_to_column = lax.population_count(bits & ((2 << jnp.arange(size)) - 1))
    return row * size + (up_to_column <= nth).sum()


def _diamond(cell: Int[Array, ""], size: int, radius: int) -> Int[Array, "S"]:
    """The cells within an L1 distance of `cell`, one bit mask per row."""
    width = radius - jnp.abs(jnp.arange(size) - cell // size)
    from_centre = jnp.arange(size)[:, None] - cell % size
    inside = jnp.abs(from_centre) <= width
    return jnp.where(inside, 1 << jnp.arange(size)[:, None], 0).sum(0)


def _sorted(numbers: Int[Array, "F"]) -> Int[Array, "F"]:
    """Distinct numbers in ascending order, by comparing all pairs: faster than a sort for so few."""
    rank = (numbers[:, None] > numbers).sum(1)
    return jnp.where(rank == jnp.arange(len(numbers))[:, None], numbers, 0).sum(1)


def _row_and_column(cell: Int[Array, "K"], size: int) -> Int[Array, "K 2"]:
    return jnp.stack([cell // size, cell % size], axis=-1)
