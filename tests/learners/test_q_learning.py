"""The Q-learner on hand-made episodes: targets, padding, target networks, exploration; and games
with known outcomes."""

from dataclasses import replace
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dgmarl import api
from dgmarl.config.methods import METHODS
from dgmarl.config.parts import CreditConfig, QConfig, RewardScaling
from dgmarl.config.schema import TrainConfig
from dgmarl.config.varying import Varying
from dgmarl.credit.base import Credit
from dgmarl.envs.base import Environment, EnvSpec, Observation
from dgmarl.learners import q_learning
from dgmarl.learners.q_learning import QLearner
from dgmarl.learners.replay import Episodes, Sequences, add, in_slots, one_per_row, sample
from dgmarl.rollout import collect, reset_envs
from tests.tiny import Gift, Unplayed

T, B, N, A, D = 6, 3, 2, 3, 5
SPEC = EnvSpec("by hand", n_agents=N, n_actions=A, obs_size=4, state_size=D, horizon=T)
GAMMA = 0.9
MIXED = {"mixer": "qmix", "mixer_embedding": 4, "mixer_hidden": 4}


def made(
    env: Environment, n_envs: int, own: QConfig, scaling: RewardScaling = "standardise"
) -> QLearner:
    """The learner as a run has it."""
    names = (name for name, one in METHODS.items() if one.allowed.get("mixer") == (own.mixer,))
    rule = CreditConfig(scaling)
    config = TrainConfig("by hand", method=next(names), n_envs=n_envs, learner=own, credit=rule)
    return QLearner(config, env, Varying.of(config))


@cache
def learner(scaling: RewardScaling = "standardise", **options) -> QLearner:
    own = QConfig(**{"hidden": 8, "gamma": GAMMA, "batch_size": B, "buffer_size": 8, **options})
    return made(Unplayed(SPEC), 4, own, scaling)


@cache
def jitted(q: QLearner):
    """State at the start, and one gradient step, compiled once."""
    return jax.jit(q.init)(jax.random.key(0)), jax.jit(
        lambda state, played, count: q.updates(
            state, stored(played), jnp.arange(len(played.length))[None], count
        )
    )


def stored(played: Episodes) -> Episodes:
    """Episodes made with the time first as they are in the buffer."""
    return jax.tree.map(lambda leaf: leaf if leaf.ndim == 1 else jnp.swapaxes(leaf, 0, 1), played)


def in_rows(played: Episodes) -> Sequences:
    """Episodes made with the time first in a row each."""
    n_episodes = len(played.length)
    slots = one_per_row(n_episodes, T)
    return in_slots(stored(played), jnp.arange(n_episodes), jnp.asarray(played.reward), slots)


def rewards(*batches: Episodes) -> tuple[jax.Array, jax.Array]:
    """Rewards and lengths of the batches of an iteration."""
    return jnp.stack([each.reward for each in batches]), jnp.stack(
        [each.length for each in batches]
    )


def episodes(n_rewards: int = N) -> Episodes:
    """Three episodes: one ends in a terminal after 3 of 6 steps, one times out, one ends in a
    terminal at the last step."""
    rng = np.random.default_rng(0)
    length = np.array([3, T, T])
    reward = rng.normal(size=(T, B, n_rewards)).astype(np.float32)
    reward[np.arange(T)[:, None] >= length] = 0
    action_mask = rng.random((T + 1, B, N, A)) < 0.7
    action_mask[..., 0] = True
    return Episodes(
        agents_view=rng.normal(size=(T + 1, B, N, 4)).astype(np.float32),
        action_mask=action_mask,
        state=rng.normal(size=(T + 1, B, D)).astype(np.float32),
        action=rng.integers(0, A, (T, B, N)).astype(np.int8),
        reward=reward,
        length=length,
        terminated=np.array([True, False, True]),
    )


def masks(played: Episodes) -> tuple[np.ndarray, np.ndarray]:
    """The specification's m [T + 1, B] and terminal [T, B] of its section 1."""
    steps = np.arange(T + 1)[:, None]
    terminal = (steps[:-1] == played.length - 1) & played.terminated
    filled = steps <= played.length
    return filled * np.concatenate([np.ones((1, B)), 1 - terminal]), terminal


@pytest.mark.parametrize("lambda_", [0.0, 0.6, 1.0])
def test_targets_are_those_of_the_specification(lambda_):
    """G_T = x_T (1 - sum_t terminal_t)
    G_t = lambda gamma G_{t+1} + m_t (r_t + (1 - lambda) gamma x_{t+1} (1 - terminal_t))
    """
    played, x = episodes(), np.random.default_rng(1).normal(size=(T + 1, B, N)).astype(np.float32)
    m, terminal = masks(played)
    expected, tail = np.zeros((T, B, N)), x[T] * (1 - terminal.sum(axis=0))[:, None]
    for t in reversed(range(T)):
        now = played.reward[t] + (1 - lambda_) * GAMMA * x[t + 1] * (1 - terminal[t])[:, None]
        expected[t] = tail = lambda_ * GAMMA * tail + m[t][:, None] * now
    found = np.asarray(jax.jit(learner(lambda_=lambda_).targets)(x[1:], in_rows(played)))
    counted = m[:T] == 1
    np.testing.assert_allclose(found[counted], expected[counted], atol=1e-5)


def test_td_lambda_is_the_weighted_sum_of_n_step_returns():
    lambda_, played = 0.6, episodes()
    x = np.random.default_rng(1).normal(size=(T + 1, B, N)).astype(np.float32)
    found = np.asarray(learner(lambda_=lambda_).targets(x[1:], in_rows(played)))
    for b in range(B):
        end = int(played.length[b])
        for t in range(end):
            returns = []
            for n in range(1, end - t + 1):
                rewards = sum(GAMMA**k * played.reward[t + k, b] for k in range(n))
                over = t + n == end and played.terminated[b]
                returns.append(rewards + (0 if over else GAMMA**n * x[t + n, b]))
            weights = [(1 - lambda_) * lambda_**k for k in range(len(returns))]
            weights[-1] = lambda_ ** (len(returns) - 1)
            np.testing.assert_allclose(
                found[t, b], sum(w * g for w, g in zip(weights, returns, strict=True)), atol=1e-5
            )


def test_lambda_0_takes_one_step_and_looks_no_further():
    played, x = episodes(), np.random.default_rng(1).normal(size=(T + 1, B, N)).astype(np.float32)
    _, terminal = masks(played)
    found = learner().targets(x[1:], in_rows(played))
    np.testing.assert_allclose(
        found, played.reward + GAMMA * x[1:] * (1 - terminal)[..., None], atol=1e-5
    )
    nearly = learner(lambda_=1e-6).targets(x[1:], in_rows(played))
    counted = np.arange(T)[:, None] < played.length
    np.testing.assert_allclose(np.asarray(nearly)[counted], np.asarray(found)[counted], atol=1e-4)


def test_the_online_network_chooses_and_the_target_network_values():
    """The loss of IQL, entry by entry."""
    q, played = learner(), episodes()
    params, target = (jax.jit(q.init)(jax.random.key(k)).params for k in (0, 1))
    values, old = (np.asarray(q.action_values(p, in_rows(played))) for p in (params, target))
    chosen = np.where(played.action_mask, values, -np.inf).argmax(axis=-1)
    following = np.take_along_axis(old, chosen[..., None], axis=-1)[..., 0]
    assert (chosen != np.where(played.action_mask, old, -np.inf).argmax(axis=-1)).any()
    _, terminal = masks(played)
    y = played.reward + GAMMA * following[1:] * (1 - terminal)[..., None]
    error = (
        np.take_along_axis(values[:-1], played.action[..., None].astype(int), axis=-1)[..., 0] - y
    )
    counted = np.arange(T)[:, None] < played.length
    loss, metrics = jax.jit(q.loss)((params, target), in_rows(played))
    np.testing.assert_allclose(loss, (error[counted] ** 2).mean(), rtol=1e-5)
    np.testing.assert_allclose(metrics["td_error"], np.abs(error[counted]).mean(), rtol=1e-5)
    halved = jax.jit(learner(loss_weight=0.5).loss)((params, target), in_rows(played))[0]
    np.testing.assert_allclose(halved, loss / 2, rtol=1e-6)


@pytest.mark.parametrize(
    "options",
    [{"network": "gru", "last_action": True}, {**MIXED, "lambda_": 0.6}, {"mixer": "vdn"}],
)
def test_what_stands_after_the_end_of_an_episode_changes_nothing(options):
    q = learner(**options)
    played = episodes(n_rewards=1 if "mixer" in options else N)
    state, update = jitted(q)
    before = update(state, played, 3)
    after_end = np.arange(T + 1)[:, None] > played.length  # views after the final one
    for array in (played.agents_view, played.state):
        array[after_end] += 1.5
    played.action_mask[after_end] = True
    padding = np.arange(T)[:, None] >= played.length
    played.action[padding] = 0
    # Nothing is bootstrapped from the final view of an episode that was over.
    for array in (played.agents_view, played.state):
        array[played.length[0], 0] += 3.0
        array[played.length[2], 2] += 3.0
    after = update(state, played, 3)
    for new, old in zip(*map(jax.tree.leaves, (after, before)), strict=True):
        np.testing.assert_allclose(new, old, atol=1e-6)
    # A time-out is: its final view counts.
    played.agents_view[T, 1] += 3.0
    moved = update(state, played, 3)
    assert not np.allclose(moved[1]["target"], before[1]["target"], atol=1e-4)


@pytest.mark.parametrize("padding", [True, False])
@pytest.mark.parametrize("mixer", ["none", "vdn"])
def test_rewards_are_standardised_with_padding_up_to_the_longest_episode_or_without(padding, mixer):
    q = learner(mixer=mixer, standardise_padding=padding)
    played = episodes(n_rewards=N if mixer == "none" else 1)
    played = played._replace(length=np.array([3, 5, 4]), reward=5 + played.reward)
    steps = np.arange(T)[:, None]
    played.reward[np.broadcast_to(steps >= played.length, (T, B))] = 0
    counted = np.broadcast_to(steps < 5, (T, B)) if padding else steps < played.length
    seen = played.reward[counted]
    expected = (played.reward - seen.mean(axis=0)) / seen.std(axis=0)
    reward, statistics = q.scaled_reward(jitted(q)[0].statistics, *rewards(played))
    assert statistics.mean.shape == ((N,) if mixer == "none" else ())
    np.testing.assert_allclose(reward[0], expected, rtol=2e-3, atol=2e-3)
    assert float(statistics.seen) == pytest.approx(counted.sum(), abs=0.01)


@pytest.mark.parametrize("mixer", ["none", "vdn"])
def test_scaled_rewards_have_one_statistic_and_are_not_shifted(mixer):
    q, played = learner("scale", mixer=mixer), episodes(n_rewards=N if mixer == "none" else 1)
    reward, statistics = q.scaled_reward(jitted(q)[0].statistics, *rewards(played))
    counted = np.arange(T)[:, None] < played.length
    expected = played.reward / np.sqrt((played.reward[counted] ** 2).mean())
    assert statistics.mean.shape == ()
    np.testing.assert_allclose(reward[0], expected, rtol=2e-3)
    unscaled, same_statistics = learner("none", mixer=mixer).scaled_reward(
        jitted(q)[0].statistics, *rewards(played)
    )
    np.testing.assert_array_equal(unscaled[0], played.reward)
    assert same(same_statistics, jitted(q)[0].statistics)


@pytest.mark.parametrize("scaling", ["standardise", "scale"])
def test_each_batch_is_scaled_with_those_before_it(scaling):
    q, played = learner(scaling), episodes()
    second = played._replace(reward=3 * played.reward, length=np.array([2, 4, 1]))
    found, after = q.scaled_reward(jitted(q)[0].statistics, *rewards(played, second))
    statistics = jitted(q)[0].statistics
    for batch, reward in zip((played, second), found, strict=True):
        expected, statistics = q.scaled_reward(statistics, *rewards(batch))
        np.testing.assert_allclose(reward, expected[0], rtol=1e-5)
    assert same(after, statistics)


def test_a_state_that_is_the_observations_need_not_be_kept():
    spec = EnvSpec("by hand", n_agents=N, n_actions=A, obs_size=4, state_size=4 * N, horizon=T)
    config = QConfig(**MIXED, hidden=8, batch_size=B, buffer_size=8)
    played, found = episodes(n_rewards=1), []
    for state_is_obs, state in ((False, played.agents_view.reshape(T + 1, B, 4 * N)), (True, None)):
        q = made(Unplayed(replace(spec, state_is_obs=state_is_obs)), 4, config)
        start = jax.jit(q.init)(jax.random.key(0))
        assert (start.replay.episodes.state is None) == state_is_obs
        params = start.params
        found.append(jax.jit(q.loss)((params, params), in_rows(played._replace(state=state)))[0])
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize(
    "options",
    [
        {"network": "gru", "last_action": True},
        {**MIXED, "network": "gru", "lambda_": 0.6},
        {"mixer": "qplex", "mixer_heads": 2, "mixer_hidden": 4},
    ],
)
def test_packed_episodes_are_learned_from_as_those_in_rows_of_their_own(monkeypatch, options):
    q, pack = learner(**options), q_learning.pack
    played = episodes(n_rewards=1 if "mixer" in options else N)
    played = played._replace(length=np.array([5, 3, 2]))
    assert pack(jnp.asarray(played.length), n_rows=2, horizon=T)[1]
    state, update = jitted(q)
    together = update(state, played, 3)

    def never_fits(length, **sizes):
        return pack(length, **sizes)[0], jnp.bool_(False)

    monkeypatch.setattr(q_learning, "pack", never_fits)
    apart = jitted.__wrapped__(q)[1](state, played, 3)
    for packed, alone in zip(*map(jax.tree.leaves, (together, apart)), strict=True):
        np.testing.assert_allclose(packed, alone, atol=2e-6)


def same(left, right) -> bool:
    return all(
        np.allclose(new, old) for new, old in zip(*map(jax.tree.leaves, (left, right)), strict=True)
    )


@pytest.mark.parametrize(("unit", "copies"), [("updates", [3, 6]), ("episodes", [2, 4, 6])])
def test_a_hard_target_is_copied_every_so_many_gradient_steps_or_episodes(unit, copies):
    q = learner(target_update_interval=3, target_update_unit=unit)
    state, update = jitted(q)
    found = []
    for k in range(1, 8):
        # Two episodes per step: three or more have passed since the last copy at 4, 8 and 12.
        before, (state, _) = state.target, update(state, episodes(), 2 * k)
        assert int(state.updates) == k
        copied = same(state.target, state.params)
        assert copied or same(state.target, before)
        found += [k] * copied
    assert found == copies


def test_a_soft_target_moves_by_its_share_at_every_step():
    q = learner(tau=0.1)
    state, update = jitted(q)
    after, _ = update(state, episodes(), 3)
    expected = jax.tree.map(lambda old, new: 0.9 * old + 0.1 * new, state.target, after.params)
    assert same(after.target, expected)
    assert not same(after.params, state.params)


def test_epsilon_falls_along_a_line_and_stays():
    q = learner(epsilon_start=0.9, epsilon_end=0.1, epsilon_steps=1000)
    np.testing.assert_allclose(
        [q.epsilon(jnp.int32(step)) for step in (0, 250, 1000, 5000)],
        [0.9, 0.7, 0.1, 0.1],
        atol=1e-6,
    )


def observations(*shape: int) -> Observation:
    rng = np.random.default_rng(0)
    agents_view, state = (
        rng.normal(size=(*shape, *rest)).astype(np.float32) for rest in ((N, 4), (D,))
    )
    return Observation(
        agents_view, state, np.ones((*shape, N, A), bool), np.ones((*shape, N), bool)
    )


def test_random_actions_come_as_often_as_asked_and_only_available_ones_at_all():
    q, n_envs = learner(evaluation_epsilon=0.6), 4000
    state, observation = jitted(q)[0], observations(n_envs)
    observation.action_mask[:, 1, 0] = False
    act = jax.jit(q.act, static_argnames="greedy")

    def rollout_state(key: int, **options) -> np.ndarray:
        inputs = (observation, q.init_hidden_state(n_envs), np.ones(n_envs, bool))
        return np.asarray(act(state.params, jax.random.key(key), *inputs, **options)[0])

    best = rollout_state(0, greedy=True)
    np.testing.assert_array_equal(rollout_state(1, greedy=True), best)
    np.testing.assert_array_equal(rollout_state(1, epsilon=0.0), best)
    for epsilon, action in ((0.6, rollout_state(2)), (0.3, rollout_state(3, epsilon=0.3))):
        # A random action is the best one by chance, too.
        other = (action != best).mean(axis=0)
        np.testing.assert_allclose(other, epsilon * np.array([2 / 3, 1 / 2]), atol=0.03)
        assert (action[:, 1] != 0).all()


@pytest.mark.parametrize(
    "options", [{}, {"network": "gru", "last_action": True}, {"share_parameters": False}]
)
def test_the_learner_finds_the_values_by_which_was_played(options):
    """Greedy play, kept and sampled: the actions taken are the best ones of the values computed in
    one pass."""
    env = Gift(horizon=4, stop=0.3)
    q = made(env, B, QConfig(hidden=8, batch_size=B, buffer_size=B, **options))

    @jax.jit
    def rollout_state(key):
        init_key, start_key, play_key = jax.random.split(key, 3)
        fresh = q.init(init_key)
        params = fresh.params
        act = lambda *inputs: q.act(params, *inputs, greedy=True)  # noqa: E731
        start = reset_envs(env, start_key, q.init_hidden_state(B), B)
        batch = collect(env, act, start, play_key, 4, frozenset(), reset=False)[1]
        ring = add(fresh.replay, batch, batch.reward, jnp.bool_(True))
        chosen, slots = sample(ring, key, 1, B)[0], one_per_row(B, 4)
        kept = in_slots(ring.episodes, chosen, jnp.zeros((4, B, 1)), slots)
        return kept, q.action_values(params, kept)

    kept, values = rollout_state(jax.random.key(2))
    counted, best = np.asarray(kept.valid), np.asarray(values).argmax(axis=-1)
    assert 0 < counted.sum() < 4 * B
    np.testing.assert_array_equal(best[counted], np.asarray(kept.action)[counted])


def test_the_last_action_is_seen_and_forgotten_at_the_start_of_an_episode():
    q = learner(last_action=True)
    state, observation = jitted(q)[0], observations(1)
    hidden_state = q.init_hidden_state(1)
    values = lambda action, is_first: q.act(  # noqa: E731
        state.params,
        jax.random.key(0),
        observation,
        hidden_state._replace(action=jnp.full((1, N), action)),
        np.array([is_first]),
        True,
    )
    seen = lambda action: q._seen(jnp.asarray(observation.agents_view), jnp.full((1, N), action))  # noqa: E731
    np.testing.assert_array_equal(seen(2)[..., 4:], np.broadcast_to([0, 0, 1], (1, N, A)))
    np.testing.assert_array_equal(seen(-1)[..., 4:], 0)
    np.testing.assert_array_equal(values(2, True)[0], values(-1, False)[0])


def test_there_are_as_many_gradient_steps_as_episodes_but_none_before_there_are_enough():
    env = Gift(horizon=4)
    config = QConfig(hidden=4, batch_size=6, buffer_size=20)
    for per_update, expected in ((1, [0, 4, 8]), (2, [0, 2, 4])):
        q = made(env, 4, replace(config, episodes_per_update=per_update))

        @jax.jit
        def iterate(state, key, active, q=q):
            start = reset_envs(env, key, q.init_hidden_state(4), 4)
            batch = collect(
                env, q.behaviour(state, jnp.int32(0)), start, key, 4, frozenset(), reset=False
            )[1]
            return q.update(state, batch, Credit(batch.reward), key, active)

        first = state = jax.jit(q.init)(jax.random.key(0))
        found = []
        for k in range(3):
            state, metrics = iterate(state, jax.random.key(k), True)
            found.append(int(state.updates))
            assert same(state.params, first.params) == (k == 0)
            assert np.isfinite(list(metrics.values())).all()
        assert found == expected
        # A seed that has had its steps neither learns nor keeps what it plays.
        frozen, _ = iterate(state, jax.random.key(3), False)
        jax.tree.map(np.testing.assert_array_equal, frozen, state)


GAMES = {
    "n_envs": 32,
    "learner.episodes_per_update": 32,
    "learner.epsilon_end": 1.0,
    "credit.reward_scaling": "none",
    "learner.learning_rate": 2e-3,
    "learner.hidden": 32,
    "learner.mixer_heads": 10,
    "learner.batch_size": 128,
    "learner.buffer_size": 512,
    "learner.target_update_interval": 50,
    "evaluation.episodes": 1,
    "evaluation.interval": 64_000,
}
"""Every joint action as often: what is learned is what can be represented, whatever play would have
found."""


@pytest.mark.parametrize(
    ("game", "method", "payoff", "steps"),
    [
        ("climbing", "vdn", 5, 32_000),
        pytest.param("climbing", "qmix", 5, 32_000, marks=pytest.mark.slow),
        pytest.param("climbing", "qplex", 11, 128_000, marks=pytest.mark.slow),
        pytest.param("penalty-50", "vdn", 2, 32_000, marks=pytest.mark.slow),
        pytest.param("penalty-50", "qmix", 2, 32_000, marks=pytest.mark.slow),
        pytest.param("two-step", "vdn", 7, 32_000, marks=pytest.mark.slow),
        pytest.param("two-step", "qmix", 8, 48_000, marks=pytest.mark.slow),
    ],
)
def test_matrix_games_end_as_is_known(game, method, payoff, steps):
    """A sum and a monotone mixture settle for the safe action where the best is ringed by
    penalties; QPLEX finds it."""
    result = api.train(f"matrix/{game}", method, seeds=2, steps=steps, overrides=GAMES)
    np.testing.assert_array_equal(result.returns[:, -1, 0], payoff)
