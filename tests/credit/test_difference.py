"""Difference rewards against enumeration on matrix games, from the simulator and from a model."""

import jax
import numpy as np
import pytest

from dgmarl.config.resolve import resolve
from dgmarl.credit.base import Values
from dgmarl.envs.registry import make_env
from dgmarl.errors import UsageError
from dgmarl.graphs.sources import make_source
from dgmarl.rollout import act_randomly, collect, reset_envs
from dgmarl.training import Trainer
from tests.tiny import GIFT, SMALL, Gift

LEARNED = {"credit.reward_model": "learned"}
RAW = {"credit.reward_scaling": "none"}


def trainer(env="matrix/two-step", **overrides):
    config = resolve(env, "ippo-difference", {**SMALL, **RAW, **overrides}, steps=100)
    return Trainer(config)


def played(made, n_envs=32):
    """A batch of random play, with the probabilities of some other policy."""
    spec, horizon = made.env.spec, made.env.spec.horizon

    @jax.jit
    def play(key):
        start = reset_envs(made.env, key, None, n_envs)
        return collect(made.env, act_randomly, start, key, horizon, made.needs, reset=False)[1]

    batch = play(jax.random.key(0))
    shape = (horizon, n_envs, spec.n_agents)
    probs = np.random.default_rng(0).dirichlet(np.ones(spec.n_actions), shape)
    return batch._replace(extras={**batch.extras, "probs": probs.astype(np.float32)})


def enumerated(env, batch):
    """D_j by the definition, from the payoff matrices; 0 after the end."""
    situation = np.asarray(batch.observation.global_state).argmax(-1)
    probs, expected = np.asarray(batch.extras["probs"]), np.zeros(batch.action.shape)
    for t, b in np.ndindex(situation.shape):
        if batch.valid[t, b]:
            payoff, (first, second) = env.payoff[situation[t, b]], batch.action[t, b]
            others = payoff[:, second], payoff[first]
            for j in range(2):
                expected[t, b, j] = payoff[first, second] - probs[t, b, j] @ others[j]
    return expected


@pytest.mark.parametrize("game", ["matrix/climbing", "matrix/two-step"])
def test_exact_differences_are_those_of_enumeration(game):
    made = trainer(game)
    batch = played(made)
    values = Values(*np.zeros((2, *batch.reward.shape), np.float32))
    state = made.rule.init(jax.random.key(0), made.env)
    credit = jax.jit(made.rule.assign)(state, batch, values, None)
    np.testing.assert_allclose(credit.reward, enumerated(made.env, batch), rtol=1e-5, atol=1e-5)
    assert np.abs(credit.reward).max() > 1
    decay = made.config.learner.gamma * made.config.learner.lambda_
    later = np.concatenate([np.asarray(credit.advantage)[1:], np.zeros((1, 32, 2))])
    expected = credit.reward + decay * later * np.asarray(batch.continues)[..., None]
    np.testing.assert_allclose(credit.advantage, expected, rtol=1e-5, atol=1e-5)


def test_a_learned_model_approaches_the_exact_differences():
    made = trainer(**LEARNED, **{"learner.learning_rate": 0.01, "learner.hidden": 32})
    assert made.rule.needs == {"probs"}
    exact = trainer().rule
    batch = played(trainer())
    state = jax.jit(lambda key: made.rule.init(key, made.env))(jax.random.key(0))
    assign = jax.jit(made.rule.assign)

    @jax.jit
    def learn(state):
        return jax.lax.scan(
            lambda state, key: made.rule.update(state, batch, key),
            state,
            jax.random.split(jax.random.key(0), 200),
        )

    values = Values(*np.zeros((2, *batch.reward.shape), np.float32))
    start = exact.init(jax.random.key(0), made.env)
    true = jax.jit(exact.assign)(start, batch, values, None).reward
    before = assign(state, batch, values, None).reward
    state, metrics = learn(state)
    after = assign(state, batch, values, None).reward
    assert np.abs(before - true).max() > 1
    np.testing.assert_allclose(after, true, atol=0.5)
    losses = metrics["reward_model_loss"]
    assert losses[-1] < 0.01 * losses[0]


class SetBackNever(Gift):
    """Stands for a simulator outside JAX."""

    can_intervene = False


def test_a_simulator_that_cannot_be_asked_needs_the_learned_model():
    env = f"{__file__}:SetBackNever"
    with pytest.raises(UsageError, match=r"gift cannot simulate the rewards .* to learned"):
        trainer(env)
    trainer(env, **LEARNED)
    config = resolve(env, "ippo-dg", SMALL, graph="interventional")
    with pytest.raises(UsageError, match="choose --graph learned"):
        make_source("interventional", config, make_env(GIFT)).init(
            jax.random.key(0), SetBackNever()
        )


@pytest.mark.parametrize(
    "reward_model", [pytest.param("simulator", marks=pytest.mark.slow), "learned"]
)
def test_training_steps_run(reward_model):
    """Giving costs agent 0 0.1 and is worth 1 to the other: the difference reward says so."""
    made = trainer(GIFT, **{"credit.reward_model": reward_model})
    state, metrics = jax.jit(lambda key: made.iterate(made.init(key)))(jax.random.key(0))
    assert int(state.step) == 10
    assert np.isfinite(metrics["policy_loss"])
