"""SMAClite: tables and placement, rules in hand-made battles, invariants of random play, scenarios
from files."""

from functools import cache
from xml.etree import ElementTree

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dgmarl import make_env
from dgmarl.envs.base import random_actions
from dgmarl.envs.smaclite import (
    SCENARIOS,
    Scenario,
    Smaclite,
    SmacliteConfig,
    State,
    find_scenario,
    read_scenario,
)
from dgmarl.envs.smaclite.env import random_turns
from dgmarl.envs.smaclite.linear_programs import least_violation, nearest
from dgmarl.envs.smaclite.observe import oracle_graph
from dgmarl.envs.smaclite.plane import Lines, Vector
from dgmarl.envs.smaclite.rewards import rewards
from dgmarl.envs.smaclite.scenarios import Group
from dgmarl.envs.smaclite.terrain import TERRAINS, rectangles, walkable
from dgmarl.envs.smaclite.types import EAST, FIRST_TARGET, STOP
from dgmarl.errors import UsageError

KEY = jax.random.key(0)
IN_CI = ("skirmish",)  # it has everything in it; the contract test plays 2s3z
SIZES = {
    # actions, observation, state, highest raw reward, as published
    "MMM": (16, 160, 290, 1015),
    "MMM2": (18, 176, 322, 1205),
    "corridor": (30, 156, 282, 1280),
    "bane_vs_bane": (30, 336, 984, 1260),
    "25m_vs_30m": (36, 275, 1090, 1850),
    "3s5z_vs_3s6z": (15, 136, 230, 1670),
    "10m_vs_11m": (17, 105, 243, 805),
    "27m_vs_30m": (36, 285, 1170, 1850),
    "2s3z": (11, 80, 120, 1020),
    "3s5z": (14, 128, 216, 1510),
    "3s_vs_5z": (11, 48, 68, 1000),
    "5m_vs_6m": (12, 55, 98, 530),
}

# Everything in one small battle: healing, flying, blowing up, shields, walls, enemies created
# first.
SKIRMISH = Scenario(
    "skirmish",
    (
        Group("enemy", (20.0, 16.0), {"medivac": 1, "baneling": 2, "zealot": 1}),
        Group("ally", (14.0, 16.0), {"medivac": 1, "marine": 2, "baneling": 1}),
    ),
    attack_point=(14.0, 16.0),
    terrain="octagon",
)


@cache
def battle(name: str, **options) -> Smaclite:
    return Smaclite(SKIRMISH if name == "skirmish" else SCENARIOS[name], SmacliteConfig(**options))


@cache
def stepper(name: str, **options):
    """One step with a given order of turns."""
    return jax.jit(battle(name, **options).step)


IN_ORDER = np.tile(np.arange(8), (8, 1))
"""The eight units of "skirmish" act in the order of their numbers in each of the eight ticks."""


@cache
def first_state(name: str) -> State:
    return jax.jit(battle(name).reset)(KEY)[0]


N_BATTLES = 8


@cache
def player(name: str):
    """From keys [T] to [T, 8, ...]: states before and after each step, views, actions, outcomes,
    and whether it still went on.

    Random play that likes to attack.
    """
    env = battle(name)

    def step(*arguments):
        """Over two axes of battles, as seeds and environments are."""
        nested = jax.tree.map(lambda leaf: leaf.reshape(2, -1, *leaf.shape[1:]), arguments)
        result = jax.vmap(jax.vmap(env.step))(*nested)
        return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), result)

    def one_step(carry, key):
        state, observation, running = carry
        act_key, step_key = jax.random.split(key)
        liked = observation.action_mask & (jnp.arange(env.spec.n_actions) >= FIRST_TARGET)
        some = liked.any(-1, keepdims=True) & jax.random.bernoulli(
            act_key, 0.7, (*liked.shape[:-1], 1)
        )
        action = random_actions(
            act_key,
            observation._replace(action_mask=jnp.where(some, liked, observation.action_mask)),
        )
        after, seen, outcome = step(jax.random.split(step_key, N_BATTLES), state, action)
        done = outcome.terminated | outcome.truncated
        return (after, seen, running & ~done), (state, after, observation, action, outcome, running)

    start = jax.jit(jax.vmap(env.reset))(jax.random.split(KEY, N_BATTLES))
    return jax.jit(
        lambda keys: jax.lax.scan(one_step, (*start, jnp.ones(N_BATTLES, bool)), keys)[1]
    )


def episodes(name: str, seed: int):
    keys = jax.random.split(jax.random.key(seed), battle(name).spec.horizon)
    return jax.tree.map(np.asarray, player(name)(keys))


class TestTables:
    @pytest.mark.parametrize("name", SCENARIOS)
    def test_sizes_are_those_of_the_original(self, name):
        env = battle(name)
        assert (
            env.spec.n_actions,
            env.spec.obs_size,
            env.spec.state_size,
            env.roster.max_reward,
        ) == SIZES[name]

    def test_blocks_of_units_stand_where_the_original_puts_them(self):
        mmm = battle("MMM").roster.position
        np.testing.assert_allclose(
            mmm[:4],
            [[7.875, 14.9875], [9.05, 14.9875], [9.85, 14.9875], [10.65, 14.9875]],
            atol=1e-6,
        )
        np.testing.assert_allclose(mmm[18:], [[24.3125, 14.85], [23.1375, 14.85]], atol=1e-6)
        corridor = battle("corridor").roster
        assert corridor.creation.tolist() == [*range(24, 30), *range(24)]
        np.testing.assert_allclose(
            corridor.position[[0, 5, 6]],
            [[18.04, 18.57], [20.14, 19.62], [29.41, 29.84]],
            atol=1e-5,
        )

    def test_blocked_cells_become_the_same_rectangles(self):
        assert rectangles(walkable(TERRAINS["simple"])) == [(0, 0, 32, 8), (0, 24, 32, 8)]
        octagon, corridor = (
            rectangles(walkable(TERRAINS[name])) for name in ("octagon", "corridor")
        )
        assert len(octagon) == 24
        assert octagon[-3:] == [(9, 26, 1, 6), (22, 26, 10, 6), (10, 27, 22, 5)]
        assert len(corridor) == 27
        assert corridor[2:6] == [(14, 1, 18, 11), (0, 2, 1, 30), (13, 3, 19, 8), (1, 12, 1, 20)]


class TestLinearPrograms:
    def lines(self, *rows) -> Lines:
        px, py, dx, dy = (jnp.array([[row[k]] for row in rows], jnp.float32) for k in range(4))
        return Lines(Vector(px, py), Vector(dx, dy), jnp.ones((len(rows), 1), bool))

    def solve(self, lines, wish, speed=1.0):
        wish = Vector(jnp.array([wish[0]]), jnp.array([wish[1]]))
        return (*nearest(lines, wish, wish, jnp.array([speed]), farthest=False), wish)

    def test_a_wish_that_keeps_to_all_lines_is_kept(self):
        velocity, failed, _ = self.solve(self.lines((0, -1, 1, 0)), (0.5, 0.0))
        assert (float(velocity.x[0]), float(velocity.y[0]), int(failed[0])) == (0.5, 0.0, 1)

    def test_the_corner_of_two_lines_is_found(self):
        velocity, failed, _ = self.solve(self.lines((0, 0.2, 1, 0), (0.1, 0, 0, 1)), (0.5, -0.5))
        np.testing.assert_allclose([velocity.x[0], velocity.y[0]], [0.1, 0.2], atol=1e-6)
        assert int(failed[0]) == 2

    def test_three_lines_that_cannot_all_be_kept_are_violated_alike(self):
        turn = 2 * np.pi * np.arange(3) / 3
        # Half-planes that point away from the origin, each 0.3 off it: by symmetry the best
        # compromise is the origin.
        rows = [(0.3 * np.cos(a), 0.3 * np.sin(a), np.sin(a), -np.cos(a)) for a in turn]
        lines = self.lines(*rows)
        velocity, failed, _ = self.solve(lines, (0.2, 0.1))
        assert int(failed[0]) == 2
        best = least_violation(lines, 0, velocity, failed, jnp.array([1.0]))
        np.testing.assert_allclose([best.x[0], best.y[0]], [0.0, 0.0], atol=1e-5)


# The enemies of "skirmish" where nobody meets them.
FAR = {4: (25.0, 16.0), 5: (25.0, 15.0), 6: (25.0, 17.0), 7: (26.0, 16.0)}


class TestRules:
    """In "skirmish" allies are medivac 0, marines 1 and 2, baneling 3; enemies medivac 4, banelings
    5 and 6, zealot 7."""

    def start(self, **changes) -> State:
        state = first_state("skirmish")
        values = {name: np.array(getattr(state, name)) for name in changes}
        for name, entries in changes.items():
            for unit, value in entries.items():
                values[name][unit] = value
        return state._replace(**{name: jnp.asarray(value) for name, value in values.items()})

    def play(self, state: State, actions, n: int = 1):
        for _ in range(n):
            state, observation, outcome = stepper("skirmish")(
                KEY, state, np.array(actions, np.int32), IN_ORDER
            )
        return state, observation, outcome

    def test_a_volley_every_ten_ticks_and_armour_spares_shields(self):
        # Marines fire 6 per 0.61 s; the zealot is out of reach of everything else and stands in
        # range of both.
        state = self.start(position={**FAR, 1: (14.0, 16.0), 2: (14.0, 17.0), 7: (18.0, 16.5)})
        shield = [50.0]
        for _ in range(5):
            state, _, outcome = self.play(state, [STOP, FIRST_TARGET + 3, FIRST_TARGET + 3, STOP])
            shield.append(float(state.shield[7]))
        assert shield[:3] == [50.0, 38.0, 26.0]
        assert float(outcome.reward.sum()) >= 0

    def test_a_baneling_takes_itself_and_everybody_near_on_the_other_side(self):
        close = {3: (16.0, 16.0), 7: (16.8, 16.0), 5: (17.5, 16.0), 1: (15.8, 16.6)}
        state = self.start(position={**FAR, **close}, shield={7: 0.0}, hp={7: 40.0})
        after, _, outcome = self.play(state, [STOP, STOP, STOP, FIRST_TARGET + 3])
        assert not after.in_play[3]
        assert not after.in_play[7]
        assert not after.in_play[5]
        assert float(outcome.reward[3]) > 0

    def test_the_healer_gives_hit_points_for_energy(self):
        state = self.start(position={**FAR, 0: (13.0, 16.0), 1: (14.0, 16.0)}, hp={1: 10.0})
        after, _, _ = self.play(state, [FIRST_TARGET + 1, STOP, STOP, STOP])
        assert float(after.hp[1]) == pytest.approx(10.0 + 8 * 0.5625)
        # Two units of energy for six hit points, less what grew back in eight ticks.
        assert float(after.energy[0]) == pytest.approx(50 - 2 + 8 * 9 / 256)
        assert float(after.heal_reserve[0]) == pytest.approx(2 * 3 - 8 * 0.5625)

    @pytest.mark.parametrize("revive", [True, False])
    def test_a_healer_revives_only_with_the_quirk(self, revive):
        # A zealot kills the marine in the first tick; the healer acts after it in that tick.
        close = {
            0: (13.0, 16.0),
            1: (14.0, 16.0),
            7: (15.0, 16.0),
            2: (10.0, 20.0),
            3: (10.0, 12.0),
        }
        state = self.start(position={**FAR, **close}, hp={1: 3.0}, target={0: 1})
        order = np.tile(np.array([7, 0, 1, 2, 3, 4, 5, 6]), (8, 1))
        options = {} if revive else {"revive": False}
        after, _, _ = stepper("skirmish", **options)(
            KEY, state, np.array([FIRST_TARGET + 1, STOP, STOP, STOP]), order
        )
        assert bool(after.in_play[1]) == revive

    def test_moves_are_offered_towards_walkable_cells_only(self):
        state = self.start(position={**FAR, 1: (10.5, 5.5)})
        _, observation, _ = self.play(state, [STOP] * 4)
        assert observation.action_mask[1, :6].tolist() == [False, True, True, False, True, False]
        assert observation.action_mask[0].tolist()[FIRST_TARGET:] == [False, False, True, True]

    def test_an_unavailable_action_is_a_stop(self):
        state = self.start(position=FAR)
        stopped, _, _ = self.play(state, [STOP] * 4)
        ordered, _, _ = self.play(state, [STOP, FIRST_TARGET, FIRST_TARGET, STOP])
        np.testing.assert_array_equal(stopped.position, ordered.position)

    def test_a_mover_walks_around_one_that_stands(self):
        state = self.start(
            position={**FAR, 1: (12.0, 16.0), 2: (12.7, 16.05), 0: (8.0, 20.0), 3: (8.0, 12.0)}
        )
        after, _, _ = self.play(state, [STOP, EAST, STOP, STOP])
        assert float(after.position[1, 1]) < 15.9
        np.testing.assert_array_equal(after.position[2], state.position[2])

    def test_a_map_without_walls_can_be_played(self):
        groups = (
            Group("ally", (14.0, 16.0), {"marine": 2}),
            Group("enemy", (16.0, 16.0), {"zealot": 2}),
        )
        env = Smaclite(Scenario("meadow", groups, attack_point=(14.0, 16.0), terrain="all_green"))
        state, _ = jax.jit(env.reset)(KEY)
        after, _, outcome = jax.jit(env.step)(KEY, state, np.array([FIRST_TARGET, FIRST_TARGET]))
        assert float(outcome.reward.sum()) > 0
        assert np.isfinite(after.position).all()

    def test_the_order_decides_and_shapes_are_checked(self):
        env, state = battle("skirmish"), first_state("skirmish")
        with pytest.raises(ValueError, match="action must have shape"):
            env.step(KEY, state, jnp.zeros(3, jnp.int32))
        with pytest.raises(ValueError, match="order must have shape"):
            env.step(KEY, state, jnp.zeros(4, jnp.int32), jnp.zeros((8, 3), jnp.int32))


def test_turns_are_a_uniform_order():
    turns = np.asarray(
        jax.vmap(lambda key: random_turns(key, 5))(jax.random.split(KEY, 2000))
    ).reshape(-1, 5)
    assert (np.sort(turns % 8, axis=1) == np.arange(5)).all()
    first = np.bincount(turns.argmin(1), minlength=5) / len(turns)
    assert np.abs(first - 0.2).max() < 0.015


ALL = [
    name if name in IN_CI else pytest.param(name, marks=pytest.mark.slow)
    for name in ("skirmish", *SCENARIOS)
]


class TestInvariants:
    @pytest.mark.parametrize("name", ALL)
    @settings(max_examples=2, deadline=None, derandomize=True)
    @given(seed=st.integers(0, 2**31 - 1))
    def test_random_battles_keep_the_rules(self, name, seed):
        env = battle(name)
        roster, n = env.roster, env.spec.n_agents
        before, after, observation, action, outcome, running = episodes(name, seed)
        standing = after.in_play & running[..., None]
        assert (after.hp[standing] > 0).all()
        assert (after.hp <= roster.max_hp + 1e-4).all()
        assert (after.hp >= 0).all()
        assert ((after.shield >= 0) & (after.shield <= roster.max_shield)).all()
        assert ((after.energy >= 0) & (after.energy <= roster.max_energy)).all()
        assert ((after.cooldown >= 0) & (after.cooldown <= roster.max_cooldown)).all()
        # Nobody comes back, and the fallen do nothing.
        assert not (after.in_play & ~before.in_play).any()
        fallen = ~before.in_play
        np.testing.assert_array_equal(after.position[fallen], before.position[fallen])
        np.testing.assert_array_equal(
            observation.action_mask[~observation.alive],
            np.eye(env.spec.n_actions, dtype=bool)[0][None].repeat((~observation.alive).sum(), 0),
        )
        assert (observation.agents_view[~observation.alive] == 0).all()
        assert np.take_along_axis(observation.action_mask, action[..., None], -1).all()
        # Ground units stay on walkable cells; the map can be left where it has no walls.
        cell = np.floor(after.position[..., ~roster.is_air, :]).astype(int)
        inside = ((cell >= 0) & (cell < 32)).all(-1)
        x, y = np.clip(cell, 0, 31)[..., 0], np.clip(cell, 0, 31)[..., 1]
        assert (roster.walkable[y, x] | ~inside).all()
        assert all(
            np.isfinite(leaf).all()
            for leaf in (
                observation.agents_view,
                observation.global_state,
                outcome.reward,
                after.position,
                after.velocity,
            )
        )
        won = ~after.in_play[..., n:].any(-1)
        assert (outcome.terminated == (won | ~after.in_play[..., :n].any(-1)))[running].all()
        assert (outcome.info["battle_won"] == won).all()
        assert (outcome.terminated | outcome.truncated)[running].sum() == running.shape[1]

    @pytest.mark.parametrize("name", ALL)
    def test_rewards_of_all_modes_add_up_to_the_team_reward(self, name):
        env = battle(name)
        before, _, _, action, outcome, running = episodes(name, 1)
        modes = ("by_source", "team", "as_published")

        def paid(tick, won):
            return [rewards(env.roster, mode, tick, won) for mode in modes]

        step = int(np.argmax((outcome.reward.sum(-1) * running).sum(-1)))
        state = jax.tree.map(lambda leaf: leaf[step], before)
        keys = jax.random.split(KEY, N_BATTLES)
        after, ticks = jax.jit(jax.vmap(env.play))(keys, state, action[step])
        by_source, team, published = jax.jit(jax.vmap(paid))(
            ticks, ~after.in_play[:, env.spec.n_agents :].any(1)
        )
        assert float(np.asarray(team).sum()) > 0
        np.testing.assert_allclose(by_source.sum(-1), team.sum(-1), atol=1e-5)
        np.testing.assert_allclose(published.sum(-1), team.sum(-1), atol=1e-5)
        if (env.roster.creation == np.arange(env.roster.n_units)).all():
            np.testing.assert_allclose(published, by_source, atol=1e-6)

    def test_the_same_key_gives_the_same_episode_and_another_key_another(self):
        first = episodes("skirmish", 5)
        again, other = episodes("skirmish", 5), episodes("skirmish", 6)
        jax.tree.map(np.testing.assert_array_equal, first, again)
        assert not np.array_equal(first[1].position, other[1].position)

    def test_one_battle_alone_and_among_others_is_the_same(self):
        before, after, _, action, _, _ = episodes("skirmish", 7)
        step = 10
        key = jax.random.split(jax.random.key(7), battle("skirmish").spec.horizon)[step]
        keys = jax.random.split(jax.random.split(key)[1], N_BATTLES)
        for k in (0, 6):
            turns = random_turns(keys[k], battle("skirmish").roster.n_units)
            one, _, _ = stepper("skirmish")(
                KEY,
                jax.tree.map(lambda leaf, k=k: leaf[step, k], before),
                action[step, k],
                np.argsort(turns, axis=1),
            )
            np.testing.assert_array_equal(after.in_play[step, k], one.in_play)
            np.testing.assert_allclose(after.position[step, k], one.position, atol=1e-5)


class TestGraphs:
    def test_distance_and_nearest_rules(self):
        env, state = battle("skirmish"), first_state("skirmish")
        place = (
            jnp.asarray(np.array(state.position))
            .at[:4]
            .set(jnp.array([[10, 16], [11, 16], [13, 16], [19.5, 16]]))
        )
        state = state._replace(position=place)
        near = np.asarray(oracle_graph(env.roster, SmacliteConfig(oracle_distance=2), state))
        assert near.astype(int).tolist() == [[1, 1, 0, 0], [1, 1, 1, 0], [0, 1, 1, 0], [0, 0, 0, 1]]
        two = np.asarray(
            oracle_graph(env.roster, SmacliteConfig(oracle="nearest", oracle_neighbours=2), state)
        )
        assert two.astype(int).tolist() == [[1, 1, 0, 0], [1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1]]
        fallen = state._replace(in_play=state.in_play.at[1].set(False))
        gone = np.asarray(oracle_graph(env.roster, SmacliteConfig(oracle_distance=9), fallen))
        assert gone[1].tolist() == [False, True, False, False]

    def test_the_local_state_of_an_agent_is_its_own(self):
        env, state = battle("skirmish"), first_state("skirmish")
        moved = state._replace(position=state.position.at[2].add(1.0))
        differs = (np.asarray(env.local_state(state)) != np.asarray(env.local_state(moved))).any(1)
        assert differs.tolist() == [False, False, True, False]


class TestScenarioFiles:
    text = """
attack_point: [9, 16]
groups:
  - {side: ally, at: [9, 16], units: {marine: 2, brute: 1}}
  - {side: enemy, at: [23, 16], units: {zealot: 2}}
unit_types:
  brute:
    {hp: 200, damage: 9, cooldown: 1, speed: 2, attack_range: 1, size: 1.5, attributes: [armored]}
"""

    def test_a_file_becomes_an_environment(self, tmp_path):
        path = tmp_path / "brawl.yaml"
        path.write_text(self.text)
        env = make_env(f"smaclite/{path}", reward="team")
        assert (env.spec.name, env.spec.n_agents, env.spec.n_actions) == ("smaclite/brawl", 3, 8)
        state, _ = jax.jit(env.reset)(KEY)
        assert float(state.hp[2]) == 200

    @pytest.mark.parametrize(
        ("old", "new", "words"),
        [
            ("side: ally", "side: friend", "groups[0].side is 'friend'"),
            ("marine: 2", "marin: 2", "did you mean marine?"),
            ("marine: 2", "marine: 0", "has 0 of marine"),
            ("side: enemy", "side: ally", "has no enemy"),
            ("at: [9, 16]", "at: [9, 3]", "which is blocked"),
            ("at: [23, 16]", "at: [40, 16]", "off the map"),
            ("hp: 200", "hp: 0", "hp=0"),
            ("hp: 200", "health: 200", "unit_types.brute.health is not a field"),
            ("attack_point: [9, 16]", "attack_point: [9]", "must have 2"),
            (
                "attack_point: [9, 16]",
                "terrain: swamp\nattack_point: [9, 16]",
                "'swamp' is not a terrain",
            ),
            (
                "attack_point: [9, 16]",
                'terrain: "___ _X_"\nattack_point: [9, 16]',
                "must have 32 lines",
            ),
            ("marine: 2, brute: 1", "medivac: 1", "only healers"),
            ("marine: 2", "marine: 100", "more than 100 units"),
        ],
    )
    def test_each_mistake_is_named(self, tmp_path, old, new, words):
        path = tmp_path / "brawl.yaml"
        path.write_text(self.text.replace(old, new))
        with pytest.raises(UsageError) as caught:
            read_scenario(path)
        assert words in str(caught.value)
        assert "\n" not in str(caught.value)

    def test_names_are_found_in_any_case_and_others_refused(self):
        assert find_scenario("mmm").name == "MMM"
        with pytest.raises(UsageError, match="did you mean corridor"):
            make_env("smaclite/coridor")
        for options in (
            {"horizon": 0},
            {"reward": "mine"},
            {"oracle_neighbours": 0},
            {"oracle_distance": -1.0},
        ):
            with pytest.raises(UsageError):
                make_env("smaclite/2s3z", **options)


def test_the_picture_shows_units_targets_and_arrows():
    env = battle("skirmish")
    before, *_ = episodes("skirmish", 7)
    state = jax.tree.map(lambda leaf: leaf[6, 0], before)
    picture = env.draw(state, np.ones((4, 4), bool))
    root = ElementTree.fromstring(picture)
    assert "step 6 of 150" in root.attrib["aria-label"]
    assert 'class="dependence"' in picture
    assert picture.count('stroke-dasharray="2 4"') == int(state.in_play.sum())
    assert picture.count("<title>") == int(state.in_play.sum())
    assert "<title>agent 0: medivac, " in picture
    gone = state._replace(in_play=state.in_play & (np.arange(len(state.in_play)) < 4))
    assert "victory" in env.draw(gone)
