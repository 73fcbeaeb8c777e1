"""A credit rule, a graph source, a learner and an environment family from outside the package: one
file each, nothing else touched."""

from functools import partial

import jax
import numpy as np
import pytest

from dgmarl import api
from dgmarl.config import methods
from dgmarl.config.resolve import resolve
from dgmarl.config.varying import Varying
from dgmarl.envs import registry
from dgmarl.errors import UsageError
from dgmarl.graphs import sources
from dgmarl.runs import playing
from dgmarl.training import Trainer
from tests.outside import my_env, my_learner, my_rule, my_source
from tests.tiny import GIFT

SIZES = {"n_envs": 2, "evaluation.episodes": 3, "evaluation.interval": 20}
PPO_SIZES = {**SIZES, "learner.hidden": 4, "learner.epochs": 1}


@pytest.fixture(autouse=True)
def registered():
    """Known for the length of a test, under names that must be new."""
    tables = (methods.METHODS, sources.SOURCES, registry.FAMILIES)
    before = [dict(table) for table in tables]
    for mine in (my_rule, my_source, my_learner, my_env):
        mine.register()
    yield
    for table, old in zip(tables, before, strict=True):
        table.clear()
        table.update(old)


def check(result, path) -> None:
    """Two evaluations or more, and a folder from which the policy comes back."""
    assert result.steps.shape[1] >= 2
    assert np.isfinite(result.returns).all()
    run = api.load(path)
    jax.tree.map(
        np.testing.assert_array_equal,
        run.params,
        jax.tree.map(lambda leaf: leaf[0], result.state.learner.params),
    )


def test_a_credit_rule(tmp_path):
    options = {"out": tmp_path / "run", "seeds": 1, "steps": 40}
    overrides = {**PPO_SIZES, "credit.share": 0.25}
    result = api.train(GIFT, "ippo-neighbours", overrides=overrides, **options)
    assert result.config.credit == my_rule.NeighbourConfig(share=0.25)
    # The rule's own state and metric: how many batches it has seen.
    np.testing.assert_array_equal(result.state.credit_state, result.state.iteration)
    assert "batches" in result.metrics
    check(result, tmp_path / "run")


def test_a_graph_source(tmp_path):
    options = {"out": tmp_path / "run", "seeds": 1, "steps": 40, "overrides": PPO_SIZES}
    result = api.train("count/5", "ippo-dg", graph="next:1", **options)
    # Of the six pairs of different agents, three have an edge.
    np.testing.assert_allclose(result.metrics["graph_density"], 0.5)
    check(result, tmp_path / "run")


def test_a_learner(tmp_path):
    options = {"out": tmp_path / "run", "seeds": 1, "steps": 40, "overrides": SIZES}
    result = api.train("count/5", "reinforce", **options)
    assert result.config.learner == my_learner.ReinforceConfig()
    fresh = jax.tree.leaves(result.state.best.params)
    assert all(np.isfinite(leaf).all() for leaf in fresh)
    check(result, tmp_path / "run")


def test_an_environment_family(tmp_path):
    options = {"out": tmp_path / "run", "seeds": 1, "steps": 40, "overrides": PPO_SIZES}
    result = api.train("count/5", "ippo-local", **options)
    assert (result.returns <= 15).all()
    check(result, tmp_path / "run")
    assert isinstance(registry.make_env("count/7"), my_env.Count)


class ByProbabilities(my_rule.NeighbourRule):
    """A rule that needs what not every learner gives."""

    needs = frozenset({"probs"})


def test_a_rule_that_needs_probabilities_needs_a_learner_that_gives_them():
    config = resolve("count/5", "reinforce", SIZES, steps=40)
    rule = ByProbabilities(resolve("count/5", "ippo-neighbours", SIZES), None, None)
    with pytest.raises(UsageError, match="Reinforce has no `probs`: define it"):
        Trainer(config, rule=rule)


@pytest.mark.parametrize("needs", [(), ["states"], "states", {"keys": 1}])
def test_needs_are_any_collection_of_names(needs):
    class Source(my_source.NextSource):
        pass

    class Rule(my_rule.NeighbourRule):
        pass

    Source.needs, Rule.needs = needs, ["graph"]
    config = resolve("count/5", "ippo-neighbours", PPO_SIZES, steps=40)
    env = registry.make_env("count/5")
    trainer = Trainer(config, env, rule=Rule(config, env, Varying.of(config)), source=Source(1))
    assert trainer.needs == frozenset([needs] if isinstance(needs, str) else needs)
    state = trainer.init(jax.random.key(0))
    jax.eval_shape(trainer.iterate, state)
    play = partial(playing.record, trainer, state.learner.params, None, n_episodes=1)
    assert jax.eval_shape(play, jax.random.key(0)).graph is not None


def test_needs_that_nothing_records_are_refused():
    config = resolve("count/5", "ippo-neighbours", PPO_SIZES, steps=40)
    rule = ByProbabilities(config, None, None)
    rule.needs = ("graph", "dreams")
    with pytest.raises(UsageError, match=r"needs \['dreams', 'graph'\], but allowed are keys"):
        Trainer(config, rule=rule)


@pytest.mark.parametrize("mine", [my_rule, my_source, my_learner, my_env])
def test_a_name_that_exists_is_refused(mine):
    with pytest.raises(UsageError, match="exists already: choose another name"):
        mine.register()
