"""Files from somebody else are data: every loader and every route, with a hostile file each.

Hostile code creates a marker file; no route may leave one, and none may end with a traceback (any
exception but SystemExit fails the test)."""

import importlib.util
import json
import os
import pickle
import py_compile
from pathlib import Path

import numpy as np
import pytest

import dgmarl
from dgmarl import trust
from dgmarl.cli import main
from dgmarl.config.resolve import resolve
from dgmarl.envs.registry import FAMILIES, load_object
from dgmarl.graphs.sources import make_source

FINALS = [0.1, 0.3, 0.5]
EVIL = """
import pathlib
from dgmarl.envs.star_spread import StarSpread, StarSpreadConfig
pathlib.Path({marker!r}).touch()

class Evil(StarSpread):
    def __init__(self, **options):
        super().__init__(StarSpreadConfig(3, horizon=4))
    init = infer = update = None
"""


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """Nothing is trusted at the start of a test, and files are written in a folder of its own."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("APPDATA", str(tmp_path / "config"))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path


@pytest.fixture
def marker(tmp_path) -> Path:
    path = tmp_path / "executed"
    names = ("evil.py", "work/evil_module.py", "work/evil-module.py")
    for place in (tmp_path / name for name in names):
        place.write_text(EVIL.format(marker=str(path)))
    return path


def run(capsys, *arguments: object) -> tuple[int, str]:
    with pytest.raises(SystemExit) as stop:
        main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    assert "Traceback" not in out + err
    return int(stop.value.code or 0), err


def write_folder(path: Path, config: str) -> Path:
    """A run folder as somebody could send it: a configuration and curves."""
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.yaml").write_text(config)
    lines = [
        json.dumps(
            {
                "seed": 0,
                "evaluation": k,
                "iteration": k + 1,
                "step": 1000 * (k + 1),
                "wall_s": float(k + 1),
                "return_mean": value,
                "return_std": 0.1,
                "length_mean": 10.0,
            }
        )
        for k, value in enumerate(FINALS)
    ]
    (path / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    timing = {"compile_s": 1.0, "train_s": 6.0, "steps_per_s": 900.0, "peak_memory_mib": 1.0}
    (path / "timing.json").write_text(json.dumps({**timing, "device": "cpu", "jax": "0"}))
    return path


def write_published(path: Path, **facts) -> Path:
    content = {
        "scenario": "scenario",
        "method": "ippo-local",
        "env": "star-spread/3",
        "steps": [[1000, 2000, 3000]],
        "returns": [FINALS],
        **facts,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))
    return path


HOSTILE = {
    "a call": "env: os:system\nenv_options: {{command: touch {marker}}}\n",
    "a file": "env: {home}/evil.py:Evil\n",
    "a relative file": "env: ../evil.py:Evil\n",
    "a module": "env: evil_module:Evil\n",
    "a graph source": "env: star-spread/3\ngraph: {home}/evil.py:Evil\n",
    "a graph source like an environment": "env: star-spread/3\ngraph: lbf/../../evil.py:Evil\n",
    "an environment like a graph": "env: fixed:Evil\n",
    "a network": "env: star-spread/3\nlearner: {{network: {home}/evil.py:Evil}}\n",
    "a critic's network": "env: star-spread/3\nlearner: {{critic_network: evil_module:Evil}}\n",
    "a module for PettingZoo": "env: pettingzoo:evil_module\n",
    "a file for PettingZoo": "env: pettingzoo:{home}/evil.py\n",
    "a module that no statement imports": "env: pettingzoo:evil-module\n",
    "a module for Gymnasium": "env: gymnasium:evil_module:CartPole-v1\n",
    "an environment of Gymnasium": "env: gymnasium:CartPole-v1\n",
}
PLAYED = {
    "evaluate": ["evaluate", "{folder}"],
    "watch": ["watch", "{folder}"],
    "graph": ["graph", "{folder}"],
    "resume": ["train", "--resume", "{folder}"],
    "config": ["train", "--config", "{folder}/config.yaml"],
    "init-from": ["train", "star-spread/2", "--init-from", "{folder}"],
}


@pytest.mark.parametrize("route", PLAYED)
@pytest.mark.parametrize("kind", HOSTILE)
def test_code_that_a_folder_names_is_not_executed(capsys, home, marker, kind, route):
    (home / "work" / "fixed.py").write_text(EVIL.format(marker=str(marker)))
    (home / "work" / "lbf").mkdir()
    folder = write_folder(home / "sent", HOSTILE[kind].format(home=home, marker=marker))
    before = sorted((home / "work").rglob("*"))
    code, err = run(capsys, *(word.format(folder=folder) for word in PLAYED[route]))
    assert not marker.exists()
    assert code == 2
    assert len(err.strip().splitlines()) == 1
    for words in (str(folder / "config.yaml"), "would execute", "--trust"):
        assert words in err
    assert sorted((home / "work").rglob("*")) == before, "nothing was written"


@pytest.mark.parametrize("kind", HOSTILE)
def test_python_calls_ask_for_trust_as_the_commands_do(home, marker, kind):
    folder = write_folder(home / "sent", HOSTILE[kind].format(home=home, marker=marker))
    for call in (
        dgmarl.load,
        dgmarl.evaluate,
        dgmarl.resume,
        lambda path: dgmarl.train("star-spread/2", init_from=path),
    ):
        with pytest.raises(dgmarl.UsageError, match="trust=True"):
            call(folder)
    assert not marker.exists()


@pytest.mark.parametrize("command", ["report", "table"])
@pytest.mark.parametrize("kind", HOSTILE)
def test_reading_results_executes_nothing(capsys, home, marker, kind, command):
    folder = write_folder(home / "sent", HOSTILE[kind].format(home=home, marker=marker))
    published = write_published(home / "published" / "x__ippo-local.json", folder=str(folder))
    for path in (folder, published):
        assert run(capsys, command, path)[0] in (0, 2)
    assert not marker.exists()


@pytest.mark.parametrize("route", PLAYED)
def test_trust_does_not_make_a_function_an_environment(capsys, home, marker, route):
    folder = write_folder(home / "sent", HOSTILE["a call"].format(home=home, marker=marker))
    arguments = [word.format(folder=folder) for word in PLAYED[route]]
    code, err = run(capsys, *arguments, "--trust")
    assert code == 2
    assert "'os:system' is not an environment" in err
    assert not marker.exists()


def test_trust_executes_what_the_folder_names(capsys, home, marker):
    folder = write_folder(home / "sent", HOSTILE["a file"].format(home=home))
    code, err = run(capsys, "evaluate", folder, "--trust")
    assert marker.exists()
    assert (code, "--trust" in err) == (2, False), "the folder has no checkpoint, which comes later"


def test_a_name_that_is_typed_is_executed(capsys, home, marker):
    page = home / "page.html"
    assert run(capsys, "watch", f"{home}/evil.py:Evil", "--episodes", 1, "--out", page)[0] == 0
    assert marker.exists()


@pytest.mark.parametrize("options", ["what: {home}/evil.py:Evil", "what: sent\ntrust: true"])
def test_options_from_a_file_trust_nothing(capsys, home, marker, options):
    write_folder(home / "work" / "sent", HOSTILE["a file"].format(home=home))
    (home / "options.yaml").write_text(options.format(home=home))
    code, err = run(capsys, "watch", "--config", home / "options.yaml")
    assert code == 2
    assert "--trust" in err
    assert not marker.exists()


def test_saved_options_hold_no_trust(capsys, home, marker):
    saved = home / "saved.yaml"
    write_folder(home / "sent", HOSTILE["a file"].format(home=home))
    run(capsys, "evaluate", home / "sent", "--trust", "--save-config", saved)
    assert "run_folder" in saved.read_text()
    assert "trust" not in saved.read_text()


def test_a_typed_name_is_no_reason_to_call_a_function():
    for name in ("os:getcwd", "builtins:dict", "dgmarl.envs.base:EnvSpec"):
        with pytest.raises(dgmarl.UsageError, match="is not an environment"):
            dgmarl.make_env(name)
    for name in ("os:getcwd", "builtins:dict"):
        config = resolve("star-spread/3", graph=name)
        with pytest.raises(dgmarl.UsageError, match="is not a graph source"):
            make_source(name, config, dgmarl.make_env("star-spread/3"))


# What is trusted, and for how long.


def test_what_was_checked_is_remembered_until_it_changes(capsys, home, marker):
    folder = write_folder(home / "sent", HOSTILE["a file"].format(home=home))
    assert run(capsys, "check-env", f"{home}/evil.py:Evil")[0] == 0
    trust.require_trust("file", env=f"{home}/evil.py:Evil")
    with (home / "evil.py").open("a") as file:
        file.write("# something else\n")
    marker.unlink()
    code, err = run(capsys, "evaluate", folder)
    assert code == 2
    assert "has changed since it was trained or checked here" in err
    assert not marker.exists()


def test_the_same_content_elsewhere_is_not_trusted(home, marker):
    trust.remember(env=f"{home}/evil.py:Evil")
    (home / "copy.py").write_bytes((home / "evil.py").read_bytes())
    assert trust.is_trusted(f"{home}/evil.py:Evil")
    assert trust.is_trusted("../evil.py:Evil")
    assert not trust.is_trusted(f"{home}/copy.py:Evil")


def test_a_module_is_found_and_judged_without_importing_its_packages(home, marker, monkeypatch):
    package = home / "work" / "outer" / "inner"
    package.mkdir(parents=True)
    for place in (package.parent / "__init__.py", package / "__init__.py", package / "leaf.py"):
        place.write_text(EVIL.format(marker=str(marker)))
    name = "outer.inner.leaf:Evil"
    assert [path.name for path in trust.code_files(name)] == [
        "__init__.py",
        "__init__.py",
        "leaf.py",
    ]
    trust.remember(env=name)
    assert trust.is_trusted(name)
    (package.parent / "__init__.py").write_text("# changed\n")
    assert not trust.is_trusted(name)
    assert not marker.exists()
    assert trust.code_files("outer.inner.nothing:Evil") == ()
    assert not trust.is_trusted("sys:exit")


def test_the_packages_own_names_are_no_code():
    examples = [example for family in FAMILIES.values() for example in family.examples]
    for name in (*examples, "smaclite/C:\\maps\\mine.yaml"):
        assert trust.code_names(env=name) == []
    for name in ("oracle", "learned", "random:0.3", "interventional:2", "fixed:a.py:b"):
        assert trust.code_names(graph=name) == []
    assert trust.code_names(env="fixed:Class", graph="lbf/x.py:Class") == [
        "fixed:Class",
        "lbf/x.py:Class",
    ]


def test_nothing_but_names_of_code_is_imported():
    for text in ("a-b:Class", "x/y:Class", "nothing", "a..b:Class"):
        with pytest.raises(dgmarl.UsageError, match="write module:Class or file"):
            load_object(text, "environment")


def test_bytecode_beside_a_file_is_not_executed(home, marker):
    (home / "harmless.py").write_text("class Harmless: pass\n")
    cached = importlib.util.cache_from_source(str(home / "harmless.py"))
    py_compile.compile(
        str(home / "evil.py"),
        cached,
        dfile=str(home / "harmless.py"),
        invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
    )
    assert load_object(f"{home}/harmless.py:Harmless", "environment").__name__ == "Harmless"
    assert not marker.exists()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe",
        b"[]",
        b'{"files": ["x"]}',
        b'{"files": {"{home}/evil.py": null}}',
        b'{"files": {"{home}/evil.py": true}}',
        b"[" * 100_000,
        b"!!python/object/apply:os.system ['touch {home}/executed']",
        pickle.dumps({"files": {}}),
    ],
)
def test_a_damaged_list_of_trusted_files_trusts_nothing_and_is_replaced(home, marker, content):
    path = trust.store_path()
    assert path is not None
    path.parent.mkdir(parents=True)
    path.write_bytes(content.replace(b"{home}", str(home).encode()))
    name = f"{home}/evil.py:Evil"
    assert not trust.is_trusted(name)
    trust.remember(env=name)
    assert trust.is_trusted(name)
    assert not marker.exists()


def test_without_a_place_to_write_nothing_is_remembered(home, marker, monkeypatch):
    (home / "file").write_text("")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "file"))
    trust.remember(env=f"{home}/evil.py:Evil")
    assert not trust.is_trusted(f"{home}/evil.py:Evil")


def test_a_relative_configuration_folder_is_ignored(home, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", "config")
    monkeypatch.setenv("HOME", str(home))
    path = trust.store_path()
    assert path is not None
    assert path.is_absolute()


# Loaders of data.


def yaml_tags(marker: Path) -> list[str]:
    return [
        f"env: !!python/object/apply:os.system ['touch {marker}']\n",
        f"!!python/object/apply:os.system ['touch {marker}']\n",
        f"env: star-spread/3\nsteps: !!python/object/new:os.system ['touch {marker}']\n",
        "env: !!python/name:os.system\n",
    ]


@pytest.mark.parametrize("kind", range(4))
@pytest.mark.parametrize("route", [*PLAYED, "report", "table"])
def test_yaml_tags_are_refused(capsys, home, marker, route, kind):
    folder = write_folder(home / "sent", yaml_tags(marker)[kind])
    arguments = PLAYED.get(route, [route, "{folder}"])
    code, err = run(capsys, *(word.format(folder=folder) for word in arguments))
    assert code == 2
    assert "only plain YAML values" in err
    assert not marker.exists()


class Bomb:
    """Executes a command when it is unpickled."""

    def __init__(self, marker: Path):
        self.marker = marker

    def __reduce__(self):
        return os.system, (f"touch {self.marker}",)


def pickled(path: Path, marker: Path) -> Path:
    bomb = np.array([Bomb(marker)], dtype=object)
    if path.suffix == ".npz":
        np.savez(path, steps=bomb, returns=bomb)
    elif path.suffix == ".npy":
        np.save(path, bomb, allow_pickle=True)
    else:
        path.write_bytes(pickle.dumps(Bomb(marker)))
    return path


@pytest.mark.parametrize("name", ["graph.npy", "graph.txt", "graph.npz"])
def test_fixed_graphs_are_never_unpickled(capsys, home, marker, name):
    graph = pickled(home / name, marker)
    code, err = run(capsys, "train", "star-spread/2", "--graph", f"fixed:{graph}")
    assert code == 2
    assert "cannot be read" in err
    assert not marker.exists()


def test_returns_are_never_unpickled(home, marker):
    from dgmarl.runs.reading import read_returns

    folder = write_folder(home / "sent", "env: star-spread/2\n")
    pickled(folder / "returns.npz", marker)
    with pytest.raises(dgmarl.UsageError, match=r"returns\.npz is damaged"):
        read_returns(folder)
    assert not marker.exists()


def test_a_scenario_file_is_read_as_plain_yaml(capsys, home, marker):
    for kind, text in enumerate(yaml_tags(marker)):
        (home / f"{kind}.yaml").write_text(text.replace("env", "name"))
        code, _ = run(capsys, "watch", f"smaclite/{home}/{kind}.yaml")
        assert code == 2
    assert not marker.exists()


NAMES = [
    "</script><script>alert(1)</script>",
    "[/x]",
    "[red]x[/red]",
    "../../x",
    "\x1b[31mx",
    "x\ny",
]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("command", ["report", "table"])
def test_names_in_results_are_shown_as_text(capsys, home, name, command):
    published = write_published(
        home / "lbf" / "scenario__ippo-local.json", scenario=name, method=name, env=name
    )
    marl_eval = home / "marl.json"
    seeds = {"seed_0": {"step_0": {"step_count": 10, "return": [0.5]}}}
    marl_eval.write_text(json.dumps({name: {name: {name: seeds}}}))
    folder = write_folder(home / "sent", f"env: {json.dumps(name)}\n")
    for path in (published, marl_eval, folder):
        code, _ = run(capsys, command, path)
        assert code in (0, 2)
        page = home / "work" / "report.html"
        assert "<script>alert(1)" not in (page.read_text() if page.exists() else "")
    assert {path.name for path in home.iterdir()} <= {"lbf", "marl.json", "sent", "work", "config"}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("route", PLAYED)
def test_names_in_folders_are_refused_as_text(capsys, home, name, route):
    folder = write_folder(home / "sent", f"env: {json.dumps(name)}\ngraph: self\n")
    code, err = run(capsys, *(word.format(folder=folder) for word in PLAYED[route]))
    assert code == 2
    assert len(err.strip().splitlines()) == 1
    assert "\x1b" not in err
