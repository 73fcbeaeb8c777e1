"""The command line as a user meets it: one sentence and exit code 2 for every mistake, nothing
half-written."""

import os
import subprocess
import sys
import textwrap

import pytest

from dgmarl.cli import commands, compiling, main


def run(capsys, *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        main(list(arguments))
    out, err = capsys.readouterr()
    return int(stop.value.code or 0), out, err


def test_help_lists_every_command(capsys):
    code, out, _ = run(capsys, "--help")
    assert code == 0
    for command in commands():
        assert f"  {command} " in out


def test_nothing_heavy_is_imported_for_help_or_import():
    loaded = subprocess.run(
        [sys.executable, "-c", "import dgmarl, dgmarl.cli, sys; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert not {"jax", "matplotlib", "ray", "flax", "orbax"} & set(loaded)


def test_compiled_programs_are_kept_unless_the_user_says_otherwise(monkeypatch, tmp_path):
    names = ("JAX_COMPILATION_CACHE_DIR", "JAX_COMPILATION_CACHE_MAX_SIZE")
    for name in names:
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    compiling.keep_programs()
    expected = (str(tmp_path / "dgmarl" / "xla"), str(compiling.LARGEST_CACHE))
    assert tuple(os.environ[name] for name in names) == expected
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "")  # JAX takes this as: keep nothing
    compiling.keep_programs()
    assert os.environ["JAX_COMPILATION_CACHE_DIR"] == ""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert compiling.cache_folder() is None


def test_envs_is_a_table(capsys):
    code, out, _ = run(capsys, "envs")
    assert code == 0
    assert "star-spread/10" in out
    assert "lbf/8x8-2p-4f-coop" in out


def test_watch_writes_one_page_and_says_where(capsys, tmp_path):
    page = tmp_path / "new" / "page.html"
    code, out, _ = run(
        capsys,
        "watch",
        "star-spread/3",
        "--episodes",
        "1",
        "--out",
        str(page),
        "--set",
        "horizon=5",
    )
    assert code == 0
    assert page.as_uri() in out
    assert page.read_text().startswith("<!doctype html>")
    assert [path.name for path in page.parent.iterdir()] == ["page.html"]


def test_saved_options_give_the_same_page(capsys, tmp_path):
    first, second, options = tmp_path / "1.html", tmp_path / "2.html", tmp_path / "options.yaml"
    arguments = ["star-spread/3", "--episodes", "1", "--set", "horizon=5", "--out", str(first)]
    assert run(capsys, "watch", *arguments, "--save-config", str(options))[0] == 0
    assert run(capsys, "watch", "--config", str(options), "--out", str(second))[0] == 0
    assert first.read_bytes() == second.read_bytes()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["wach"], ["'wach'", "did you mean watch?"]),
        (["watch", "nothing"], ["'nothing'", "dgmarl envs"]),
        (["watch", "star-spred/5"], ["'star-spred/5'", "did you mean star-spread/5"]),
        (["watch", "star-spread/1"], ["n_agents is 1", "from 2 to", "at least one leaf"]),
        (["watch", "star-spread/x"], ["star-spread/x", "number of agents"]),
        (["watch", "lbf/4x4-2p-9f"], ["4x4-2p-9f"]),
        (["watch", "matrix/chess"], ["matrix/chess", "matrix/climbing"]),
        (["watch", "star-spread/3", "--set", "nois=0"], ["nois", "did you mean noise?"]),
        (
            ["train", "lbf/8x8-2p-2f", "--env-options.players", "-2"],
            ["players is not an option of lbf environments; allowed are ", "did you mean n_play"],
        ),
        (
            ["check-env", "smaclite/2s3z", "--set", "rewards=team"],
            ["rewards is not an option of smaclite environments; allowed are "],
        ),
        (["watch", "star-spread/3", "--set", "noise=loud"], ["noise", "'loud'", "a number"]),
        (["watch", "star-spread/3", "--episodes", "0"], ["--episodes is 0", "from 1 to"]),
        (["watch", "no_such_file.py:Env"], ["no_such_file.py", "no file"]),
        (["watch", "no_such_module:Env"], ["no_such_module"]),
        (["watch", "--config", "none.yaml"], ["none.yaml", "cannot be read"]),
        (["watch", "star-spread/3", "--config"], ["--config needs"]),
        (
            ["watch", "star-spread/3", "--out", "page.pdf"],
            ["--out is page.pdf", ".html or", ".mp4"],
        ),
        (["report", "nothing", "--out", "page"], ["--out is page", ".html"]),
    ],
)
def test_a_mistake_is_one_sentence_and_writes_nothing(
    capsys, tmp_path, monkeypatch, arguments, words
):
    monkeypatch.chdir(tmp_path)
    code, out, err = run(capsys, *arguments)
    assert code == 2
    assert out == ""
    assert len(err.strip().splitlines()) == 1
    for word in words:
        assert word in err
    assert list(tmp_path.iterdir()) == []


TWO_CLASSES = """
raise SystemExit("executed")
from typing import NamedTuple
from dgmarl import Environment

class State(NamedTuple):
    time: int

class Base(Environment[State]):
    def step(self, key, state, action): ...

class Switch(Base):
    pass

class Mine:
    def infer(self, graph_state, batch, key): ...

def make_switch(n: int = 3) -> Environment: ...
def helper(): ...
"""


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["check-env", "switch.py"],
            "name the class: {0}:NAME, where NAME is one of Base, Switch, make_switch.",
        ),
        (
            ["watch", "switch.py"],
            "name the class: {0}:NAME, where NAME is one of Base, Switch, make_switch.",
        ),
        (
            ["train", "switch.py"],
            "name the class: {0}:NAME, where NAME is one of Base, Switch, make_switch.",
        ),
        (
            ["check-env", "switch.py:"],
            "name the class: {0}:NAME, where NAME is one of Base, Switch, make_switch.",
        ),
        (["train", "star-spread/3", "--graph", "switch.py"], "name the class: {0}:Mine."),
        (
            ["train", "star-spread/3", "--graph", "env.py"],
            "name the class of the graph source, env.py:Class.",
        ),
        (["check-env", "none.py"], "there is no file none.py"),
        (["check-env", "broken.py"], "name the class of the environment, broken.py:Class."),
    ],
)
def test_a_file_without_a_class_is_told_its_classes_and_never_executed(
    capsys, tmp_path, monkeypatch, arguments, words
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "switch.py").write_text(TWO_CLASSES)
    (tmp_path / "broken.py").write_text("class (")
    (tmp_path / "env.py").write_text("class Env:\n    def step(self): ...\n")
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, "")
    assert words.format("switch.py") in err
    assert err.count("\n") == 1
    assert len(list(tmp_path.iterdir())) == 3


def test_a_class_that_a_file_lacks_is_told_with_those_there_are(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "switch.py").write_text(TWO_CLASSES.replace("raise", "#"))
    code, _, err = run(capsys, "check-env", "switch.py:Swich")
    assert code == 2
    assert (
        "switch.py has no Swich; name the class: switch.py:NAME, where NAME is one of Base" in err
    )
    assert "did you mean Switch?" in err
    code, _, err = run(capsys, "train", "star-spread/3", "--graph", "switch.py:Min")
    assert code == 2
    assert "has no Min; name the class: " in err
    assert err.rstrip().endswith("switch.py:Mine.")


def test_a_misspelt_run_folder_is_told_the_one_beside_it(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "foragers").mkdir(parents=True)
    (tmp_path / "runs" / "foragers" / "config.yaml").write_text("")
    (tmp_path / "runs" / "foragres").mkdir()
    for arguments, words in (
        (["watch", "runs/forager"], "There is no run folder runs/forager; did you mean"),
        (["evaluate", "runs/forager"], "runs/forager is not a run folder"),
        (["train", "--resume", "runs/forager"], "runs/forager is not a run folder"),
    ):
        code, _, err = run(capsys, *arguments)
        assert code == 2
        assert words in err
        assert "did you mean runs/foragers?" in err
        assert err.count("\n") == 1
    _, _, err = run(capsys, "watch", "runs/spiders")
    assert "There is no run folder runs/spiders: name one that" in err
    assert "did you mean" not in err
    monkeypatch.chdir(tmp_path / "runs")
    assert "did you mean foragers?" in run(capsys, "watch", "forager")[2]


def test_an_output_below_a_regular_file_is_refused_before_any_work(capsys, tmp_path):
    (tmp_path / "file").write_text("mine")
    code, _, err = run(
        capsys, "watch", "star-spread/3", "--out", str(tmp_path / "file" / "page.html")
    )
    assert code == 2
    assert "is a file, not a folder" in err
    assert (tmp_path / "file").read_text() == "mine"


def test_a_custom_environment_that_returns_nan_is_refused(capsys, tmp_path):
    source = textwrap.dedent(
        """
        import jax.numpy as jnp
        from dgmarl import make_env
        from dgmarl.envs.star_spread import StarSpread, StarSpreadConfig

        class Broken(StarSpread):
            def __init__(self):
                super().__init__(StarSpreadConfig(3, horizon=5))

            def step(self, key, state, action):
                state, view, outcome = super().step(key, state, action)
                return state, view, outcome._replace(reward=outcome.reward * jnp.nan)
        """
    )
    (tmp_path / "broken.py").write_text(source)
    for command in (["check-env"], ["watch", "--out", str(tmp_path / "page.html")]):
        code, _, err = run(capsys, command[0], f"{tmp_path}/broken.py:Broken", *command[1:])
        assert code == 2
        assert "reward is NaN or infinite at step 0" in err
    assert not (tmp_path / "page.html").exists()


def test_check_env_says_that_an_oracle_graph_is_transposed(capsys, tmp_path):
    source = textwrap.dedent(
        """
        import jax.numpy as jnp
        from tests.tiny import Gift

        class Transposed(Gift):
            def oracle_graph(self, state):
                return super().oracle_graph(state).T

            def local_state(self, state):
                return state.given * jnp.array([[0.0], [1.0]])
        """
    )
    (tmp_path / "transposed.py").write_text(source)
    code, out, _ = run(capsys, "check-env", f"{tmp_path}/transposed.py:Transposed")
    assert code == 0
    assert "oracle_graph lacks edges" in out
    assert "it looks transposed: row = source, column = target" in out
