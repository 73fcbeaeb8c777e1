"""Runs that replay: everything a run folder promises, with a buffer, a target network and epsilon
in it."""

import json
import signal

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dgmarl
from dgmarl import api, make_env
from dgmarl.config.methods import METHODS
from dgmarl.config.resolve import resolve
from dgmarl.config.schema import TrainConfig
from dgmarl.config.yaml import build, override, plain
from dgmarl.runs.folder import RunFolder
from dgmarl.runs.playing import credit_note
from dgmarl.sweeps.executor import execute
from dgmarl.sweeps.planned import PlannedRun
from dgmarl.training import Trainer
from tests.tiny import GIFT, SMALL

OPTIONS = {
    **SMALL,
    "env_options.stop": 0.3,
    "learner.network": "gru",
    "learner.batch_size": 4,
    "learner.buffer_size": 10,
    "learner.target_update_interval": 7,
    "learner.epsilon_steps": 100,
    "learner.last_action": True,
}


@pytest.fixture(scope="module")
def config() -> TrainConfig:
    return resolve(GIFT, "qmix", OPTIONS, seeds=2, steps=200)


@pytest.fixture(scope="module")
def finished(config, tmp_path_factory):
    path = tmp_path_factory.mktemp("replayed") / "run"
    return path, api.train_config(config, path)


def raw(tree):
    is_key = lambda leaf: jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)  # noqa: E731
    return [
        np.asarray(jax.random.key_data(leaf) if is_key(leaf) else leaf)
        for leaf in jax.tree.leaves(tree)
    ]


def assert_same(left, right) -> None:
    for new, old in zip(raw(left), raw(right), strict=True):
        np.testing.assert_array_equal(new, old)


@pytest.mark.slow
def test_a_run_that_was_stopped_ends_with_the_identical_numbers_and_the_identical_replay(
    config, finished, tmp_path
):
    def press(progress):
        if progress.evaluation == 3:
            signal.raise_signal(signal.SIGINT)

    assert api.train_config(config, tmp_path / "run", callbacks=[press]).interrupted
    stopped = api.load(tmp_path / "run").state
    # In the middle of everything: the ring has been round, the target is behind.
    assert (np.asarray(stopped.learner.replay.added) > 10).all()
    assert any(
        (new != old).any()
        for new, old in zip(
            *map(raw, (stopped.learner.target, stopped.learner.params)), strict=True
        )
    )
    result = api.resume(tmp_path / "run")
    path, expected = finished
    assert_same(api.load(tmp_path / "run").state, api.load(path).state)
    np.testing.assert_array_equal(result.returns, expected.returns)
    np.testing.assert_array_equal(result.steps, expected.steps)


@pytest.mark.slow
def test_seeds_that_have_had_their_steps_stand_still_with_their_replay(config, finished):
    _, result = finished
    assert len(set(np.asarray(result.state.iteration).tolist())) > 1
    # One update per episode, from the iteration on that has enough of them.
    np.testing.assert_array_equal(result.state.learner.replay.added, 2 * result.state.iteration)
    np.testing.assert_array_equal(result.state.learner.updates, 2 * (result.state.iteration - 1))
    advance = jax.jit(jax.vmap(Trainer(config).advance, in_axes=(0, None)))
    assert_same(advance(result.state, 3)[0], result.state)


@pytest.mark.slow
def test_what_was_trained_can_be_loaded_played_evaluated_and_begun_from(config, finished, tmp_path):
    path, result = finished
    assert RunFolder(path).config() == config
    run = dgmarl.load(path, seed=1)
    observation = jax.vmap(run.env.reset)(jax.random.split(jax.random.key(0), 3))[1]
    action, hidden_state = run.act(
        jax.random.key(0), observation, run.init_hidden_state(3), np.ones(3, bool)
    )
    assert action.shape == (3, 2)
    np.testing.assert_array_equal(hidden_state.action, action)
    assert dgmarl.evaluate(path, 5).shape == (2, 5)
    assert len(run.record(2)) == 2
    assert "trained with QMIX" in credit_note(run.config, run.env)
    again = api.train(
        GIFT,
        "qmix",
        seeds=1,
        steps=20,
        overrides={**OPTIONS, "learner.batch_size": 10},
        init_from=path,
    )
    # Nothing was learned for want of episodes: policy and target are those of the run it began
    # from.
    first = jax.tree.map(lambda leaf: leaf[:1], result.state.learner.params)
    assert_same(again.state.learner.params, first)
    assert_same(again.state.learner.target, first)


@pytest.mark.slow
def test_a_run_of_a_sweep_goes_on_where_it_stood_when_more_steps_are_wanted(config, tmp_path):
    curves = []
    for steps in (100, 200):
        wanted = override(config, {"steps": steps})
        run = PlannedRun("qmix", wanted, tmp_path / "qmix.json", tmp_path / "run")
        run.result_file.unlink(missing_ok=True)
        execute([run])
        curves.append(json.loads(run.result_file.read_text()))
    short, long = (np.array(curve["steps"]) for curve in curves)
    assert (long[:, -1] >= 200).all()
    assert long.shape[1] > short.shape[1]
    np.testing.assert_array_equal(long[:, : short.shape[1]], short)
    np.testing.assert_array_equal(
        np.array(curves[1]["return_mean"])[:, : short.shape[1]], curves[0]["return_mean"]
    )


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "env", ["lbf/8x8-2p-2f", "star-spread/5", "smaclite/MMM", "matrix/climbing"]
)
def test_every_preset_is_written_and_read_back_the_same(method, env):
    config = resolve(env, method, n_envs=16)
    assert build(TrainConfig, plain(config)) == config
    assert config.n_envs == 16


def test_the_published_numbers_are_the_presets():
    lbf, smaclite = "lbf/10x10-3p-3f", "smaclite/MMM"
    names = ((lbf, "iql"), (lbf, "qmix"), (smaclite, "qplex"))
    configs = [resolve(*pair, preset="paper") for pair in names]
    iql, qmix, pymarl = (config.learner for config in configs)
    assert (iql.network, iql.hidden, iql.learning_rate) == ("gru", 128, 3e-4)
    assert (iql.tau, iql.target_update_interval, iql.target_update_unit) == (0, 200, "updates")
    assert (qmix.network, qmix.hidden, qmix.learning_rate, qmix.tau) == ("gru", 64, 3e-4, 0.01)
    scalings = [config.credit.reward_scaling for config in configs]
    assert scalings == ["standardise", "standardise", "none"]
    # Better ones are scaled, never shifted.
    tuned = [resolve(*pair).credit.reward_scaling for pair in names]
    assert tuned == ["scale", "scale", "none"]
    for learner in (iql, qmix):
        assert (learner.batch_size, learner.buffer_size, learner.episodes_per_update) == (
            32,
            5000,
            1,
        )
        assert (learner.epsilon_steps, learner.evaluation_epsilon, learner.lambda_) == (
            200_000,
            0.05,
            0,
        )
        assert learner.standardise_padding
        assert not learner.last_action
    assert (pymarl.hidden, pymarl.learning_rate, pymarl.batch_size, pymarl.lambda_) == (
        64,
        1e-3,
        128,
        0.6,
    )
    assert (pymarl.tau, pymarl.target_update_interval) == (0, 200)
    assert (pymarl.target_update_unit, pymarl.episodes_per_update) == ("episodes", 8)
    assert (pymarl.epsilon_steps, pymarl.evaluation_epsilon, pymarl.loss_weight) == (
        100_000,
        0,
        0.5,
    )
    assert pymarl.last_action


def test_the_papers_battles_have_their_own_numbers():
    local, graph = (
        resolve("smaclite/MMM", "mappo-local", preset="paper"),
        resolve("smaclite/MMM", "mappo-dg", preset="paper", graph="learned"),
    )
    for config in (local, graph):
        learner = config.learner
        assert (learner.network, learner.hidden, learner.entropy_coef) == ("gru", 64, 0.001)
        assert config.credit.reward_scaling == "none"
        assert not learner.normalise_advantage
        assert (config.evaluation.interval, config.evaluation.greedy) == (10_000, True)
    assert (local.learner.critic, graph.learner.critic) == ("central", "central-heads")
    assert (graph.graph_model.encoder, graph.graph_model.multi_head) == (True, True)


@pytest.mark.parametrize("env", ["lbf/8x8-2p-2f", "star-spread/5", "smaclite/MMM"])
def test_many_environments_update_as_often_and_on_as_much(env):
    tuned, fast = resolve(env, "mappo-dg"), resolve(env, "mappo-dg", preset="fast")
    assert fast.n_envs == 128
    per_update = fast.n_envs * fast.rollout_length / fast.learner.minibatches
    assert per_update == pytest.approx(tuned.n_envs * 50, rel=0.1)
    assert (fast.learner.epochs, fast.learner.network) == (
        tuned.learner.epochs,
        tuned.learner.network,
    )
    with pytest.raises(dgmarl.UsageError, match="Q-learning replays whole episodes"):
        resolve(env, "qmix", preset="fast")
    with pytest.raises(dgmarl.UsageError, match="qmix replays whole episodes: leave it 0"):
        resolve(env, "qmix", rollout_length=32)


def test_what_is_given_of_a_nested_configuration_wins_over_the_preset():
    config = resolve(
        "star-spread/5",
        evaluation={"interval": 7},
        learner={"hidden": 9},
        graph_model={"encoder": True},
    )
    assert config == resolve(
        "star-spread/5",
        overrides={"evaluation.interval": 7, "learner.hidden": 9, "graph_model.encoder": True},
    )


@pytest.mark.parametrize(("method", "other"), [("iql", "vdn"), ("qmix", "none")])
def test_the_mixer_makes_the_method(method, other):
    own = resolve(GIFT, method).learner.mixer
    with pytest.raises(
        dgmarl.UsageError, match=f"learner.mixer is '{other}', but for {method} allowed are {own}"
    ):
        resolve(GIFT, method, {"learner.mixer": other})


@pytest.mark.parametrize(
    ("env", "options", "said"),
    [
        ("lbf/8x8-2p-2f", {}, ""),
        (
            "lbf/8x8-3p-2f",
            {},
            "In training, the rewards of other agents were averaged over those reached.",
        ),
        (
            "lbf/8x8-2p-2f",
            {"credit.unreached_weight": 0.05},
            "In training, agents not reached had a weight of 0.05.",
        ),
        (
            "lbf/8x8-3p-2f",
            {"credit.unreached_weight": 0.2, "credit.cross_weight": 0.5, "credit.others": "sum"},
            "In training, agents not reached had a weight of 0.2. "
            "In training, the rewards of other agents had a weight of 0.5.",
        ),
    ],
)
def test_a_replay_says_how_graph_credit_was_weighed(env, options, said):
    config = resolve(env, "ippo-dg", options)
    assert credit_note(config, make_env(env)) == said
