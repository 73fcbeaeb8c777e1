"""Reward graphs in training: measured as the theory laboratory has them, and used by the rule."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dgmarl.config.resolve import resolve
from dgmarl.credit.base import Values
from dgmarl.credit.graph_gae import graph_gae
from dgmarl.envs.base import Environment, EnvSpec, Observation, Outcome
from dgmarl.errors import UsageError
from dgmarl.graphs.interventional import intervene, intervene_batch
from dgmarl.graphs.sources import Graphs
from dgmarl.paper.theory import networked_mdp as nm
from dgmarl.rollout import act_randomly, collect, reset_envs
from dgmarl.training import Trainer
from tests.credit.double_loop import pair_loop
from tests.tiny import GIFT, SMALL, Gift

KEY = jax.random.key(0)


class Laboratory(Environment[Any]):
    """A networked decision process of the theory laboratory; the state is the joint state."""

    def __init__(self, mdp: nm.NetworkedMDP):
        n = mdp.n_agents
        self.mdp, self.spec = mdp, EnvSpec("lab", n, mdp.n_actions, 1, 1, horizon=5)

    def reset(self, key):
        return jnp.int32(0), self._observation()

    def step(self, key, state, action):
        joint = action @ jnp.asarray(self.mdp.n_actions ** np.arange(self.spec.n_agents)[::-1])
        reward = jnp.asarray(self.mdp.reward, jnp.float32)[:, state, joint]
        outcome = Outcome(reward, jnp.bool_(False), jnp.bool_(False), {})
        return state, self._observation(), outcome

    def _observation(self):
        n = self.spec.n_agents
        mask, alive = jnp.ones((n, self.spec.n_actions), bool), jnp.ones(n, bool)
        return Observation(jnp.zeros((n, 1)), jnp.zeros(1), mask, alive)


@pytest.mark.parametrize("seed", range(3))
def test_the_measured_graph_is_the_laboratorys(seed):
    """That with which the expected gradient is exact (Proposition with reward graphs), in every
    state and for every joint action."""
    rng = np.random.default_rng(seed)
    mdp = nm.random_mdp(rng, nm.linked_graph(rng, 3), reward_graph=nm.linked_graph(rng, 3))
    env, actions = Laboratory(mdp), jnp.asarray(mdp.actions)

    def measured(state):
        return jax.vmap(lambda action: intervene(env, state, KEY, action).reward_graph)(actions)

    found = jax.jit(jax.vmap(measured))(jnp.arange(len(mdp.states)))
    expected = np.broadcast_to(mdp.reward_graph[:, None], found.shape)
    np.testing.assert_array_equal(found, expected)
    assert 0 < expected.mean() < 1


def played(env_id, **overrides):
    """A run of graph credit without edges, a batch of random play, and values."""
    config = resolve(env_id, "ippo-dg", {**SMALL, **overrides}, graph="self", steps=100)
    made = Trainer(config)
    needs, horizon = made.needs | {"states", "keys"}, made.env.spec.horizon

    @jax.jit
    def play(key):
        start = reset_envs(made.env, key, None, 8)
        return collect(made.env, act_randomly, start, key, horizon, needs, reset=False)[1]

    batch = play(KEY)
    rng = np.random.default_rng(0)
    values = [rng.normal(size=batch.reward.shape).astype(np.float32) for _ in range(2)]
    return made, batch, Values(*values)


def assigned(made, batch, values):
    """The rule's credit with the empty graph, and the arguments of `graph_gae` for the same."""
    n = made.env.spec.n_agents
    edges = np.broadcast_to(np.eye(n, dtype=bool), (*batch.reward.shape, n))
    state = made.rule.init(KEY, made.env)
    credit = jax.jit(made.rule.assign)(state, batch, values, Graphs(edges))
    steps = (credit.reward, *values, edges, batch.bootstrap, batch.continues)
    return credit, (*steps, made.config.learner.gamma, made.config.learner.lambda_)


@pytest.mark.parametrize("kind", ["measured", "oracle"])
def test_a_common_payoff_is_credited_without_a_path(kind):
    made, batch, values = played("matrix/climbing", **{"credit.reward_graph": kind})
    credit, steps = assigned(made, batch, values)
    total = np.asarray(credit.own).sum(-1, keepdims=True)
    np.testing.assert_allclose(
        credit.advantage, np.broadcast_to(total, credit.own.shape), rtol=1e-5, atol=1e-5
    )
    np.testing.assert_allclose(graph_gae(*steps), credit.own, rtol=1e-6)


@pytest.mark.parametrize("kind", ["none", "self"])
def test_without_a_reward_graph_an_empty_graph_is_local_credit(kind):
    made, batch, values = played("matrix/climbing", **{"credit.reward_graph": kind})
    assert made.rule.needs == {"graph"}
    credit, _ = assigned(made, batch, values)
    np.testing.assert_array_equal(credit.advantage, credit.own)


def test_a_graph_that_changes_in_time_is_credited_as_by_the_double_loop():
    made, batch, values = played("matrix/two-step", **{"credit.reward_graph": "measured"})
    credit, steps = assigned(made, batch, values)
    edges = np.asarray(jax.jit(partial(intervene_batch, made.env))(batch).reward_graph)
    assert (edges != edges[:1]).any()
    for b in range(8):
        window = [np.asarray(array)[:, b] for array in steps[:6]]
        options = {"reward_graph": edges[:, b], "others": "mean"}
        expected = pair_loop(*window, *steps[6:], options).sum(-1)
        np.testing.assert_allclose(credit.advantage[:, b], expected, rtol=1e-5, atol=1e-5)


class SetBackNever(Gift):
    """Stands for a simulator outside JAX."""

    can_intervene = False


@pytest.mark.parametrize(
    ("env", "overrides", "message"),
    [
        (GIFT, {"credit.reward_graph": "oracle"}, "gift offers no oracle_reward_graph: define it"),
        (f"{__file__}:SetBackNever", {"credit.reward_graph": "measured"}, "gift cannot simulate"),
        (
            GIFT,
            {
                "credit.reward_graph": "measured",
                "credit.others": "sum",
                "credit.advantage_form": "return",
            },
            r"set credit.advantage_form to td\.",
        ),
        (GIFT, {"credit.advantage_form": "return"}, r"set credit.others to sum\."),
    ],
)
def test_what_does_not_fit_together_is_refused(env, overrides, message):
    with pytest.raises(UsageError, match=message):
        Trainer(resolve(env, "ippo-dg", {**SMALL, **overrides}, steps=100))
