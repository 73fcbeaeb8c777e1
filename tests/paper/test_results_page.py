"""The committed pages are what the committed results give, and their verdicts follow the
numbers."""

import json
import re
import shutil
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from dgmarl.errors import UsageError
from dgmarl.paper.claims import claims, trios
from dgmarl.paper.grids import SIX
from dgmarl.paper.paper_figures import IQM_OF_PAPER
from dgmarl.paper.results_page import MARKS, page, with_section, write_page
from dgmarl.report.results import Result, read_results

ROOT = Path(__file__).parents[2]
HINT = "run `python -m dgmarl.paper.results_page`"
COMMITTED = sorted(path.name for path in (ROOT / "docs" / "figures").glob("*.svg"))
RESULTS = read_results(ROOT / "results")


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("docs")
    shutil.copy(ROOT / "README.md", folder / "README.md")
    write_page(ROOT / "results", folder, folder / "README.md")
    return folder


def test_the_committed_pages_are_current(written):
    assert (written / "results.md").read_text() == (ROOT / "docs" / "results.md").read_text(), HINT
    assert (written / "README.md").read_text() == (ROOT / "README.md").read_text(), HINT


def test_the_committed_figures_are_current(written):
    """Another version of matplotlib draws them differently, but of the same data: the last line
    says so."""
    ours = {
        path.name: path.read_text().splitlines()[-1] for path in (written / "figures").glob("*.svg")
    }
    assert ours == {
        name: (ROOT / "docs" / "figures" / name).read_text().splitlines()[-1] for name in COMMITTED
    }, HINT


@pytest.mark.parametrize("name", COMMITTED)
def test_figures_are_whole_files_with_units_and_seeds(written, name):
    path = written / "figures" / name
    ElementTree.parse(path)
    assert re.search(r"seeds|runs per method", path.read_text())
    assert "var(" not in path.read_text()


def test_every_figure_of_the_page_exists(written):
    found = re.findall(r"\]\((figures/[^)]+)\)", (written / "results.md").read_text())
    assert sorted(Path(path).name for path in found) == COMMITTED


def shifted(results: list[Result], by: float) -> list[Result]:
    """The same results with another return of the graph's."""
    return [
        result._replace(returns=result.returns + by * ("-dg" in result.method))
        for result in results
    ]


def test_verdicts_follow_the_numbers():
    spread = [result for result in RESULTS if result.benchmark == "star-spread"]
    better, worse = (page(shifted(spread, by), [])[0] for by in (1e4, -1e4))
    count = len(trios(spread, "star-spread", "dg"))
    assert f"- better in {count} of {count}" in better
    assert f"- worse in {count} of {count}" in worse
    first = [claims(shifted(RESULTS, by))[0].verdict for by in (1e4, 0.0, -1e4)]
    assert first == ["agrees", "agrees", "does not agree"]


def six_scenarios(graph: float) -> list[Result]:
    """Made-up results of all that the paper has numbers of; the learned graph ends at `graph`,
    everything else at 0.5."""
    noise = np.random.default_rng(0).normal(0, 0.01, (len(SIX), len(IQM_OF_PAPER), 10))
    template = next(result for result in RESULTS if result.benchmark == "lbf")
    return [
        template._replace(
            scenario=scenario,
            method=method,
            env=f"lbf/{scenario}",
            returns=np.stack(
                [np.zeros(10), noise[j, k] + (graph if "-dg" in method else 0.5)], axis=1
            ),
            steps=np.tile([1000, 5_000_000], (10, 1)),
            facts={
                name: template.facts[name]
                for name in ("config", "device", "jax", "code", "episodes_per_evaluation")
            },
        )
        for j, scenario in enumerate(SIX)
        for k, method in enumerate(IQM_OF_PAPER)
    ]


def test_with_all_six_scenarios_the_papers_numbers_stand_beside_ours():
    text, figures = page(six_scenarios(graph=0.89), [])
    assert re.search(
        r"\| IPPO-DG learned \| 0\.89 \| 0\.8\d+ \[[^]]+\] \| within our interval \|", text
    )
    assert re.search(r"\| IPPO local \| 0\.66 \| 0\.5\d+ \[[^]]+\] \| above ours \|", text)
    assert {
        "lbf-curves.svg",
        "lbf-intervals.svg",
        "lbf-profiles.svg",
        "lbf-sample-efficiency.svg",
    } <= figures.keys()


@pytest.mark.parametrize(
    ("graph", "verdict"), [(0.9, "agrees"), (0.5, "open"), (0.1, "does not agree")]
)
def test_the_claim_on_the_iqm_is_judged_by_the_intervals(graph, verdict):
    (claim,) = [claim for claim in claims(six_scenarios(graph)) if "IQM" in claim.paper]
    assert claim.verdict == verdict
    assert len(claim.comparisons) == 4


def values(**final: float) -> list[Result]:
    """Made-up results of IQL and QMIX, 1 and 5 million steps, in all six scenarios; `final` after 1
    million steps."""
    template = six_scenarios(0.5)[0]
    noise = np.random.default_rng(0).normal(0, 0.01, 10)
    found = []
    for scenario in SIX:
        for method, value in final.items():
            first, full = value + noise, 0.5 + noise
            steps = [1_000_020, 5_000_010] if method == "qmix" else [500_000, 1_000_030]
            returns = np.stack([first, full] if method == "qmix" else [full, first], axis=1)
            own = {
                "scenario": scenario,
                "method": method,
                "env": f"lbf/{scenario}",
                "returns": returns,
            }
            found.append(template._replace(**own, steps=np.tile(steps, (10, 1))))
    return found


def row(text: str, scenario: str) -> list[str]:
    """The scenario's line of the table of value-based methods."""
    lines = text.partition("**Value-based methods**")[2].splitlines()
    return (
        next(line for line in lines if line.startswith(f"| `{scenario}`")).strip("| ").split(" | ")
    )


def test_value_based_methods_are_held_against_the_paper_in_each_scenario():
    text = page(values(iql=0.99, qmix=0.2), [])[0]
    # After as many steps IQL is ahead, though QMIX had five times more and ended higher than at 1
    # million.
    assert row(text, "15x15-4p-3f")[-1] == "**agrees** (after 1 of 5 million steps)"
    assert row(text, "10x10-3p-3f")[-1].startswith("**agrees in part**")
    assert row(text, "8x8-2p-4f-coop")[-1].startswith("**does not agree**")
    cells = row(text, "15x15-4p-3f")
    assert cells[1].startswith("0.99")
    assert cells[1].endswith("] after 1 million")
    assert cells[3].startswith("0.5")
    assert cells[3].endswith("]")
    assert cells[2] == cells[4] == ""
    other = page(values(iql=0.02, qmix=0.2), [])[0]
    assert row(other, "15x15-4p-3f")[-1].startswith("**does not agree**")
    # It may still learn.
    assert row(other, "8x8-2p-4f-coop")[-1] == "**open** (after 1 of 5 million steps)"


def test_claims_of_one_sentence_are_counted_together_with_their_steps():
    judged = {claim.paper: claim for claim in claims(values(iql=0.99, qmix=0.2))}
    ahead, fails = (
        next(claim for paper, claim in judged.items() if word in paper)
        for word in ("beats QMIX", "IQL fails")
    )
    assert ahead.counted() == "3 for it (after 1 of 5 million steps)"
    assert fails.counted() == "2 against it (after 1 of 5 million steps)"
    alone = [result for result in values(iql=0.99, qmix=0.2) if result.method == "qmix"]
    verdicts = {claim.paper: claim.verdict for claim in claims(alone)}
    assert verdicts[ahead.paper] == verdicts[fails.paper] == "not tested yet"


def test_tables_say_so_where_steps_differ():
    text = page(values(iql=0.99, qmix=0.2), [])[0]
    assert "| method | IQM | the paper's IQM | mean in its worst scenario | runs | steps |" in text
    equal = page(six_scenarios(0.5), [])[0]
    assert "| method | IQM | the paper's IQM | mean in its worst scenario | runs |\n" in equal


def test_what_has_no_results_is_said_to_be_untested():
    spread = [result for result in RESULTS if result.benchmark == "star-spread"]
    assert "Not tested yet" in page(spread, [])[0]
    assert {claim.verdict for claim in claims(spread) if claim.benchmark == "Foraging"} == {
        "not tested yet"
    }


def test_costs_are_summed_by_kind_of_machine():
    costs = [
        {"command": "a", "cells": 2, "device": "NVIDIA H200", "seconds": 600},
        {"command": "b", "cells": 1, "device": "cpu", "seconds": 7200},
    ]
    text = page(six_scenarios(0.5), costs)[0]
    assert (
        "36 runs with 360 seeds took 1,800 million environment steps, 10 GPU minutes, 2.0 CPU hours"
        in text
    )
    assert "(33 runs were not timed)" in text


def final_mean(name: str) -> float:
    facts = json.loads((ROOT / "results" / "star-spread" / f"{name}.json").read_text())
    return float(np.mean([seed[-1] for seed in facts["return_mean"]]))


def test_the_graph_is_compared_with_the_better_baseline():
    for trio in trios(RESULTS, "star-spread", "dg"):
        finals = {
            credit: final_mean(f"{trio.scenario}__{trio.backbone}-{credit}")
            for credit in ("local", "global", "dg")
        }
        assert trio.advantage.estimate == pytest.approx(
            finals["dg"] - max(finals["local"], finals["global"])
        )


def test_incomplete_trios_are_left_out():
    results = [
        result for result in RESULTS if (result.scenario, result.method) != ("n5", "ippo-local")
    ]
    kept = {(trio.scenario, trio.backbone) for trio in trios(results, "star-spread", "dg")}
    assert ("n5", "ippo") not in kept
    assert ("n5", "mappo") in kept


def test_only_what_stands_between_the_marks_is_replaced():
    readme = f"before\n{MARKS[0]}\nold\n{MARKS[1]}\nafter"
    assert with_section(readme, "new \\1") == "before\nnew \\1\nafter"
    with pytest.raises(UsageError, match="lacks the lines"):
        with_section("nothing", "new")
