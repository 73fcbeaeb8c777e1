"""Every `dgmarl` command of the documentation parses, every link leads somewhere, and the quick
blocks of Python run. `tests/test_pages.py` executes the pages."""

import re
import shlex

import pytest

import dgmarl
from dgmarl import cli
from dgmarl.report.results import read_results
from dgmarl.report.statistics import mean_interval
from tests.pages import PAGES, ROOT


def code_lines(text: str) -> list[str]:
    """Lines between fences, indented ones, and code within sentences."""
    fenced, found = False, re.findall(r"`(dgmarl [^`]+)`", text)
    for line in text.splitlines():
        if line.startswith("```"):
            fenced = not fenced
        elif fenced or line.startswith("    "):
            found.append(line.strip())
    return found


def commands() -> list[str]:
    lines = [line for page in PAGES for line in code_lines(page.read_text())]
    found = [" ".join(line.split()) for line in lines if re.match(r"dgmarl [a-z-]+ ", line)]
    assert len(found) >= 6
    return sorted({line for line in found if not re.search(r"\.\.\.|METHOD|--config", line)})


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


def test_links_of_the_site_stay_in_it():
    """The site has docs/ alone; other files are named in code font."""
    for page in (ROOT / "docs").glob("*.md"):
        assert "](../" not in page.read_text(), page.name


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / page).read_text(), flags=re.DOTALL)


@pytest.mark.parametrize(
    "page",
    ["README.md", "docs/graphs.md", "docs/environments.md"],
)
def test_python_of_a_page_runs(page, monkeypatch, tmp_path):
    """With one seed and 500 steps."""
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
    found = blocks(page, "python")
    assert found
    for block in found:
        exec(compile(block, page, "exec"), {})


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
