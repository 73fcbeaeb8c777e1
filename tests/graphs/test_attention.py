"""Graphs from a critic's attention: orientation, thresholds, and what the critic attends to."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dgmarl.config.resolve import resolve
from dgmarl.errors import UsageError
from dgmarl.graphs.attention import AttentionSource
from dgmarl.graphs.sources import make_source
from tests.credit.by_hand import SPEC, N, played
from tests.tiny import Unplayed

ENV = Unplayed(SPEC)
CONFIG = resolve(
    "other.py:Env",
    "ippo-dg",
    {
        "graph_model.encoding": 16,
        "graph_model.learning_rate": 0.01,
        "graph_model.gradient_steps": 200,
    },
)


@pytest.fixture(scope="module")
def learned():
    """A source that has seen agent 1 paid for agent 0's action and nobody for anything else."""
    source = AttentionSource(CONFIG, ENV)
    batch, _ = played()
    over = jnp.ones_like(batch.terminated)
    reward = jnp.zeros_like(batch.reward).at[..., 1].set(batch.action[..., 0])
    batch = batch._replace(reward=reward, terminated=over, truncated=~over)
    state = source.init(jax.random.key(0), ENV)
    after, metrics = jax.jit(source.update)(state, batch, jax.random.key(1))
    return source, state, after, batch, metrics


def test_a_critic_attends_to_the_agent_whose_action_moves_its_return(learned):
    source, _, after, batch, metrics = learned
    relevance = np.asarray(source.critic.relevance(after.params, batch)).mean(axis=(0, 1))
    assert relevance[0, 1] > 1.6  # row = source
    assert relevance[2, 1] < 0.4
    assert metrics["graph_action_value_loss"] > 0


def test_attention_is_one_on_average_and_does_not_depend_on_actions(learned):
    source, _, after, batch, _ = learned
    relevance = np.asarray(source.critic.relevance(after.params, batch))
    np.testing.assert_allclose(relevance.sum(axis=-2), N - 1, rtol=1e-5)
    np.testing.assert_array_equal(np.diagonal(relevance, axis1=-2, axis2=-1), 0)
    moved = batch._replace(action=jnp.zeros_like(batch.action))
    np.testing.assert_array_equal(source.critic.relevance(after.params, moved), relevance)


def test_edges_are_attention_above_the_threshold(learned):
    source, _, after, batch, _ = learned
    relevance = np.asarray(source.critic.relevance(after.params, batch))
    found = np.asarray(source.infer(after, batch, jax.random.key(0)))
    np.testing.assert_array_equal(found, (relevance > 0.5) | np.eye(N, dtype=bool))
    none = make_source("attention:2", CONFIG, ENV).infer(after, batch, jax.random.key(0))
    np.testing.assert_array_equal(none, np.broadcast_to(np.eye(N, dtype=bool), found.shape))
    assert np.asarray(make_source("attention:0", CONFIG, ENV).infer(after, batch, None)).all()


@pytest.mark.parametrize("text", ["attention:-0.1", "attention:nan", "attention:much"])
def test_what_is_no_threshold_is_refused(text):
    with pytest.raises(UsageError, match=r"choose a number of 0 or more.*attention:0.5"):
        make_source(text, CONFIG, ENV)
