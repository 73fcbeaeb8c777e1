"""Environments that fail while they are trained on: one sentence, the last checkpoint good, and the
run goes on once they are mended."""

import os
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dgmarl import EnvSpec, Observation, api
from dgmarl.config.resolve import resolve
from dgmarl.envs.checker import check_env
from dgmarl.errors import RunError
from dgmarl.rollout import UNUSABLE, Batch, Evaluation, count_unusable
from dgmarl.runs.checkpoints import indices
from dgmarl.runs.folder import RunFolder
from dgmarl.runs.recorder import Recorder
from dgmarl.seeds import compile_together
from dgmarl.training import Advanced, train
from tests.runs.test_folder import Counters
from tests.tiny import GIFT, SMALL, Gift

FAULT = "DGMARL_TEST_FAULT"
"""An environment variable: how `Faulty` fails; mended if it is empty."""
EPISODES = {"learner.buffer_size": 8, "learner.batch_size": 2, "learner.episodes_per_update": 2}


def break_down(time):
    raise ValueError("the server\nis gone")


class Faulty(Gift):
    """Fails in the step that begins at time 3, rarely."""

    def step(self, key, state, action):
        new, observation, outcome = super().step(key, state, action)
        rare = (state.time == 3) & (jax.random.uniform(key) < 0.05)
        fault = os.environ.get(FAULT)
        if fault == "observation":
            view = jnp.where(rare, jnp.nan, observation.agents_view)
            observation = observation._replace(agents_view=view)
        if fault == "reward":
            outcome = outcome._replace(reward=jnp.where(rare, 1e30, outcome.reward))
        if fault == "raise":
            shape = jax.ShapeDtypeStruct((), jnp.float32)
            zero = jax.pure_callback(break_down, shape, new.time, vmap_method="sequential")
            outcome = outcome._replace(reward=outcome.reward + zero)
        return new, observation, outcome


class Solo(Gift):
    """One agent, episodes of one step."""

    def __init__(self):
        super().__init__(horizon=1)
        self.spec = EnvSpec("solo", n_agents=1, n_actions=2, obs_size=2, state_size=2, horizon=1)

    def step(self, key, state, action):
        state, observation, outcome = super().step(key, state, action)
        return state, observation, outcome._replace(reward=outcome.reward[1:])

    def _observation(self, state):
        view, state, mask, alive = super()._observation(state)
        return Observation(view[:1], state, mask[:1], alive[:1])

    def oracle_graph(self, state):
        return jnp.ones((1, 1), bool)


def batch(**changes) -> Batch:
    """Two steps of an environment with one agent, of which the second did not happen."""
    view = Observation(jnp.zeros((2, 1, 1, 3)), jnp.zeros((2, 1, 3)), jnp.ones(1), jnp.ones(1))
    flag, number = jnp.zeros((2, 1), bool), jnp.zeros((2, 1, 1))
    valid = jnp.array([[True], [False]])
    return Batch(view, view, number, number, number, flag, flag, valid, flag, None, {})._replace(
        **changes
    )


def test_what_cannot_be_learned_from_is_counted():
    def counts(changed: Batch) -> list[float]:
        return [float(count_unusable(changed)[name]) for name in UNUSABLE]

    usual = batch()
    assert counts(usual) == [0, 0, 0]
    for bad in (np.nan, np.inf, -1e30):
        reward = usual.reward.at[0].set(bad)
        seen = usual.observation._replace(agents_view=usual.observation.agents_view.at[1].set(bad))
        assert counts(batch(reward=reward)) == [1, 0, 0]
        assert counts(batch(next_observation=seen)) == [0, 3, 0]
    assert counts(batch(reward=usual.reward.at[1].set(np.nan))) == [0, 0, 0], "did not happen"


def advanced(step: int, reward: float = 1.0, **metrics: float) -> Advanced:
    counters = Counters(step=np.array([step]), iteration=np.array([1]))
    evaluation = Evaluation(jnp.array([[0.0, reward]]), jnp.ones((1, 2)), {})
    found = {n: np.array([v]) for n, v in metrics.items()}
    return Advanced(counters, found, evaluation, np.array([True]))


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (advanced(20, **{"unusable agents_view": 3.0}), "too large number .* as agents_view"),
        (advanced(20, **{"unusable reward": 1.0}), "too large number .* as reward"),
        (advanced(20, reward=1e30), "too large return in an evaluation"),
        (advanced(20, final_won=np.nan), "gave nan as info won after step 10"),
        (advanced(20, loss=1e31), "loss of seed 0 became 1e\\+31"),
    ],
)
def test_bad_numbers_stop_the_run_before_anything_is_written(tmp_path, bad, words):
    config = resolve(GIFT, "ippo-dg", SMALL, seeds=1, steps=100)
    folder = RunFolder(tmp_path / "run")
    with Recorder(config, folder, checkpoint_seconds=0) as recorder:
        recorder.start({"step": np.zeros(1, np.int32)})
        recorder.compiled(0.0)
        recorder.record(advanced(10))
        before = (folder.path / "metrics.jsonl").read_bytes()
        with pytest.raises(RunError, match=words) as stopped:
            recorder.record(bad)
        assert "checkpoint is number 1" in str(stopped.value)
    assert (folder.path / "metrics.jsonl").read_bytes() == before
    assert indices(folder.checkpoints) == [0, 1]


@pytest.mark.parametrize(("reward_graph", "warned"), [("none", 1), ("measured", 0)])
def test_a_graph_without_edges_is_told_once_unless_rewards_have_a_graph(reward_graph, warned):
    overrides = {**SMALL, "credit.reward_graph": reward_graph}
    config = resolve(GIFT, "ippo-dg", overrides, seeds=1, steps=100, graph="oracle")
    with Recorder(config) as recorder, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        recorder.start({"step": np.zeros(1, np.int32)})
        recorder.compiled(0.0)
        for step in (10, 20):
            recorder.record(advanced(step, graph_density=0.0))
    assert ["graph has no edges" in str(found.message) for found in caught] == [True] * warned


class Broken:
    """A program whose environment raises on the host."""

    n_seeds = iterations_per_evaluation = 1

    def init(self):
        return [{"step": jnp.zeros(1, jnp.int32)}]

    def join(self, states):
        return states[0]

    def advance(self, carried, n_iterations):
        shape = jax.ShapeDtypeStruct((1,), jnp.int32)
        return {"step": jax.pure_callback(break_down, shape, carried["step"])}

    def compile(self, carried):
        return compile_together([self.advance], carried)


def test_an_environment_that_raises_on_the_host_is_named(tmp_path, capfd):
    config = resolve(GIFT, "ippo-dg", SMALL, seeds=1, steps=100)
    recorder = Recorder(config, RunFolder(tmp_path / "run"))
    with pytest.raises(RunError) as stopped:
        train(Broken(), [recorder])
    said = str(stopped.value)
    assert f"The environment {GIFT} raised ValueError: the server is gone" in said
    assert "test_failing_env.py line " in said
    assert "after step 0; the last checkpoint is number 0" in said
    assert f"dgmarl train --resume {tmp_path / 'run'}" in said
    assert "Traceback" not in capfd.readouterr().err


def test_the_checker_reports_what_raises(monkeypatch):
    monkeypatch.setenv(FAULT, "raise")
    found = [one.sentence for one in check_env(Faulty()) if one.kind == "violation"]
    assert len(found) == 1
    assert "raised ValueError: the server is gone" in found[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "options", "fault"),
    [("qmix", EPISODES, "observation"), ("ippo-dg", {}, "reward"), ("ippo-dg", {}, "raise")],
)
def test_a_run_goes_on_once_its_environment_is_mended(
    tmp_path, monkeypatch, method, options, fault
):
    config = resolve(f"{__file__}:Faulty", method, {**SMALL, **options}, seeds=1, steps=600)
    monkeypatch.setenv(FAULT, fault)
    with pytest.raises(RunError, match="Faulty"):
        api.train_config(config, tmp_path / "run", checkpoint_seconds=0)
    saved = api.load(tmp_path / "run").state._replace(key=None, best=None)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(saved))
    monkeypatch.setenv(FAULT, "")
    assert (api.resume(tmp_path / "run").steps[:, -1] >= 600).all()


@pytest.mark.slow
@pytest.mark.parametrize(("method", "options"), [("mappo-dg", {}), ("qmix", EPISODES)])
def test_one_agent_and_episodes_of_one_step(tmp_path, method, options):
    config = resolve(f"{__file__}:Solo", method, {**SMALL, **options}, seeds=1, steps=60)
    assert (api.train_config(config, tmp_path / "run").steps[:, -1] >= 60).all()
