"""Every field of the configuration is a flag of `dgmarl train`, with its docstring and the default
of the chosen method, preset and environment."""

import dataclasses
import subprocess
import sys
import time

import pytest

from dgmarl.cli import commands, main
from dgmarl.cli.flags import scan, spellings
from dgmarl.cli.train import Train
from dgmarl.config.methods import METHODS
from dgmarl.config.resolve import resolve
from dgmarl.config.schema import TrainConfig
from dgmarl.config.yaml import build, plain, read_yaml
from dgmarl.errors import UsageError


def resolved(*arguments: str, file: dict | None = None) -> TrainConfig:
    return Train.from_arguments(list(arguments), file).resolved()


def help_of(capsys, *arguments: str) -> str:
    with pytest.raises(SystemExit) as stop:
        main([*arguments, "--help"])
    assert not stop.value.code
    return " ".join(capsys.readouterr().out.replace("│", " ").split())


@pytest.mark.parametrize("name", sorted(commands()))
def test_every_command_has_help(capsys, name):
    assert f"usage: dgmarl {name}" in help_of(capsys, name)


@pytest.mark.parametrize("method", ["ippo-local", "mappo-dg", "iql", "qplex"])
def test_help_shows_every_field_of_the_method(capsys, method):
    text = help_of(capsys, "train", "--method", method)
    config = resolve("", method)
    names = [f.name for f in dataclasses.fields(config)]
    for section in ("evaluation", "learner", "credit", "graph_model"):
        part = getattr(config, section)
        names.remove(section)
        names += [f"{section}.{f.name}" for f in dataclasses.fields(part)]
    for name in set(names) - {"env", "env_options", "format"}:
        assert f"--{spellings(name)[0]} " in text.replace(",", " "), name
    assert "Adam's learning rate" in text
    assert ("--learner.clip-eps" in text) == method.endswith(("local", "dg"))


def test_help_shows_the_defaults_of_environment_method_and_preset(capsys):
    def default(name: str, *arguments: str) -> str:
        text = help_of(capsys, "train", *arguments).partition(f"--{name} ")[2]
        return text.partition("(default: ")[2].partition(")")[0]

    assert default("learner.hidden", "star-spread/5", "--method", "mappo-dg") == "64"
    assert default("learner.hidden", "lbf/8x8-2p-2f", "--method", "iql") == "128"
    assert default("n-envs", "lbf/8x8-2p-2f", "--preset", "fast") == "128"
    assert default("credit.others", "lbf/8x8-3p-2f") == "mean"


def test_help_is_quick_and_imports_no_jax():
    program = "import sys; from dgmarl.cli import main\ntry: main({})\nexcept SystemExit: pass\n"
    program += "print('jax' in sys.modules, 'matplotlib' in sys.modules)"
    for arguments in (["--help"], ["train", "--help"]):
        started = time.perf_counter()
        out = subprocess.run(
            [sys.executable, "-c", program.format(arguments)],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        assert out.splitlines()[-1] == "False False"
        assert time.perf_counter() - started < 5, "2 s on an idle machine"


FLAGS = [
    ("--learner.hidden", "32", "learner.hidden", 32),
    ("--learner.lambda", "0.5", "learner.lambda_", 0.5),
    ("--learner.entropy_coef", "0.3", "learner.entropy_coef", 0.3),
    ("--credit.cross-weight", "0.25", "credit.cross_weight", 0.25),
    ("--graph-model.threshold", "0.8", "graph_model.threshold", 0.8),
    ("--graph-model.no-multi-head", None, "graph_model.multi_head", False),
    ("--evaluation.interval", "1e3", "evaluation.interval", 1000),
    ("--evaluation.greedy", None, "evaluation.greedy", True),
    ("--n-envs", "3.2e1", "n_envs", 32),
    ("--rollout-length", "32", "rollout_length", 32),
    ("--seeds", "2", "seeds", 2),
    ("--graph", "random:0.5", "graph", "random:0.5"),
    ("--deterministic", None, "deterministic", True),
    ("--separate-seeds", None, "separate_seeds", True),
    ("--env-options.noise", "0", "env_options.noise", 0),
]


@pytest.mark.parametrize(("flag", "value", "name", "expected"), FLAGS)
def test_a_flag_sets_one_field_and_set_is_an_alias(flag, value, name, expected):
    words = [flag] if value is None else [flag, value]
    given = {"graph": expected} if name == "graph" else {}
    wanted = resolve("star-spread/5", overrides={name: expected}, **given)
    assert wanted != resolve("star-spread/5")
    assert resolved("star-spread/5", *words) == wanted
    assert resolved(*words, "star-spread/5", "--quiet") == wanted
    if value is not None:
        assert resolved("star-spread/5", f"{flag}={value}") == wanted
    assert resolved("star-spread/5", "--set", f"{name}={expected}") == wanted


@pytest.mark.parametrize("method", METHODS)
def test_without_flags_it_is_the_preset(method):
    assert resolved("lbf/8x8-2p-2f", "--method", method) == resolve("lbf/8x8-2p-2f", method)


def test_a_flag_equal_to_a_default_that_depends_on_another_flag_is_kept():
    """The default interval of a short run is shorter than the one that was asked for."""
    config = resolved("star-spread/5", "--steps", "1e4", "--evaluation.interval", "20000")
    assert config.evaluation.interval == 20_000


def test_flags_win_over_a_file_and_a_file_over_the_preset():
    file = {"env": "star-spread/5", "learner": {"hidden": 9, "gamma": 0.5}, "graph": "self"}
    config = resolved("--learner.hidden", "7", file=file)
    overrides = {"learner.hidden": 7, "learner.gamma": 0.5}
    assert config == resolve("star-spread/5", overrides=overrides, graph="self")
    assert resolved("star-spread/3", file=file).env == "star-spread/3"


def test_a_whole_configuration_as_a_file_gives_itself():
    config = resolve("lbf/8x8-3p-2f", "mappo-dg", {"learner.hidden": 9}, graph="learned", seeds=2)
    assert resolved(file=plain(config)) == config


def test_another_method_keeps_what_it_shares_with_that_of_the_file():
    own = {"learner.hidden": 9, "learner.entropy_coef": 0.5, "seeds": 3}
    values = plain(resolve("star-spread/5", "mappo-global", own))
    wanted = resolve("star-spread/5", "ippo-local", own)
    assert resolved("--method", "ippo-local", file=values).learner == wanted.learner
    other = resolved("--method", "qmix", file=values)
    assert other.learner == resolve("star-spread/5", "qmix").learner
    assert other.seeds == 3


def test_resolving_builds_no_environment_and_changes_no_compiler_flags(tmp_path, monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "")
    (tmp_path / "broken.py").write_text("raise RuntimeError('executed')\n")
    saved = tmp_path / "saved.yaml"
    with pytest.raises(SystemExit):
        main(["train", f"{tmp_path}/broken.py:Env", "--deterministic", "--save-config", str(saved)])
    config = build(TrainConfig, read_yaml(saved))
    assert config.env == f"{tmp_path}/broken.py:Env"
    assert resolved("smaclite/no-such-map", "--method", "qmix").env == "smaclite/no-such-map"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--learner.hidden", "0"], ["learner.hidden is 0", "from 1 to"]),
        (["--learner.gamma", "1.5"], ["learner.gamma is 1.5"]),
        (["--n-envs", "3", "--learner.minibatches", "2"], ["n_envs is 3", "multiple"]),
        (["--method", "ipo-dg"], ["did you mean ippo-dg"]),
        (["--method", "iql", "--graph", "learned"], ["--graph is learned", "iql uses no graph"]),
        (["--set", "method=iql"], ["--set method", "--method"]),
        (["--set", "learner.hiden=3"], ["learner.hiden", "did you mean hidden"]),
        (["--keep-every", "-1"], ["--keep-every is -1"]),
        (["--resume", "run"], ["--resume", "no other option"]),
    ],
)
def test_a_flag_that_cannot_be_meant_is_one_sentence(arguments, words):
    with pytest.raises(UsageError) as refusal:
        resolved("star-spread/5", *arguments)
    for word in words:
        assert word in str(refusal.value)


def test_scan_separates_flags_values_and_positional_words():
    words = ["--quiet", "lbf/x", "--seed", "-1", "--a_b=2", "--last"]
    options, positional = scan(words, {"quiet"})
    assert positional == ["lbf/x"]
    assert options == {"quiet": "", "seed": "-1", "a-b": "2", "last": ""}
