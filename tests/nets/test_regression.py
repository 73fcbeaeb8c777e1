"""Lambda-returns of values of played actions, term by term."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dgmarl import blocks
from dgmarl.blocks import as_rows
from dgmarl.nets import regression
from dgmarl.nets.regression import Regression, lambda_returns, shuffled
from tests.credit.by_hand import played
from tests.credit.double_loop import lambda_returns as returns_loop

GAMMA = 0.9


@pytest.mark.parametrize("lambda_", [0.0, 0.7, 1.0])
def test_targets_are_lambda_returns_up_to_the_last_step_with_a_known_successor(lambda_):
    batch, values = played()
    value = np.array(values.now)
    found = np.asarray(lambda_returns(batch.reward, values.now, batch, GAMMA, lambda_))
    terminated, continues = np.asarray(batch.terminated), np.array(batch.continues)
    continues[-1] = False
    unknown = ~continues & ~terminated
    assert unknown[:-1].any()
    assert unknown[-1].any()
    assert terminated.any()
    np.testing.assert_array_equal(found[unknown], value[unknown])
    # A step without a known successor passes its own value on as if it were the end.
    reward = np.where(unknown[..., None], value, np.asarray(batch.reward))
    following = np.concatenate([value[1:], value[:1]])
    for env in range(reward.shape[1]):
        steps = (reward, value, following, continues, continues)
        one = [part[:, env] for part in steps]
        expected = returns_loop(*one, GAMMA, lambda_)
        np.testing.assert_allclose(found[:, env], expected, atol=1e-5)


def test_each_epoch_sees_every_environment_once_in_another_order():
    parts = np.asarray(shuffled(jax.random.key(0), n_envs=8, epochs=3, minibatches=2))
    assert parts.shape == (6, 4)
    epochs = parts.reshape(3, 8)
    np.testing.assert_array_equal(np.sort(epochs), np.broadcast_to(np.arange(8), (3, 8)))
    assert not (epochs[0] == epochs[1]).all()


@pytest.mark.parametrize(("minibatches", "whole_episodes"), [(1, False), (3, False), (1, True)])
def test_a_model_is_fitted_to_what_is_valid(minibatches, whole_episodes, monkeypatch):
    """Every step ends its episode and pays twice its input; the others did not happen."""
    batch, _ = played()
    x, over = batch.observation.agents_view[..., 0], jnp.ones_like(batch.terminated)
    valid = over.at[-3:].set(False)
    batch = batch._replace(terminated=over, truncated=~over, valid=valid)
    if whole_episodes:
        monkeypatch.setattr(blocks, "cores_per_device", lambda: 1)
        monkeypatch.setattr(regression, "as_rows", partial(as_rows, size=5))
        batch = batch._replace(last_observation=batch.observation)
    reward = jnp.where(valid[..., None], 2 * x, 7.0)
    fit = Regression(lambda w, x: w * x, GAMMA, 0.9, 0.05, 10.0, 200 // minibatches, minibatches)
    fitted, loss = jax.jit(fit.update)(fit.init(jnp.zeros(())), x, batch, reward, jax.random.key(0))
    assert loss > 0
    np.testing.assert_allclose(fitted.params, 2, atol=0.01)
