"""Networks of one's own, by name or as classes: trained, kept, loaded, refused."""

import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

import dgmarl
from dgmarl import UsageError, cli
from dgmarl.api import _network_name
from dgmarl.config.resolve import resolve
from dgmarl.training import Trainer
from tests.outside import my_net
from tests.tiny import GIFT, SMALL

FILE = Path(my_net.__file__)


def learner(method="ippo-local", **fields):
    overrides = {f"learner.{name}": value for name, value in fields.items()}
    return Trainer(resolve(GIFT, method, {**SMALL, **overrides})).learner


def initial(**fields):
    return learner(**fields).init(jax.random.key(0)).params


@pytest.mark.parametrize("field", ["network", "critic_network"])
@pytest.mark.parametrize("share", [True, False])
def test_our_own_network_by_name_is_the_same_network(field, share):
    own, named = (
        initial(share_parameters=share, **{field: name}) for name in ("fc", f"{FILE}:Same")
    )
    jax.tree.map(np.testing.assert_array_equal, own, named)


@pytest.mark.parametrize("critic", ["central", "central-heads"])
def test_critics_see_the_global_state_through_the_same_network(critic):
    named = initial(method="mappo-local", critic=critic, critic_network=f"{FILE}:Same")
    own = initial(method="mappo-local", critic=critic)
    jax.tree.map(np.testing.assert_array_equal, own, named)


@pytest.mark.parametrize("share", [True, False])
def test_a_q_learner_takes_it_too(share):
    agent = learner("vdn", network=f"{FILE}:Remembering", share_parameters=share).agent
    assert agent.init_hidden_state(7).shape == (7, 2, 3)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("lstm", "must be fc, gru, file.py:Class or module:Class"),
        ("grus", "did you mean gru?"),
        ("nowhere.py:Net", "there is no file nowhere.py"),
        ("no.such.module:Net", "importing no.such.module failed"),
        (f"{FILE}:Missing", "has no Missing; name the class: "),
        (f"{FILE}:not_a_class", "name a subclass of flax.linen.Module"),
        ("os:system", "name a subclass of flax.linen.Module"),
        (f"{FILE}:TooWide", "gives the shape (2, 3, 2, 3) for its outputs, but must give"),
        (f"{FILE}:Forgetful", "for its hidden state, but must give (3, 2, 3)"),
        (f"{FILE}:Counting", "It has batch_stats, but only parameters are trained"),
        (f"{FILE}:Flattening", "which failed with ScopeParamShapeError"),
        (f"{FILE}:NoFields", "unexpected keyword argument"),
    ],
)
def test_what_is_no_network_is_refused_in_one_sentence(name, words):
    with pytest.raises(UsageError) as refused:
        learner(network=name)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_critic_has_no_memory():
    with pytest.raises(UsageError, match=r"critic_network is 'gru', but must be fc, file.py:Class"):
        learner(critic_network="gru")
    with pytest.raises(UsageError, match=r"learner.critic_network is .* failed with"):
        learner(critic_network=f"{FILE}:Remembering")


def test_a_class_is_named_by_its_file_or_by_this_process(monkeypatch, tmp_path):
    class Local(my_net.Same):
        pass

    module = "tests.outside.my_net"
    assert _network_name(my_net.Same, tmp_path) == f"{module}:Same"
    for out in (None, tmp_path):
        with pytest.raises(UsageError, match="define it at the top level of a file"):
            _network_name(Local, out)
    in_notebook = type("InNotebook", (my_net.Same,), {"__module__": "__main__"})
    main = sys.modules["__main__"]
    monkeypatch.delattr(main, "__file__", raising=False)
    monkeypatch.setattr(main, "InNotebook", in_notebook, raising=False)
    assert _network_name(in_notebook, None) == "__main__:InNotebook"
    assert learner(network="__main__:InNotebook").policy.network is in_notebook
    with pytest.raises(UsageError, match="InNotebook could not be loaded again from a run folder"):
        _network_name(in_notebook, tmp_path)


SCRIPT = """
import dgmarl
from dgmarl.envs.registry import class_name, load_object
from dgmarl.nets.actor_critic import FeedForward

print("ran")
class Net(FeedForward): pass
assert load_object(class_name(Net), "network") is Net
"""


def test_a_script_that_names_its_own_class_runs_once(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, "ran\n"), done.stderr


@pytest.mark.slow
def test_a_run_with_a_network_of_ones_own_is_a_run_like_any_other(tmp_path, monkeypatch, capsys):
    """Trained from the command line in the folder of the file; used from elsewhere."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "mine.py").write_text(FILE.read_text())
    monkeypatch.chdir(tmp_path)

    def call(line: str) -> int:
        with pytest.raises(SystemExit) as stop:
            cli.main(line.split())
        return int(stop.value.code or 0)

    sizes = " ".join(f"--set {name}={value}" for name, value in SMALL.items())
    networks = "--learner.network mine.py:Remembering --learner.critic-network mine.py:Same"
    train = f"train {GIFT} --method ippo-local {networks} --seeds 1 --out run --quiet"
    assert call(f"{train} --steps 40 {sizes}") == 0
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    run = dgmarl.load("../run")
    assert run.config.learner.network == f"{tmp_path}/mine.py:Remembering"
    assert run.evaluate(2).shape == (1, 2)
    assert dgmarl.resume("../run", steps=60).steps[0, -1] == 60
    assert call("export ../run --out policy.stablehlo") == 0
    capsys.readouterr()
    assert call("export ../run --out policy.py") == 2
    assert "Remembering is not built in and cannot be exported to NumPy" in capsys.readouterr().err
    assert not Path("policy.npz").exists()
    # The file is code: when it has changed, it is asked for again.
    with Path("../mine.py").open("a") as file:
        file.write("raise SystemExit('executed')\n")
    for line in ("evaluate ../run", "watch ../run", "export ../run --out policy.stablehlo"):
        assert call(line) == 2
        assert "has changed since it was trained" in capsys.readouterr().err
    assert call("table ../run") == 0
