"""Numbers and paths that cannot be meant: one sentence, exit code 2, nothing written, for every
command and before anything is computed."""

import dataclasses
import os
import typing

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dgmarl.cli import commands, load_command, main
from dgmarl.cli.common import check_command
from dgmarl.config.methods import METHODS
from dgmarl.config.ranges import RANGES
from dgmarl.config.resolve import resolve, with_n_envs
from dgmarl.config.yaml import parse_assignments
from dgmarl.errors import UsageError

LBF = "lbf/5x5-2p-1f"
LONG = "a" * 300
COMMANDS = [
    ["watch", LBF, "--episodes"],
    ["watch", LBF, "--seed"],
    ["watch", LBF, "--trained-seed"],
    ["evaluate", "run", "--episodes"],
    ["evaluate", "run", "--seed"],
    ["graph", "run", "--episodes"],
    ["check-env", LBF, "--seed"],
    ["demo", "--seeds"],
    ["demo", "--scale"],
    ["theory", "--seed"],
    ["reproduce", "lbf", "--dry-run", "--steps"],
    ["reproduce", "lbf", "--dry-run", "--seeds"],
    ["reproduce", "lbf", "--workers"],
    ["grid", "lbf", "--batched"],
    ["train", LBF, "--steps"],
    ["train", LBF, "--seed"],
    ["train", LBF, "--keep-every"],
    ["train", "--resume", "run", "--steps"],
    ["train", LBF, "--learner.hidden"],
    ["train", LBF, "--set", "learner.learning_rate="],
    ["train", LBF, "--set", "evaluation.episodes="],
    ["train", LBF, "--graph", "interventional:"],
]
"""Command lines that lack a number at their end."""
NEVER = st.one_of(
    st.integers(max_value=-1).map(str),
    st.integers(min_value=2_000_000_001).map(str),
    st.integers(11, 300).map(lambda n: f"1e{n}"),
    st.sampled_from(["nan", "inf", "-inf", "-1e5", "-0.5", "1e400", "9" * 400]),
)
"""Numbers that no option takes."""


def refused(capsys, arguments: list[str]) -> str:
    """The sentence with which a command line is refused."""
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    out, err = capsys.readouterr()
    assert stop.value.code == 2, err
    assert out == ""
    assert "Traceback" not in err
    return err


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
@settings(
    max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(number=NEVER)
def test_a_number_out_of_range_is_refused_and_writes_nothing(
    capsys, tmp_path, monkeypatch, arguments, number
):
    monkeypatch.chdir(tmp_path)
    *words, last = arguments
    glued = last.endswith(("=", ":"))
    sentence = refused(capsys, [*words, last + number] if glued else [*words, f"{last}={number}"])
    assert len(sentence.strip().splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["watch", LBF, "--out"],
        ["train", LBF, "--out"],
        ["theory", "--out"],
        ["demo", "--out"],
        ["report", "run", "--out"],
        ["graph", "run", "--out"],
        ["reproduce", "lbf", "--out"],
        ["grid", "lbf", "--runs"],
        ["table", "results", "--marl-eval"],
        ["envs", "--save-config"],
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("path", ["", "file/x", LONG, f"new/{LONG}/x", "/proc/none/x", "x/" * 999])
def test_a_path_that_cannot_be_written_is_refused(capsys, tmp_path, monkeypatch, arguments, path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("mine")
    sentence = refused(capsys, [*arguments, path])
    assert len(sentence.strip().splitlines()) == 1
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize(
    "arguments",
    [["evaluate"], ["watch"], ["graph"], ["table"], ["report"], ["train", "--resume"], ["train"]],
    ids=" ".join,
)
def test_a_name_of_300_characters_is_refused(capsys, tmp_path, monkeypatch, arguments):
    monkeypatch.chdir(tmp_path)
    sentence = refused(capsys, [*arguments, LONG])
    assert len(sentence.strip().splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("arguments", [["--episodes", "abc"], ["--seed=1e"], ["--seed", "0x1"]])
def test_a_word_that_is_no_number_is_told_with_its_option(capsys, arguments):
    sentence = refused(capsys, ["evaluate", "run", *arguments])
    flag = arguments[0].partition("=")[0]
    assert sentence.startswith(f"dgmarl: {flag} is ")
    assert sentence.endswith("but must be a whole number.\n")


def test_the_options_of_a_run_are_not_changed_for_a_replay(capsys, tmp_path):
    assert "--set" in refused(capsys, ["watch", str(tmp_path), "--set", "horizon=3"])


def test_every_number_of_a_configuration_and_of_a_command_has_a_range():
    def numbers(config, section=""):
        for field in dataclasses.fields(config):
            value = getattr(config, field.name)
            if dataclasses.is_dataclass(value):
                yield from numbers(value, f"{field.name}.")
            elif isinstance(value, int | float) and not isinstance(value, bool):
                yield section + field.name

    found = {name for method in METHODS for name in numbers(resolve(LBF, method))}
    for command in map(load_command, commands()):
        hints = typing.get_type_hints(command)
        found |= {name for name, hint in hints.items() if hint in (int, float, int | None)}
    assert found - RANGES.keys() == {"format", "more_steps"}


def test_a_command_from_outside_may_mean_something_else_by_a_name():
    @dataclasses.dataclass
    class Outside:
        scale: float = 1e6

    check_command(Outside(), [])


def test_numbers_in_scientific_notation_are_numbers():
    values = parse_assignments(["a=1e-3", "b=-2E4", "c=1.5e+2", "d=e5", "e=nan", "f=7"])
    assert values == {"a": 1e-3, "b": -2e4, "c": 150.0, "d": "e5", "e": "nan", "f": 7}


@pytest.mark.parametrize(
    ("horizon", "steps", "expected"),
    [(5, 1e6, 100), (5, 800, 16), (5, 100, 10), (1, 1e6, 500), (50, 1e6, 10), (400, 1e6, 10)],
)
def test_the_number_of_environments_follows_the_horizon(horizon, steps, expected):
    config = resolve("own.py:Env", steps=steps)
    assert config.n_envs == 0
    assert with_n_envs(config, horizon).n_envs == expected
    given = resolve("own.py:Env", steps=steps, n_envs=3)
    assert with_n_envs(given, horizon) == given


def test_environments_are_shared_out_evenly_to_minibatches():
    config = resolve("own.py:Env", overrides={"learner.minibatches": 3})
    assert with_n_envs(config, 5).n_envs == 102


@pytest.mark.parametrize("env", [LBF, "star-spread/5", "smaclite/2s3z"])
def test_tuned_families_and_the_paper_keep_their_numbers(env):
    assert resolve(env).n_envs == 10
    assert resolve("own.py:Env", preset="paper").n_envs == 10
    with pytest.raises(UsageError, match="did you mean oracle"):
        resolve(env, graph="orackle")
