"""Documentation is executed: every `dgmarl` command in it parses, every link leads somewhere, every
Python block runs."""

import re
import shlex
from pathlib import Path

import pytest

import dgmarl
from dgmarl import cli
from dgmarl.report.results import read_results
from dgmarl.report.statistics import mean_interval

ROOT = Path(__file__).resolve().parents[1]
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "examples").glob("*.py")),
]


def commands() -> list[str]:
    lines = [line.strip() for page in PAGES for line in page.read_text().splitlines()]
    found = [line for line in lines if re.match(r"dgmarl [a-z-]+ ", line)]
    assert len(found) >= 6
    return sorted(set(found))


@pytest.mark.parametrize("line", commands())
def test_every_command_parses(line, monkeypatch, capsys):
    name, _ = cli.split_name(shlex.split(line, comments=True)[1:])
    monkeypatch.setattr(cli.load_command(name), "run", lambda self: 0)
    with pytest.raises(SystemExit) as stop:
        cli.main(shlex.split(line, comments=True)[1:])
    assert stop.value.code == 0, capsys.readouterr().err


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.suffix == ".md"], ids=lambda page: page.name
)
def test_every_link_leads_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        assert (page.parent / target).exists(), target


def test_python_in_the_readme_runs(monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    train = dgmarl.train
    small = {"evaluation.interval": 500, "evaluation.episodes": 2, "learner.hidden": 8}
    monkeypatch.setitem(
        dgmarl.__dict__,
        "train",
        lambda *given, **values: train(
            *given, **{**values, "steps": 500, "seeds": 1}, overrides=small
        ),
    )
    for block in re.findall(
        r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL
    ):
        exec(compile(block, "README.md", "exec"), {})
    assert "graph_gae" in capsys.readouterr().out


def test_numbers_in_the_tutorial_are_those_of_its_results():
    def shown(result) -> str:
        mean = mean_interval(result.final)
        return f"{mean.estimate:.1f} [{mean.low:.1f}, {mean.high:.1f}]"

    page = (ROOT / "docs" / "tutorial.md").read_text()
    results = read_results(ROOT / "results" / "junction")
    assert {result.method.rpartition("-")[2] for result in results} == {
        *("local", "global", "oracle", "interventional", "learned")
    }
    for result in results:
        columns = (shown(result.up_to(10_000)), shown(result.up_to(20_000)), shown(result))
        assert f"| `{result.method}` | {' | '.join(columns)} |" in page
