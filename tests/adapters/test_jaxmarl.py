"""JaxMARL environments through the adapter against JaxMARL's own stepping, and ours in JaxMARL's
wrappers."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dgmarl
from dgmarl import trust
from dgmarl.envs.adapters import ADAPTERS, to_jaxmarl
from dgmarl.envs.base import random_actions
from dgmarl.envs.checker import check_env
from dgmarl.envs.registry import make_env, name_of
from dgmarl.errors import UsageError
from dgmarl.graphs.interventional import InterventionalSource, intervene_rollout

KEY = jax.random.key(0)
SPREAD = "jaxmarl:MPE_simple_spread_v3"


def play_both(env, length, key=KEY):
    """Random play through the adapter, and the same actions and keys in JaxMARL's `step_env`."""

    @jax.jit
    def play(key):
        state, observation = env.reset(key)
        names, (views, inner) = env.env.agents, env.env.reset(key)

        def one_step(carry, key):
            state, observation, inner = carry
            action = random_actions(key, observation)
            state, observation, outcome = env.step(key, state, action)
            actions = dict(zip(names, action, strict=True))
            views, inner, rewards, dones, _ = env.env.step_env(key, inner, actions)
            theirs = (views, [rewards[name] for name in names], dones, inner)
            return (state, observation, inner), (observation, outcome, theirs)

        start = (state, observation, inner)
        return (observation, views), jax.lax.scan(one_step, start, jax.random.split(key, length))[1]

    return jax.tree.map(np.asarray, play(key))


def test_rewards_observations_and_the_time_limit_are_jaxmarls():
    env = make_env(SPREAD)
    (first, views), (observation, outcome, (after, rewards, dones, _)) = play_both(env, 26)
    for i, name in enumerate(env.env.agents):
        np.testing.assert_array_equal(first.agents_view[i], views[name])
        np.testing.assert_array_equal(observation.agents_view[:, i], after[name])
        np.testing.assert_array_equal(outcome.reward[:, i], rewards[i])
    together = observation.agents_view.reshape(26, -1)
    np.testing.assert_array_equal(observation.global_state, together)
    assert observation.alive.all()  # also after the last step, from which the learner bootstraps
    # JaxMARL compares its counter before increasing it: max_steps = 25 are 26 steps.
    np.testing.assert_array_equal(dones["__all__"], np.arange(26) == 25)
    np.testing.assert_array_equal(outcome.truncated, dones["__all__"])
    assert not outcome.terminated.any()
    assert env.spec.horizon == 26


def test_a_shorter_horizon_truncates():
    env = make_env(SPREAD, horizon=2)
    state, _ = env.reset(KEY)
    ended = []
    for _ in range(2):
        state, _, outcome = env.step(KEY, state, jnp.zeros(3, jnp.int32))
        ended.append((bool(outcome.terminated), bool(outcome.truncated)))
    assert ended == [(False, False), (False, True)]


def test_agents_of_different_sizes_are_padded_and_masked():
    env = make_env("jaxmarl:MPE_simple_speaker_listener_v4")
    assert [finding for finding in check_env(env) if finding.kind == "violation"] == []
    _, observation = env.reset(KEY)
    assert env.env.agents == ["speaker_0", "listener_0"]
    assert observation.agents_view.shape == (2, 11)
    assert not observation.agents_view[0, 3:].any()  # the speaker sees three numbers
    np.testing.assert_array_equal(observation.action_mask.sum(axis=1), [3, 5])


@pytest.fixture(scope="module")
def battle():
    """SMAX, two against two in a narrow field, to its end."""
    env = make_env("jaxmarl:HeuristicEnemySMAX", num_allies=2, num_enemies=2, map_width=16)
    return env, play_both(env, 100)[1]


def test_dead_agents_of_smax_are_dead_and_can_only_stop(battle):
    env, (observation, outcome, (after, rewards, dones, inner)) = battle
    first = int(np.argmax(dones["__all__"])) + 1
    alive = inner.state.unit_alive[:first, :2]
    assert 0 < alive.sum() < alive.size
    within = first - 1  # after the end nobody reads who is alive
    np.testing.assert_array_equal(observation.alive[:within], alive[:within])
    mask = observation.action_mask[:within]
    np.testing.assert_array_equal(mask.sum(axis=-1) == 1, ~alive[:within])
    paid = np.stack(rewards, axis=1)[:first]
    np.testing.assert_allclose(outcome.reward[:first], paid, rtol=1e-5, atol=1e-6)
    world = after["world_state"][:first]
    np.testing.assert_allclose(observation.global_state[:first], world, rtol=1e-5, atol=1e-6)
    assert not env.spec.state_is_obs


def test_a_battle_that_is_over_is_terminated(battle):
    _, (_, outcome, (_, _, dones, inner)) = battle
    end = int(np.argmax(dones["__all__"]))
    alive = inner.state.unit_alive[end]
    assert end < 99
    assert not (alive[:2].any() and alive[2:].any())
    assert outcome.terminated[end]
    assert not outcome.truncated[: end + 1].any()
    assert outcome.info["battle_won"][end] == (alive[:2].any() and not alive[2:].any())


def test_maps_of_smax_have_their_names():
    env = make_env("jaxmarl:2s3z")
    assert (env.spec.n_agents, env.spec.n_actions, env.spec.horizon) == (5, 10, 101)
    assert name_of(env) == "jaxmarl:2s3z"


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("MPE_simple_spred_v3", {}, "did you mean MPE_simple_spread_v3?"),
        ("MPE_simple_spread_v3", {"action_type": "Continuous"}, "learns discrete actions"),
        ("MPE_simple_spread_v3", {"horizon": 27}, "from 1 to 26"),
        ("MPE_simple_spread_v3", {"local_state": [0, 18]}, "columns of the observation"),
        ("storm", {}, "one observation per agent name"),
        ("coin_game", {}, "no step limit of its own"),
        ("overcooked", {"layout": "cramped_rom"}, "did you mean cramped_room?"),
        ("ant_4x2", {}, "requires brax"),
    ],
)
def test_what_cannot_be_used_is_refused_in_a_sentence(name, options, words):
    with pytest.raises(UsageError, match=r"jaxmarl|JaxMARL|local_state|layout") as refusal:
        make_env(f"jaxmarl:{name}", **options)
    assert words in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_an_absent_package_is_named_with_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "jaxmarl", None)
    monkeypatch.delitem(sys.modules, ADAPTERS["jaxmarl"], raising=False)
    with pytest.raises(UsageError, match=r"jaxmarl is not installed: .*dgmarl\[adapters\]"):
        make_env(SPREAD)


def test_a_name_of_the_library_needs_no_trust():
    """It chooses among JaxMARL's environments; what follows `pettingzoo:` is imported."""
    assert trust.code_names(env=SPREAD) == trust.code_names(env="jumanji:Connector-v3") == []
    assert make_env(SPREAD, trust=False).spec.n_agents == 3
    with pytest.raises(UsageError, match="--trust"):
        make_env("pettingzoo:my_pkg.my_env", trust=False)


def spread_out(env):
    """A first state of three agents in different corners."""
    state, _ = env.reset(KEY)
    place = state.inner.p_pos.at[:3].set(jnp.array([[-2.0, -2.0], [2.0, 2.0], [-2.0, 2.0]]))
    return state._replace(inner=state.inner.replace(p_pos=place))


def test_interventional_graphs_compare_the_given_local_state():
    """An agent moves itself; its second place is seen by all. (The first follows from its speed
    before the action.)"""

    def graph(**options):
        env = make_env(SPREAD, **options)
        rest = jnp.zeros((2, 3), jnp.int32)
        keys = jax.random.split(KEY, 2)
        found = jax.jit(lambda: intervene_rollout(env, spread_out(env), keys, rest))()
        return np.asarray(found.action_graph)

    np.testing.assert_array_equal(graph(local_state=[0, 1, 2, 3]), np.eye(3, dtype=bool))
    assert graph().all()


def test_a_function_may_give_the_local_state():
    env = make_env(SPREAD, local_state=lambda inner: inner.p_pos[:3])
    state, _ = env.reset(KEY)
    np.testing.assert_array_equal(env.local_state(state), state.inner.p_pos[:3])


def test_who_compares_observations_is_warned():
    source, offering = InterventionalSource(), make_env(SPREAD, local_state=[0, 1, 2, 3])
    source.init(KEY, offering)
    with pytest.warns(UserWarning, match=r"has no local_state.*env_options\.local_state"):
        source.init(KEY, make_env(SPREAD))


def test_a_subclass_may_define_the_local_state():
    from dgmarl.envs.adapters.jaxmarl import JaxMARL

    class Own(JaxMARL):
        def local_state(self, state):
            return state.inner.p_pos[:3]

    env = Own(make_env(SPREAD).env)
    assert env.spec.name == "jaxmarl:SimpleSpreadMPE"
    assert env.offers("local_state")
    assert not make_env(SPREAD).offers("local_state")


def test_our_environment_plays_in_jaxmarls_wrapper():
    """Rewards, endings and automatic resets as a training script of JaxMARL sees them."""
    from jaxmarl.wrappers.baselines import LogWrapper

    ours = make_env("star-spread/3", horizon=4, noise=0)
    env = LogWrapper(to_jaxmarl(ours))

    @jax.jit
    def play(key):
        observations, state = env.reset(key)

        def one_step(state, key):
            actions = dict.fromkeys(env.agents, jnp.int32(1))
            observations, state, rewards, dones, info = env.step(key, state, actions)
            return state, (observations, rewards, dones, info)

        return observations, jax.lax.scan(one_step, state, jax.random.split(key, 9))[1]

    first, (_, rewards, dones, info) = jax.tree.map(np.asarray, play(KEY))
    assert set(first) == {"agent_0", "agent_1", "agent_2", "world_state"}
    np.testing.assert_array_equal(np.flatnonzero(dones["__all__"]), [3, 7])
    paid = np.stack([rewards[agent] for agent in env.agents], axis=1)
    np.testing.assert_allclose(info["returned_episode_returns"][3], paid[:4].sum(0), rtol=1e-5)
    np.testing.assert_allclose(info["returned_episode_returns"][7], paid[4:8].sum(0), rtol=1e-5)
    assert info["coverage"].shape == (9, 3)  # scripts reshape info to one number per agent
    _, observation = ours.reset(KEY)
    np.testing.assert_array_equal(first["agent_1"], observation.agents_view[1])
    assert env.get_avail_actions(env._env.reset(KEY)[1])["agent_0"].shape == (5,)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["2s3z", "MPE_simple_spread_v3", "switch_riddle"])
def test_environments_of_jaxmarl_keep_the_contract(name):
    findings = check_env(make_env(f"jaxmarl:{name}"))
    assert [finding.sentence for finding in findings if finding.kind == "violation"] == []
    team = any("graph credit equals team credit" in finding.sentence for finding in findings)
    assert team == (name != "MPE_simple_spread_v3")


@pytest.mark.slow
def test_a_run_through_the_door_is_a_run_folder(tmp_path):
    options = {"local_state": [0, 1, 2, 3]}
    small = {"n_envs": 4, "learner.hidden": 8, "evaluation.episodes": 4}
    done = dgmarl.train(
        SPREAD,
        "mappo-dg",
        graph="interventional",
        env_options=options,
        steps=1000,
        seeds=2,
        out=tmp_path / "run",
        overrides=small,
    )
    assert np.isfinite(done.returns).all()
    run = dgmarl.load(tmp_path / "run")  # a name of JaxMARL asks for no trust
    assert run.env.spec.name == SPREAD
    again = dgmarl.resume(tmp_path / "run", steps=2000)
    assert again.steps[0, -1] >= 2000


@pytest.mark.slow
def test_a_loop_as_in_jaxmarls_ippo_script_runs_on_our_battles():
    """Vectorised LogWrapper, agents stacked, info reshaped to one number per actor, as in
    baselines/IPPO/ippo_ff_mpe.py, which is not part of JaxMARL's package."""
    from jaxmarl.wrappers.baselines import SMAXLogWrapper

    env = SMAXLogWrapper(to_jaxmarl(make_env("smaclite/2s3z")))
    n_envs, n_actors = 3, 3 * env.num_agents

    def one_step(carry, key):
        state, observations = carry
        stacked = jnp.stack([observations[agent] for agent in env.agents])
        available = jax.vmap(env.get_avail_actions)(state.env_state)
        mask = jnp.stack([available[agent] for agent in env.agents])
        assert stacked.reshape(n_actors, -1).shape[1] == env.observation_space("agent_0").shape[0]
        action = jax.random.categorical(key, jnp.where(mask, 0.0, -1e9))
        actions = {agent: action[i] for i, agent in enumerate(env.agents)}
        keys = jax.random.split(key, n_envs)
        observations, state, rewards, dones, info = jax.vmap(env.step)(keys, state, actions)
        info = jax.tree.map(lambda leaf: leaf.reshape(n_actors), info)
        return (state, observations), (rewards["agent_0"], dones["__all__"], info)

    @jax.jit
    def play(key):
        observations, state = jax.vmap(env.reset)(jax.random.split(key, n_envs))
        return jax.lax.scan(one_step, (state, observations), jax.random.split(key, 150))[1]

    rewards, dones, info = jax.tree.map(np.asarray, play(KEY))
    assert np.isfinite(rewards).all()
    assert dones.any(axis=0).all()  # battles end, and new ones follow
    assert info["returned_episode_lengths"].max() <= make_env("smaclite/2s3z").spec.horizon
