"""`make demo` at reduced steps: every run is trained for real, and the page is written."""

import json
import re

import pytest

from dgmarl import cli


def test_the_demo_trains_everything_and_writes_its_page(tmp_path, capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(["demo", "--seeds", "1", "--scale", "0.01", "--out", str(tmp_path)])
    assert stop.value.code == 0, capsys.readouterr().err
    text = (tmp_path / "index.html").read_text()
    (data,) = re.findall('id="data">(.*?)</script>', text)
    charts = json.loads(data)["charts"]
    assert len(charts) == 2
    assert [len(chart["series"]) for chart in charts] == [3, 3]
    assert "index.html" in capsys.readouterr().out
