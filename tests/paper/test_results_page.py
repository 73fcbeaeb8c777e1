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
from dgmarl.paper.claims import claims
from dgmarl.paper.graphs_page import graphs_section
from dgmarl.paper.grids import SIX, SMACLITE_STEPS
from dgmarl.paper.judging import Claim, answer, spread_difference, trios
from dgmarl.paper.paper_figures import FIGURES, IQM_OF_PAPER
from dgmarl.paper.results_page import (
    MARKS,
    draw_figures,
    other_pages,
    page_text,
    readme_section,
    with_section,
    write_page,
)
from dgmarl.report.figures import data_digest, svg
from dgmarl.report.results import Result, read_results
from dgmarl.report.statistics import Interval, contrast_interval

ROOT = Path(__file__).parents[2]
HINT = "run `python -m dgmarl.paper.results_page`"
COMMITTED = sorted(
    path.name for name in FIGURES for path in (ROOT / "docs" / "figures").glob(f"{name}-*.svg")
)
RESULTS = read_results(ROOT / "results")


COSTS, INFLUENCE = (
    json.loads((ROOT / "results" / name).read_text())
    for name in ("costs.json", "graphs/state-influence.json")
)


@pytest.fixture(scope="module")
def drawn() -> dict:
    """All figures as objects; rendering them takes as long again and is left to the slow test."""
    return draw_figures(RESULTS)


def test_the_committed_pages_are_current(drawn):
    committed = (ROOT / "docs" / "results.md").read_text()
    assert page_text(RESULTS, COSTS, drawn, INFLUENCE) == committed, HINT
    readme = (ROOT / "README.md").read_text()
    assert with_section(readme, readme_section(RESULTS, COSTS, INFLUENCE)) == readme, HINT
    others = other_pages(ROOT / "docs", RESULTS, ROOT / "results")
    assert len(others) == 2
    for path, document in others.items():
        assert document == path.read_text(), HINT


def test_the_committed_figures_are_current(drawn):
    """Versions of matplotlib render the same data differently: the last line of a file is a hash of
    the data."""
    ours = {
        f"{name}-{kind}.svg": f"<!-- data {data_digest(picture)} -->"
        for name, of_kind in drawn.items()
        for kind, picture in of_kind.items()
    }
    assert ours == {
        name: (ROOT / "docs" / "figures" / name).read_text().splitlines()[-1] for name in COMMITTED
    }, HINT


@pytest.mark.parametrize("name", COMMITTED)
def test_figures_are_whole_files_with_units_and_seeds(name):
    path = ROOT / "docs" / "figures" / name
    ElementTree.parse(path)
    assert re.search(r"seeds|runs per method", path.read_text())
    assert "var(" not in path.read_text()


def test_every_figure_of_the_page_exists():
    found = re.findall(r"\]\((figures/[^)]+)\)", (ROOT / "docs" / "results.md").read_text())
    assert sorted(Path(path).name for path in found) == COMMITTED


def last_lines(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text().splitlines()[-1] for path in folder.glob("*.svg")}


def test_the_command_writes_page_figures_and_readme_and_removes_old_figures(tmp_path):
    """With one small benchmark; the slow test below has all of them."""
    results, docs, readme = tmp_path / "results", tmp_path / "docs", tmp_path / "README.md"
    for path in (ROOT / "results" / "star-spread").glob("n5__*.json"):
        (results / "star-spread").mkdir(parents=True, exist_ok=True)
        shutil.copy(path, results / "star-spread")
    (docs / "figures").mkdir(parents=True)
    for name in ("mpe-old.svg", "own.svg"):
        (docs / "figures" / name).write_text("<svg/>")
    readme.write_text(f"before\n{MARKS[0]}\nold\n{MARKS[1]}\nafter\n")
    assert write_page(results, docs, readme) == docs / "results.md"
    assert sorted(path.name for path in (docs / "figures").iterdir()) == [
        "mpe-curves.svg",
        "mpe-graphs.svg",
        "own.svg",
    ]
    ElementTree.parse(docs / "figures" / "mpe-curves.svg")
    assert "![mpe: learning curves" in (docs / "results.md").read_text()
    assert f"\n{len(claims([]))} claims" in readme.read_text()


@pytest.mark.slow
def test_the_command_writes_what_is_committed(tmp_path):
    shutil.copy(ROOT / "README.md", tmp_path / "README.md")
    write_page(ROOT / "results", tmp_path, tmp_path / "README.md")
    assert (tmp_path / "results.md").read_text() == (ROOT / "docs" / "results.md").read_text()
    assert (tmp_path / "README.md").read_text() == (ROOT / "README.md").read_text()
    assert last_lines(tmp_path / "figures") == {
        name: line
        for name, line in last_lines(ROOT / "docs" / "figures").items()
        if name in COMMITTED
    }


def shifted(results: list[Result], by: float) -> list[Result]:
    """The same results with another return of the graph's."""
    return [
        result._replace(returns=result.returns + by * ("-dg" in result.method))
        for result in results
    ]


def test_verdicts_follow_the_numbers():
    spread = [result for result in RESULTS if result.benchmark == "star-spread"]
    better, worse = (page_text(shifted(spread, by), [], {}) for by in (1e4, -1e4))
    count = len(trios(spread, "star-spread", "dg"))
    assert f"- Star-Spread: better in {count}, open in 0, worse in 0 of {count}" in better
    assert f"- Star-Spread: better in 0, open in 0, worse in {count} of {count}" in worse
    first = [
        next(one for one in claims(shifted(RESULTS, by)) if one.benchmark == "Star-Spread").verdict
        for by in (1e4, 0.0, -1e4)
    ]
    assert first == ["agrees", "agrees", "does not agree"]


def test_known_graphs_are_judged_by_star_spread_and_by_interquartile_means():
    def judged(by: float) -> Claim:
        (claim,) = [one for one in claims(shifted(RESULTS, by)) if one.benchmark == "Known graphs"]
        return claim

    assert len(judged(0).comparisons) == 12 + 4
    assert (judged(1e4).verdict, judged(-1e4).verdict) == ("agrees", "does not agree")


def test_a_learned_graph_fails_on_the_belt_if_it_is_worse_there_than_on_the_relay():
    def verdict(belt: float, relay: float) -> str:
        noise = np.random.default_rng(0).normal(0, 0.01, (2, 2, 5))
        influence = {
            task: {
                "returns": {
                    "ippo-dg interventional:3": list(noise[k, 0] + 1),
                    "ippo-dg learned": list(noise[k, 1] + learned),
                }
            }
            for k, (task, learned) in enumerate({"Belt": belt, "Relay": relay}.items())
        }
        return claims([], {"steps": 100, **influence})[-1].verdict

    assert verdict(belt=0.2, relay=0.9) == "agrees"
    assert verdict(belt=0.5, relay=0.2) == "agrees in part"
    assert verdict(belt=1.2, relay=1.0) == "does not agree"
    assert claims([])[-1].verdict == "not tested yet"


def test_most_cases_are_enough_for_a_claim_about_most_cases():
    against, supports = (answer(Interval(x, x - 0.5, x + 0.5)) for x in (-1, 1))
    verdicts = [
        Claim("", [against] * 3 + [supports] * n, most=most).verdict
        for n, most in ((4, True), (3, True), (4, False))
    ]
    assert verdicts == ["agrees", "agrees in part", "agrees in part"]


def test_spreads_of_seeds_are_compared_by_deviations_from_their_median():
    template = six_scenarios(0.5)[0]
    wide, narrow = (
        template._replace(returns=np.tile(scale * np.arange(10.0)[:, None], (1, 2)))
        for scale in (1.0, 0.1)
    )
    found = spread_difference(wide, narrow)
    assert found.estimate == pytest.approx(2.5 - 0.25)
    assert found.low > 0


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
    results = six_scenarios(graph=0.89)
    text = page_text(results, [], {})
    assert re.search(
        r"\| IPPO-DG learned \| 0\.89 \| 0\.8\d+ \[[^]]+\] \| within our interval \|", text
    )
    assert re.search(r"\| IPPO local \| 0\.66 \| 0\.5\d+ \[[^]]+\] \| above ours \|", text)
    assert {"curves", "intervals", "profiles", "sample-efficiency"} <= draw_figures(results)[
        "lbf"
    ].keys()


@pytest.mark.parametrize(
    ("graph", "verdict"), [(0.9, "agrees"), (0.5, "open"), (0.1, "does not agree")]
)
def test_the_claim_on_the_iqm_is_judged_by_the_intervals(graph, verdict):
    (claim,) = [one for one in claims(six_scenarios(graph)) if one.paper.startswith("Over the six")]
    assert claim.verdict == verdict
    assert len(claim.answers) == 4


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
    lines = text.partition("<summary>Value-based methods")[2].splitlines()
    return (
        next(line for line in lines if line.startswith(f"| `{scenario}`")).strip("| ").split(" | ")
    )


def test_value_based_methods_are_held_against_the_paper_in_each_scenario():
    text = page_text(values(iql=0.99, qmix=0.2), [], {})
    # After as many steps IQL is ahead, though QMIX had five times more and ended higher than at 1
    # million.
    assert row(text, "15x15-4p-3f")[-1] == "**agrees**"
    assert row(text, "10x10-3p-3f")[-1] == "**agrees in part**"
    assert row(text, "8x8-2p-4f-coop")[-1] == "**does not agree**"
    cells = row(text, "15x15-4p-3f")
    assert cells[1].startswith("0.99")
    assert cells[1].endswith("] after 1 million")
    assert cells[3].startswith("0.5")
    assert cells[3].endswith("]")
    assert cells[2] == cells[4] == ""
    other = page_text(values(iql=0.02, qmix=0.2), [], {})
    assert row(other, "15x15-4p-3f")[-1] == "**does not agree**"
    # It may still learn.
    assert row(other, "8x8-2p-4f-coop")[-1] == "**open**"


def test_claims_of_one_sentence_are_counted_together_with_their_steps():
    judged = {claim.paper: claim for claim in claims(values(iql=0.99, qmix=0.2))}
    ahead, fails = (
        next(claim for paper, claim in judged.items() if word in paper)
        for word in ("beats QMIX", "QMIX fail")
    )
    assert ahead.counted() == "3 for it"
    assert fails.counted() == "2 open, 2 against it"
    assert "3 runs of 5 million steps in `results/lbf` (150 million" in ahead.budget()
    assert {run.method for run in ahead.lacks} == {"iql"}  # QMIX had 5 million
    alone = [result for result in values(iql=0.99, qmix=0.2) if result.method == "qmix"]
    verdicts = {claim.paper: claim.verdict for claim in claims(alone)}
    assert verdicts[ahead.paper] == "not tested yet"


def battles(**final: dict[str, float]) -> list[Result]:
    """Made-up results of all six maps at the paper's steps, five seeds; by method the final return
    of the maps named, 18 in all others."""
    template = six_scenarios(0.5)[0]
    noise = np.random.default_rng(0).normal(0, 0.1, 5)
    return [
        template._replace(
            benchmark="smaclite",
            scenario=scenario,
            method=method.replace("_", "-"),
            env=f"smaclite/{scenario}",
            returns=np.stack([np.zeros(5), of_map.get(scenario, 18.0) + noise], axis=1),
            steps=np.tile([1000, steps], (5, 1)),
        )
        for method, of_map in final.items()
        for scenario, steps in SMACLITE_STEPS.items()
    ]


def test_new_battles_are_judged_and_shown_without_a_change_of_the_code():
    results = battles(
        mappo_local_fast={"25m_vs_30m": 10.0},
        mappo_global_fast={"corridor": 10.0},
        mappo_dg_learned_fast={},
        qmix={},
        qplex={"bane_vs_bane": 5.0},
    )
    judged = {claim.paper: claim for claim in claims(results) if claim.benchmark == "SMAClite"}
    assert not any(claim.lacks for claim in judged.values())
    verdicts = [claim.verdict for claim in judged.values()]
    # QPLEX fails in bane_vs_bane, but is not slower than QMIX in 3s5z_vs_3s6z; the last claim is
    # not tested.
    assert verdicts == ["agrees"] * 5 + ["agrees in part", "agrees", "open"]
    text = page_text(results, [], {})
    assert re.search(
        r"\| `corridor` \| MAPPO global fast \| (9|10)\.\d+ \[.*\| 5 \| 5 million \|", text
    )
    short = [one._replace(steps=one.steps // 4) for one in results]
    assert "1.2 of 5 million |" in page_text(short, [], {})


FULL, SAMPLED = "mappo-dg-interventional-fast", "mappo-dg-interventional-sampled2-fast"


def on_mmm2(method: str, steps: list[float], returns: list[float]) -> Result:
    """A made-up result on MMM2 with five equal seeds."""
    (template,) = [one for one in battles(qmix={}) if one.scenario == "MMM2"]
    seeds = np.ones((5, 1))
    return template._replace(
        method=method, steps=(seeds * steps).astype(int), returns=seeds * returns
    )


def baselines_on_mmm2() -> list[Result]:
    """The other kinds of credit, with evaluations at 0, 1 and 2 million steps."""
    names = ("local", "global", "dg-learned", "dg-oracle")
    return [on_mmm2(f"mappo-{name}-fast", [0, 1e6, 2e6], [0.0, 10.0, 20.0]) for name in names]


def cells_of(results: list[Result], after: str, row: str) -> list[str]:
    """Cells of a row, named by its first cells, in the first table after some text, without
    intervals; empty without such a row."""
    table = page_text(results, [], {}).partition(after)[2].partition("</details>")[0]
    rows = re.findall(rf"\| {re.escape(row)} \|(.*)\|", table)
    cells = rows[0].split("|") if rows else []
    return [re.sub(r" \[.*?\]", "", cell).strip() for cell in cells]


AGAINST = "<summary>Graph credit against the better"
SIDE_BY_SIDE = "<summary>All interventions and a sample"


def test_an_unfinished_graph_is_compared_after_equally_many_steps():
    """Evaluations of the unfinished run are at 0, 1 and 1.5 million steps."""
    short = on_mmm2(FULL, [0, 1e6, 1.5e6], [0.0, 12.0, 17.0])
    results = [*baselines_on_mmm2(), short]
    cells = cells_of(results, AGAINST, "`MMM2` | all interventions")
    assert [float(cell) for cell in cells[:4]] == [10, 10, 12, 2]
    assert (cells[4], cells[7]) == ("better", "1 of 2 million")
    finished = cells_of(results, AGAINST, "`MMM2` | learned graph")
    assert [float(cell) for cell in finished[:4]] == [20, 20, 20, 0]
    assert (finished[4], finished[7]) == ("open", "2 million")


def test_the_better_baseline_is_that_after_equally_many_steps():
    """Global reward is ahead first, local reward in the end."""
    results = [
        on_mmm2("mappo-local-fast", [0, 1e6, 2e6], [0.0, 5.0, 30.0]),
        on_mmm2("mappo-global-fast", [0, 1e6, 2e6], [0.0, 11.0, 20.0]),
        on_mmm2(FULL, [0, 1e6], [0.0, 12.0]),
    ]
    cells = cells_of(results, AGAINST, "`MMM2` | all interventions")
    assert [float(cell) for cell in cells[:4]] == [5, 11, 12, 1]


def test_sampled_interventions_stand_beside_all_interventions():
    full = on_mmm2(FULL, [0, 1e6, 1.5e6], [0.0, 12.0, 17.0])
    sampled = on_mmm2(SAMPLED, [0, 1e6, 2e6], [0.0, 11.0, 19.0])
    both = [*baselines_on_mmm2(), full, sampled]
    main = {
        one: cells_of(both, "## SMAClite", f"MAPPO-DG {one}")
        for one in ("interventional-fast", "interventional-sampled2-fast")
    }
    assert list(main.values()) == [["17.0 after 1.5 million"], ["19.0"]]
    compared = cells_of(both, SIDE_BY_SIDE, "`MMM2`")
    assert [float(cell) for cell in compared[:3]] == [12, 11, -1]
    assert compared[3:] == ["worse", "1 of 2 million"]
    assert "| `MMM2` | MAPPO-DG interventional-sampled2-fast | 19.0 " in page_text(both, [], {})
    assert SIDE_BY_SIDE not in page_text([*baselines_on_mmm2(), full], [], {})


@pytest.mark.parametrize(
    ("finals", "words"),
    [
        ([-1.0, 0.0, 1.0, 2.0, 3.0], "13"),  # 1 +- 2.18 * 1.58 / sqrt(13)
        ([-1.0, -0.5, 0.0, 0.5, 1.0], "more than 100"),
        ([1.0, 1.1, 0.9, 1.0, 1.0], ""),
        ([1.0], ""),
    ],
)
def test_open_comparisons_state_the_seeds_that_would_decide_them(finals, words):
    compared = answer(contrast_interval([np.array(finals)], [1]))
    against = compared._replace(answer="no")
    claim = Claim("", [compared, answer(Interval(1, 0.5, 1.5))], steps=(2_500_000,), seeds=5)
    found = claim.budget()
    assert found == (f"Seeds of 2.5 million steps: {words}" if words else "")
    assert claim._replace(comparisons=[compared, against]).budget() == ""


def test_figures_leave_out_methods_with_few_scenarios():
    whole = battles(qmix={}, mappo_local_fast={})
    alone = [one for one in battles(mappo_local={}) if one.scenario == "MMM"]

    def legend(results: list[Result]) -> str:
        return svg(draw_figures(results)["smaclite"]["curves"])

    assert legend([*whole, *alone]).count("MAPPO local") == 1
    assert "MAPPO local" in legend(alone)


def test_battles_won_are_shown_over_training():
    (one, *_) = battles(qmix={})
    won = np.tile([0.0, 0.5, 1.0, 1.0, 1.0, 0.0], (5, 1))
    steps = np.tile(np.arange(6) * 200_000, (5, 1))
    one = one._replace(steps=steps, returns=20 * won, facts={**one.facts, "final_battle_won": won})
    line = next(line for line in page_text([one], [], {}).splitlines() if "` | QMIX | 0.0" in line)
    at_end, last_fifth, first = (cell.strip() for cell in line.split("|")[4:7])
    assert (at_end, first) == ("0.00", "0.36 million")  # 0.9 between 0.2 and 0.4 million steps
    assert float(last_fifth) == pytest.approx(0.5, abs=0.01)


def test_learned_graphs_stand_beside_the_oracles():
    results = battles(
        mappo_dg_learned_fast={"MMM": 10.0},
        mappo_dg_oracle_fast={"MMM": 15.0},
        mappo_local_fast={},
    )
    (line,) = [one for one in graphs_section(results).splitlines() if one.startswith("| `MMM` |")]
    returns = [cell.strip().partition(".")[0] for cell in line.split("|")[-5:-1]]
    assert returns == ["10", "15", "18", ""]


def test_tables_say_so_where_steps_differ():
    text = page_text(values(iql=0.99, qmix=0.2), [], {})
    lines = [line for line in text.splitlines() if line.startswith(("| IQL |", "| QMIX |"))]
    assert [line.split(" | ")[-1] for line in lines] == ["1 million |", "5 million |"]


def test_what_has_no_results_is_said_to_be_untested():
    spread = [result for result in RESULTS if result.benchmark == "star-spread"]
    assert "**not tested yet**" in page_text(spread, [], {})
    assert {claim.verdict for claim in claims(spread) if claim.benchmark == "Foraging"} == {
        "not tested yet"
    }


def test_costs_are_summed_by_kind_of_machine():
    costs = [
        {
            "command": "a",
            "benchmarks": ["lbf"],
            "cells": 2,
            "device": "NVIDIA H200",
            "seconds": 600,
        },
        {"command": "b", "benchmarks": ["lbf"], "cells": 1, "device": "cpu", "seconds": 7200},
    ]
    text = page_text(six_scenarios(0.5), costs, {})
    assert (
        "36 runs with 360 seeds took 1,800 million environment steps, 10 GPU minutes, 2.0 CPU hours"
        in text
    )
    assert "(33 runs were not timed)" in text


def test_each_benchmark_has_the_costs_of_its_commands():
    costs = [
        {
            "command": "",
            "benchmarks": names,
            "cells": 30,
            "device": "NVIDIA H200",
            "seconds": seconds,
        }
        for names, seconds in ((["lbf"], 60), (["smaclite", "lbf"], 120), (["lbf-credit"], 240))
    ]
    text = page_text(six_scenarios(0.5), costs, {})
    assert (
        "1,800 million steps (1 GPU minutes, and a part of 2 GPU minutes shared with other "
        "benchmarks)." in text
    )
    assert "were not timed" not in text


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
