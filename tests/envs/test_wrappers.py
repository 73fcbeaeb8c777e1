"""Wrappers keep the contract and pass on what they do not change."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dgmarl import Environment, UsageError, api, cli, make_env
from dgmarl.cli.train import Train
from dgmarl.config.resolve import resolve
from dgmarl.envs.base import random_actions
from dgmarl.envs.checker import check_env, play_randomly
from dgmarl.envs.junction import Junction
from dgmarl.envs.registry import with_wrapped_preset, wrapped_family
from dgmarl.envs.wrappers import (
    AgentSubset,
    NormalisedObservations,
    ShapedRewards,
    TimeLimit,
    Wrapper,
)
from tests.tiny import SMALL, Gift

KEY = jax.random.key(0)
FILE = """
from dgmarl import Environment, make_env
from dgmarl.envs.wrappers import TimeLimit, Wrapper

def short(steps: int = 7) -> Environment:
    return TimeLimit(make_env("lbf/5x5-2p-1f"), steps)

def undeclared(steps: int = 7):
    raise AssertionError("called")

class Within(Wrapper):
    def __init__(self):
        super().__init__(make_env("star-spread/3"))
"""


@pytest.fixture
def file(tmp_path):
    (tmp_path / "mine.py").write_text(FILE)
    return tmp_path / "mine.py"


def all_of_them() -> Environment:
    """Every wrapper around one environment."""
    shaped = ShapedRewards(
        Junction(junctions=1), lambda before, action, after, reward: 0.5 * reward
    )
    some = AgentSubset(NormalisedObservations.measured(shaped), (1, 3, 0))
    return TimeLimit(some, 9)


def test_nested_wrappers_keep_the_contract():
    assert check_env(all_of_them()) == []


def test_what_is_not_changed_passes_through():
    spread = make_env("star-spread/3")
    wrapped = TimeLimit(Wrapper(spread), 5)
    inner, view = spread.reset(KEY)
    state, same = wrapped.reset(KEY)
    jax.tree.map(np.testing.assert_array_equal, view, same)
    for method in ("oracle_graph", "oracle_reward_graph", "local_state"):
        passed, own = getattr(wrapped, method)(state), getattr(spread, method)(inner)
        np.testing.assert_array_equal(passed, own)
    graph = jnp.ones((3, 3), bool)
    assert wrapped.draw(state, graph) == spread.draw(inner, graph)
    assert wrapped.offers("oracle_reward_graph")
    assert not Wrapper(Junction()).offers("draw")
    assert wrapped.spec.horizon == 5


def test_a_subset_has_the_graph_and_the_rewards_of_its_agents():
    env = Junction(junctions=1)
    some = AgentSubset(env, (3, 0), others=lambda key, observation: jnp.ones(4, int))
    state, observation = some.reset(KEY)
    np.testing.assert_array_equal(
        some.oracle_graph(state), env.oracle_graph(state.inner)[jnp.ix_(np.r_[3, 0], np.r_[3, 0])]
    )
    np.testing.assert_array_equal(
        observation.agents_view, state.observation.agents_view[np.r_[3, 0]]
    )
    after, _, outcome = some.step(KEY, state, jnp.array([0, 1]))
    whole, _, expected = env.step(KEY, state.inner, jnp.array([1, 1, 1, 0]))
    np.testing.assert_array_equal(after.inner.cell, whole.cell)
    np.testing.assert_array_equal(outcome.reward, expected.reward[jnp.array([3, 0])])


def test_measured_views_have_mean_0_and_standard_deviation_1():
    env = NormalisedObservations.measured(Junction(junctions=1), seed=1)
    played = play_randomly(env, jax.random.key(2))
    counts = np.asarray(played.running)[..., None] & np.asarray(played.observation.alive)
    view = np.asarray(played.observation.agents_view)[counts]
    assert np.abs(view.mean(axis=0)).max() < 0.3
    assert np.abs(view.std(axis=0) - 1).max() < 0.3
    plain = env.env.reset(KEY)[1].agents_view
    np.testing.assert_allclose(env.reset(KEY)[1].agents_view * env.std + env.mean, plain, atol=1e-5)


def test_rewards_are_shaped_with_the_states_of_the_environment():
    env = ShapedRewards(
        Junction(junctions=1), lambda before, action, after, reward: after.cell - before.cell + 0.0
    )
    state, observation = env.reset(KEY)
    action = random_actions(KEY, observation)
    after, _, outcome = env.step(KEY, state, action)
    np.testing.assert_array_equal(outcome.reward, after.cell - state.cell)
    assert env.offers("oracle_graph")
    assert not ShapedRewards(make_env("matrix/climbing"), env.shape).offers("oracle_reward_graph")


@pytest.mark.parametrize("agents", [(), (0, 0), (0, 4), (-1,)])
def test_a_bad_subset_is_refused(agents):
    with pytest.raises(UsageError, match="distinct indices from 0 to 3"):
        AgentSubset(Junction(junctions=1), agents)


def test_other_bad_arguments_are_refused():
    host = Junction()
    host.on_host = True
    with pytest.raises(UsageError, match="use those of its own library"):
        Wrapper(host)
    with pytest.raises(UsageError, match="between 1 and 16"):
        TimeLimit(Junction(), 17)
    with pytest.raises(UsageError, match="std must be above 0"):
        NormalisedObservations(Junction(), jnp.zeros(7), jnp.zeros(7))


def test_a_function_of_a_file_makes_an_environment(file):
    assert make_env(f"{file}:short", steps=6).spec.horizon == 6
    with pytest.raises(UsageError, match="-> Environment"):
        make_env(f"{file}:undeclared")


def test_the_preset_of_the_family_within_is_taken(file):
    def numbers(env: str, **values):
        return with_wrapped_preset(
            lambda like: resolve(env, "mappo-dg", preset="tuned", like=like, **values)
        )

    spread, within = numbers("star-spread/3"), numbers(f"{file}:Within")
    assert (within.learner, within.credit, within.n_envs) == (
        spread.learner,
        spread.credit,
        spread.n_envs,
    )
    short = numbers(f"{file}:short", env_options={"steps": 6})
    assert (short.learner, short.n_envs) == (numbers("lbf/5x5-2p-1f").learner, 10)
    assert numbers(f"{file}:missing").n_envs == 0
    typed = Train.from_arguments([f"{file}:Within", "--method", "mappo-dg"]).config
    assert typed == within


def test_only_wrappers_of_a_family_have_its_preset():
    assert wrapped_family(TimeLimit(Wrapper(make_env("lbf/5x5-2p-1f")), 3)) == "lbf/5x5-2p-1f"
    assert wrapped_family(TimeLimit(Junction(), 3)) == ""
    assert wrapped_family(make_env("lbf/5x5-2p-1f")) == ""
    assert wrapped_family(Wrapper.__new__(Wrapper)) == ""


@pytest.mark.slow
def test_train_says_whose_numbers_it_took(file, tmp_path, capsys):
    arguments = ["train", f"{file}:Within", "--method", "ippo-local", "--out", f"{tmp_path}/run"]
    with pytest.raises(SystemExit) as stop:
        cli.main([*arguments, "--steps", "600", "--learner.hidden", "8", "--quiet"])
    assert stop.value.code == 0
    said = "Within used the hyperparameters of star-spread/3 in preset tuned, with 10 environments"
    assert said in capsys.readouterr().out


class BadOracle(Gift):
    def oracle_graph(self, state):
        return jnp.zeros((self.spec.n_agents,) * 2, bool)


def test_the_oracle_graph_of_a_wrapped_environment_is_validated():
    with pytest.raises(UsageError, match="self-loop"):
        api.train(TimeLimit(BadOracle(), 2), "ippo-dg", overrides=SMALL, seeds=1, steps=40)
