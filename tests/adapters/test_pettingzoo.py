"""PettingZoo environments in worker processes."""

import os
import signal
import subprocess
import sys
import time
import warnings
from collections import namedtuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dgmarl import UsageError, api
from dgmarl.cli.guard import explain
from dgmarl.config.resolve import resolve
from dgmarl.envs.adapters.worker import BEGIN, STEP
from dgmarl.envs.checker import check_env
from dgmarl.envs.registry import make_env
from dgmarl.errors import RunError, WorkerError, quiet_callbacks
from dgmarl.graphs.interventional import InterventionalSource, intervene_batch
from dgmarl.rollout import Batch, act_randomly, collect, evaluate, reset_envs
from dgmarl.runs.checkpoints import indices
from dgmarl.runs.folder import RunFolder
from dgmarl.runs.recorder import Recorder
from dgmarl.training import Program, Trainer
from dgmarl.trust import code_files, is_code
from tests.adapters import zoo
from tests.tiny import SMALL

LANE = "pettingzoo:tests.adapters.zoo"
FAULT = "DGMARL_TEST_FAULT"
AGENTS = ("runner", "guard", "clock")


def lane(**options):
    return make_env(LANE, workers=1, **options)


def played(env, key, length, needs=frozenset(), reset=True, n_envs=3) -> Batch:
    start_key, play_key = jax.random.split(key)
    start = reset_envs(env, start_key, None, n_envs)
    return collect(env, act_randomly, start, play_key, length, needs, reset)[1]


@pytest.fixture(scope="module")
def env():
    return make_env(LANE, workers=2)


@pytest.fixture(scope="module")
def batch(env) -> Batch:
    """Two seeds of three environments, 9 steps: two whole episodes and a step."""
    keys = jax.random.split(jax.random.key(0), 2)
    return jax.tree.map(np.asarray, jax.jit(jax.vmap(lambda key: played(env, key, 9)))(keys))


def test_sizes_are_the_largest_of_all_agents(env):
    spec = env.spec
    assert (spec.n_agents, spec.n_actions, spec.obs_size, spec.horizon) == (3, 3, 3, 4)
    assert spec.state_size == 9, "all observations"
    assert spec.state_is_obs
    assert lane(kind="state").spec.state_size == 2


def test_a_batch_is_what_python_plays(env, batch):
    """All observations, rewards, masks and ends, with the seeds that the rollout drew."""
    for seed, b in np.ndindex(2, 3):
        original = zoo.parallel_env()
        for t in range(9):
            step = jax.tree.map(lambda leaf, at=(seed, t, b): leaf[at], batch._replace(extras={}))
            if step.is_first:
                original.reset()
                original.place["runner"] = float(step.observation.agents_view[0, 0])
                drawn = original.random = _Drawn()
            actions = {a: int(step.action[AGENTS.index(a)]) for a in original.agents}
            actions["guard"] += 1
            after = step.next_observation
            # The random push is read off the result.
            pushed = actions["guard"] == 3
            drawn.push = after.agents_view[0, 0] - step.observation.agents_view[0, 0]
            drawn.push -= actions["runner"] == 1
            assert not pushed or 1 <= drawn.push <= 2.001
            alive = [agent in original.agents for agent in AGENTS]
            np.testing.assert_array_equal(step.observation.alive, alive)
            views, rewards, _, _, infos = original.step(actions)
            for k, agent in enumerate(AGENTS):
                view = np.zeros(3)
                view[: zoo.SIZES[agent]] = views.get(agent, [0] * zoo.SIZES[agent])
                np.testing.assert_allclose(after.agents_view[k], view, atol=1e-5)
                assert step.reward[k] == pytest.approx(rewards.get(agent, 0), abs=1e-5)
            assert step.truncated == (original.time == 4)
            assert not step.terminated, "the clock alone has left"
            assert after.alive.tolist() == [True, True, original.time < 2]
            assert after.action_mask[1].tolist() == infos["guard"]["action_mask"].tolist()
            assert after.action_mask[0].tolist() == [True, True, False]
            assert after.action_mask[2].any(), "one action for who has left"


class _Drawn:
    """Gives back the push that was seen."""

    push = 0.0

    def uniform(self, low, high):
        return self.push


def test_seeds_repeat_episodes_and_differ_between_environments(env, batch):
    assert len(np.unique(batch.observation.agents_view[:, 0, :, 0, 0])) == 6
    keys = jax.random.split(jax.random.key(0), 2)
    again = jax.jit(jax.vmap(lambda key: played(env, key, 9).reward))(keys)
    np.testing.assert_array_equal(again, batch.reward)


def test_the_goal_terminates_and_the_limit_of_the_adapter_truncates():
    found = []
    for options in ({"goal": 2.0}, {"horizon": 3}):
        simulator = lane(**options).workers
        rows = [command(BEGIN, seed=5)]
        episode, _ = simulator.play(rows[0])
        for t in range(3):
            _, numbers = simulator.play(command(STEP, episode[0], t, actions=(1, 0, 0)))
        found.append(numbers[0, -3:].tolist())  # terminated, truncated, time
    assert found[0][:2] == [1, 0]
    assert found[1] == [0, 1, 3]


def test_evaluations_play_each_episode_once_and_leave_training_alone(env, batch):
    keys = jax.random.split(jax.random.key(4), 2)

    def both(key):
        start = reset_envs(env, key, None, 3)
        found = evaluate(env, act_randomly, jax.random.fold_in(key, 1), None, 5)
        after, _, outcome = jax.vmap(env.step)(
            jax.random.split(key, 3), start.state, jnp.zeros((3, 3), jnp.int32)
        )
        return found, after.time, outcome.reward[:, 0], start.observation.agents_view[:, 0, 0]

    found, times, rewards, places = jax.jit(jax.vmap(both))(keys)
    assert (found.lengths == 4).all()
    assert (times == 1).all()
    np.testing.assert_allclose(rewards, places)


def command(kind, episode=-1, time=0, seed=0, actions=(0, 0, 0)):
    return np.array([[kind, episode, time, seed, *actions]], np.int32)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("raise", r"raised ValueError: the server is gone \(.*zoo.py line \d+\)"),
        ("connection", r"raised EOFError \(.*zoo.py line \d+\)"),
        ("hang", r"did not answer within 0.5 s"),
        ("nan", r"gave a NaN or infinite number as reward"),
        ("names", r"has an agent 'jogger' now, but began with runner, guard, clock"),
        ("shape", r"gave guard an observation of 5 numbers \(shape \(5,\)\), but announced 3"),
        ("exit", r"ended its process \(exit code 3\)"),
    ],
)
def test_a_fault_names_worker_and_step_and_ends_all_workers(fault, words):
    env = make_env(LANE, fault=fault, at=2, timeout=0.5, workers=1)
    workers = env.workers
    episode, _ = workers.play(command(BEGIN))
    workers.play(command(STEP, episode[0], 0))
    started = [process.started for process in workers._running.values()]
    with pytest.raises(WorkerError, match=words) as stopped:
        workers.play(command(STEP, episode[0], 1))
    assert "(worker 0, step 2 of an episode)" in str(stopped.value)
    assert all(process.poll() is not None for process in started)
    with pytest.raises(WorkerError, match=words):
        workers.play(command(BEGIN))


def test_every_command_tells_a_fault_in_one_sentence():
    env = lane(fault="raise", at=1)
    state, _ = env.reset(jax.random.key(0))
    with quiet_callbacks(), pytest.raises(Exception, match="server is gone") as stopped:
        env.step(jax.random.key(0), state, jnp.zeros(3, jnp.int32))
    code, sentence = explain(stopped.value)
    assert code == 1
    assert sentence.startswith("The environment raised ValueError: the server is gone (")
    assert sentence.endswith("(worker 0, step 1 of an episode): correct it.")


def test_a_state_can_be_stepped_from_once():
    workers = lane().workers
    episode, _ = workers.play(command(BEGIN))
    first = workers.play(command(STEP, episode[0], 0))[1]
    again = workers.play(command(STEP, episode[0], 0))[1]
    assert np.isfinite(first).all()
    assert np.isnan(again).sum() == 3, "rewards that stop a run"


def test_workers_end_with_a_killed_parent():
    """Also one whose environment hangs."""
    code = (
        "from tests.adapters.test_pettingzoo import *\n"
        "env = make_env(LANE, fault='hang', at=1, workers=1)\n"
        "episode, _ = env.workers.play(command(BEGIN))\n"
        "print(env.workers._running[0].started.pid, flush=True)\n"
        "env.workers.play(command(STEP, episode[0], 0))\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        os.kill(parent.pid, signal.SIGKILL)
    for _ in range(300):
        if not _runs(worker):
            return
        time.sleep(0.1)
    pytest.fail("the worker runs without a parent")


def _runs(pid: int) -> bool:
    """Whether a process is there and not a zombie that nobody has waited for."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("kind", ["", pytest.param("set", marks=pytest.mark.slow)])
def test_copies_answer_what_other_actions_would_have_done(kind):
    """Only the guard's push reaches another agent: at once, or after a step if it is delayed. Its
    random distance is the same in all copies, so that the clock and the runner reach nobody."""
    env = lane(kind=kind, local_state="place_of", delay=1)
    needs = frozenset({"states", "keys"})

    @jax.jit
    def graphs(key):
        batch = played(env, key, 4, needs, n_envs=2)
        found = [intervene_batch(env, batch, horizon=h, chunk=3).action_graph for h in (1, 2)]
        return *found, batch.observation.action_mask[..., 1, 2]

    once, twice, can_push = graphs(jax.random.key(1))
    alone = np.broadcast_to(np.eye(3, dtype=bool), (4, 2, 3, 3)).copy()
    np.testing.assert_array_equal(once, alone)
    # The step after the last is not recorded.
    alone[:3, :, 1, 0] = can_push[:3]
    np.testing.assert_array_equal(twice, alone)


def test_who_cannot_be_copied_says_why():
    assert lane().no_interventions() == ""
    assert lane(kind="set").no_interventions() == ""
    assert "different results for the same actions" in lane(kind="unseeded").no_interventions()
    assert "cannot be copied, raised TypeError" in lane(kind="locked").no_interventions()
    source = InterventionalSource()
    with pytest.raises(UsageError, match=r"zoo cannot simulate .*TypeError.*--graph learned"):
        source.init(jax.random.key(0), lane(kind="locked"))


def test_mpe_is_copied_although_its_pickles_are_fresh_environments():
    assert make_env("pettingzoo:mpe2.simple_spread_v3").no_interventions() == ""


def test_local_states_are_chosen_by_place_or_function(env):
    assert not env.offers("local_state")
    chosen, called = lane(local_state=[0]), lane(local_state="place_of")
    for each in (chosen, called):
        assert each.offers("local_state")
        assert each.layout.local_size == 1
    with pytest.raises(UsageError, match="observations have 3 numbers"):
        lane(local_state=[3])
    with pytest.raises(UsageError, match="function"):
        lane(local_state="nothing")


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("tests.adapters.nothing", {}, "raised ModuleNotFoundError: No module named"),
        ("tests.tiny", {}, "has no function parallel_env"),
        ("tests.adapters.zoo", {"workers": -1}, "workers is -1, but must be a whole number"),
        ("tests.adapters.zoo", {"timeout": 0}, "timeout is 0, but must be"),
        ("tests.adapters.zoo", {"colour": 1}, "unexpected keyword argument 'colour'"),
        ("tests.adapters.zoo", {"max_cycles": None}, "does not say how long an episode can be"),
        ("mpe2.simple_spread_v3", {"continuous_actions": True}, "must be a Discrete space"),
    ],
)
def test_what_cannot_be_used_is_told_in_one_sentence(name, options, words):
    with pytest.raises(UsageError, match=words):
        make_env(f"pettingzoo:{name}", **options)


@pytest.mark.parametrize("package", ["pettingzoo", "mpe2", "gymnasium"])
def test_an_absent_package_names_the_extra(monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UsageError, match=rf"{package} is not installed: .*dgmarl\[adapters\]"):
        make_env("pettingzoo:mpe2.simple_spread_v3")


def test_trust_judges_the_module_that_is_imported():
    assert str(code_files(LANE)[-1]) == zoo.__file__
    assert code_files("pettingzoo:no-such-module") == ()
    assert is_code("pettingzoo:no-such-module")
    assert code_files("gymnasium:tests.adapters.zoo:A-v0")[-1].name == "zoo.py"
    assert code_files("gymnasium:Foraging-8x8-2p-1f-v3")[-1].parent.name == "lbforaging"
    assert code_files("gymnasium:CartPole-v1")[-1].parent.name == "gymnasium"


def test_the_checker_accepts_it_and_says_what_it_lacks():
    found = check_env(lane(kind="locked", max_cycles=2))
    assert [one.kind for one in found] == ["note"] * len(found), found
    said = " ".join(one.sentence for one in found)
    assert "nor `--graph interventional` (it cannot be copied" in said
    assert "local_state is not offered" in said
    (broken,) = check_env(lane(fault="raise", at=1))
    assert "method raised ValueError: the server is gone" in broken.sentence


OPTIONS = {"workers": 1, "timeout": 1, "after": 8, "max_cycles": 4}
"""Faults come in the 9th episode of an environment."""


def failing(out, fault="raise"):
    """What a run says that fails, and how often it was evaluated before."""
    config = resolve(LANE, "ippo-local", SMALL, seeds=2, steps=400, env_options=OPTIONS)
    evaluated = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(FAULT, fault)
        with pytest.raises(RunError) as stopped:
            api.train_config(config, out, callbacks=[evaluated.append])
    return str(stopped.value), len(evaluated)


def test_a_run_that_fails_has_a_sentence_and_its_last_evaluation(tmp_path):
    said, evaluated = failing(tmp_path / "run")
    assert said.startswith(f"The environment {LANE} raised ValueError: the server is gone (")
    assert "(worker 0, step 3 of an episode) after step" in said
    assert f"the last checkpoint is number {evaluated}" in said
    assert indices(RunFolder(tmp_path / "run").checkpoints)[-1] == evaluated > 1
    resume = f"dgmarl train --resume {tmp_path / 'run'} --accept-changes"
    assert f"continue with `{resume}`" in said


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["raise", "hang", "nan", "names", "exit", "shape"])
def test_a_run_goes_on_once_its_environment_is_mended(tmp_path, fault):
    said, evaluated = failing(tmp_path / "run", fault)
    assert "(worker 0, step 3 of an episode)" in said
    result = api.resume(tmp_path / "run")
    assert (result.steps[:, -1] >= 400).all()
    assert result.returns.shape[1] > evaluated


@pytest.mark.slow
def test_runs_of_whole_episodes_resume_exactly(tmp_path):
    failing(tmp_path / "run")
    resumed = api.resume(tmp_path / "run")
    whole = api.train_config(resumed.config)
    np.testing.assert_array_equal(resumed.returns, whole.returns)


def test_a_resumed_run_begins_new_episodes(tmp_path):
    state = namedtuple("State", "rollout_state step")
    config = resolve(LANE, "ippo-local", SMALL, seeds=1, steps=100)
    step, (saved, live) = np.zeros(1, np.int32), np.arange(2, dtype=np.int32)[:, None]
    for name, windows in (("windows", True), ("episodes", False)):
        folder = RunFolder(tmp_path / name)
        with Recorder(config, folder) as recorder:
            recorder.start(state(saved if windows else None, step))
        with (
            Recorder(config, folder, resume=True) as recorder,
            warnings.catch_warnings(record=True) as warned,
        ):
            warnings.simplefilter("always")
            restored = recorder.start(state(live if windows else None, step))
        assert restored.rollout_state is (live if windows else None)
        assert ["begin new episodes" in str(each.message) for each in warned] == [True] * windows


def test_several_devices_are_refused():
    trainer = Trainer(resolve(LANE, "ippo-local", SMALL, steps=20))
    with pytest.raises(UsageError, match=r"runs in worker processes.*one device, not 2"):
        Program(trainer, devices=2)
