"""Documentation is executed: every `dgmarl` command in it parses, every link leads somewhere,
Python blocks run, and the commands of the first pages run in an empty folder."""

import os
import re
import shlex
import subprocess
import sys
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


FIRST_PAGES = ("README.md", "docs/quickstart.md")
NOT_OURS = ("git ", "make ", "python3 -m venv", "source ", "pip ")
"""How lines begin that get or install the package."""


def code_lines(text: str) -> list[str]:
    """Lines between fences, and indented ones."""
    fenced, found = False, []
    for line in text.splitlines():
        if line.startswith("```"):
            fenced = not fenced
        elif fenced or line.startswith("    "):
            found.append(line.strip())
    return found


def commands() -> list[str]:
    lines = [line for page in PAGES for line in code_lines(page.read_text())]
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


def test_links_of_the_site_stay_in_it():
    """The site has docs/ alone; other files are named in code font."""
    for page in (ROOT / "docs").glob("*.md"):
        assert "](../" not in page.read_text(), page.name


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / page).read_text(), flags=re.DOTALL)


@pytest.mark.parametrize(
    "page",
    [
        "README.md",
        *(f"docs/{name}.md" for name in ("graphs", "environments")),
        *(
            pytest.param(f"docs/{name}.md", marks=pytest.mark.slow)
            for name in ("quickstart", "tracking")
        ),
    ],
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


def smaller(block: str) -> str:
    """The lines of a block of shell that use the package, with one seed instead of several and a
    five-hundredth of the steps, at least 1000."""
    lines = [line for line in block.splitlines() if not line.startswith(NOT_OURS)]
    text = re.sub(r"(--seeds|^seeds:) \d+", r"\1 1", "\n".join(lines), flags=re.MULTILINE)
    return re.sub(
        r"(--steps|^steps:) (\S+)",
        lambda found: f"{found[1]} {max(1000, int(float(found[2]) / 500))}",
        text,
        flags=re.MULTILINE,
    )


def test_smaller_changes_nothing_but_seeds_and_steps():
    block = "pip install .\ndgmarl train a --seeds 5 --steps 1e6 --out b\nseeds: 2\nsteps: 6e4\n"
    assert smaller(block) == "dgmarl train a --seeds 1 --steps 2000 --out b\nseeds: 1\nsteps: 1000"


@pytest.mark.slow
@pytest.mark.parametrize("page", FIRST_PAGES)
def test_commands_of_the_first_pages_run_in_an_empty_folder(page, tmp_path):
    """All in the order of the page, each block by a shell that stops at the first error."""
    own, work = tmp_path / "bin", tmp_path / "work"
    own.mkdir()
    work.mkdir()
    start = "import sys; from dgmarl.cli import main; sys.argv[0] = 'dgmarl'; main()"
    (own / "dgmarl").write_text(f'#!/bin/sh\nexec {sys.executable} -c "{start}" "$@"\n')
    (own / "dgmarl").chmod(0o755)
    package = str(Path(cli.__file__).parents[2])
    known = {"PATH": f"{own}:{os.environ['PATH']}", "PYTHONPATH": package}
    if page == "README.md":  # which names a grid that it does not show
        (work / "grid.yaml").write_text("env: lbf/5x5-2p-1f\nlearner.hidden: [8, 16]\nsteps: 500\n")
    for block in blocks(page, "bash"):
        done = subprocess.run(
            ["bash", "-e", "-c", smaller(block)],
            cwd=work,
            env={**os.environ, **known},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, f"{block}\n{done.stdout}\n{done.stderr}"
    assert len(list((work / "runs").iterdir())) >= 3
    assert (work / "report.html").stat().st_size > 10_000


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
