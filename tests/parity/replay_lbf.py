"""Replay a recording of the original level-based foraging: `replay(arrays) -> (transitions,
differences)`.

Every recorded state is injected on its own, so one difference cannot hide or cause another. Foods
are read off the recorded field; eaten ones of the episode keep their slot with level 0, as in our
state."""

import json
from dataclasses import replace
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np

from dgmarl.envs.lbf import LBFConfig, LevelBasedForaging, State, parse
from dgmarl.envs.lbf.observe import observe

TOLERANCE = 1e-6


def replay(recording: dict[str, np.ndarray]) -> tuple[int, list[str]]:
    """Number of transitions compared, and one line per difference. The oracle graph is compared
    where it has no ties."""
    config = _config(recording)
    step, look = _compiled(config)
    length = recording["length"].astype(int)
    steps = recording["actions"].shape[1]
    happened = np.arange(steps) < length[:, None]
    exists = np.arange(steps + 1) <= length[:, None]
    states = _states(recording, config)
    before = jax.tree.map(lambda leaf: leaf[:, :-1], states)

    after, observation, outcome = step(before, recording["actions"].astype(np.int32))
    seen = look(states)
    arbitrary = _ties(recording["player_pos"].astype(int), config)
    checks = [
        ("position", after.position, recording["player_pos"][:, 1:], happened),
        ("field", _field(after, config), recording["field"][:, 1:], happened),
        ("reward", outcome.reward, recording["rewards"], happened),
        ("terminated", outcome.terminated, recording["terminated"], happened),
        ("truncated", outcome.truncated, recording["truncated"], happened),
        ("observation after the step", observation.agents_view, recording["obs"][:, 1:], happened),
        ("observation", seen[0], recording["obs"], exists),
        ("valid actions", seen[1], recording["valid_actions"], exists),
        ("oracle graph", seen[2], recording["oracle_graph_k3"], exists[..., None] & ~arbitrary),
        (
            "food total",
            states.food_total[:, 0],
            recording["food_spawned"],
            np.ones(len(length), bool),
        ),
    ]
    return int(happened.sum()), [line for check in checks for line in _differences(*check)]


def _config(recording: dict[str, np.ndarray]) -> LBFConfig:
    meta = json.loads(str(recording["meta_json"]))
    return replace(
        parse(meta["id"]),
        sight=meta["sight"],
        penalty=meta["penalty"],
        force_coop=meta["force_coop"],
        n_foods=meta["max_num_food"],
        horizon=meta["max_episode_steps"],
        oracle_distance=3,
    )


def _states(recording: dict[str, np.ndarray], config: LBFConfig) -> State:
    """All recorded states, [E, T+1, ...]. Slots without a food lie off the board."""
    field = recording["field"].astype(np.int32)
    episodes, steps = field.shape[:2]
    places = np.full((episodes, config.n_foods, 2), config.size, np.int32)
    levels = np.zeros((episodes, steps, config.n_foods), np.int32)
    for episode in range(episodes):
        found = np.argwhere(field[episode, 0] > 0)
        places[episode, : len(found)] = found
        levels[episode, :, : len(found)] = field[episode][:, found[:, 0], found[:, 1]]

    def over_time(leaf: np.ndarray) -> jax.Array:
        return jnp.repeat(leaf[:, None], steps, axis=1)

    return State(
        position=jnp.asarray(recording["player_pos"], jnp.int32),
        level=over_time(recording["player_level"].astype(np.int32)),
        food_position=over_time(places),
        food_level=jnp.asarray(levels),
        food_total=over_time(levels[:, 0].sum(-1)),
        time=jnp.tile(jnp.arange(steps), (episodes, 1)),
    )


@cache
def _compiled(config: LBFConfig):
    """The step, and what is computed from a state alone, over episodes and time."""
    env = LevelBasedForaging(config)

    def look(state: State):
        return observe(config, state), env.valid_actions(state), env.oracle_graph(state)

    return _twice(lambda state, action: env.step(jax.random.key(0), state, action)), _twice(look)


def _twice(function):
    return jax.jit(jax.vmap(jax.vmap(function)))


def _field(state: State, config: LBFConfig) -> jax.Array:
    """Food level per cell; foods off the board drop out."""
    empty = jnp.zeros((config.size, config.size), jnp.int32)
    paint = _twice(lambda place, level: empty.at[place[:, 0], place[:, 1]].add(level, mode="drop"))
    return paint(state.food_position, state.food_level)


def _ties(position: np.ndarray, config: LBFConfig) -> np.ndarray:
    """Rows in which the original's partial sort chose at random: the last agent kept is as far away
    as the first left out."""
    kept = min(3, config.n_players)
    distance = np.sort(np.abs(position[:, :, :, None] - position[:, :, None]).sum(-1), axis=-1)
    if kept == config.n_players:
        return np.zeros(distance.shape[:-1], bool)
    return distance[..., kept - 1] == distance[..., kept]


def _differences(what: str, ours: object, recorded: np.ndarray, counts: np.ndarray) -> list[str]:
    ours = np.asarray(ours, np.float64)
    recorded = recorded.astype(np.float64)
    if ours.shape != recorded.shape:
        raise ValueError(f"{what} has shape {recorded.shape} in the recording, {ours.shape} here")
    # A comparison that is false for NaN, so that NaN is a difference.
    equal = (np.abs(ours - recorded) <= TOLERANCE).reshape(*counts.shape, -1).all(-1)
    return [
        f"{what} differs at [episode, step, agent] = {place.tolist()}"
        for place in np.argwhere(~equal & counts)
    ]
