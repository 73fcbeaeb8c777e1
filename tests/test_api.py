"""Environments as objects: what a run folder can name, and what it cannot."""

import numpy as np
import pytest

import dgmarl
from dgmarl.api import _require_named
from dgmarl.envs.registry import make_env, name_of
from tests.tiny import GIFT, SMALL, Gift


def test_an_environment_is_named_by_its_family_or_its_file():
    assert name_of(make_env("star-spread/5", noise=0)) == "star-spread/5"
    assert name_of(make_env("lbf/8x8-2p-4f-coop")) == "lbf/8x8-2p-4f-coop"
    assert name_of(make_env(GIFT)) == GIFT

    class Local(Gift):
        pass

    assert name_of(Local()) == "Local"


def test_a_run_folder_must_be_able_to_make_an_environment_again():
    _require_named(make_env(GIFT), GIFT, {})
    _require_named(make_env(GIFT, horizon=7), GIFT, {"horizon": 7})
    _require_named(make_env("star-spread/5"), "star-spread/5", {})
    for env, name in (
        (make_env(GIFT, horizon=7), GIFT),
        (make_env("star-spread/5", noise=0), "star-spread/5"),
        (Gift(), "Gift"),
    ):
        with pytest.raises(dgmarl.UsageError, match=r"This .* could not be made again"):
            _require_named(env, name, {})


def test_an_object_and_a_class_are_trained(tmp_path):
    values = {"overrides": SMALL, "seeds": 1, "steps": 40}
    longer = dgmarl.train(Gift(horizon=6), "ippo-local", **values)
    assert longer.steps[0, -1] % 6 == 0
    assert len(repr(longer)) < 300
    result = dgmarl.train(Gift, "ippo-local", out=tmp_path / "run", **values)
    assert dgmarl.load(tmp_path / "run").config == result.config


def test_a_field_without_its_section_is_told_where_it_belongs():
    with pytest.raises(dgmarl.UsageError) as refusal:
        dgmarl.train("star-spread/3", learning_rate=1e-3)
    assert str(refusal.value) == (
        "learning_rate is a field of learner and of graph_model: give "
        "overrides={'learner.learning_rate': 0.001}."
    )
    with pytest.raises(dgmarl.UsageError, match=r"of credit: give overrides=\{'credit.others': 1"):
        dgmarl.train("star-spread/3", others=1)
    with pytest.raises(dgmarl.UsageError, match=r"of evaluation: give evaluation\.episodes\."):
        dgmarl.train("star-spread/3", overrides={"episodes": 3})
    with pytest.raises(dgmarl.UsageError, match=r"not a field of TrainConfig.* mean seeds\?"):
        dgmarl.train("star-spread/3", sedes=3)


def test_a_matrix_is_given_as_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(dgmarl.UsageError) as refusal:
        dgmarl.train(Gift, graph=np.eye(2))
    assert "graph is of type ndarray, but must be text such as 'oracle'" in str(refusal.value)
    assert "give graph='fixed:graph.npy'." in str(refusal.value)
    np.save("graph.npy", np.eye(2))
    run = dgmarl.train(Gift, graph="fixed:graph.npy", overrides=SMALL, seeds=1, steps=40)
    np.testing.assert_array_equal(run.trainer.source.init(None, run.env), np.eye(2))
