"""An exported policy acts as ours does, where dgmarl cannot be imported."""

import subprocess
import sys
from functools import partial
from pathlib import Path

import jax
import numpy as np
import pytest

from dgmarl import UsageError, cli
from dgmarl.config.resolve import resolve
from dgmarl.envs.base import Observation
from dgmarl.runs.export import export_policy
from dgmarl.training import Trainer
from tests.tiny import GIFT

B, T = 3, 4
PER_AGENT, GRU = {"learner.share_parameters": False}, {"learner.network": "gru"}
NETWORKS = {
    "feed-forward": ("ippo-local", {}),
    "gru": ("ippo-local", GRU),
    "feed-forward-per-agent": ("ippo-local", PER_AGENT),
    "gru-per-agent": ("ippo-local", {**GRU, **PER_AGENT}),
    "values": ("iql", {**GRU, "learner.last_action": True}),
}
WITHOUT_DGMARL = """
import sys
sys.modules["dgmarl"] = None  # whoever imports it fails
import numpy as np

def play(folder, act, hidden):
    steps, actions = np.load(f"{folder}/steps.npz"), []
    for t, (view, mask) in enumerate(zip(steps["views"], steps["masks"])):
        action, hidden = act(view, mask, hidden, t == 0)
        actions.append(action)
    np.save(f"{folder}/actions.npy", np.stack(actions))

for folder in sys.argv[1:]:
"""
WITH_NUMPY = """
    sys.path.insert(0, folder)
    sys.modules.pop("policy", None)
    from policy import Policy
    policy = Policy()
    act = lambda view, mask, hidden, first: policy.act(view, mask, hidden)
    play(folder, act, policy.init_hidden_state(3))
assert "jax" not in sys.modules
"""
WITH_JAX = """
    import jax
    exported = jax.export.deserialize(bytearray(open(f"{folder}/policy.stablehlo", "rb").read()))
    leaves = exported.in_avals[2:-2]
    hidden = tuple(np.full((3, *leaf.shape[1:]), 7, leaf.dtype) for leaf in leaves)
    key = np.zeros(2, np.uint32)
    act = lambda view, mask, hidden, first: exported.call(
        view, mask, hidden, np.full(3, first), key
    )
    play(folder, act, hidden)
"""


def make_learner(name: str):
    method, overrides = NETWORKS[name]
    trainer = Trainer(resolve(GIFT, method, {"learner.hidden": 8, "n_envs": 2, **overrides}))

    @jax.jit
    def larger(key):
        """So that actions depend on the views."""
        return jax.tree.map(lambda leaf: 3 * leaf, trainer.learner.init(key).params)

    return trainer.learner, larger(jax.random.key(1)), trainer.env.spec


@pytest.fixture(scope="module")
def expected(tmp_path_factory) -> dict[Path, np.ndarray]:
    """Folders with exported policies and views, and the best actions of our own policy there."""
    rng, found = np.random.default_rng(0), {}
    for name in NETWORKS:
        folder = tmp_path_factory.mktemp(name)
        learner, params, spec = make_learner(name)
        for file in ("policy.py", "policy.stablehlo"):
            export_policy(learner, params, spec, folder / file)
        views = rng.normal(size=(T, B, spec.n_agents, spec.obs_size)).astype(np.float32)
        masks = rng.random((T, B, spec.n_agents, spec.n_actions)) < 0.9
        np.savez(folder / "steps.npz", views=views, masks=masks)
        hidden, actions = learner.init_hidden_state(B), []
        act = jax.jit(partial(learner.act, greedy=True))
        for t in range(T):
            rest = np.zeros((B, spec.state_size)), masks[t], np.ones((B, spec.n_agents), bool)
            observation = Observation(views[t], *rest)
            given = (params, jax.random.key(0), observation, hidden, np.full(B, t == 0))
            action, _, hidden = act(*given)
            actions.append(action)
        found[folder] = np.stack(actions)
    return found


@pytest.mark.parametrize("code", [WITH_NUMPY, WITH_JAX], ids=["numpy", "jax"])
def test_policies_act_equally_elsewhere(expected, code):
    arguments = [sys.executable, "-c", WITHOUT_DGMARL + code, *map(str, expected)]
    done = subprocess.run(arguments, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for folder, actions in expected.items():
        assert 0 < actions.mean() < 1
        np.testing.assert_array_equal(np.load(folder / "actions.npy"), actions, folder.name)


def test_numpy_samples_the_available_actions(expected):
    from dgmarl.runs.numpy_policy import Policy

    policy = Policy(next(iter(expected)) / "policy.npz")
    view, mask = np.zeros((500, 2, 2)), np.ones((500, 2, 2), bool)
    hidden, rng = policy.init_hidden_state(500), np.random.default_rng(0)
    logits = policy.outputs(view, hidden)[1][0]
    share = policy.act(view, mask, hidden, rng)[0].mean(axis=0)
    np.testing.assert_allclose(share, 1 / (1 + np.exp(logits[:, 0] - logits[:, 1])), atol=0.08)
    mask[..., 1] = False
    assert not policy.act(view, mask, hidden, rng)[0].any()
    values = Policy([*expected][-1] / "policy.npz")
    with pytest.raises(ValueError, match="leave rng out"):
        values.act(view, mask, values.init_hidden_state(500), rng)


def test_other_files_and_other_networks_are_refused(tmp_path, capsys):
    learner, params, spec = make_learner("feed-forward")
    with pytest.raises(UsageError, match=r"must end in .stablehlo"):
        export_policy(learner, params, spec, tmp_path / "policy.onnx")
    with pytest.raises(UsageError, match=r"that ends in .stablehlo"):
        export_policy(object(), params, spec, tmp_path / "policy.py")  # pyright: ignore
    with pytest.raises(SystemExit) as stop:
        cli.main(["export", str(tmp_path / "run"), "--out", str(tmp_path / "policy.onnx")])
    assert stop.value.code == 2
    assert [*tmp_path.iterdir()] == []
