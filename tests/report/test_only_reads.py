"""`report` and `table` read files: nothing that a folder names is imported, built or executed."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from dgmarl.cli import main
from tests.report.fake_runs import write_run

HEAVY = ("jax", "flax", "dgmarl.envs.registry", "dgmarl.training", "dgmarl.api", "dgmarl.rollout")


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as stop:
        main(list(arguments))
    return int(stop.value.code or 0)


@pytest.fixture
def hostile(tmp_path):
    """A run folder whose configuration names a command and a file of code, and what either would
    leave behind."""
    executed = tmp_path / "executed"
    code = tmp_path / "code.py"
    code.write_text(f"open({str(executed)!r}, 'w')\n")
    folder = write_run(tmp_path / "hostile", "ippo-dg", finals=(0.1, 0.2))
    config = folder / "config.yaml"
    lines = config.read_text().splitlines()
    kept = [line for line in lines if not line.startswith(("env:", "env_options:", "graph:"))]
    named = [
        "env: os:system",
        f"env_options: {{command: 'touch {executed}'}}",
        f"graph: {code}:Source",
    ]
    config.write_text("\n".join([*named, *kept]) + "\n")
    return folder, executed


@pytest.mark.parametrize("command", ["report", "table"])
def test_what_a_configuration_names_is_not_executed(hostile, tmp_path, command):
    folder, executed = hostile
    arguments = ["--out", str(tmp_path / "page.html")] if command == "report" else []
    assert run(command, str(folder), *arguments) == 0
    assert not executed.exists()
    if command == "report":
        page = (tmp_path / "page.html").read_text()
        assert "os:system" in page
        assert "No replay of os:system" in page


def test_a_published_result_does_not_choose_what_is_read(hostile, tmp_path):
    folder, executed = hostile
    facts = {
        "config": {"env": "lbf/8x8-2p-2f"},
        "steps": [[1, 2]],
        "return_mean": [[0.0, 1.0]],
        "folder": str(folder),
    }
    (tmp_path / "a__ippo-dg.json").write_text(json.dumps(facts))
    assert run("report", str(tmp_path / "a__ippo-dg.json"), "--out", str(tmp_path / "p.html")) == 0
    assert not executed.exists()
    assert "No replay" not in (tmp_path / "p.html").read_text()


@pytest.mark.parametrize(
    "tag", ["!!python/object/apply:os.system ['touch {}']", "!!python/name:os.system"]
)
def test_yaml_tags_are_refused(hostile, tmp_path, capsys, tag):
    folder, executed = hostile
    config = folder / "config.yaml"
    config.write_text(config.read_text().replace("env: os:system", f"env: {tag.format(executed)}"))
    assert run("report", str(folder), "--out", str(tmp_path / "page.html")) == 2
    assert "only plain YAML values" in capsys.readouterr().err
    assert not executed.exists()
    assert not (tmp_path / "page.html").exists()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("seeds: -1", "has seeds = '-1'"),
        ("seeds: 1000000000000", "evaluation 0 lacks a seed"),
        ("seeds: many", "has seeds = 'many'"),
        ("steps: null", "has steps = 'None'"),
        ("method: [a]", "has method = \"['a']\""),
        ("evaluation: 3", "has evaluation.episodes"),
    ],
)
def test_configurations_that_cannot_be_are_named(tmp_path, capsys, line, words):
    folder = write_run(tmp_path / "run", finals=(0.1, 0.2))
    config = (folder / "config.yaml").read_text()
    name = line.partition(":")[0]
    nested = "evaluation:\n  interval" if name == "evaluation" else f"\n{name}:"
    changed = config.replace(nested, f"{line}\nx:\n  y" if name == "evaluation" else f"\nz_{name}:")
    (folder / "config.yaml").write_text(changed if name == "evaluation" else f"{changed}{line}\n")
    assert run("report", str(folder), "--out", str(tmp_path / "page.html")) == 2
    err = capsys.readouterr().err
    assert words in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "facts",
    [
        {"timing": [1, 2]},
        {"timing": {"train_s": "x", "compile_s": None}},
        {"notes": 3},
        {"graph_density": [[0.1], [0.2, 0.3]]},
        {"graph_density": "x", "wall_s": [[None, 1.0]], "episodes": [["nan", 1.0]]},
        {"config": {"env": "lbf/8x8-2p-2f", "graph": [1], "learner": {"x": {"y": []}}}},
    ],
)
def test_published_results_with_strange_facts_give_a_page(tmp_path, facts):
    result = {
        "config": {"env": "lbf/8x8-2p-2f"},
        "steps": [[1, 2]],
        "return_mean": [[0.0, 1.0]],
        **facts,
    }
    (tmp_path / "a__ippo-dg.json").write_text(json.dumps(result))
    assert run("report", str(tmp_path), "--out", str(tmp_path / "page.html")) == 0
    assert run("table", str(tmp_path)) == 0


def test_reading_imports_neither_jax_nor_an_environment(tmp_path):
    folder = write_run(tmp_path / "run", finals=(0.1, 0.2))
    program = (
        "import sys\n"
        "from dgmarl.cli import main\n"
        "for arguments in (['table', {0!r}], ['report', {0!r}, '--out', {1!r}]):\n"
        "    try:\n"
        "        main(arguments)\n"
        "    except SystemExit as stop:\n"
        "        assert not stop.code, stop.code\n"
        "print('imported:', *sorted(sys.modules))\n"
    ).format(str(folder), str(tmp_path / "page.html"))
    source = str(Path(main.__code__.co_filename).resolve().parents[2])
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {[source, *sys.path]!r}\n{program}"],
        capture_output=True,
        text=True,
        check=True,
    )
    imported = set(done.stdout.rpartition("imported: ")[2].split())
    assert "dgmarl.report.run_page" in imported
    assert not imported & set(HEAVY)
    assert (tmp_path / "page.html").exists()
