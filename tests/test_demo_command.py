"""`make demo` at reduced steps: runs are trained for real, and the page is written."""

import json
import re

import numpy as np
import pytest

from dgmarl import cli
from dgmarl.cli import demo_page
from dgmarl.runs.replays import Episode


def test_the_demo_trains_on_both_tasks_and_writes_its_page(tmp_path, capsys, monkeypatch):
    """With one kind of credit; all three: the slow tests in `cli/test_demo.py`."""
    monkeypatch.setattr(demo_page, "CREDITS", ("dg",))
    with pytest.raises(SystemExit) as stop:
        cli.main(["demo", "--seeds", "1", "--scale", "0.01", "--out", str(tmp_path)])
    assert stop.value.code == 0, capsys.readouterr().err
    text = (tmp_path / "index.html").read_text()
    (data,) = re.findall('id="data">(.*?)</script>', text)
    charts = json.loads(data)["charts"]
    assert len(charts) == 2
    assert [len(chart["series"]) for chart in charts] == [1, 1]
    assert "index.html" in capsys.readouterr().out


def test_every_run_of_the_demo_has_a_configuration():
    for task in demo_page.TASKS:
        configs = [task.config(credit, 3, 1.0) for credit in demo_page.CREDITS]
        assert [run.method for run in configs] == ["ippo-local", "ippo-global", "ippo-dg"]


def test_the_page_names_the_first_step_with_an_arrow():
    graph = np.tile(np.eye(2, dtype=bool), (4, 1, 1))
    episode = Episode(("",) * 5, 1, np.zeros((4, 2)), True, graph)
    assert demo_page.first_edge(episode) is None
    graph[2:, 0, 1] = True
    assert demo_page.first_edge(episode) == 2
    assert demo_page.first_edge(episode._replace(graph=None)) is None
