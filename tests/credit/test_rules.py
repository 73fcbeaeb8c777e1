"""Credit rules differ in credit and in nothing else; they take what a graph source may give."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dgmarl.config.resolve import resolve
from dgmarl.credit.base import Values
from dgmarl.credit.gae import gae
from dgmarl.credit.graph_gae import graph_gae
from dgmarl.envs.base import EnvSpec
from dgmarl.graphs.sources import GivenSource, Graphs
from dgmarl.training import Trainer
from tests.credit.windows import random_window
from tests.tiny import GIFT, SMALL, Unplayed

FAMILIES = {
    "lbf": ("lbf/5x5-3p-2f", {"env_options.horizon": 3}),
    "star-spread": ("star-spread/3", {"env_options.horizon": 3}),
    "matrix": ("matrix/two-step", {}),
    "own class": (GIFT, {"env_options.horizon": 3}),
}
SIZES = {
    **SMALL,
    "n_envs": 4,
    "learner.hidden": 4,
    "learner.epochs": 1,
    "evaluation.interval": 12,
    "evaluation.episodes": 4,
}
"""As small as can be: compilation is what these tests cost."""
OF_PRESET = {
    "tuned": {},
    "fast": {"n_envs": 4, "rollout_length": 2, "learner.minibatches": 2},
}
N = 3
METHODS = ("ippo-local", "ippo-global", "ippo-dg")
SUM = {"credit.others": "sum"}


QUICK = {("lbf", "tuned"), ("own class", "fast")}
"""Each preset once; the other pairs cost as much compilation and run with the slow tests."""
PAIRS = [
    pytest.param(family, preset, marks=[] if (family, preset) in QUICK else [pytest.mark.slow])
    for family in FAMILIES
    for preset in OF_PRESET
]


@pytest.mark.rounding
@pytest.mark.parametrize(("family", "preset"), PAIRS)
def test_the_identity_graph_with_plain_weights_is_local_credit_bit_for_bit(family, preset):
    env, options = FAMILIES[family]
    overrides = {**SIZES, **options, **OF_PRESET[preset]}
    common = {"preset": preset, "seeds": 1, "steps": 40}
    local = trained(resolve(env, "ippo-local", overrides, **common))
    graph = trained(resolve(env, "ippo-dg", overrides, graph="self", **common))
    assert int(local.step) > 0
    for part in ("step", "learner", "credit_state", "key"):
        jax.tree.map(
            np.testing.assert_array_equal,
            _plain(getattr(graph, part)),
            _plain(getattr(local, part)),
        )


def trained(config):
    """The state after three iterations; without evaluations, which only cost compilation here."""
    assert getattr(config.credit, "unreached_weight", 0) == 0
    trainer = Trainer(config)

    @jax.jit
    def iterations(key):
        start = trainer.init(key)
        return jax.lax.fori_loop(0, 3, lambda _, state: trainer.iterate(state)[0], start)

    return iterations(jax.random.key(0))


def _plain(tree):
    return jax.tree.map(
        lambda leaf: (
            jax.random.key_data(leaf)
            if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
            else leaf
        ),
        tree,
    )


class Case:
    """A rule as a run of some preset has it, on a window made by hand."""

    def __init__(self, method: str, preset="tuned", env: str = "other.py:Env", **overrides):
        spec = EnvSpec("by hand", N, n_actions=2, obs_size=2, state_size=2, horizon=20)
        self.config = resolve(env, method, overrides, preset, n_envs=8 if preset == "fast" else 10)
        self.trainer = Trainer(self.config, Unplayed(spec))
        self.rule = self.trainer.rule
        self.state = self.rule.init(jax.random.key(0), self.trainer.env)

    def assign(self, window, graph=None, state=None):
        batch, values = played(window)
        graphs = graph if graph is None or isinstance(graph, Graphs) else Graphs(graph)
        return self.rule.assign(self.state if state is None else state, batch, values, graphs)

    def after(self, window):
        """The rule's state after the window."""
        return self.rule.update(self.state, played(window)[0], jax.random.key(0))[0]


def played(window):
    """A window as the batch that a rule reads, with the critic's values."""

    class Seen:
        reward, bootstrap = jnp.asarray(window.reward), jnp.asarray(window.bootstrap)
        continues = jnp.asarray(window.continues)
        valid = jnp.ones(window.continues.shape, bool)

    return Seen, Values(jnp.asarray(window.value), jnp.asarray(window.next_value))


@pytest.fixture
def window():
    return random_window(np.random.default_rng(0), 20, N, dtype=np.float32)


def identity(window):
    return jnp.broadcast_to(jnp.eye(N, dtype=bool), window.graph.shape)


def test_in_preset_paper_the_two_differ_by_their_reward_statistics_alone(window):
    """Per agent for local credit, pooled over agents for graph credit: the paper's runs."""
    own = window.reward * np.float32([1, 5, 25])
    uneven = window._replace(reward=own)
    local = Case("ippo-local", "paper")
    graph = Case("ippo-dg", "paper", **{"credit.unreached_weight": 0.0})
    assert Case("ippo-dg", "paper").config.credit.unreached_weight == 0.05
    assert local.config.credit.reward_scaling == graph.config.credit.reward_scaling == "standardise"
    assert (local.after(uneven).mean.shape, graph.after(uneven).mean.shape) == ((N,), ())
    found = [local.assign(uneven), graph.assign(uneven, identity(window))]
    np.testing.assert_allclose(found[0].reward.std(axis=(0, 1)), 1, rtol=1e-3)
    np.testing.assert_allclose(found[1].reward.std(), 1, rtol=1e-3)
    assert not np.allclose(found[0].advantage, found[1].advantage, atol=0.1)
    # Where the paper does not standardise, in foraging, nothing is left that differs.
    plain = {"credit.unreached_weight": 0.0}
    foraging = [
        Case("ippo-local", "paper", "lbf/8x8-3p-2f").assign(uneven),
        Case("ippo-dg", "paper", "lbf/8x8-3p-2f", **plain).assign(uneven, identity(window)),
    ]
    np.testing.assert_array_equal(foraging[0].advantage, foraging[1].advantage)


@pytest.mark.parametrize("preset", ["tuned", "fast"])
def test_the_complete_graphs_advantage_is_the_sum_of_all_agents_gae(window, preset):
    graph, local = Case("ippo-dg", preset, **SUM), Case("ippo-local", preset)
    found = graph.assign(window, jnp.ones_like(window.graph))
    steps = (found.reward, window.value, window.next_value, window.bootstrap, window.continues)
    each = gae(*steps, graph.config.learner.gamma, graph.config.learner.lambda_)
    total = np.broadcast_to(np.asarray(each).sum(-1, keepdims=True), each.shape)
    np.testing.assert_allclose(found.advantage, total, rtol=1e-5, atol=1e-5)
    mean = Case("ippo-dg", preset).assign(window, jnp.ones_like(window.graph))
    expected = each + (total - each) / (N - 1)
    np.testing.assert_allclose(mean.advantage, expected, rtol=1e-5, atol=1e-5)
    # The graph decides whose advantage counts, never what the critic is to predict.
    np.testing.assert_array_equal(found.target, local.assign(window).target)


@pytest.mark.parametrize("method", METHODS)
def test_rewards_are_scaled_and_never_shifted(window, method):
    case = Case(method)
    assert case.config.credit.reward_scaling == "scale"

    def paid(reward):
        given = window._replace(reward=np.broadcast_to(np.float32(reward), window.reward.shape))
        return np.asarray(case.assign(given, identity(window)).reward)

    agents = N if method == "ippo-global" else 1
    np.testing.assert_allclose(paid(-1.0), -agents, rtol=1e-4)
    np.testing.assert_allclose(paid(-100.0), -agents, rtol=1e-4)
    np.testing.assert_array_equal(paid(0.0), 0)
    some = paid([0.0, 2.0, -1.0])
    if method != "ippo-global":
        np.testing.assert_array_equal(some[..., 0], 0)
        np.testing.assert_allclose(some[..., 1], -2 * some[..., 2], rtol=1e-5)


def test_all_rules_have_the_same_reward_statistic(window):
    states = [Case(method).after(window) for method in METHODS]
    assert states[0].mean.shape == ()
    for other in states[1:]:
        jax.tree.map(np.testing.assert_array_equal, other, states[0])
    mean_square = np.square(window.reward).mean()
    np.testing.assert_allclose(states[0].variance + states[0].mean ** 2, mean_square, rtol=1e-4)


@pytest.mark.parametrize("preset", ["tuned", "fast"])
@pytest.mark.parametrize("env", ["lbf/8x8-3p-2f", "star-spread/5", "smaclite/MMM", GIFT])
def test_only_the_paper_standardises_and_all_methods_scale_alike(env, preset):
    methods = (*METHODS, "mappo-local", "mappo-global", "mappo-dg")
    kinds = {resolve(env, method, preset=preset).credit.reward_scaling for method in methods}
    assert len(kinds) == 1
    assert kinds <= {"none", "scale"}


def test_a_reward_graph_is_used(window):
    case, rng = Case("ippo-dg", **SUM), np.random.default_rng(1)
    reward_edges = jnp.asarray(rng.random(window.graph.shape) < 0.3)
    found = case.assign(window, Graphs(identity(window), reward_edges))
    scaled = window._replace(reward=np.asarray(found.reward), graph=np.asarray(identity(window)))
    constants = (case.config.learner.gamma, case.config.learner.lambda_)
    expected = graph_gae(*scaled, *constants, reward_graph=reward_edges)
    np.testing.assert_allclose(found.advantage, expected, rtol=1e-5, atol=1e-5)
    assert not np.allclose(found.advantage, case.assign(window, identity(window)).advantage)


class Given(GivenSource):
    """Whatever it is made with, at every step."""

    def __init__(self, edges, reward_edges=None):
        self.edges, self.reward_edges = edges, reward_edges

    def infer(self, graph_state, batch, key):
        shape = (*batch.reward.shape, batch.reward.shape[-1])
        edges = jnp.broadcast_to(self.edges, shape)
        if self.reward_edges is None:
            return edges
        return Graphs(edges, jnp.broadcast_to(self.reward_edges, shape))


@pytest.fixture(scope="module")
def learned_from():
    """Parameters of agent networks after one iteration with a source."""
    config = resolve(GIFT, "ippo-dg", SMALL, steps=100)

    @jax.jit
    def iterate(edges, reward_edges, key):
        trainer = Trainer(config, source=Given(edges, reward_edges))
        return trainer.iterate(trainer.init(key))[0]

    def learn(edges, reward_edges=None):
        state = iterate(edges, reward_edges, jax.random.key(0))
        return np.concatenate([leaf.ravel() for leaf in jax.tree.leaves(state.learner.params)])

    alone, complete = jnp.eye(2, dtype=bool), jnp.ones((2, 2), bool)
    return {
        "alone": learn(alone),
        "complete": learn(complete),
        "by rewards": learn(alone, complete),
        "soft": learn(complete.astype(jnp.float32)),
        "half": learn(jnp.array([[1.0, 0.5], [0.5, 1.0]])),
    }


def test_what_a_source_gives_reaches_the_learner(learned_from):
    whole = learned_from["complete"]
    assert not np.allclose(whole, learned_from["alone"], atol=1e-5)
    # Everybody moves everybody's reward at once: as if everybody reached everybody.
    np.testing.assert_allclose(learned_from["by rewards"], whole, atol=1e-5)
    np.testing.assert_allclose(learned_from["soft"], whole, atol=1e-5)
    for other in ("alone", "complete"):
        assert not np.allclose(learned_from["half"], learned_from[other], atol=1e-5)
