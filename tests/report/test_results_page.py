"""The committed page is what the committed results give, and its verdicts follow the numbers."""

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from dgmarl.report.results import Result, read_results
from dgmarl.report.results_page import page, trios, write_page

ROOT = Path(__file__).parents[2]
FIGURES = ("star-spread-ippo.svg", "star-spread-mappo.svg", "lbf-oracle.svg")
NUMBER = re.compile(r"-?\d+\.\d+")


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("docs")
    write_page(ROOT / "results", folder)
    return folder


def test_the_committed_page_is_current(written):
    hint = "run `python -m dgmarl.report.results_page`"
    assert (written / "results.md").read_text() == (ROOT / "docs" / "results.md").read_text(), hint


@pytest.mark.parametrize("name", FIGURES)
def test_the_committed_figures_are_current(written, name):
    ours, committed = ((folder / "figures" / name).read_text() for folder in (written, ROOT / "docs"))
    assert NUMBER.sub("#", ours) == NUMBER.sub("#", committed)
    # A coordinate that lies on a rounding edge may differ in its last digit on another machine.
    coordinates = [np.array(NUMBER.findall(text), float) for text in (ours, committed)]
    assert np.abs(coordinates[0] - coordinates[1]).max() < 0.11


@pytest.mark.parametrize("name", FIGURES)
def test_figures_are_whole_files_with_a_band_and_a_line_per_curve(written, name):
    figure = ElementTree.parse(written / "figures" / name).getroot()
    tags = [element.tag.rpartition("}")[2] for element in figure.iter()]
    curves = 6 if name.startswith("lbf") else 12
    assert tags.count("polygon") == tags.count("polyline") == curves
    assert "var(" not in (written / "figures" / name).read_text()


def test_every_figure_of_the_page_exists(written):
    for path in re.findall(r"\]\((figures/[^)]+)\)", (written / "results.md").read_text()):
        assert (written / path).is_file()


def shifted(results: list[Result], by: float) -> list[Result]:
    """The same results with another return of the graph's."""
    return [result._replace(returns=result.returns + by * ("-dg" in result.method)) for result in results]


def test_verdicts_follow_the_numbers():
    results = read_results(ROOT / "results")
    better, worse = (page(shifted(results, by))[0] for by in (1e4, -1e4))
    assert "- better in 8 of 8" in better
    assert "- worse in 8 of 8" in worse
    assert "- better in 2 of 2" in better
    assert "- worse in 2 of 2" in worse


def final_mean(name: str) -> float:
    facts = json.loads((ROOT / "results" / "star-spread" / f"{name}.json").read_text())
    return float(np.mean([seed[-1] for seed in facts["return_mean"]]))


def test_the_graph_is_compared_with_the_better_baseline():
    for trio in trios(read_results(ROOT / "results"), "star-spread", "dg"):
        finals = {credit: final_mean(f"{trio.scenario}__{trio.backbone}-{credit}") for credit in ("local", "global", "dg")}
        assert trio.advantage.estimate == pytest.approx(finals["dg"] - max(finals["local"], finals["global"]))


def test_incomplete_trios_are_left_out():
    results = [result for result in read_results(ROOT / "results") if (result.scenario, result.method) != ("n5", "ippo-local")]
    kept = {(trio.scenario, trio.backbone) for trio in trios(results, "star-spread", "dg")}
    assert ("n5", "ippo") not in kept
    assert ("n5", "mappo") in kept
