"""The loop: credit decides what is learned, the same seed gives the same numbers, finished seeds
stand still."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dgmarl import api
from dgmarl.config.resolve import resolve
from dgmarl.errors import UsageError
from dgmarl.training import Trainer
from tests.tiny import GIFT, SMALL

LEARNING = {
    "learner.hidden": 16,
    "learner.learning_rate": 0.01,
    "n_envs": 8,
    "evaluation.episodes": 50,
    "evaluation.interval": 400,
}
BEST = 5 * 0.9
"""Giving at each of 5 steps: 1 for agent 1, -0.1 for agent 0."""


def assert_same(new, old) -> None:
    for left, right in zip(*(jax.tree.leaves(raw(tree)) for tree in (new, old)), strict=True):
        np.testing.assert_array_equal(left, right)


def raw(tree):
    """Keys as the numbers they are."""
    is_key = lambda leaf: jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)  # noqa: E731
    return jax.tree.map(lambda leaf: jax.random.key_data(leaf) if is_key(leaf) else leaf, tree)


def learn(method: str, **options):
    return api.train(GIFT, method, seeds=3, steps=2400, overrides=LEARNING, **options)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("learned") / "run"


@pytest.fixture(scope="module")
def learned(folder):
    return learn("ippo-dg", out=folder)


def test_graph_credit_solves_a_task_on_which_local_reward_fails(learned):
    local = learn("ippo-local")
    # The only thing agent 0's own reward says is that giving costs: with it, every seed ends below
    # chance.
    assert (local.returns[:, -1].mean(axis=-1) < 0.25 * BEST).all()
    assert (learned.returns[:, -1].mean(axis=-1) > 0.9 * BEST).all()
    np.testing.assert_allclose(learned.returns[:, 0].mean(), 0.5 * BEST, atol=0.25 * BEST)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["ippo-prd", "ippo-coma", "mappo-gpae"])
def test_rules_with_a_critic_of_their_own_solve_it_too(method):
    returns = learn(method).returns[:, -1].mean(axis=-1)
    assert (returns > 0.9 * BEST).all()


def test_the_same_seed_gives_the_same_numbers_and_another_seed_others(learned):
    again = learn("ippo-dg")
    np.testing.assert_array_equal(again.returns, learned.returns)
    np.testing.assert_array_equal(again.steps, learned.steps)
    assert_same(again.state, learned.state)
    for leaf in jax.tree.leaves(learned.state.learner.params):
        assert not np.array_equal(leaf[0], leaf[1])


def test_a_run_can_start_from_what_another_has_learned(folder, learned):
    further = learn("ippo-dg", init_from=folder, seed=10)
    assert (further.returns[:, 0].mean(axis=-1) > 0.9 * BEST).all()


def test_a_policy_of_another_size_to_start_from_is_refused(folder, learned, tmp_path):
    with pytest.raises(UsageError, match="other shapes"):
        api.train(
            GIFT,
            "ippo-dg",
            steps=2400,
            overrides={**LEARNING, "learner.hidden": 4},
            init_from=folder,
            out=tmp_path / "new",
        )
    assert not (tmp_path / "new").exists()


def check_run(result, seeds: int, steps: int, horizon: int, n_envs: int) -> None:
    """What holds for every run, whatever its networks."""
    assert result.steps.shape == result.returns.shape[:2]
    assert result.steps.shape[0] == seeds
    for seed in range(seeds):
        batched_index = result.steps[seed]
        assert steps <= batched_index[-1] < steps + horizon * n_envs
        # Once a seed has its steps it stands still, and its last evaluation is repeated.
        finished = int(np.argmax(batched_index >= steps))
        assert (np.diff(batched_index[: finished + 1]) > 0).all()
        assert (batched_index[finished:] == batched_index[finished]).all()
        assert (result.returns[seed, finished:] == result.returns[seed, finished]).all()
        assert all(
            (values[seed, finished:] == values[seed, finished]).all()
            for values in result.metrics.values()
        )
    assert np.isfinite(result.returns).all()
    assert not result.interrupted


@pytest.fixture(scope="module")
def fixed_graph(tmp_path_factory):
    path = tmp_path_factory.mktemp("graph") / "gift.txt"
    path.write_text("1 1\n0 1\n")
    return f"fixed:{path}"


SHORT = {
    **SMALL,
    "env_options.stop": 0.3,
    "learner.network": "gru",
    "learner.critic": "central-heads",
    "learner.minibatches": 2,
}


@pytest.fixture(scope="module")
def short(fixed_graph):
    """Episodes of random lengths, so that seeds reach their budget in different iterations."""
    config = resolve(GIFT, "mappo-dg", SHORT, seeds=3, steps=300, graph=fixed_graph)
    return config, api.train_config(config)


def test_seeds_that_have_had_their_steps_stand_still(short):
    config, result = short
    check_run(result, 3, 300, 5, 2)
    iterations = np.asarray(result.state.iteration)
    assert len(set(iterations.tolist())) > 1
    advance = jax.jit(jax.vmap(Trainer(config).advance, in_axes=(0, None)), donate_argnums=0)
    before = jax.tree.map(np.asarray, raw(result.state))
    advanced = advance(jax.tree.map(jnp.copy, result.state), 3)
    assert not advanced.active.any()
    evaluate = jax.jit(jax.vmap(Trainer(config).evaluate_policy))
    assert_same(evaluate(advanced).state, before)


def test_steps_are_those_that_really_happened(short):
    _, result = short
    per_episode = np.asarray(result.state.step) / (2 * np.asarray(result.state.iteration))
    expected = (1 - 0.7**5) / 0.3
    np.testing.assert_allclose(per_episode, expected, atol=0.6)


@pytest.mark.slow
def test_windows_and_separate_networks_run_too():
    options = {
        "rollout_length": 4,
        "learner.network": "gru",
        "learner.critic": "central",
        "learner.share_parameters": False,
    }
    result = api.train(GIFT, "mappo-global", seeds=2, steps=100, overrides={**SMALL, **options})
    check_run(result, 2, 100, 4, 2)
    assert (np.diff(result.steps, axis=1) % 8 == 0).all()
    # Windows go on where the last one ended, in the middle of an episode of 5.
    assert set(np.asarray(result.state.rollout_state.state.time).ravel().tolist()) - {0}


@pytest.mark.slow
@pytest.mark.parametrize("rollout_length", [0, 5])
@pytest.mark.parametrize("network", ["fc", "gru"])
@pytest.mark.parametrize("critic", ["agent", "central", "central-heads"])
@pytest.mark.parametrize("share", [True, False])
@pytest.mark.parametrize("method", ["local", "global", "dg"])
def test_every_combination_runs(rollout_length, network, critic, share, method):
    options = {
        "rollout_length": rollout_length,
        "learner.network": network,
        "learner.critic": critic,
        "learner.share_parameters": share,
    }
    result = api.train(
        GIFT,
        f"{'ippo' if critic == 'agent' else 'mappo'}-{method}",
        seeds=2,
        steps=40,
        overrides={**SMALL, **options},
    )
    check_run(result, 2, 40, 5, 2)


def test_the_measure_is_the_raw_team_return_however_a_policy_is_trained():
    trainers = [
        Trainer(resolve(GIFT, method, SMALL, steps=100))
        for method in ("ippo-local", "ippo-global", "ippo-dg")
    ]
    assert all(trainer.config.credit.reward_scaling == "scale" for trainer in trainers)
    params = trainers[0].learner.init(jax.random.key(0)).params
    played = [
        jax.jit(lambda key, trainer=trainer: trainer.evaluate(params, key, 40))(jax.random.key(1))
        for trainer in trainers
    ]
    for other in played[1:]:
        np.testing.assert_array_equal(other.returns, played[0].returns)
    np.testing.assert_array_equal(played[0].lengths, 5)
    gifts = np.asarray(played[0].returns) / 0.9
    np.testing.assert_allclose(gifts, gifts.round(), atol=1e-5)
    assert len(np.unique(gifts.round())) > 2


def test_a_greedy_evaluation_has_sampled_episodes_beside_it():
    trainer = Trainer(resolve(GIFT, "ippo-local", {**SMALL, "evaluation.greedy": True}, steps=100))
    params = trainer.learner.init(jax.random.key(0)).params
    key, n = jax.random.key(1), trainer.config.evaluation.episodes
    greedy, sampled = jax.jit(trainer.play_episodes)(params, key)
    assert sampled is not None
    np.testing.assert_array_equal(
        greedy.returns, jax.jit(trainer.evaluate, static_argnums=2)(params, key, n).returns
    )
    assert len(np.unique(greedy.returns)) == 1 < len(np.unique(sampled.returns))
    assert greedy.returns.shape == sampled.returns.shape == (n,)


class WithoutLoops:
    """A graph source that forgets that agents reach themselves."""

    needs = frozenset()

    def init(self, key, env):
        return None

    def infer(self, graph_state, batch, key):
        return jnp.zeros((*batch.reward.shape, batch.reward.shape[-1]), bool)

    def update(self, graph_state, batch, key):
        return graph_state, {}


def test_a_source_that_gives_a_wrong_graph_is_told_so_before_training(tmp_path):
    with pytest.raises(UsageError, match="add_self_loops"):
        api.train(
            "star-spread/2",
            "ippo-dg",
            graph="tests.test_training:WithoutLoops",
            steps=500,
            out=tmp_path / "run",
        )
    assert not (tmp_path / "run").exists()
