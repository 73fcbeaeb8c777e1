"""k-hop credit: its two ends, local credit and the sum of all, and what lies between."""

import jax.numpy as jnp
import numpy as np
import pytest

from dgmarl.config.resolve import resolve
from dgmarl.credit.gae import gae
from dgmarl.credit.khop import within_hops
from dgmarl.errors import UsageError
from tests.credit.test_rules import Case, N, identity
from tests.credit.windows import random_window

CHAIN = np.array([[1, 1, 0], [0, 1, 1], [0, 0, 1]], bool)


@pytest.fixture(scope="module")
def window():
    return random_window(np.random.default_rng(0), 20, N, dtype=np.float32)


def each(window, credit, case):
    """The GAE of every agent for the rewards that the rule paid."""
    steps = (credit.reward, window.value, window.next_value, window.bootstrap, window.continues)
    return np.asarray(gae(*steps, case.config.learner.gamma, case.config.learner.lambda_))


def test_the_identity_graph_is_local_credit(window):
    local = Case("ippo-local").assign(window)
    found = Case("ippo-khop", **{"credit.hops": 2}).assign(window, identity(window))
    for part in ("reward", "advantage", "target", "own"):
        np.testing.assert_array_equal(getattr(found, part), getattr(local, part))
    np.testing.assert_array_equal(found.cross, 0)


def test_the_complete_graph_is_the_sum_of_all_agents_gae(window):
    case = Case("mappo-khop")
    found = case.assign(window, jnp.ones_like(window.graph))
    total = each(window, found, case).sum(-1, keepdims=True)
    expected = np.broadcast_to(total, found.advantage.shape)
    np.testing.assert_allclose(found.advantage, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("hops", "near"), [(1, CHAIN), (2, CHAIN @ CHAIN)])
def test_agents_within_k_hops_count_from_the_step_on(window, hops, near):
    case = Case("ippo-khop", **{"credit.hops": hops})
    found = case.assign(window, jnp.broadcast_to(CHAIN, window.graph.shape))
    expected = each(window, found, case) @ near.T
    np.testing.assert_allclose(found.advantage, expected, rtol=1e-5, atol=1e-5)


def test_soft_edges_count_with_the_strongest_path():
    soft = jnp.array([[1.0, 0.5, 0.1], [0.0, 1.0, 0.4], [0.0, 0.0, 1.0]])
    np.testing.assert_allclose(within_hops(soft, 2)[0], [1, 0.5, 0.2], rtol=1e-6)


def test_no_hop_is_refused():
    with pytest.raises(UsageError, match=r"credit.hops is 0, but must be from 1 to 1,000"):
        resolve("lbf/5x5-2p-1f", "ippo-khop", {"credit.hops": 0})
