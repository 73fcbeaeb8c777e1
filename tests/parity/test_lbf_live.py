"""Level-based foraging against the original, the `lbforaging` package, live."""

import json
from dataclasses import replace
from itertools import combinations
from typing import Any

import jax
import numpy as np
import pytest
from replay_lbf import replay
from scipy import stats

from dgmarl.envs.lbf import LBFConfig, LevelBasedForaging, State, parse
from dgmarl.envs.lbf.spawn import spawn
from dgmarl.envs.lbf.types import LOAD
from dgmarl.rollout import act_randomly, record_episodes

foraging = pytest.importorskip(
    "lbforaging.foraging.environment", reason="needs the lbforaging package"
)
gymnasium = pytest.importorskip("gymnasium")

# Chance of a false alarm of each statistical test; seeds are fixed, so a passing test stays
# passing.
ALARM = 1e-4
TRANSITIONS = 500


class Original(foraging.ForagingEnv):
    """The original with the observation space of its grid layout repaired: the declared shape does
    not fit its own arrays."""

    def _get_observation_space(self):
        if not self._grid_observation:
            return super()._get_observation_space()
        side = 2 * self.sight + 1
        return gymnasium.spaces.Box(0, 6, shape=(3, side, side), dtype=np.float32)


def original(config: LBFConfig) -> Original:
    return Original(
        players=config.n_players,
        min_player_level=1,
        max_player_level=2,
        min_food_level=1,
        max_food_level=config.max_food_level,
        field_size=(config.size, config.size),
        max_num_food=config.n_foods,
        sight=config.radius,
        max_episode_steps=config.horizon,
        force_coop=config.force_coop,
        grid_observation=config.observation == "grid",
        penalty=config.penalty,
    )


def inject(env: Original, state: Any) -> None:
    env.field = np.zeros(env.field_size, np.int32)
    for (row, column), level in zip(state.food_position, state.food_level, strict=True):
        if level > 0:
            env.field[row, column] = level
    for player, position, level in zip(env.players, state.position, state.level, strict=True):
        player.setup(tuple(map(int, position)), int(level), env.field_size)
    env._food_spawned = int(state.food_total)
    env.current_step = int(state.time)
    env._game_over = False
    env._gen_valid_moves()


def valid_actions(env: Original) -> np.ndarray:
    return np.array(
        [
            [action in env._valid_actions[player] for action in foraging.Action]
            for player in env.players
        ]
    )


def eventful_states(config: LBFConfig, n: int, generator: np.random.Generator) -> Any:
    """Spawned foods, some eaten, and players mostly around one of them, often next to or on top of
    each other."""
    states = original_spawns(config, n)
    busy = states.food_position[np.arange(n), generator.integers(0, (states.food_level > 0).sum(1))]
    offsets = [
        (row, column)
        for row in range(-2, 3)
        for column in range(-2, 3)
        if 1 <= abs(row) + abs(column) <= 2
    ]
    odds = [0.2 if abs(row) + abs(column) == 1 else 0.025 for row, column in offsets]
    place = (
        busy[:, None]
        + np.array(offsets)[generator.choice(len(offsets), (n, config.n_players), p=odds)]
    )
    moved = (
        (generator.random((n, config.n_players)) < 0.9)
        & (place >= 0).all(-1)
        & (place < config.size).all(-1)
    )
    states.food_level[generator.random(states.food_level.shape) < 0.15] = 0
    return states._replace(
        position=np.where(moved[..., None], place, states.position).astype(np.int32),
        time=generator.integers(0, config.horizon, n, dtype=np.int32),
    )


@pytest.mark.parametrize(
    "text",
    [
        "Foraging-10x10-3p-3f-v3",
        "Foraging-5x5-4p-2f-v3",
        "Foraging-8x8-2p-3f-coop-v3",
        "Foraging-2s-8x8-4p-3f-v3",
        "Foraging-2s-6x6-3p-2f-coop-v3",
        "Foraging-grid-2s-7x7-4p-3f-v3",
        "Foraging-grid-6x6-2p-2f-coop-v3",
        "Foraging-8x8-3p-3f-pen-v3",
    ],
)
def test_one_step_from_the_same_state(text):
    config = parse(text)
    generator = np.random.default_rng(7)
    states = eventful_states(config, TRANSITIONS, generator)
    actions = generator.choice(6, (TRANSITIONS, config.n_players), p=[0.06] * 5 + [0.7]).astype(
        np.int32
    )

    env = LevelBasedForaging(config)
    valid = jax.jit(jax.vmap(env.valid_actions))(states)
    after, observation, outcome = jax.tree.map(
        np.asarray, jax.jit(jax.vmap(env.step, (None, 0, 0)))(jax.random.key(0), states, actions)
    )
    here = (
        np.arange(TRANSITIONS)[:, None],
        after.food_position[..., 0],
        after.food_position[..., 1],
    )
    # One row and column more than the field has, for foods without a place.
    field = np.zeros((TRANSITIONS, config.size + 1, config.size + 1), int)
    np.add.at(field, here, after.food_level)

    theirs = original_steps(config, states, actions)
    np.testing.assert_array_equal(valid, theirs["valid"])
    np.testing.assert_array_equal(after.position, theirs["position"])
    np.testing.assert_array_equal(field[:, : config.size, : config.size], theirs["field"])
    np.testing.assert_allclose(outcome.reward, theirs["reward"], atol=1e-6)
    np.testing.assert_array_equal(
        observation.agents_view, theirs["obs"].reshape(observation.agents_view.shape)
    )
    np.testing.assert_array_equal(outcome.terminated, theirs["terminated"])
    np.testing.assert_array_equal(outcome.truncated, theirs["truncated"])
    # The sample would prove little without loads, failed loads, players on one cell and both kinds
    # of end.
    assert (outcome.info["loads"] > 0).sum() > 50
    assert ((actions == LOAD).any(1) & (outcome.info["loads"] == 0)).sum() > 50
    assert (after.position[:, :, None] == after.position[:, None]).all(
        -1
    ).sum() > TRANSITIONS * config.n_players + 20
    assert (outcome.terminated & (after.time < 50)).any()
    assert (after.time == 50).any()


def original_steps(config: LBFConfig, states: Any, actions: np.ndarray) -> dict[str, np.ndarray]:
    """What the original makes of each state and joint action."""
    env, rows = original(config), []
    for index, action in enumerate(actions):
        inject(env, State(*(leaf[index] for leaf in states)))
        valid = valid_actions(env)
        agents_view, reward, terminated, truncated, _ = env.step(action.tolist())
        position = [player.position for player in env.players]
        rows.append(
            (valid, position, env.field, reward, np.stack(agents_view), terminated, truncated)
        )
    names = ("valid", "position", "field", "reward", "obs", "terminated", "truncated")
    return {
        name: np.array(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)
    }


def original_spawns(config: LBFConfig, n: int) -> Any:
    """First states of the original, each as of a new environment: without the memory of where
    players stood before."""
    env = original(config)
    env.reset(seed=11)
    rows: list[tuple[Any, ...]] = []
    for _ in range(n):
        for player in env.players:
            player.position = None
        env.reset()
        food = np.argwhere(env.field > 0)
        padding = ((0, config.n_foods - len(food)), (0, 0))
        rows.append(
            (
                np.array([player.position for player in env.players]),
                np.array([player.level for player in env.players]),
                np.pad(food, padding, constant_values=config.size),
                np.pad(env.field[env.field > 0], padding[0]),
                env._food_spawned,
                0,
            )
        )
    columns: Any = (np.stack(column).astype(np.int32) for column in zip(*rows, strict=True))
    return State(*columns)


def statistics(config: LBFConfig, drawn: Any) -> dict[str, np.ndarray]:
    """Whole numbers whose distributions describe a reset."""
    apart = np.abs(drawn.food_position[:, :, None] - drawn.food_position[:, None]).sum(-1)
    to_player = np.abs(drawn.food_position[:, :, None] - drawn.position[:, None]).sum(-1)
    placed = drawn.food_level > 0
    pairs = [
        apart[placed[:, i] & placed[:, j], i, j] for i, j in combinations(range(config.n_foods), 2)
    ]
    return {
        "cells of the first player": drawn.position[:, 0] @ [config.size, 1],
        "cells of the last player": drawn.position[:, -1] @ [config.size, 1],
        "distance of two players": np.abs(drawn.position[:, 0] - drawn.position[:, 1]).sum(-1),
        "player levels": drawn.level.sum(1),
        "foods placed": placed.sum(1),
        "cells of the first food": drawn.food_position[:, 0] @ [config.size, 1],
        "cells of the last food": drawn.food_position[:, -1] @ [config.size, 1],
        "distance of two foods": np.concatenate(pairs),
        "nearest player of the first food": to_player[:, 0].min(1),
        "level of the first food": drawn.food_level[:, 0],
        "level of the last food": drawn.food_level[:, -1],
        "food total": np.asarray(drawn.food_total),
    }


@pytest.mark.parametrize(
    ("text", "n"),
    [
        ("10x10-3p-3f", 2000),
        ("8x8-2p-4f-coop-shared", 2000),
        ("15x15-4p-3f", 1500),
        ("5x5-2p-2f", 1200),
    ],
)
def test_resets_have_the_law_of_the_original(text, n):
    config = parse(text)
    theirs = statistics(config, original_spawns(config, n))
    drawn = jax.jit(jax.vmap(lambda key: spawn(config, key)))(
        jax.random.split(jax.random.key(5), 4 * n)
    )
    ours = statistics(config, jax.tree.map(np.asarray, drawn))
    for what in ours:
        # Numbers past the board belong to foods without a place; how many there are is compared by
        # itself.
        bound = config.size**2
        samples = [sample[sample < bound] for sample in (theirs[what], ours[what])]
        table = np.stack([np.bincount(sample, minlength=bound) for sample in samples])
        rare = table.sum(0) < 30
        table = np.column_stack([table[:, ~rare], table[:, rare].sum(1)])
        assert p_value(stats.chi2_contingency(table[:, table.sum(0) > 0])) > ALARM, what
        assert p_value(stats.ks_2samp(samples[0], samples[1])) > ALARM, what


def p_value(test: Any) -> float:
    return float(test.pvalue)


def recorded(text: str, steps: int = 12) -> dict[str, np.ndarray]:
    """A recording of one episode of three players in the format of the golden files, made with the
    package."""
    config = replace(parse(text), horizon=steps)
    env, generator = original(config), np.random.default_rng(2)
    env.reset(seed=4)
    arrays: dict[str, list] = {}

    def note(name: str, value: object) -> None:
        arrays.setdefault(name, []).append(value)

    def note_state(agents_view: Any) -> None:
        position = np.array([player.position for player in env.players])
        near = np.abs(position[:, None] - position).sum(-1) <= 3
        for name, value in zip(
            ("player_pos", "field", "obs", "valid_actions", "oracle_graph_k3"),
            (position, env.field.copy(), np.stack(list(agents_view)), valid_actions(env), near),
            strict=True,
        ):
            note(name, value)

    agents_view, _ = env.reset()
    note_state(agents_view)
    for _ in range(steps):
        action = generator.integers(0, 6, config.n_players)
        agents_view, reward, terminated, truncated, _ = env.step(action)
        for name, value in (
            ("actions", action),
            ("rewards", reward),
            ("terminated", terminated),
            ("truncated", truncated),
        ):
            note(name, value)
        note_state(agents_view)
    recording = {name: np.array(values)[None] for name, values in arrays.items()}
    meta = {
        "id": text,
        "sight": config.radius,
        "penalty": config.penalty,
        "force_coop": config.force_coop,
    }
    meta |= {"max_num_food": config.n_foods, "max_episode_steps": steps}
    return recording | {
        "player_level": np.array([[player.level for player in env.players]]),
        "food_spawned": np.array([env._food_spawned]),
        "length": np.array([steps]),
        "meta_json": np.array(json.dumps(meta)),
    }


def test_replay_accepts_a_fresh_recording_and_finds_every_kind_of_forgery():
    recording = recorded("Foraging-2s-8x8-3p-3f-v3")
    assert replay(recording) == (12, [])
    forged = {
        "player_pos": ("position", 1),
        "field": ("field", 1),
        "rewards": ("reward", 1e-4),
        "obs": ("observation", 1),
        "valid_actions": ("valid actions", True),
        "terminated": ("terminated", True),
        "truncated": ("truncated", True),
        "oracle_graph_k3": ("oracle graph", True),
        "food_spawned": ("food total", 1),
    }
    for name, (what, amount) in forged.items():
        array = recording[name].copy()
        place = (0,) * array.ndim if name == "food_spawned" else (0, 5, *(0,) * (array.ndim - 2))
        array[place] = ~array[place] if array.dtype == bool else array[place] + amount
        _, differences = replay(recording | {name: array})
        assert any(line.startswith(f"{what} differs") for line in differences), name


def test_random_play_earns_what_it_earns_in_the_original():
    config, n_episodes = parse("5x5-3p-2f"), 300
    env, generator, theirs = original(config), np.random.default_rng(0), []
    for episode in range(n_episodes):
        env.reset(seed=episode)
        total, done = 0.0, False
        while not done:
            _, rewards, terminated, truncated, _ = env.step(
                tuple(generator.integers(0, 6, config.n_players))
            )
            total, done = total + sum(rewards), terminated or truncated
        theirs.append(total)
    played = record_episodes(LevelBasedForaging(config), act_randomly, jax.random.key(0), 2000)
    ours = np.asarray(played.reward.sum(axis=(1, 2)))
    assert 0.05 < np.mean(theirs) < 0.95
    assert p_value(stats.ks_2samp(np.round(ours, 4), np.round(theirs, 4))) > ALARM
