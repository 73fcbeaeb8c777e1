"""Runs that differ in their settings: the best of them, and parallel coordinates."""

import re

import numpy as np
import pytest

from dgmarl.cli import main
from dgmarl.report.figures import parallel_coordinates, svg
from dgmarl.report.results import gather
from dgmarl.report.run_page import run_page
from dgmarl.report.search import MOST_LINES, searches
from tests.report.fake_runs import write_run

RATES = (1e-4, 1e-3, 1e-2)
REACHED = {1e-4: 0.2, 1e-3: 0.8, 1e-2: 0.5}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A search with two methods, and another environment without one."""
    folder = tmp_path_factory.mktemp("search")
    for method in ("ippo-local", "ippo-dg"):
        for rate in RATES:
            finals = (REACHED[rate], REACHED[rate] + 0.1 * (method == "ippo-dg"))
            overrides = {"learner.learning_rate": rate}
            write_run(folder / method / f"{rate:g}", method, finals=finals, overrides=overrides)
        write_run(folder / method / "other", method, env="star-spread/5", finals=(-9.0,))
    return folder


def test_a_search_lists_what_differs_best_first(folder):
    (search,) = searches(gather([folder]))
    assert search.env == "lbf/8x8-2p-2f"
    assert [*search.settings] == ["method", "learner.learning_rate"]
    assert search.settings["learner.learning_rate"] == [1e-3, 1e-3, 1e-2, 1e-2, 1e-4, 1e-4]
    assert search.settings["method"] == ["ippo-dg", "ippo-local"] * 3
    text = svg(search.figure())
    for words in (
        "learning_rate",
        "final return",
        "0.0001",
        "0.01",
        "ippo-local",
        "a line per run",
    ):
        assert words in text


def test_methods_that_differ_in_nothing_else_are_no_search(tmp_path):
    for method in ("ippo-local", "ippo-dg", "mappo-local", "mappo-dg", "qmix"):
        write_run(tmp_path / method, method)
    assert not list(searches(gather([tmp_path])))


def test_the_page_and_the_table_show_the_best_first(folder, capsys):
    page = run_page(gather([folder]))
    plain = re.sub(r"<[^>]+>", " ", page[page.index("Best settings") :])
    assert plain.index("0.850") < plain.index("0.800") < plain.index("0.550")
    with pytest.raises(SystemExit) as stop:
        main(["table", str(folder), "--best"])
    assert stop.value.code == 0
    lines = capsys.readouterr().out.splitlines()
    means = [float(line.split("│")[3]) for line in lines if "│" in line and "8x8" in line]
    assert means == [0.85]
    assert "Best settings" not in run_page(gather([folder / "ippo-dg" / "other"]))


def test_runs_that_were_stopped_early_are_marked(tmp_path):
    for rate in (1e-4, 3e-4, 1e-3, 3e-3):
        write_run(tmp_path / f"{rate:g}", "ippo-dg", overrides={"learner.learning_rate": rate})
    (tmp_path / "0.001" / "stopped_early.txt").write_text("stopped early")
    page = run_page(gather([tmp_path]))
    assert page[page.index("Best settings") :].count(", stopped early") == 1


def test_heights_are_linear_logarithmic_or_by_name():
    values = {"small": [1, 2, 3], "wide": [1, 10, 100], "name": ["b", None, "a"], "same": [5] * 3}
    lines = parallel_coordinates({**values, "return": [0.0, 0.5, 1.0]}, "").axes[0].get_lines()
    heights = np.array([line.get_ydata() for line in lines if len(line.get_ydata()) == 5])
    np.testing.assert_allclose(heights[:, 0], [0, 0.5, 1])
    np.testing.assert_allclose(heights[:, 1], [0, 0.5, 1])
    np.testing.assert_allclose(heights[:, 2], [1, 0, 0.5])
    np.testing.assert_allclose(heights[:, 3], 0.5)


def test_a_picture_of_many_runs_says_what_it_leaves_out(folder):
    (search,) = searches(gather([folder]))
    times = MOST_LINES // len(search.runs) + 1
    settings = {name: values * times for name, values in search.settings.items()}
    many = search._replace(runs=search.runs * times, settings=settings)
    figure = many.figure()
    lines = [line for line in figure.axes[0].get_lines() if len(line.get_ydata()) == 3]
    assert len(lines) == MOST_LINES
    assert f"the {MOST_LINES} best runs of {len(many.runs)}" in svg(figure)


def test_the_page_of_a_large_search_has_curves_of_its_best_runs(folder, monkeypatch):
    monkeypatch.setattr("dgmarl.report.run_page.MOST_SEARCHED", 2)
    page = run_page(gather([folder]))
    assert "8 results in lbf/8x8-2p-2f, star-spread/5. Only Best settings includes" in page
    curves = page[page.index("<h2>Final return") : page.index("<h2>Best settings")]
    assert re.findall(r"<td>(0[.]\d+)</td>", curves) == ["0.800", "0.850"]
    assert curves.count("-9.0") == 2
