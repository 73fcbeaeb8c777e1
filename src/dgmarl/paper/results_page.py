"""Write `docs/results.md` with its figures, the results section of the README, the comparison of
rules in `docs/credit.md` and that of graphs in `docs/learned-graphs.md`:
`python -m dgmarl.paper.results_page`.

Numbers and verdicts are computed from the files in `results/`, except the numbers in the reasons of
`claims.py`; a test checks that the committed pages are current."""

import argparse
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from matplotlib.figure import Figure

from dgmarl.errors import UsageError
from dgmarl.files import write_atomic
from dgmarl.paper.claims import FAST, claims
from dgmarl.paper.credit_page import credit_section
from dgmarl.paper.graphs_page import graphs_section
from dgmarl.paper.grids import SIX
from dgmarl.paper.judging import Claim, Verdict, trios
from dgmarl.paper.paper_figures import FIGURES, IQM_OF_PAPER
from dgmarl.paper.result_sections import (
    BATTLE_GRAPHS,
    BETTER,
    BY_SAMPLE,
    GRAPHS,
    Costs,
    battles,
    folded,
    foraging,
    joined,
    paper_iqms,
    plain,
    spent,
    star_spread,
    verdict,
)
from dgmarl.paper.tables import draw, iqm_table, markdown, text
from dgmarl.report.aggregate import over_scenarios
from dgmarl.report.figures import svg
from dgmarl.report.results import Result, read_json, read_results
from dgmarl.report.style import style

COSTS = "costs.json"
INFLUENCE = "graphs/state-influence.json"
SPEEDS = "benchmarks/train-cpu-rules.json"
MARKS = (
    "<!-- results: written by `python -m dgmarl.paper.results_page` -->",
    "<!-- end of results -->",
)


def draw_figures(results: Sequence[Result]) -> dict[str, dict[str, Figure]]:
    """Matplotlib figures by figure of the paper and kind."""
    chosen = {name: figure.chosen(results) for name, figure in FIGURES.items()}
    return {name: draw(own) for name, own in chosen.items() if own}


def page_text(
    results: Sequence[Result],
    costs: Costs,
    drawn: Mapping[str, Mapping[str, Figure]],
    influence: Mapping[str, Any] | None = None,
) -> str:
    """Markdown of `results.md`, with links to the figures of `drawn`. influence: as in `claims`."""
    shown = [one for one in results if any(figure.shows(one) for figure in FIGURES.values())]
    judged = claims(results, influence)
    further = [plain(FIGURES[name], shown, drawn) for name in ("motivation", "random-graphs")]
    return (
        joined(
            _head(shown, judged),
            _agreement(judged),
            star_spread(results, shown, drawn, costs),
            foraging(shown, drawn, costs),
            battles(shown, drawn, costs),
            "## The paper's other figures" if any(further) else "",
            *further,
            _choices(),
            _cost(results, costs),
        )
        + "\n"
    )


def readme_section(
    results: Sequence[Result], costs: Costs, influence: Mapping[str, Any] | None = None
) -> str:
    """README section: methods with numbers in the paper, verdicts on its claims, and the cost."""
    return f"""{MARKS[0]}
{_foraging_summary(results)}{_against_better(results)}

{_verdicts(claims(results, influence))}
{_price(results, costs)}
All tables, figures and commands: [docs/results.md](docs/results.md).
{MARKS[1]}"""


def _verdicts(judged: Sequence[Claim]) -> str:
    """Sentence with the number of claims per verdict."""
    found = [claim.verdict for claim in judged]
    counted = "; ".join(
        f"{each}: {found.count(each)}" for each in get_args(Verdict) if each in found
    )
    return f"{len(found)} claims of the paper, judged by 95 % intervals: {counted}."


def _foraging_summary(results: Sequence[Result]) -> str:
    """IQMs of the paper's six methods, and of the learned graph with tuned hyperparameters."""
    own = [result for result in results if result.benchmark == "lbf"]
    together = over_scenarios([result for result in own if result.method in IQM_OF_PAPER])
    if together.reason:
        return ""
    tuned = over_scenarios([result for result in own if result.method.endswith("learned-tuned")])
    listed = ", ".join(f"{text(tuned.iqm(one))} ({style(one).name})" for one in tuned.of_method)
    improved = f"With tuned hyperparameters: {listed}.\n" if listed else ""
    of_paper = "" if set(together.scenarios) == set(SIX) else f" {paper_iqms()}"
    return f"""Foraging, {len(together.scenarios)} scenarios: interquartile mean (IQM) of the final
return with its 95 % interval. A return of 1 means that all food was collected; *learned* is the
graph learned as in the paper.{of_paper}

{iqm_table(together).markdown()}

![Foraging, all scenarios together](docs/figures/lbf-intervals.svg)

{improved}"""


def _head(results: Sequence[Result], judged: Sequence[Claim]) -> str:
    episodes = _listed(result.facts["episodes_per_evaluation"] for result in results)
    return f"""# Results

<!-- Written by `python -m dgmarl.paper.results_page` from results/; do not edit. -->

Short answer: {_verdicts(judged)}
{_against_better(results)}

Numbers are means over seeds of the last evaluation ({episodes} episodes), not of the best one.
Differences have 95 % intervals by Welch's t in brackets. *Better* and *worse* mean that such an
interval excludes 0, *open* that it does not; there is no correction for multiple comparisons, and
choosing the better of local and global reward afterwards favours these. Means have 95 %
percentile-bootstrap intervals over seeds, as do bands and bars in figures, so that they can be
compared with those of other papers; with five seeds they are too narrow. Figures show methods with
results in at least half of the scenarios. The data are in
`results/BENCHMARK/SCENARIO__METHOD.json`; `dgmarl table results` prints all final returns."""


def _against_better(results: Sequence[Result]) -> str:
    """Verdicts on graph credit against the better of local and global reward, per benchmark."""
    compared = {"Star-Spread": trios(results, "star-spread", "dg")}
    for graph in GRAPHS:
        compared[f"foraging, {graph} graph"] = trios(results, "lbf", f"dg-{graph}")
    for graph in ("dg-oracle", "dg-learned", BY_SAMPLE):
        compared[f"SMAClite, {BATTLE_GRAPHS[graph]}"] = trios(results, "smaclite", graph, FAST)
    lines = []
    for name, found in compared.items():
        verdicts = [verdict(trio.advantage) for trio in found]
        counted = (f"{word} in {verdicts.count(word)}" for word in BETTER)
        lines += [f"- {name}: {', '.join(counted)} of {len(found)}"] * bool(found)
    if not lines:
        return ""
    title = "Graph credit against the better of local and global reward in each scenario:"
    return "\n".join([title, "", *lines])


def _agreement(judged: Sequence[Claim]) -> str:
    rows = [
        (
            claim.benchmark,
            claim.paper,
            f"**{claim.verdict}**",
            claim.counted(),
            claim.reason if claim.is_doubted else "",
            claim.budget(),
        )
        for claim in judged
    ]
    titles = ("", "claim of the paper", "verdict", "comparisons", "likely reason", "would decide")
    return f"""## The paper's claims

Each comparison is of one backbone in one scenario, between two scenarios, or of IQMs over the six
of foraging (with stratified bootstrap intervals). It is for or against a claim if its 95 % interval
excludes 0. If the claim is that one method is as good as another, a comparison is *not against it*
unless its interval lies below 0, and counts for the claim; if it is that a method does not improve,
unless its interval lies above 0. A wide interval is therefore not against such a claim either. The
last column has what would decide open comparisons: missing runs, and for each comparison the seeds
per method after which its interval would exclude 0 if means and spreads stayed as they are (none if
another comparison is against the claim anyway). On SMAClite, MMM is judged with the paper's
settings and the other maps with the preset *fast*. Theoretical claims are checked in
[theory.md](theory.md).

{markdown(titles, rows)}"""


def _choices() -> str:
    rows = [
        (f"`{name}`", len(figure.runs), figure.about, figure.choices)
        for name, figure in FIGURES.items()
    ]
    table = markdown(("name", "runs", "what it shows", "chosen here"), rows)
    return joined(
        """## Choices that the paper does not state, and costs

Each figure of the paper is a list of runs. `dgmarl reproduce NAME` trains or resumes them and draws
the figure; `--dry-run` lists the runs and estimates the time.""",
        folded("Figures, and the choices made here", table),
    )


def _cost(results: Sequence[Result], costs: Costs) -> str:
    devices, versions, codes = (
        _listed(result.facts[name] for result in results) for name in ("device", "jax", "code")
    )
    devices = devices.replace(", cpu", " and two CPU cores")
    commands = "\n".join(
        f"    {cost['command']}    # {cost['cells']} runs on {cost['device']}: "
        f"{cost['seconds'] // 60:.0f} min {cost['seconds'] % 60:.0f} s"
        for cost in costs
    )
    made = f"""These are the commands of the releases that trained the runs. In this release
`dgmarl grid NAME` trains them, with `--batched` instead of `--lanes` and `lbf-ablations` instead of
`lbf-levers`.

{commands}
    python -m dgmarl.paper.results_page    # this page and the README's section, from results/

Code: {codes}."""
    return joined(
        f"""{_price(results, costs)}
They ran on {devices} with jax {versions}, all seeds of a run in parallel; times include
compilation. Every result file contains the configuration of its run.""",
        folded("Commands and their times", made),
    )


def _price(results: Sequence[Result], costs: Costs) -> str:
    steps = sum(int(result.steps[:, -1].sum()) for result in results)
    seeds = sum(len(result.final) for result in results)
    missing = _untimed(results, costs)
    unknown = f" ({missing} runs were not timed)" if missing else ""
    took = ", ".join(filter(None, (f"{steps / 1e6:,.0f} million environment steps", spent(costs))))
    return f"In total, {len(results)} runs with {seeds} seeds took {took}{unknown}."


def _untimed(results: Sequence[Result], costs: Costs) -> int:
    """Number of runs, by benchmark, beyond those of the commands that were timed."""
    lacking = Counter(result.benchmark for result in results)
    for cost in costs:
        for benchmark in cost["benchmarks"]:
            lacking[benchmark] -= cost["cells"]
    return (+lacking).total()


def _listed(values: Iterable[object]) -> str:
    """Distinct values, separated by commas."""
    return ", ".join(sorted(set(map(str, values))))


def write_page(results: Path, out: Path, readme: Path) -> Path:
    """Write `results.md` and `figures/` into `out`, and update the sections of other pages."""
    found = read_results(results)
    costs, influence = (
        read_json(results / name) if (results / name).is_file() else None
        for name in (COSTS, INFLUENCE)
    )
    drawn = draw_figures(found)
    figures = {
        f"{name}-{kind}.svg": svg(picture)
        for name, of_kind in drawn.items()
        for kind, picture in of_kind.items()
    }
    for old in (out / "figures").glob("*.svg"):
        if old.name.startswith(tuple(f"{name}-" for name in FIGURES)) and old.name not in figures:
            old.unlink()
    for name, figure in figures.items():
        write_atomic(out / "figures" / name, figure)
    readme_text = readme.read_text(encoding="utf-8")
    write_atomic(readme, with_section(readme_text, readme_section(found, costs or [], influence)))
    for path, document in other_pages(out, found, results).items():
        write_atomic(path, document)
    return write_atomic(out / "results.md", page_text(found, costs or [], drawn, influence))


def other_pages(docs: Path, found: Sequence[Result], results: Path) -> dict[Path, str]:
    """Other pages in `docs` with a results section, with that section updated."""
    sections = {
        "credit.md": lambda: credit_section(found, read_json(results / SPEEDS)["rows"]),
        "learned-graphs.md": lambda: graphs_section(found),
    }
    return {
        path: with_section(path.read_text(encoding="utf-8"), f"{MARKS[0]}\n{write()}\n{MARKS[1]}")
        for name, write in sections.items()
        if (path := docs / name).is_file()
    }


def with_section(document: str, section: str) -> str:
    """The document with the text between its marks, and the marks, replaced by `section`."""
    between = re.compile(f"{re.escape(MARKS[0])}.*?{re.escape(MARKS[1])}", re.DOTALL)
    if not between.search(document):
        raise UsageError(
            f"The document lacks the lines {MARKS[0]!r} and {MARKS[1]!r}: insert them where "
            "the results belong."
        )
    return between.sub(lambda _: section, document)


def main() -> None:
    """Command line of this module."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument("--out", type=Path, default=Path("docs"))
    parser.add_argument("--readme", type=Path, default=Path("README.md"))
    options = parser.parse_args()
    print(write_page(options.results, options.out, options.readme))


if __name__ == "__main__":
    main()
