"""Interventional graphs against hand-made cases, known structures and their own definition."""

from functools import partial
from itertools import product
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dgmarl import make_env
from dgmarl.config.resolve import resolve
from dgmarl.envs.base import Environment, EnvSpec, Observation, Outcome
from dgmarl.envs.lbf.types import EAST, LOAD, NONE, WEST, State
from dgmarl.errors import UsageError
from dgmarl.graphs.interventional import (
    InterventionalSource,
    _extremes_of_played,
    _sample,
    intervene,
    intervene_batch,
    intervene_rollout,
)
from dgmarl.graphs.metrics import agreement, density
from dgmarl.rollout import act_randomly, collect, reset_envs
from dgmarl.training import Trainer

KEY = jax.random.key(0)
NEEDS = frozenset({"states", "keys", "oracle"})
NOBODY = np.eye(3, dtype=bool)


def play_randomly(env, n_envs, length, reset=False, seed=0):
    """A batch of random play with everything recorded."""

    @jax.jit
    def play(key):
        return collect(
            env,
            act_randomly,
            reset_envs(env, key, None, n_envs),
            key,
            length,
            NEEDS & offered,
            reset,
        )[1]

    offered = NEEDS if env.offers("oracle_graph") else NEEDS - {"oracle"}
    return play(jax.random.key(seed))


def edges(graph):
    """Pairs (source, target) of different agents."""
    return {(int(j), int(i)) for j, i in np.argwhere(np.asarray(graph)) if j != i}


class ToyState(NamedTuple):
    x: jax.Array
    time: jax.Array


class Chain(Environment[ToyState]):
    """Agent 0's action sets x1 at once, x1 moves into x2 a step later, every x is noisy; agent 2 is
    paid for x2.

    Action 2 of agent 0 also ends the episode. Agent 1 may take action 2 only while x1 is high;
    taking it while it may not spoils every x and costs agent 1 a reward."""

    def __init__(self, noise=1.0, horizon=10):
        self.noise = noise
        self.spec = EnvSpec("chain", 3, 3, 1, 3, horizon)

    def reset(self, key):
        state = ToyState(jnp.zeros(3), jnp.int32(0))
        return state, self._observation(state)

    def step(self, key, state, action):
        high = action[0].astype(jnp.float32) * 10
        spoilt = (action[1] == 2) & ~self._observation(state).action_mask[1, 2]
        x = jnp.stack([state.x[0], high, state.x[1]]) + self.noise * jax.random.normal(key, (3,))
        x = jnp.where(spoilt, x + 100, x)
        state = ToyState(x, state.time + 1)
        reward = jnp.stack([0.0, -1.0 * spoilt, x[2]])
        return (
            state,
            self._observation(state),
            Outcome(reward, action[0] == 2, state.time >= self.spec.horizon, {}),
        )

    def local_state(self, state):
        return state.x[:, None]

    def _observation(self, state):
        action_mask = jnp.ones((3, 3), bool).at[1, 2].set(state.x[1] > 5)
        # The sine stands for an expensive observation, recognisable in the compiled program.
        return Observation(jnp.sin(state.x)[:, None], state.x, action_mask, jnp.ones(3, bool))


class SeenChain(Chain):
    """The same without a local state: observations decide."""

    local_state = Environment.local_state


def lbf_state(positions, foods, levels=None):
    """A moment of a game on 8x8; `foods` maps cells to levels."""
    food_level = jnp.array(list(foods.values()))
    return State(
        position=jnp.array(positions),
        level=jnp.array(levels or [1] * len(positions)),
        food_position=jnp.array(list(foods)),
        food_level=food_level,
        food_total=food_level.sum(),
        time=jnp.int32(0),
    )


@pytest.fixture(scope="module")
def pair():
    """Two foragers, and 50 steps of 20 games of theirs."""
    env = make_env("lbf/8x8-2p-4f-coop")
    return env, play_randomly(env, n_envs=20, length=50)


@pytest.fixture(scope="module")
def forage():
    """The graphs of one joint action in a game of three on 8x8."""
    env = make_env("lbf/8x8-3p-2f")
    return jax.jit(lambda state, action: intervene(env, state, KEY, action))


def test_star_spread_is_the_oracle_edge_by_edge():
    # Whatever an agent does, some other action of it ends elsewhere, even in a corner, and the hub
    # sees that; a leaf sees itself only. So the match is exact, whatever the state.
    env = make_env("star-spread/5")
    batch = play_randomly(env, n_envs=4, length=50)
    graphs = jax.jit(partial(intervene_batch, env))(batch)
    np.testing.assert_array_equal(graphs.action_graph, batch.extras["oracle"])
    # A leaf that is nearest to no landmark does not change the hub's reward, so B is a part of the
    # star, not all of it.
    reward_graph = np.asarray(graphs.reward_graph)
    assert not (reward_graph & ~np.asarray(batch.extras["oracle"])).any()
    assert 0.5 < reward_graph[..., 1:, 0].mean() < 1


def test_players_that_contest_a_cell_depend_on_each_other(forage):
    state = lbf_state([(2, 2), (2, 4), (7, 0)], {(5, 5): 1, (0, 0): 1})
    assert edges(forage(state, jnp.array([EAST, WEST, NONE])).action_graph) == {(0, 1), (1, 0)}
    assert edges(forage(state, jnp.array([EAST, NONE, NONE])).action_graph) == {(1, 0)}
    assert edges(forage(state, jnp.array([EAST, WEST, NONE])).reward_graph) == set()


def test_joint_loading_makes_edges_of_both_kinds(forage):
    state = lbf_state([(3, 2), (3, 4), (7, 7)], {(3, 3): 2, (0, 0): 1})
    graphs = forage(state, jnp.array([LOAD, LOAD, LOAD]))
    assert edges(graphs.action_graph) == {(0, 1), (1, 0)}
    assert edges(graphs.reward_graph) == {(0, 1), (1, 0)}
    graphs = forage(state, jnp.array([LOAD, NONE, NONE]))
    assert edges(graphs.action_graph) == {(1, 0)}
    assert edges(graphs.reward_graph) == {(1, 0)}


def test_taking_a_food_alone_reaches_those_beside_it(forage):
    state = lbf_state([(3, 2), (3, 4), (2, 3)], {(3, 3): 2, (0, 0): 1}, levels=[2, 1, 1])
    graphs = forage(state, jnp.array([NONE, NONE, NONE]))
    assert edges(graphs.action_graph) == {(0, 1), (0, 2)}
    assert edges(graphs.reward_graph) == set()


def test_players_far_apart_are_independent(forage):
    state = lbf_state([(0, 7), (4, 4), (7, 0)], {(2, 2): 1, (6, 6): 1})
    for action in product((NONE, EAST, LOAD), repeat=3):
        graphs = forage(state, jnp.array(action))
        np.testing.assert_array_equal(graphs.action_graph, NOBODY)
        np.testing.assert_array_equal(graphs.reward_graph, NOBODY)


def test_lbf_edges_are_nearly_all_in_the_oracle_and_many_oracle_edges_are_idle(pair):
    # The oracle asks who could matter to whom, this asks who did matter, given what the others did.
    env, batch = pair
    found = jax.jit(partial(intervene_batch, env))(batch).action_graph
    against = agreement(found, batch.extras["oracle"], batch.valid)
    assert against.precision > 0.95
    assert 0.05 < against.recall < 0.6


@pytest.mark.parametrize("name", ["climbing", "penalty-50"])
def test_a_common_payoff_depends_on_everybody(name):
    env = make_env(f"matrix/{name}")
    state, _ = env.reset(KEY)
    for action in product(range(3), repeat=2):
        assert intervene(env, state, KEY, jnp.array(action)).reward_graph.all()


def test_the_two_step_game_needs_two_steps_for_the_reward():
    env = make_env("matrix/two-step")
    state, _ = env.reset(KEY)
    keys, actions = jax.random.split(KEY, 2), jnp.array([[1, 0], [1, 1]])
    one = intervene(env, state, keys[0], actions[0])
    assert edges(one.action_graph) == {(0, 1)}
    assert edges(one.reward_graph) == set()
    assert edges(intervene_rollout(env, state, keys, actions).reward_graph) == {(0, 1)}


def test_row_j_does_not_depend_on_what_j_did(forage):
    rows = jax.jit(
        jax.vmap(jax.vmap(lambda state, action: forage(state, action).action_graph, (None, 0)), 0)
    )
    rng = np.random.default_rng(0)
    cells = rng.integers(2, 6, (20, 3, 2))
    states = [lbf_state(position, {(3, 3): 2, (5, 5): 1}) for position in cells]
    states = jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)
    other = rng.integers(0, 6, (20, 1, 3))
    for j in range(3):
        actions = np.where(np.arange(3) == j, np.arange(6)[:, None], other)
        row = np.asarray(rows(states, jnp.asarray(actions)))[:, :, j]
        assert (row == row[:, :1]).all()
        assert row[:, :, np.arange(3) != j].any()


def test_chance_makes_no_edges_as_the_key_is_the_same():
    env = Chain(noise=3.0)
    state, observation = env.reset(KEY)
    look = jax.jit(
        lambda key: intervene(env, state, key, jnp.array([1, 0, 0]), observation.action_mask)
    )
    for key in jax.random.split(KEY, 10):
        graphs = look(key)
        assert edges(graphs.action_graph) == {(0, 1)}
        assert edges(graphs.reward_graph) == set()


def test_influence_through_a_state_needs_two_steps():
    env = Chain()
    state, observation = env.reset(KEY)
    keys, actions = jax.random.split(KEY, 3), jnp.array([[1, 0, 0], [0, 1, 2], [2, 0, 0]])
    for horizon, found in ((1, {(0, 1)}), (2, {(0, 1), (0, 2)}), (3, {(0, 1), (0, 2)})):
        graphs = intervene_rollout(
            env, state, keys[:horizon], actions[:horizon], observation.action_mask
        )
        assert edges(graphs.action_graph) == found
        assert edges(graphs.reward_graph) == found - {(0, 1)}
    cut = intervene_rollout(
        env, state, keys[:2], actions[:2], observation.action_mask, counts=jnp.array([True, False])
    )
    assert edges(cut.action_graph) == {(0, 1)}


def test_only_available_actions_are_tried_also_later():
    env = Chain(noise=0.0)
    state, observation = env.reset(KEY)
    assert edges(intervene(env, state, KEY, jnp.array([1, 0, 0])).action_graph) == {
        (0, 1),
        (1, 0),
        (1, 2),
    }
    assert edges(
        intervene(env, state, KEY, jnp.array([1, 0, 0]), observation.action_mask).action_graph
    ) == {(0, 1)}
    # Agent 1 recorded action 2, possible since agent 0 had played 1; where 0 plays 0 instead, 1
    # must not play it.
    keys, actions = jax.random.split(KEY, 2), jnp.array([[1, 0, 0], [0, 2, 0]])
    later = intervene_rollout(env, state, keys, actions, observation.action_mask)
    assert edges(later.action_graph) == {(0, 1), (0, 2)}
    assert edges(later.reward_graph) == {(0, 2)}


def test_an_ended_branch_stands_still():
    env = make_env("lbf/8x8-3p-2f")
    state = lbf_state([(3, 2), (7, 7), (7, 0)], {(3, 3): 1, (0, 0): 0})
    keys, actions = jax.random.split(KEY, 2), jnp.array([[LOAD, NONE, NONE], [NONE, WEST, NONE]])
    play_on = jax.jit(
        lambda keys, actions: intervene_rollout(env, state, keys, actions).action_graph
    )
    # Loading ends the game, so whether player 1 still walks depends on player 0, though they never
    # meet.
    assert edges(play_on(keys[:1], actions[:1])) == set()
    assert edges(play_on(keys, actions)) == {(0, 1)}


def test_without_a_local_state_observations_decide_and_with_one_they_are_not_computed():
    state, observation = Chain().reset(KEY)

    def compiled(env):
        return (
            jax.jit(lambda state, key: intervene(env, state, key, jnp.array([1, 0, 0])))
            .lower(state, KEY)
            .compile()
        )

    assert "sine" in str(compiled(SeenChain()).as_text())
    assert "sine" not in str(compiled(Chain()).as_text())
    assert edges(
        intervene(
            SeenChain(), state, KEY, jnp.array([1, 0, 0]), observation.action_mask
        ).action_graph
    ) == {(0, 1)}


class PartlyEmpty(Chain):
    """A chain whose state has a part without entries, as those of other libraries may have."""

    def reset(self, key):
        state, observation = super().reset(key)
        return (state, jnp.zeros(0)), observation

    def step(self, key, state, action):
        later, observation, outcome = super().step(key, state[0], action)
        return (later, state[1]), observation, outcome

    def local_state(self, state):
        return super().local_state(state[0])


def test_parts_of_a_state_may_be_empty():
    def graphs(env):
        start = reset_envs(env, KEY, None, 3)
        needs = frozenset({"states", "keys"})
        batch = collect(env, act_randomly, start, KEY, 4, needs, reset=False)[1]
        return [intervene_batch(env, batch, chunk=chunk).action_graph for chunk in (None, 5)]

    for found, expected in zip(
        jax.jit(lambda: graphs(PartlyEmpty()))(), graphs(Chain()), strict=True
    ):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("horizon", [1, 3])
def test_chunks_change_nothing(pair, horizon):
    env, batch = pair
    look = jax.jit(
        lambda batch, chunk: intervene_batch(env, batch, horizon=horizon, chunk=chunk),
        static_argnums=1,
    )
    whole = look(batch, None)
    for chunk in (7, 5000):
        jax.tree.map(np.testing.assert_array_equal, look(batch, chunk), whole)
    assert 0 < density(whole.action_graph) < 0.3


@pytest.mark.parametrize("horizon", [1, 2])
def test_playing_only_the_compared_branches_changes_nothing(horizon):
    env = Chain(horizon=4)
    batches = jax.tree.map(
        lambda *leaves: jnp.stack(leaves),
        *[play_randomly(env, n_envs=6, length=5, seed=seed, reset=True) for seed in range(2)],
    )
    mask = np.asarray(batches.observation.action_mask)
    assert not mask.all()  # of agent 1 some actions are not compared
    found = []
    for env.loops_inside in (False, True):
        look = partial(intervene_batch, env, horizon=horizon, chunk=7)
        found.append(jax.jit(jax.vmap(look))(batches))
    jax.tree.map(np.testing.assert_array_equal, *found)
    assert density(found[0].action_graph) > 0


def test_an_action_taken_that_is_not_available_is_not_compared(pair):
    env, batch = pair
    taken = jax.nn.one_hot(batch.action, env.spec.n_actions, dtype=bool)
    masked = batch.observation._replace(action_mask=batch.observation.action_mask & ~taken)
    found = []
    for env.loops_inside in (True, False):
        look = jax.jit(partial(intervene_batch, env))
        found.append(look(batch._replace(observation=masked)))
    jax.tree.map(np.testing.assert_array_equal, *found)
    with_taken = jax.jit(partial(intervene_batch, env))(batch)
    assert density(found[0].action_graph) < density(with_taken.action_graph)


def test_the_branch_of_the_actions_taken_is_played_once(monkeypatch):
    env = Chain(horizon=4)
    env.loops_inside = True
    state, observation = env.reset(KEY)
    played = []

    def noted(branch, compared):
        played.append(np.asarray(compared)[0])
        return _extremes_of_played(branch, compared)

    monkeypatch.setattr("dgmarl.graphs.interventional._extremes_of_played", noted)
    action = jnp.zeros(env.spec.n_agents, jnp.int32)
    intervene(env, state, KEY, action, observation.action_mask)
    (branches,) = played
    mask = np.array(observation.action_mask)
    mask[mask.sum(axis=-1) < 2] = False  # nothing to compare
    mask[:, 0] = False  # the action taken
    np.testing.assert_array_equal(branches[:-1], mask)
    assert branches[-1].sum() == 1


@pytest.mark.parametrize("loops_inside", [False, True])
def test_a_sample_of_all_alternatives_changes_nothing(pair, loops_inside, monkeypatch):
    # Some edges need the action taken or one other, as that of loading.
    env, batch = pair
    full = jax.jit(partial(intervene_batch, env))(batch)
    assert density(full.action_graph) > 0
    monkeypatch.setattr(env, "loops_inside", loops_inside)
    for n in (env.spec.n_actions - 1, 50):
        look = partial(intervene_batch, env, alternatives=n, key=KEY)
        jax.tree.map(np.testing.assert_array_equal, jax.jit(look)(batch), full)


@pytest.mark.parametrize("loops_inside", [False, True])
def test_a_sample_of_alternatives_finds_a_part_of_the_edges(pair, loops_inside, monkeypatch):
    env, batch = pair
    monkeypatch.setattr(env, "loops_inside", loops_inside)
    full = np.asarray(jax.jit(partial(intervene_batch, env))(batch).action_graph)
    look = jax.jit(lambda key: intervene_batch(env, batch, alternatives=1, key=key).action_graph)
    one, again, other = (np.asarray(look(key)) for key in (KEY, KEY, jax.random.key(1)))
    valid = np.asarray(batch.valid)
    for found in (one, other):
        assert not (found & ~full)[valid].any()
        assert 0 < density(jnp.asarray(found[valid])) < density(jnp.asarray(full[valid]))
    np.testing.assert_array_equal(one, again)
    assert (one != other)[valid].any()


@pytest.mark.parametrize("n", [1, 2, 4, 9])
def test_a_sample_has_the_action_taken_and_as_many_others_as_there_are(n):
    rng = np.random.default_rng(0)
    action = rng.integers(0, 6, (40, 3))
    taken = np.eye(6, dtype=bool)[action]
    available = taken | (rng.random((40, 3, 6)) < 0.5)
    sample = np.asarray(_sample(KEY, jnp.asarray(available), jnp.asarray(action), n))
    assert sample[taken].all()
    assert not (sample & ~available).any()
    others = (available & ~taken).sum(axis=-1)
    assert others.min() == 0  # nothing to choose from
    np.testing.assert_array_equal((sample & ~taken).sum(axis=-1), np.minimum(others, n))


def test_a_sample_draws_every_alternative_and_each_agent_and_step_for_itself():
    available, action = jnp.ones((600, 2, 4), bool), jnp.zeros((600, 2), jnp.int32)
    sample = np.asarray(_sample(KEY, available, action, 1))[..., 1:]
    np.testing.assert_allclose(sample.mean(axis=(0, 1)), 1 / 3, atol=0.06)
    same = (sample[:, 0] & sample[:, 1]).any(axis=-1).mean()
    assert abs(same - 1 / 3) < 0.1


def test_nothing_is_compared_where_nothing_is_available():
    nothing = jnp.zeros((2, 3, 4), bool)  # as at steps after the end
    assert not _sample(KEY, nothing, jnp.zeros((2, 3), jnp.int32), 2).any()


@pytest.mark.parametrize("loops_inside", [False, True])
def test_steps_after_the_end_have_only_self_loops_and_the_others_do_not_change(loops_inside):
    env = Chain(horizon=4)
    env.loops_inside = loops_inside
    batch = play_randomly(env, n_envs=6, length=5)
    valid = np.asarray(batch.valid)
    assert valid.any()
    assert not valid.all()
    look = jax.jit(partial(intervene_batch, env))
    found, all_played = look(batch), look(batch._replace(valid=jnp.ones_like(batch.valid)))
    for graphs, others in zip(found, all_played, strict=True):
        np.testing.assert_array_equal(graphs[valid], others[valid])
        np.testing.assert_array_equal(
            graphs[~valid], np.broadcast_to(np.eye(3, dtype=bool), graphs[~valid].shape)
        )
    assert density(all_played.action_graph[~valid]) > 0


def test_a_batch_is_its_states_one_by_one_and_rollouts_end_with_the_episode_and_the_window():
    env = Chain(horizon=4)
    batch = play_randomly(env, n_envs=6, length=5, reset=True)
    found = jax.jit(partial(intervene_batch, env, horizon=2))(batch)
    goes_on = np.array(batch.continues)
    goes_on[-1] = False
    assert goes_on[:-1].any()
    assert not goes_on[:-1].all()
    # Where the episode ended for agent 0's action, other actions of it would have gone on, but with
    # nothing recorded to play.
    np.testing.assert_array_equal(np.asarray(found.action_graph)[:, :, 0, 2], goes_on)
    alone = jax.jit(partial(intervene_rollout, env))
    for t, b in np.argwhere(goes_on)[:8]:
        state = jax.tree.map(lambda leaf, t=t, b=b: leaf[t, b], batch.extras["states"])
        keys, actions = batch.extras["keys"][t : t + 2, b], batch.action[t : t + 2, b]
        graphs = alone(state, keys, actions, batch.observation.action_mask[t, b])
        np.testing.assert_array_equal(found.action_graph[t, b], graphs.action_graph)
        np.testing.assert_array_equal(found.reward_graph[t, b], graphs.reward_graph)


def test_the_source_works_for_several_seeds_at_once():
    env = make_env("star-spread/3")
    source = InterventionalSource(horizon=2)
    source.init(KEY, env)
    batches = jax.tree.map(
        lambda *leaves: jnp.stack(leaves),
        *[play_randomly(env, 2, 5, seed=seed) for seed in range(2)],
    )
    found = jax.jit(jax.vmap(source.infer, (None, 0, 0)))(None, batches, jax.random.split(KEY, 2))
    np.testing.assert_array_equal(found.edges, batches.extras["oracle"])
    assert found.reward_edges is None


def test_training_with_interventional_graphs_logs_their_density():
    small = {"n_envs": 2, "learner.hidden": 8, "learner.minibatches": 1}
    trainer = Trainer(resolve("lbf/8x8-2p-4f-coop", "ippo-dg", small, graph="interventional"))
    state, metrics = jax.jit(lambda key: trainer.iterate(trainer.init(key)))(KEY)
    assert int(state.iteration) == 1
    assert 0 < float(metrics["graph_density"]) < 0.5
    assert all(np.isfinite(value).all() for value in jax.tree.leaves(metrics))


def test_bad_input_is_refused():
    env = Chain()
    state, _ = env.reset(KEY)
    action = jnp.zeros(3, jnp.int32)
    with pytest.raises(ValueError, match="3 per step"):
        intervene(env, state, KEY, jnp.zeros(2, jnp.int32))
    with pytest.raises(ValueError, match="integers"):
        intervene(env, state, KEY, jnp.zeros(3))
    with pytest.raises(ValueError, match=r"action_mask must have the shape \(3, 3\)"):
        intervene(env, state, KEY, action, jnp.ones((3, 2), bool))
    with pytest.raises(ValueError, match="one entry for each of 2 steps"):
        intervene_rollout(env, state, KEY[None], jnp.stack([action, action]))
    with pytest.raises(ValueError, match="call init"):
        InterventionalSource().infer(None, play_randomly(env, 1, 2), KEY)
    with pytest.raises(UsageError, match="from 1 to 1,000 steps"):
        InterventionalSource(horizon=0)
    with pytest.raises(ValueError, match="drawn at random: give a key"):
        intervene_batch(env, play_randomly(env, 1, 2), alternatives=1)
    with pytest.raises(UsageError, match="from 1 to 1,000,000 alternative actions"):
        InterventionalSource(alternatives=0)
