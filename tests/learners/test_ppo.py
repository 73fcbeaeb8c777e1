"""The learner on hand-made episodes: the masks of the specification, and a test for each classic
mistake."""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from dgmarl import blocks
from dgmarl.blocks import as_columns, as_rows
from dgmarl.config.parts import CreditConfig, GraphCreditConfig, PPOConfig, RewardScaling
from dgmarl.config.schema import TrainConfig
from dgmarl.config.varying import Varying
from dgmarl.credit.base import Credit
from dgmarl.credit.gae import gae
from dgmarl.envs.base import EnvSpec, Observation
from dgmarl.graphs.sources import Graphs
from dgmarl.learners import ppo
from dgmarl.learners.ppo import PPO, Minibatch
from dgmarl.rollout import Batch, collect, reset_envs
from dgmarl.training import Trainer
from tests.tiny import Gift, Unplayed

T, B, N, A = 6, 3, 2, 3
SPEC = EnvSpec("by hand", n_agents=N, n_actions=A, obs_size=4, state_size=5, horizon=T)
GAMMA, LAMBDA = 0.9, 0.8


class Made:
    """A learner and a credit rule as a run has them, each function compiled once."""

    def __init__(self, credit: str, learner: PPOConfig, rule: CreditConfig):
        config = TrainConfig("by hand", method=METHODS[credit], learner=learner, credit=rule)
        trainer = Trainer(config, Unplayed(SPEC))
        assert isinstance(trainer.learner, PPO)
        self.ppo, self.rule = trainer.learner, trainer.rule
        self.state = jax.jit(self.ppo.init)(jax.random.key(0))
        self.credit_state = self.rule.init(jax.random.key(0), trainer.env)
        self.credit, self.samples = jax.jit(self._credit), jax.jit(self._samples)
        self.learn = jax.jit(self._learn)

    def _credit(self, batch, graph=None) -> Credit:
        graphs = None if graph is None else Graphs(graph)
        values = self.ppo.values(self.state, batch)
        return self.rule.assign(self.credit_state, batch, values, graphs)

    def _samples(self, batch, graph=None) -> Minibatch:
        return self.ppo.full_batch(batch, self._credit(batch, graph))

    def _learn(self, batch, graph=None, active=True):
        """Both states after one iteration, and metrics."""
        credit, key = self._credit(batch, graph), jax.random.key(1)
        state, metrics = self.ppo.update(self.state, batch, credit, key, jnp.asarray(active))
        return (state, self.rule.update(self.credit_state, batch, key)[0]), metrics


METHODS = {"local": "ippo-local", "global": "ippo-global", "graph": "ippo-dg"}


@cache
def made(credit: str = "local", scaling: RewardScaling = "none", **options) -> Made:
    learner = PPOConfig(**{"hidden": 8, "gamma": GAMMA, "lambda_": LAMBDA, **options})
    return Made(
        credit, learner, (GraphCreditConfig if credit == "graph" else CreditConfig)(scaling)
    )


def random_views(rng, *shape: int) -> Observation:
    agents_view, state = (
        rng.normal(size=(*shape, *rest)).astype(np.float32) for rest in ((N, 4), (5,))
    )
    return Observation(
        agents_view, state, np.ones((*shape, N, A), bool), np.ones((*shape, N), bool)
    )


def padded_episodes(rng) -> tuple[Batch, np.ndarray]:
    """Three whole episodes: one ends in a terminal after 3 of 6 steps, one times out, one ends in a
    terminal at the last step.

    Also the specification's valid mask m, [T + 1, B].
    """
    observations = random_views(rng, T + 1, B)
    valid = np.ones((T, B), bool)
    valid[3:, 0] = False
    terminated, truncated = np.zeros((T, B), bool), np.zeros((T, B), bool)
    terminated[2, 0] = terminated[5, 2] = truncated[5, 1] = True
    # Section 1 of the specification: filled up to and with the final observation, cut after a
    # terminal.
    filled = np.ones((T + 1, B))
    filled[4:, 0] = 0
    mask = filled * np.concatenate([np.ones((1, B)), 1 - terminated])
    batch = Batch(
        observation=jax.tree.map(lambda leaf: leaf[:-1], observations),
        next_observation=jax.tree.map(lambda leaf: leaf[1:], observations),
        action=rng.integers(0, A, (T, B, N)),
        log_prob=np.full((T, B, N), -np.log(A), np.float32),
        reward=rng.normal(size=(T, B, N)).astype(np.float32),
        terminated=terminated,
        truncated=truncated,
        valid=valid,
        is_first=np.arange(T)[:, None] + np.zeros((T, B)) == 0,
        hidden_state=np.zeros((B, N, 0), np.float32),
        extras={},
    )
    return batch, mask


def window(rng, ending: str) -> Batch:
    """A window in which one episode ends after step 2 and another begins; its first view is not the
    successor of step 2."""
    batch, _ = padded_episodes(rng)
    batch = batch._replace(
        valid=np.ones((T, B), bool),
        terminated=np.zeros((T, B), bool),
        truncated=np.zeros((T, B), bool),
        next_observation=random_views(rng, T, B),
    )
    getattr(batch, ending)[2] = True
    batch.is_first[3] = True
    return batch


def test_advantages_and_targets_are_those_of_the_specification_in_its_own_notation():
    batch, m = padded_episodes(np.random.default_rng(0))
    run = made()
    found = run.samples(batch)
    value = np.concatenate(
        [
            run.ppo.value(run.state.params["critic"], observation)[part]
            for observation, part in (
                (batch.observation, slice(None)),
                (batch.next_observation, slice(-1, None)),
            )
        ]
    )
    expected, tail = np.zeros((T, B, N)), np.zeros((B, N))
    for t in reversed(range(T)):
        delta = batch.reward[t] + GAMMA * value[t + 1] * m[t + 1][:, None] - value[t]
        expected[t] = tail = delta + GAMMA * LAMBDA * m[t + 1][:, None] * tail
    np.testing.assert_array_equal(found.mask, np.broadcast_to(m[:T, :, None] == 1, (T, B, N)))
    counted = np.asarray(found.mask)
    np.testing.assert_allclose(np.asarray(found.advantage)[counted], expected[counted], atol=1e-5)
    np.testing.assert_allclose(
        np.asarray(found.target)[counted], (expected + value[:T])[counted], atol=1e-5
    )


def test_nothing_is_bootstrapped_through_a_terminal():
    batch = window(np.random.default_rng(0), "terminated")
    run = made()
    before = run.samples(batch).advantage
    batch.next_observation.agents_view[2] += 3.0
    np.testing.assert_array_equal(run.samples(batch).advantage, before)


def test_a_time_out_is_bootstrapped_from_the_view_before_the_reset():
    batch = window(np.random.default_rng(0), "truncated")
    run = made()
    found = np.asarray(run.samples(batch).advantage)
    value, following = (
        np.asarray(run.ppo.value(run.state.params["critic"], observation))
        for observation in (batch.observation, batch.next_observation)
    )
    np.testing.assert_allclose(
        found[2], batch.reward[2] + GAMMA * following[2] - value[2], atol=1e-5
    )


@pytest.mark.parametrize("ending", ["terminated", "truncated"])
@pytest.mark.parametrize("credit", ["local", "graph"])
def test_the_next_episode_of_a_window_does_not_reach_back(ending, credit):
    batch = window(np.random.default_rng(0), ending)
    graph = np.ones((T, B, N, N), bool) if credit == "graph" else None
    run = made(credit)
    before = np.asarray(run.samples(batch, graph).advantage)
    batch.reward[3:] += 10.0
    batch.observation.agents_view[3:] += 3.0
    after = np.asarray(run.samples(batch, graph).advantage)
    np.testing.assert_array_equal(after[:3], before[:3])
    assert not np.allclose(after[3:], before[3:])


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"network": "gru"},
        {"normalise_advantage": True, "scaling": "standardise"},
        {"normalise_advantage": True, "scaling": "scale"},
    ],
)
def test_what_stands_after_the_end_of_an_episode_changes_nothing(options):
    batch, _ = padded_episodes(np.random.default_rng(0))
    run = made(**options)
    batch = batch._replace(hidden_state=np.asarray(run.ppo.init_hidden_state(B)))
    before, metrics = run.learn(batch)
    padding = ~batch.valid
    for array in (
        batch.observation.agents_view,
        batch.observation.global_state,
        batch.reward,
        batch.log_prob,
    ):
        array[padding] += 1.5
    batch.next_observation.agents_view[padding] -= 2.0
    batch.action[padding] = 0
    after, metrics_after = run.learn(batch)
    for new, old in zip(
        jax.tree.leaves((after, metrics_after)), jax.tree.leaves((before, metrics)), strict=True
    ):
        np.testing.assert_allclose(new, old, atol=1e-6)


@pytest.mark.parametrize("mask_dead", [True, False])
def test_dead_agents_are_left_out_of_the_losses_if_asked(mask_dead):
    batch, _ = padded_episodes(np.random.default_rng(0))
    batch.observation.alive[2:, 1, 0] = False
    dead = batch.valid[..., None] & ~batch.observation.alive
    run = made(mask_dead=mask_dead)
    ppo, state, found = run.ppo, run.state, run.samples(batch)
    assert np.asarray(found.mask)[dead].any() != mask_dead
    grad = jax.jit(jax.grad(ppo.loss, has_aux=True))
    scale = 1 / found.mask.sum()
    gradient = grad(state.params, batch.hidden_state, found, scale)[0]
    other = found._replace(advantage=found.advantage + 7.0 * dead, target=found.target - 7.0 * dead)
    changed = grad(state.params, batch.hidden_state, other, scale)[0]
    same = [
        np.allclose(new, old, atol=1e-7)
        for new, old in zip(*map(jax.tree.leaves, (changed, gradient)), strict=True)
    ]
    assert all(same) == mask_dead


@pytest.mark.parametrize("options", [{}, {"network": "gru"}, {"mask_dead": True}])
def test_padding_left_out_in_blocks_gives_the_same_update(options, monkeypatch):
    batch, _ = padded_episodes(np.random.default_rng(0))
    observation = batch.observation
    observation.alive[2:, 1, 0] = False
    batch.valid[3:] = False  # three episodes of 3 of 6 steps: two fit into one column
    last = jax.tree.map(lambda leaf: leaf[-1], batch.next_observation)
    run = made(**options)
    hidden_state = np.asarray(run.ppo.init_hidden_state(B))
    batch = batch._replace(last_observation=last, hidden_state=hidden_state)
    monkeypatch.setattr(blocks, "cores_per_device", lambda: 1)
    monkeypatch.setattr(ppo, "as_rows", partial(as_rows, size=4))
    monkeypatch.setattr(ppo, "as_columns", partial(as_columns, width=1))
    n_used = run.ppo._in_blocks(batch, run.samples(batch)).n_used
    assert n_used == (2 if run.ppo.config.network == "gru" else 3)
    in_blocks = jax.jit(run._learn)(batch)
    monkeypatch.setattr(ppo, "leaves_out_padding", lambda *_: False)
    at_once = jax.jit(lambda batch: run._learn(batch))(batch)
    jax.tree.map(partial(np.testing.assert_allclose, atol=1e-5), in_blocks, at_once)


def test_a_complete_graph_has_the_gradient_of_everybodys_advantage_summed():
    batch, _ = padded_episodes(np.random.default_rng(0))
    run = made("graph")
    ppo, state = run.ppo, run.state
    found = run.samples(batch, np.ones((T, B, N, N), bool))
    value, following = (
        ppo.value(state.params["critic"], observation)
        for observation in (batch.observation, batch.next_observation)
    )
    own = gae(batch.reward, value, following, batch.bootstrap, batch.continues, GAMMA, LAMBDA)
    summed = found._replace(advantage=jnp.broadcast_to(own.sum(axis=-1, keepdims=True), own.shape))
    inputs, scale = (state.params, batch.hidden_state), 1 / found.mask.sum()
    gradients = [
        jax.grad(ppo.loss, has_aux=True)(*inputs, part, scale)[0] for part in (found, summed)
    ]
    for by_graph, by_sum in zip(*map(jax.tree.leaves, gradients), strict=True):
        np.testing.assert_allclose(by_graph, by_sum, atol=1e-6)
    # The graph decides whose advantage counts, never what a critic is to predict.
    np.testing.assert_allclose(found.target, own + value, atol=1e-5)


def test_soft_edges_lie_between_no_edges_and_whole_ones():
    batch, _ = padded_episodes(np.random.default_rng(3))
    graph, run = np.ones((T, B, N, N), np.float32), made("graph")
    none, half, nearly = (
        np.asarray(run.samples(batch, strength * graph).advantage)
        for strength in (0.0, 0.5, 1 - 1e-6)
    )
    whole = np.asarray(run.samples(batch, graph > 0).advantage)
    np.testing.assert_allclose(none, made().samples(batch).advantage, atol=1e-5)
    np.testing.assert_allclose(nearly, whole, atol=1e-4)
    # Everybody meets everybody at once, so every path's strongest part is one edge.
    np.testing.assert_allclose(half, (none + whole) / 2, atol=1e-5)


def test_credit_comes_in_two_parts_ones_own_and_that_of_others():
    batch, _ = padded_episodes(np.random.default_rng(4))
    found = made("graph").credit(batch, np.ones((T, B, N, N), bool))
    np.testing.assert_allclose(found.own, made().credit(batch).advantage, atol=1e-6)
    # Everybody meets everybody at once: what the other adds is its GAE.
    np.testing.assert_allclose(found.cross, np.asarray(found.own)[..., ::-1], atol=1e-5)
    np.testing.assert_allclose(found.advantage, found.own + found.cross, atol=1e-5)


def test_global_credit_pays_the_sum_to_everybody():
    batch, _ = padded_episodes(np.random.default_rng(0))
    shared = batch._replace(
        reward=np.broadcast_to(batch.reward.sum(axis=-1, keepdims=True), batch.reward.shape).copy()
    )
    np.testing.assert_allclose(
        made("global").samples(batch).advantage, made().samples(shared).advantage, atol=1e-5
    )


@pytest.mark.parametrize("credit", ["local", "global", "graph"])
def test_rewards_are_standardised_per_agent_of_the_sum_or_over_all(credit):
    batch, _ = padded_episodes(np.random.default_rng(0))
    batch = batch._replace(
        reward=batch.reward * np.float32([1.0, 10.0]) + np.float32([0.0, 5.0]),
        valid=np.ones((T, B), bool),
    )
    run = made(credit, "standardise")
    graph = np.ones((T, B, N, N), bool) if credit == "graph" else None
    reward, statistics = run.credit(batch, graph).reward, run.learn(batch, graph)[0][1]
    seen = batch.reward.sum(axis=-1) if credit == "global" else batch.reward
    axes = (0, 1) if credit == "local" else None
    expected = (seen - seen.mean(axis=axes)) / seen.std(axis=axes)
    expected = (
        np.broadcast_to(expected[..., None], reward.shape) if credit == "global" else expected
    )
    assert statistics.mean.shape == ((N,) if credit == "local" else ())
    np.testing.assert_allclose(reward, expected, atol=2e-3)


def test_advantages_are_normalised_over_all_that_counts_with_one_degree_of_freedom_less():
    batch, _ = padded_episodes(np.random.default_rng(0))
    plain = np.asarray(made().samples(batch).advantage)
    counted = np.broadcast_to(batch.valid[..., None], plain.shape)
    expected = (plain - plain[counted].mean()) / (plain[counted].std(ddof=1) + 1e-8)
    np.testing.assert_allclose(
        np.asarray(made(normalise_advantage=True).samples(batch).advantage)[counted],
        expected[counted],
        atol=1e-5,
    )


def test_minibatches_deal_out_every_environment_once_per_epoch():
    epochs, parts, n_envs = 3, 2, 4
    ppo = made(epochs=epochs, minibatches=parts, network="gru").ppo
    mark = jnp.broadcast_to(jnp.arange(n_envs)[:, None], (T, n_envs, N))
    observations = jax.tree.map(jnp.asarray, random_views(np.random.default_rng(0), T, n_envs))
    samples = Minibatch(observations, mark, mark, mark[..., 0], mark, mark, mark >= 0)
    hidden_state, dealt = ppo._minibatches(
        jax.random.key(0), jnp.broadcast_to(mark[0][..., None], (n_envs, N, 8)), samples
    )
    assert dealt.observation.agents_view.shape == (epochs * parts, T, n_envs // parts, N, 4)
    for epoch in np.split(np.asarray(dealt.advantage), epochs):
        np.testing.assert_array_equal(np.sort(epoch[:, 0, :, 0].ravel()), np.arange(n_envs))
    # The memory goes with its environment.
    np.testing.assert_array_equal(hidden_state[..., 0], dealt.advantage[:, 0])


def test_one_iteration_is_four_full_batch_steps_of_adam():
    batch, _ = padded_episodes(np.random.default_rng(0))
    run = made()
    ppo, state, found = run.ppo, run.state, run.samples(batch)
    (after, _), _ = run.learn(batch)
    optimiser = optax.chain(
        optax.clip_by_global_norm(10.0), optax.adam(5e-4, b1=0.9, b2=0.999, eps=1e-8)
    )

    @partial(jax.jit, static_argnames="name")
    def step(part, opt_state, name):
        def loss(part):
            scale = 1 / found.mask.sum()
            return ppo.loss({**state.params, name: part}, batch.hidden_state, found, scale)[0]

        updates, opt_state = optimiser.update(jax.grad(loss)(part), opt_state)
        return optax.apply_updates(part, updates), opt_state

    for name in ("actor", "critic"):
        part = state.params[name]
        opt_state = optimiser.init(part)
        for _ in range(4):
            part, opt_state = step(part, opt_state, name)
        for new, expected in zip(*map(jax.tree.leaves, (after.params[name], part)), strict=True):
            np.testing.assert_allclose(new, expected, atol=1e-5)


@pytest.mark.parametrize(("trained", "rate"), [(0, 1.0), (75, 0.25), (200, 0.0)])
def test_a_falling_learning_rate_is_in_proportion_to_the_steps_left(trained, rate):
    """Of 100 steps; extended runs may have had more. One epoch, so that there is one gradient."""
    batch, _ = padded_episodes(np.random.default_rng(0))

    def change(anneal: bool, n_trained: int) -> np.ndarray:
        learner = PPOConfig(hidden=8, epochs=1, anneal_lr=anneal)
        credit = CreditConfig()
        config = TrainConfig(
            "by hand", method="ippo-local", learner=learner, credit=credit, steps=100
        )
        ppo = PPO(config, Unplayed(SPEC), Varying.of(config))
        state = jax.jit(ppo.init)(jax.random.key(0))
        if anneal:
            state.opt_state["steps"] = jnp.int32(n_trained)
        ones = jnp.ones((T, B, N))
        after, _ = jax.jit(ppo.update)(
            state, batch, Credit(ones, ones, ones), jax.random.key(1), jnp.bool_(True)
        )
        if anneal:
            assert after.opt_state["steps"] == n_trained + batch.valid.sum()
        moved = jax.tree.map(np.subtract, after.params, state.params)
        return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(moved)])

    np.testing.assert_allclose(change(True, trained), rate * change(False, 0), atol=1e-6)


@pytest.mark.parametrize("greedy", [True, False])
def test_unavailable_actions_are_never_taken(greedy):
    ppo, state, n_envs = made().ppo, made().state, 2000
    observation = random_views(np.random.default_rng(0), n_envs)
    observation.action_mask[:, 0, 1] = observation.action_mask[:, 1, :2] = False
    act = jax.jit(ppo.act, static_argnames="greedy")
    action, _, _ = act(
        state.params,
        jax.random.key(0),
        observation,
        ppo.policy.init_hidden_state(n_envs),
        np.ones(n_envs, bool),
        greedy=greedy,
    )
    assert np.take_along_axis(observation.action_mask, np.asarray(action)[..., None], axis=-1).all()
    if not greedy:
        np.testing.assert_array_equal(np.unique(action[:, 0]), [0, 2])


@pytest.mark.parametrize(("network", "reset"), [("fc", False), ("gru", False), ("gru", True)])
def test_the_learner_finds_the_log_probabilities_that_were_recorded_in_play(network, reset):
    env = Gift(horizon=4, stop=0.3)
    config = TrainConfig(
        "gift",
        method="ippo-local",
        learner=PPOConfig(hidden=8, network=network),
        credit=CreditConfig(),
    )
    ppo = PPO(config, env, Varying.of(config))

    @jax.jit
    def rollout_state(key):
        init_key, start_key, first_key, play_key = jax.random.split(key, 4)
        state = ppo.init(init_key)
        params = state.params
        act = lambda *inputs: ppo.act(params, *inputs)  # noqa: E731
        start = reset_envs(env, start_key, ppo.policy.init_hidden_state(B), B)
        # The second window starts in the middle of episodes, with memories of them.
        middle = collect(env, act, start, first_key, 2, frozenset(), reset)[0] if reset else start
        batch = collect(env, act, middle, play_key, 9 if reset else 4, frozenset(), reset)[1]
        return (
            batch,
            ppo.policy.log_probs(
                params["actor"], batch.hidden_state, batch.observation, batch.is_first
            )[1],
            params,
            ppo.probs(state, batch),
        )

    batch, log_probs, params, probs = rollout_state(jax.random.key(3))
    np.testing.assert_allclose(probs, np.exp(log_probs), rtol=1e-5)
    batched_index = np.take_along_axis(
        np.asarray(log_probs), np.asarray(batch.action)[..., None], axis=-1
    )[..., 0]
    np.testing.assert_allclose(batched_index, batch.log_prob, atol=1e-5)
    if reset:
        # A fresh memory at every start: the step alone gives the same.
        is_first = np.asarray(batch.is_first)
        assert is_first[1:].any()
        assert not is_first.all(axis=0).any()
        alone = jax.tree.map(lambda leaf: np.asarray(leaf)[is_first][None], batch.observation)
        found = ppo.policy.log_probs(
            params["actor"],
            ppo.policy.init_hidden_state(is_first.sum()),
            alone,
            np.ones((1, is_first.sum()), bool),
        )[1]
        np.testing.assert_allclose(np.asarray(log_probs)[is_first], found[0], atol=1e-5)


def test_the_policys_probabilities_add_to_one_and_leave_out_unavailable_actions():
    batch, _ = padded_episodes(np.random.default_rng(0))
    batch.observation.action_mask[..., 0, 1] = False
    run = made()
    probs = np.asarray(jax.jit(run.ppo.probs)(run.state, batch))
    np.testing.assert_allclose(probs.sum(axis=-1), 1, rtol=1e-5)
    np.testing.assert_array_equal(probs > 0, batch.observation.action_mask)


def test_values_in_one_pass_are_those_of_views_and_successors():
    batch, _ = padded_episodes(np.random.default_rng(0))
    run = made()
    last = jax.tree.map(lambda leaf: leaf[-1], batch.next_observation)
    values = jax.jit(run.ppo.values)
    separate, together = (
        values(run.state, batch),
        values(run.state, batch._replace(last_observation=last)),
    )
    for apart, joint in zip(separate, together, strict=True):
        np.testing.assert_allclose(apart, joint, rtol=1e-5)


def test_a_seed_that_has_had_its_steps_learns_nothing():
    batch, _ = padded_episodes(np.random.default_rng(0))
    run = made()
    ((frozen, _), _), ((learned, _), _) = (run.learn(batch, None, on) for on in (False, True))
    jax.tree.map(np.testing.assert_array_equal, frozen, run.state)
    for new, old in zip(*map(jax.tree.leaves, (learned.params, run.state.params)), strict=True):
        assert not np.array_equal(new, old)
