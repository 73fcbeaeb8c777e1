"""Graphs learned with reverse models: orientation, states, order of updates, and the identities of
the networks."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dgmarl import Environment, EnvSpec, Observation, Outcome
from dgmarl.config.parts import GraphModelConfig
from dgmarl.config.resolve import resolve
from dgmarl.errors import UsageError
from dgmarl.graphs import learned
from dgmarl.graphs.learned import LearnedSource
from dgmarl.graphs.metrics import agreement
from dgmarl.nets.reverse_models import PairModel, normalised_product
from dgmarl.rollout import act_randomly, collect, reset_envs
from dgmarl.training import Trainer
from tests.tiny import GIFT, SMALL, Gift

KEY = jax.random.key(0)
N_ENVS = 32


class SignalState(NamedTuple):
    time: jax.Array
    listening: jax.Array
    """Whether each agent hears the other in this step."""
    own: jax.Array
    heard: jax.Array


class Signals(Environment[SignalState]):
    """Two agents know what they did last. In each step each of them, at random, hears what the
    other does."""

    def __init__(self):
        self.spec = EnvSpec(
            "signals", n_agents=2, n_actions=3, obs_size=9, state_size=18, horizon=8
        )

    def reset(self, key):
        own, heard = jax.random.randint(key, (2, 2), 0, 3)
        state = SignalState(jnp.int32(0), jax.random.bernoulli(key, 0.5, (2,)), own, heard)
        return state, self._observation(state)

    def step(self, key, state, action):
        heard = jnp.where(state.listening, action[::-1], -1)
        state = SignalState(state.time + 1, jax.random.bernoulli(key, 0.5, (2,)), action, heard)
        ends = state.time >= self.spec.horizon
        return (
            state,
            self._observation(state),
            Outcome(jnp.zeros(2), jnp.zeros_like(ends), ends, {}),
        )

    def _observation(self, state):
        agents_view = self.local_state(state)
        return Observation(
            agents_view, agents_view.reshape(-1), jnp.ones((2, 3), bool), jnp.ones(2, bool)
        )

    def oracle_graph(self, state):
        return jnp.eye(2, dtype=bool) | state.listening

    def local_state(self, state):
        # Who one is stands in it: two agents that look the same are one agent to models without
        # identities.
        words = (jax.nn.one_hot(state.own, 3), jax.nn.one_hot(state.heard, 3))
        return jnp.concatenate([state.listening[:, None], jnp.eye(2), *words], axis=1)


def trained(env, n_updates=150, **options):
    """A source after some updates on random play, and a fresh batch to judge it on."""
    config = GraphModelConfig(**{"learning_rate": 2e-3, **options})
    source = LearnedSource(config, env, config.threshold)

    @jax.jit
    def batch_of(key):
        start_key, play_key = jax.random.split(key)
        start = reset_envs(env, start_key, None, N_ENVS)
        needs = source.needs | {"oracle"}
        return collect(env, act_randomly, start, play_key, env.spec.horizon, needs, reset=False)[1]

    @jax.jit
    def learn(key):
        def one(graph_state, key):
            graph_state, metrics = source.update(graph_state, batch_of(key), key)
            return graph_state, metrics

        return jax.lax.scan(one, source.init(key, env), jax.random.split(key, n_updates))

    graph_state, metrics = learn(KEY)
    return source, graph_state, batch_of(jax.random.key(1)), metrics


@partial(jax.jit, static_argnums=0)
def infer(source, graph_state, batch):
    return source.infer(graph_state, batch, KEY)


@pytest.fixture(scope="module")
def gift():
    # Both agents see the same, so only heads can tell them apart.
    return trained(Gift(), multi_head=True)


def test_the_giver_influences_the_receiver_and_not_the_reverse(gift):
    source, graph_state, batch, _ = gift
    graph = np.asarray(infer(source, graph_state, batch))
    assert graph.shape == (*batch.reward.shape, 2)
    assert graph[..., 0, 1].all(), "agent 0's action shows in what agent 1 sees next"
    assert not graph[..., 1, 0].any(), "agent 1's action shows nowhere"
    assert graph[..., 0, 0].all()
    assert graph[..., 1, 1].all()


def test_entropies_of_unrelated_steps_are_as_low_so_no_permutation_test_can_set_the_threshold(gift):
    source, graph_state, batch, _ = gift
    other = np.random.default_rng(0).permutation(N_ENVS)
    following = jax.tree.map(lambda leaf: np.asarray(leaf)[:, other], batch.next_observation)
    np.testing.assert_array_equal(
        infer(source, graph_state, batch._replace(next_observation=following)),
        infer(source, graph_state, batch),
        "a model's entropy says how sure it is, not whether it is right",
    )


def test_threshold_zero_leaves_only_self_loops(gift):
    source, graph_state, batch, _ = gift
    graph = infer(LearnedSource(source.config, Gift(), threshold=0.0), graph_state, batch)
    assert (np.asarray(graph) == np.eye(2, dtype=bool)).all()


def test_an_agent_without_a_choice_influences_nobody(gift):
    source, graph_state, batch, _ = gift
    assert np.asarray(infer(source, graph_state, batch))[..., 0, 1].all()
    mask = np.array(batch.observation.action_mask)
    mask[:, :, 0, 1] = False
    observation = batch.observation._replace(action_mask=mask)
    graph = infer(source, graph_state, batch._replace(observation=observation))
    assert not np.asarray(graph)[..., 0, 1].any()


def test_losses_fall_and_metrics_are_what_they_say(gift):
    *_, metrics = gift
    assert metrics["graph_pair_loss"][-1] < metrics["graph_pair_loss"][0] - 0.2
    assert abs(metrics["graph_predictor_entropy"][-1] - np.log(2)) < 0.02, (
        "random play cannot be told from one's own state"
    )
    assert 0.3 < metrics["graph_ratio"][-1] < 0.7, (
        "of the two pairs one is certain and one a coin toss"
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, id="default"),
        pytest.param({"encoder": False, "multi_head": True}, id="raw states, heads"),
        pytest.param(
            {
                "sees": "local_state",
                "gradient_steps": 2,
                "pair_fraction": 0.6,
                "condition_on_action": True,
            },
            id="all other options",
        ),
    ],
)
def test_edges_appear_in_the_right_states_only(options):
    source, graph_state, batch, _ = trained(Signals(), n_updates=150, **options)
    found = agreement(source.infer(graph_state, batch, KEY), batch.extras["oracle"], batch.valid)
    assert found.f1 > 0.95


@pytest.mark.slow
def test_the_graph_of_an_iteration_does_not_depend_on_its_own_update():
    """Two runs whose models only learn differently: the first iteration is the same, the next one
    is not."""
    trainer = Trainer(
        resolve(
            GIFT,
            "ippo-dg",
            {**SMALL, "graph_model.threshold": 1.0},
            graph="learned",
            seeds=1,
            steps=10,
        )
    )
    state, iterate = trainer.init(KEY), jax.jit(trainer.iterate)
    other = jax.tree.map(lambda moment: moment + 1, state.graph_state.opt_state)
    used = []
    changed = state.graph_state._replace(opt_state=other)
    for start in (state, state._replace(graph_state=changed)):
        after, first = iterate(start)
        used.append((first, iterate(after)[1]))
    assert used[0][0]["graph_density"] == used[1][0]["graph_density"]
    assert used[0][0]["policy_loss"] == used[1][0]["policy_loss"]
    assert used[0][1]["policy_loss"] != used[1][1]["policy_loss"]


def test_factorised_first_layer_equals_the_plain_one():
    model, n_agents = PairModel(5, heads=True), 4
    keys = jax.random.split(KEY, 3)
    source, target = (
        jax.random.normal(keys[0], (6, n_agents, 3)),
        jax.random.normal(keys[1], (6, n_agents, 7)),
    )
    params = jax.jit(model.init)(keys[2], source, target)
    with jax.enable_x64(True):
        source, target, params = jax.tree.map(
            lambda leaf: np.asarray(leaf, np.float64), (source, target, params)
        )
        fast = jax.jit(model.apply)(params, source, target)
        assert fast.dtype == np.float64
    source, target, fast, weights = jax.tree.map(
        np.asarray, (source, target, fast, params["params"])
    )
    for j in range(n_agents):
        for i in range(n_agents):
            x = (
                np.concatenate([target[:, i], source[:, j]], axis=-1) @ weights["weight"]
                + weights["bias"]
            )
            for number in range(3):
                layer = weights[f"NormalisedLinear_{number}"]
                x = np.maximum(x, 0)
                x = (x - x.mean(-1, keepdims=True)) / np.sqrt(
                    x.var(-1, keepdims=True) + 1e-5
                ) * layer["scale"] + layer["shift"]
                weight, bias = (
                    (layer["weight"], layer["bias"])
                    if number < 2
                    else (layer["weight"][j], layer["bias"][j])
                )
                x = x @ weight + bias
            plain = x
            np.testing.assert_allclose(fast[:, j, i], plain, atol=1e-6)


def test_the_custom_gradient_of_the_normalised_product_is_that_of_the_plain_formula():
    keys = jax.random.split(KEY, 4)
    x, weight, offset, weights = (
        jax.random.normal(key, shape)
        for key, shape in zip(keys, ((7, 5), (5, 4), (4,), (7, 4)), strict=True)
    )
    x = x.at[3].set(-1)  # nothing is left of this row

    def plain(x, weight, offset):
        rows = jax.nn.relu(x)
        rows = (rows - rows.mean(-1, keepdims=True)) / jnp.sqrt(rows.var(-1, keepdims=True) + 1e-5)
        return rows @ weight + offset

    found, expected = (
        jax.jit(jax.grad(lambda *inputs: (f(*inputs) * weights).sum(), (0, 1, 2)))(  # noqa: B023
            x, weight, offset
        )
        for f in (normalised_product, plain)
    )
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), found, expected)


def test_chosen_pairs_are_a_part_of_all_pairs():
    model, states = PairModel(5), jax.random.normal(KEY, (6, 4, 3))
    params, apply = jax.jit(model.init)(KEY, states, states), jax.jit(model.apply)
    chosen = np.array([[2, 0], [3, 1], [0, 2], [1, 3]])
    every, some = apply(params, states, states), apply(params, states, states, chosen)
    np.testing.assert_allclose(
        some, np.take_along_axis(np.asarray(every), chosen[None, ..., None], axis=2), atol=1e-6
    )


@pytest.fixture(scope="module")
def heard():
    """A batch of random play."""
    env = Signals()

    @jax.jit
    def played(key):
        start = reset_envs(env, key, None, N_ENVS)
        return collect(env, act_randomly, start, key, env.spec.horizon, frozenset(), reset=False)[1]

    return env, played(KEY)


def test_the_reported_ratio_leaves_out_agents_without_a_choice(heard):
    env, batch = heard
    mask = batch.observation.action_mask.at[:, :, 0].set(False).at[:, :, 0, 0].set(True)
    batch = batch._replace(observation=batch.observation._replace(action_mask=mask))
    source = LearnedSource(GraphModelConfig(encoder=False, gradient_steps=1), env, 0.9)
    state = source.init(KEY, env)
    ratios = np.asarray(source.ratios(state.params, batch))
    np.testing.assert_array_equal(ratios[..., 0, 1], 1)
    _, metrics = source.update(state, batch, KEY)
    expected = ratios[np.asarray(batch.valid)][:, 1, 0].mean()
    assert metrics["graph_ratio"] == pytest.approx(expected, rel=1e-5)


def test_pairs_in_chunks_give_the_same_update(monkeypatch, heard):
    env, batch = heard
    source = LearnedSource(GraphModelConfig(), env, 0.9)
    state = jax.jit(lambda key: source.init(key, env))(KEY)
    valid = batch.valid.at[4:, ::2].set(False).at[5:, 1].set(False)
    batch = batch._replace(valid=valid)

    def found(n_steps):
        monkeypatch.setattr(learned, "FLOATS_IN_CACHE", n_steps * 4 * 256)

        @jax.jit
        def models(state):
            new, metrics = source.update(state, batch, KEY)
            edges = source.infer(state, batch, KEY)
            return new.params, metrics, jnp.where(valid[..., None, None], edges, False)

        return models(state)

    jax.tree.map(partial(np.testing.assert_allclose, atol=1e-5), found(10_000), found(50))


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("threshold", -1.0),
        ("pair_fraction", 0.0),
        ("gradient_steps", 0),
        ("encoding", 0),
    ],
)
def test_numbers_that_cannot_be_meant_are_refused(option, value):
    with pytest.raises(UsageError, match=f"graph_model.{option} is"):
        GraphModelConfig(**{option: value})


def test_local_states_are_asked_for_only_where_there_are_some():
    with pytest.raises(UsageError, match="offers no local_state"):
        LearnedSource(GraphModelConfig(sees="local_state"), Gift(), 0.9)
