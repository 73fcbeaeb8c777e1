"""SMAClite against recordings of the original, and its collision avoidance against a scalar one.

The excerpts in `tests/data/golden` are replayed always, the full recordings, where they are beside
the checkout, with the slow tests."""

import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from replay_smaclite import _states, _tick_states
from scalar_orca import velocities

from dgmarl.envs.smaclite import PAPER_SCENARIOS, Group, Scenario, Smaclite, find_scenario
from dgmarl.envs.smaclite.avoidance import avoid
from tests.conftest import EXCERPTS, FULL_RECORDINGS

FOLDER = Path(__file__).parent
# What is left open and shows: an exact tie, and a wall that the original cuts.
EXPLAINED = {"25m_vs_30m": "episode 4, step 8", "bane_vs_bane": "episode 5, step 16"}


def run(script: str, *arguments: object) -> tuple[int, list[str]]:
    """In a process of its own, because the replay is compiled without fused multiply-add."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_backend_optimization_level=0"
    done = subprocess.run(
        [sys.executable, FOLDER / script, *map(str, arguments)],
        env=os.environ | {"XLA_FLAGS": flags},
        capture_output=True,
        text=True,
    )
    assert not done.stderr, done.stderr
    return done.returncode, done.stdout.splitlines()


@pytest.mark.parametrize(
    ("name", "count"),
    [("MMM", 36), pytest.param("corridor", 6 + 38 + 4 * 8, marks=pytest.mark.slow)],
)
def test_the_excerpt_of_a_recording_is_reproduced(name, count):
    code, lines = run("replay.py", "smaclite", EXCERPTS / f"smaclite_{name}.npz")
    assert code == 0, lines
    assert lines[-1] == f"{count} transitions, 0 mismatches"


@pytest.mark.slow
@pytest.mark.parametrize("name", PAPER_SCENARIOS)
def test_recorded_transitions_are_reproduced(name, full_recording):
    path = full_recording(name)
    code, lines = run("replay.py", "smaclite", path)
    assert code == 0, lines
    assert int(lines[-1].split()[0]) > 300
    assert lines[-1].endswith("transitions, 0 mismatches")
    explained = [
        line.partition("explained: ")[2].partition(":")[0]
        for line in lines
        if "explained: " in line
    ]
    assert explained == ([EXPLAINED[name]] if name in EXPLAINED else [])


@pytest.fixture
def full_recording():
    def find(name: str) -> Path:
        path = FULL_RECORDINGS / f"smaclite_{name}.npz"
        if not path.exists():
            pytest.skip(f"no full recording of {name} beside this checkout")
        return path

    return find


@pytest.mark.slow
@pytest.mark.parametrize(
    ("array", "amount"),
    [("pos", 1e-3), ("velocity", 1e-3), ("hp", 1e-3), ("reward_intended", 1e-3)],
)
def test_no_forgery_is_explained(array, amount, full_recording, tmp_path):
    with np.load(full_recording("bane_vs_bane")) as recording:
        arrays = dict(recording)
    forged = arrays[array].copy()
    forged[5, 17, -1] += amount
    np.savez(tmp_path / "forged.npz", **(arrays | {array: forged}))
    code, lines = run("replay.py", "smaclite", tmp_path / "forged.npz")
    assert code == 1
    assert any(
        line.strip().startswith(("episode 5, step 16", "episode 5, step 17")) for line in lines
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["3s5z_vs_3s6z", "corridor"])
def test_recorded_battles_are_draws_among_ours(name, full_recording):
    code, lines = run("distributions.py", full_recording(name))
    assert code == 0, lines
    assert lines[-1].startswith("6 battles, 0 differ with the recorded orders")


@pytest.mark.parametrize("name", PAPER_SCENARIOS)
def test_the_scalar_oracle_is_the_original_to_the_last_bit(name, full_recording):
    with np.load(full_recording(name)) as recording:
        arrays = dict(recording)
    env = Smaclite(find_scenario(name))
    n_steps, n_ticks = arrays["sub0_pos"].shape[:2]
    before = _tick_states(arrays, _states(env, arrays, np.zeros(n_steps, int), np.arange(n_steps)))
    wish, new = (arrays[f"sub0_{kind}_velocity"].astype(np.float32) for kind in ("pref", "new"))
    for k in range(n_steps * n_ticks):
        state, place = jax.tree.map(lambda leaf, k=k: leaf[k], before), divmod(k, n_ticks)
        chosen = velocities(env.roster, state, wish[place], cut_walls=True, last_first=False)
        np.testing.assert_array_equal(chosen[state.in_play], new[place][state.in_play])


@pytest.mark.parametrize(
    ("accelerated", "in_kernels"),
    [
        pytest.param(False, False, marks=pytest.mark.slow),
        pytest.param(True, False, marks=pytest.mark.rounding),
        pytest.param(True, True, marks=pytest.mark.rounding),
    ],
)
def test_collision_avoidance_is_that_of_the_scalar_oracle(accelerated, in_kernels, monkeypatch):
    for module in ("avoidance", "combat", "work_queue", "linear_programs", "obstacles"):
        monkeypatch.setattr(f"dgmarl.envs.smaclite.{module}.launch_bound", lambda: accelerated)
    monkeypatch.setattr("dgmarl.envs.smaclite.avoidance.has_kernels", lambda: in_kernels)
    monkeypatch.setattr("dgmarl.envs.smaclite.kernels.INTERPRET", True)
    # Walls, both planes, four sizes of units, in a crowd.
    groups = (
        Group("enemy", (14.0, 11.0), {"medivac": 2, "zealot": 5, "baneling": 4}),
        Group("ally", (15.0, 10.0), {"medivac": 2, "marine": 6, "marauder": 3}),
    )
    env = Smaclite(Scenario("crowd", groups, attack_point=(9.0, 8.0), terrain="octagon"))
    generator = np.random.default_rng(0)
    n_crowds, n_units = 24, env.roster.n_units
    state, _ = jax.jit(env.reset)(jax.random.key(0))
    state = jax.tree.map(lambda leaf: np.repeat(np.asarray(leaf)[None], n_crowds, axis=0), state)
    place = generator.uniform((9.2, 6.2), (14.0, 12.0), (n_crowds, n_units, 2)).astype(np.float32)
    speed = env.roster.speed[:, None].astype(np.float32)
    velocity, wish = (
        generator.uniform(-1, 1, (2, n_crowds, n_units, 2)) * speed / np.sqrt(2)
    ).astype(np.float32)
    wish[generator.random((n_crowds, n_units)) < 0.2] = 0
    state = state._replace(
        position=place, velocity=velocity, in_play=generator.random((n_crowds, n_units)) < 0.9
    )
    wish[~state.in_play] = 0
    last = jax.tree.map(lambda leaf: np.moveaxis(leaf, 0, -1), (state, wish))
    ours = np.moveaxis(
        np.asarray(jax.jit(lambda state, wish: avoid(env.roster, state, wish))(*last)), -1, 0
    )
    crowds = [jax.tree.map(lambda leaf, k=k: leaf[k], state) for k in range(n_crowds)]
    theirs = [
        velocities(env.roster, crowds[k], wish[k], cut_walls=True, last_first=False)
        for k in range(n_crowds)
    ]
    # Compiled with fused multiply-add, rounding differs, and corners of nearly parallel lines
    # amplify it.
    gap = np.abs(ours - np.stack(theirs)).max(-1)
    assert (gap < 1e-4).mean() > 0.98
    assert gap.max() < 0.02
    assert (np.abs(ours - wish).max(-1) > 1e-3).mean() > 0.3
