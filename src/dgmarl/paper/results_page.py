"""Write `docs/results.md` with its figures, the results section of the README and the comparison
of rules in `docs/credit.md`: `python -m dgmarl.paper.results_page`.

Every number and verdict is computed from the files in `results/`; a test checks that the committed
pages are current. New results are included by adding their files."""

import argparse
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from dgmarl.errors import UsageError
from dgmarl.files import write_atomic
from dgmarl.paper.claims import (
    Claim,
    Trio,
    claims,
    difference,
    gap_change,
    neighbours,
    of_values,
    trios,
)
from dgmarl.paper.credit_page import credit_section
from dgmarl.paper.grids import LBF_STEPS, SIX
from dgmarl.paper.names import BACKBONES, VALUES
from dgmarl.paper.paper_figures import FIGURES, IQM_OF_PAPER, PaperFigure
from dgmarl.paper.tables import draw, final_table, final_text, iqm_table, markdown, text
from dgmarl.report.aggregate import Aggregates, over_scenarios
from dgmarl.report.figures import svg
from dgmarl.report.results import Result, read_json, read_results
from dgmarl.report.statistics import Interval, mean_interval
from dgmarl.report.style import style, uses_graph

CREDIT_TITLES = ("local", "global", "graph", "graph minus the better of the two", "")
BETTER = ("better", "open", "worse")
VERDICTS = ("agrees", "agrees in part", "open", "does not agree", "not tested yet")
WIDTHS = ("wider", "open", "narrower")
COSTS = "costs.json"
SPEEDS = "benchmarks/train-cpu-rules.json"
GRAPHS = {
    "oracle": "",
    "learned": " (as the paper has it)",
    "learned-tuned": " (the learned one with the numbers we prefer)",
}
MARKS = (
    "<!-- results: written by `python -m dgmarl.paper.results_page` -->",
    "<!-- end of results -->",
)
PICTURES = {
    "curves": "learning curves for each scenario",
    "intervals": "all scenarios together",
    "profiles": "share of runs above each return",
    "sample-efficiency": "interquartile mean over environment steps",
    "improvement": "probability of improvement",
    "graphs": "graphs over training",
}


UNSCALED = "star-spread-unscaled"
"""The benchmark of the control without standardised rewards."""


class Page(NamedTuple):
    """A page of Markdown and the figures that it shows."""

    text: str
    figures: dict[str, str]
    """SVG by file name."""


def page(results: Sequence[Result], costs: Sequence[dict[str, Any]]) -> Page:
    """The page of all results that a figure of the paper shows."""
    drawn = draw_figures(results)
    files = {
        f"{name}-{kind}.svg": svg(picture)
        for name, of_kind in drawn.items()
        for kind, picture in of_kind.items()
    }
    return Page(page_text(results, costs, drawn), files)


def draw_figures(results: Sequence[Result]) -> dict[str, dict[str, Figure]]:
    """By figure of the paper and kind of picture."""
    return {
        name: draw(chosen) for name, figure in FIGURES.items() if (chosen := figure.chosen(results))
    }


def page_text(
    results: Sequence[Result],
    costs: Sequence[dict[str, Any]],
    drawn: Mapping[str, Mapping[str, Figure]],
) -> str:
    """The Markdown of the page, with links to the pictures of `drawn`."""
    shown = [one for one in results if any(figure.shows(one) for figure in FIGURES.values())]
    sections = [
        _head(shown),
        _agreement(claims(shown)),
        _star_spread(trios(shown, "star-spread", "dg"), _pictures("mpe", drawn)),
        _unscaled(trios(shown, "star-spread", "dg"), trios(results, UNSCALED, "dg")),
        _foraging(shown, _pictures("lbf", drawn)),
        *(
            _plain(figure, shown, _pictures(name, drawn))
            for name, figure in FIGURES.items()
            if name not in ("mpe", "lbf") and figure.chosen(shown)
        ),
        _choices(),
        _cost(results, costs),
    ]
    return "\n\n".join(filter(None, sections)) + "\n"


def readme_section(results: Sequence[Result], costs: Sequence[dict[str, Any]]) -> str:
    """Between the marks of the README: the methods that the paper has numbers of, how many of its
    claims hold, and the price."""
    verdicts = [claim.verdict for claim in claims(results)]
    counted = "; ".join(
        f"{verdict}: {verdicts.count(verdict)}" for verdict in VERDICTS if verdict in verdicts
    )
    judged = f"{len(verdicts)} claims of the paper, judged by 95 % intervals: {counted}."
    return f"""{MARKS[0]}
{_foraging_summary(results)}{judged}
{_price(results, costs)}
All tables, figures and commands: [docs/results.md](docs/results.md).
{MARKS[1]}"""


def _foraging_summary(results: Sequence[Result]) -> str:
    """The IQM of the paper's six methods, and of the learned graph with our numbers."""
    own = [result for result in results if result.benchmark == "lbf"]
    together = over_scenarios([result for result in own if result.method in IQM_OF_PAPER])
    if isinstance(together, str):
        return ""
    tuned = over_scenarios([result for result in own if result.method.endswith("learned-tuned")])
    preferred = ""
    if isinstance(tuned, Aggregates):
        listed = (f"{text(tuned.iqm(one))} ({style(one).name})" for one in tuned.of_method)
        preferred = f"With the numbers that we prefer: {', '.join(listed)}.\n"
    of_paper = "" if set(together.scenarios) == set(SIX) else f" {_paper_iqms()}"
    return f"""Foraging, {len(together.scenarios)} scenarios: interquartile mean (IQM) of the final
return with its 95 % interval; 1 is all the food; *learned* is the paper's learned graph.{of_paper}

{iqm_table(together)}

![Foraging, all scenarios together](docs/figures/lbf-intervals.svg)

{preferred}"""


def _head(results: Sequence[Result]) -> str:
    seeds = _listed(len(result.final) for result in results)
    episodes = _listed(result.facts["episodes_per_evaluation"] for result in results)
    return f"""# Results

<!-- Written by `python -m dgmarl.paper.results_page` from results/; do not edit. -->

What the three kinds of credit reach, beside what the paper says. Each number is the mean over
{seeds} seeds, as the tables say, of the final return: the last evaluation ({episodes} episodes,
actions sampled from the policy, in SMAClite the most likely), not the best. In brackets stands the
95 % percentile-bootstrap interval over seeds. Differences resample the seeds of both methods
independently: *better* and *worse* mean that the interval excludes 0, *open* that it does not. Many
intervals are compared, without a correction for that.
The curves of every seed are in `results/`; `dgmarl table results` prints plain tables
of them."""


def _agreement(judged: Sequence[Claim]) -> str:
    return f"""## What agrees with the paper and what does not

{_claims_table(judged)}

One comparison is one backbone in one scenario (or between two); it is for or against a claim where
its 95 % interval excludes 0, and for a claim that one thing is as good as another where the
interval is not below 0."""


def _claims_table(judged: Sequence[Claim]) -> str:
    rows = [
        [
            *(claim.benchmark, claim.paper, f"**{claim.verdict}**", claim.counted()),
            "" if claim.verdict == "agrees" else claim.reason,
        ]
        for claim in judged
        if claim.comparisons
    ]
    untested = [f"{claim.benchmark}: {claim.paper}" for claim in judged if not claim.comparisons]
    listed = (
        "\n\nNot tested yet, because the runs are missing: " + " ".join(untested)
        if untested
        else ""
    )
    return markdown(["", "the paper", "here", "comparisons", "likeliest reason"], rows) + listed


def _star_spread(spread: Sequence[Trio], pictures: str) -> str:
    if not spread:
        return ""
    rows = [
        (trio.n_agents, BACKBONES[trio.backbone], *_means(trio), *_judged(trio.advantage))
        for trio in spread
    ]
    local_gaps = [(trio, difference(trio.local, trio.globe)) for trio in spread]
    table = markdown(("N", "backbone", *CREDIT_TITLES), rows)
    return f"""## Star-Spread: the graph is known

A hub and N - 1 leaves. Returns are sums over all agents, so those of different N do not compare.
The graph is the oracle's: every agent influences itself and the hub.

{table}

{pictures}

**The paper: the graph is competitive with both local and global reward.** Against the better of the
two, the graph is

{_tally((trio.named(), _verdict(trio.advantage)) for trio in spread)}

{_widening(spread)}

**The paper: global reward does well for small N but scales poorly; local reward scales better.**
Local minus global reward is

{_tally((f"{trio.named()} ({text(gap)})", _verdict(gap)) for trio, gap in local_gaps)}

**Why local reward falls behind.** To a leaf any landmark is as good as another; only the hub is
paid for covering all of them. Leaves that learn from their own reward agree on one landmark and
gather there, which is what the task was designed to provoke. The returns above are consistent with
it, and it was seen in replays of two seeds at N = 5 (larger N were not looked at):

    dgmarl train star-spread/5 --method ippo-local --seeds 1 --out runs/local
    dgmarl watch runs/local"""


def _unscaled(published: Sequence[Trio], control: Sequence[Trio]) -> str:
    """The control without the paper's standardisation of rewards, beside the published runs."""
    found = {(trio.scenario, trio.backbone): trio for trio in control}
    pairs = [(one, found.get((one.scenario, one.backbone))) for one in published]
    rows = []
    for one, other in pairs:
        if other is None:
            continue
        name = (one.n_agents, BACKBONES[one.backbone])
        rows.append((*name, "published", *_means(one), *_judged(one.advantage)))
        rows.append((*name, "not standardised", *_means(other), *_judged(other.advantage)))
    if not rows:
        return ""
    return f"""### Control: rewards that are not standardised

The paper standardises Star-Spread's rewards with other statistics for each credit rule: per agent
for local credit, of the sum for global credit, pooled over agents for graph credit, each with its
mean subtracted. So the published runs differ in more than credit. The control differs from them in
nothing but `credit.reward_scaling none` (`dgmarl grid {UNSCALED}`).

{markdown(("N", "backbone", "rewards", *CREDIT_TITLES), rows)}

Of the other published results, IQL, VDN, QMIX and QPLEX on foraging were trained with EPyMARL's
standardisation (per agent for IQL, of the sum for the others). IPPO and MAPPO on foraging and
SMAClite were trained on raw rewards and are not affected. Outside `--preset paper` rewards are now
scaled by one statistic for every rule and never shifted ([credit.md](credit.md))."""


def _widening(spread: Sequence[Trio]) -> str:
    rows, changes = [], []
    for before, trio in neighbours(spread):
        gap = difference(trio.graph, trio.globe)
        share = f"{gap.estimate / abs(trio.globe.final.mean()):+.0%}"
        change = ("", "")
        if before:
            change = _judged(gap_change(before, trio), WIDTHS)
            changes.append(
                (
                    f"{BACKBONES[trio.backbone]} from N = {before.n_agents} to {trio.n_agents}",
                    change[1],
                )
            )
        rows.append((BACKBONES[trio.backbone], trio.n_agents, text(gap), share, *change))
    titles = (
        "backbone",
        "N",
        "graph minus global",
        "in % of global's return",
        "change from the N before",
        "",
    )
    return f"""**The paper: the gap between the graph and global reward widens with N.** From one N
to the next it is

{_tally(changes)}

Returns grow with N by themselves, so the gap is also given relative to global reward's return. At
N = 50 agents move half as far per step as at smaller N.

{markdown(titles, rows)}"""


def _foraging(results: Sequence[Result], pictures: str) -> str:
    own = FIGURES["lbf"].chosen(results)
    if not own:
        return ""
    together = over_scenarios(own)
    of = "" if isinstance(together, str) else f" ({', '.join(together.scenarios)})"
    over_all = (
        together
        if isinstance(together, str)
        else f"{iqm_table(together)}\n\n{_against_paper(together)}"
    )
    graphs = [
        _graph_credit(results, graph) for graph in GRAPHS if trios(results, "lbf", f"dg-{graph}")
    ]
    compared = "\n\n".join(filter(None, [*graphs, _densities(own), _values(own)]))
    return f"""## Level-based foraging

A return of 1 is all the food. In `-coop` scenarios every food needs two players and pays only the
stronger; elsewhere some foods can be taken alone, and those who take one together share it. The
oracle's graph joins players near each other.

{final_table(own)}

{pictures}

{compared}

**Over scenarios**, the interquartile mean (IQM) of all runs, resampled within scenarios{of}:

{over_all}"""


def _values(results: Sequence[Result]) -> str:
    """The value-based methods beside what the paper says of them, scenario by scenario."""
    found = {
        (result.scenario, result.method): result for result in results if result.method in VALUES
    }
    rows = []
    for scenario, claim in of_values(results).items():
        own = [found.get((scenario, method)) for method in VALUES]
        if any(own):
            cells = ["" if result is None else final_text(result, LBF_STEPS) for result in own]
            rows.append((f"`{scenario}`", *cells, claim.paper, f"**{claim.verdict}**{claim.note}"))
    if not rows:
        return ""
    return f"""**Value-based methods**, and what the paper's text says of IQL and QMIX. Numbers
without steps are of {LBF_STEPS / 1e6:g} million steps; results of fewer steps do not predict those
of more, and IQL and QMIX are compared at equal numbers. IQL learns from local, the others from
global reward.

{markdown(("scenario", *(style(method).name for method in VALUES), "the paper", "here"), rows)}"""


def _graph_credit(results: Sequence[Result], graph: str) -> str:
    found = trios(results, "lbf", f"dg-{graph}")
    rows = [
        (f"`{trio.scenario}`", BACKBONES[trio.backbone], *_means(trio), *_judged(trio.advantage))
        for trio in found
    ]
    table = markdown(("scenario", "backbone", *CREDIT_TITLES), rows)
    return f"""**The {graph} graph**{GRAPHS[graph]} against the better of local and global reward is

{_tally((trio.named(), _verdict(trio.advantage)) for trio in found)}

{table}"""


def _against_paper(together: Aggregates) -> str:
    """Whether the paper's numbers lie within our intervals, where they are of the same scenarios
    and methods."""
    lacking = "; ".join(
        f"{style(one).name} lacks {', '.join(names)}" for one, names in together.left_out.items()
    )
    left_out = f"Left out, because they lack scenarios: {lacking}.\n\n" if lacking else ""
    if set(together.scenarios) != set(SIX):
        return f"{left_out}{_paper_iqms()} Nothing on this page tests them before all six are here."
    rows = []
    for method, theirs in IQM_OF_PAPER.items():
        if method in together.of_method:
            ours = together.iqm(method)
            place = (
                "above ours"
                if theirs > ours.high
                else "below ours"
                if theirs < ours.low
                else "within our interval"
            )
            rows.append((style(method).name, f"{theirs:.2f}", text(ours), place))
    return f"""{left_out}{markdown(("method", "the paper's IQM", "ours", "the paper's lies"), rows)}

The paper states neither the number of seeds nor intervals, so a number outside ours does not prove
a difference."""


def _paper_iqms() -> str:
    numbers = ", ".join(
        f"{value:.2f} for {style(method).name}" for method, value in IQM_OF_PAPER.items()
    )
    return f"The paper's IQMs are of 6 scenarios and a *learned* graph: {numbers}."


def _densities(results: Sequence[Result]) -> str:
    measured = [
        result
        for result in results
        if uses_graph(result.method) and "graph_density" in result.facts
    ]
    if not measured:
        return ""
    of = {(result.scenario, result.method): f"{_half_way(result):.2f}" for result in measured}
    scenarios, methods = (list(dict.fromkeys(key[part] for key in of)) for part in (0, 1))
    rows = [
        (f"`{scenario}`", *(of.get((scenario, method), "") for method in methods))
        for scenario in scenarios
    ]
    table = markdown(("scenario", *(style(method).name for method in methods)), rows)
    return (
        "**Density of the graphs**, the share of possible edges that are on, half-way through "
        f"training:\n\n{table}"
    )


def _half_way(result: Result) -> float:
    """Mean graph density over seeds at half of the steps: while policies still change, and after
    they have found food."""
    densities = result.metric("graph_density")
    assert densities is not None
    return float(
        np.mean(
            [
                np.interp(steps[-1] / 2, steps, row)
                for steps, row in zip(result.steps, densities, strict=True)
            ]
        )
    )


def _plain(figure: PaperFigure, results: Sequence[Result], pictures: str) -> str:
    """A section with tables and pictures only."""
    own = figure.chosen(results)
    together = over_scenarios(own)
    over_all = (
        f"\n\n{iqm_table(together)}"
        if isinstance(together, Aggregates) and len(together.scenarios) > 1
        else ""
    )
    return f"""## {figure.name}

{figure.about} Chosen here, because the paper does not say it: {figure.choices}

{final_table(own)}{over_all}

{pictures}"""


def _pictures(name: str, drawn: Mapping[str, Mapping[str, Figure]]) -> str:
    images = [
        f"![{name}: {PICTURES[kind]}](figures/{name}-{kind}.svg)" for kind in drawn.get(name, ())
    ]
    return "\n\n".join([*images, "Lines are means over seeds, bands and bars 95 % intervals."])


def _choices() -> str:
    rows = [
        (f"`{name}`", len(figure.runs), figure.about, figure.choices)
        for name, figure in FIGURES.items()
    ]
    return f"""## What the paper leaves open

Each figure of the paper is a list of runs that one command trains, resumes or draws: `dgmarl
reproduce NAME`, with `--dry-run` to see the runs and an estimate of the time.

{markdown(("name", "runs", "what it shows", "chosen here"), rows)}"""


def _cost(results: Sequence[Result], costs: Sequence[dict[str, Any]]) -> str:
    devices, versions = (
        _listed(result.facts[name] for result in results) for name in ("device", "jax")
    )
    codes = _listed(result.facts["code"] for result in results)
    commands = "\n".join(
        (
            f"    {cost['command']}    # {cost['cells']} runs on {cost['device']}: "
            f"{_time(cost['seconds'])}"
        )
        for cost in costs
    )
    return f"""## How these were made, and what they cost

The commands are those of the releases that were used; today `dgmarl grid NAME` trains these runs,
with `--batched` for `--lanes` and `lbf-ablations` for `lbf-levers`.

{commands}
    python -m dgmarl.paper.results_page    # this page and the README's section, from results/

{_price(results, costs)} On {devices} with jax {versions}, all seeds of a run side by side; the
times include compiling. Code: {codes}. Every file holds the whole configuration of its run."""


def _price(results: Sequence[Result], costs: Sequence[dict[str, Any]]) -> str:
    steps = sum(int(result.steps[:, -1].sum()) for result in results)
    seeds = sum(len(result.final) for result in results)
    on_gpu = sum(cost["seconds"] for cost in costs if "NVIDIA" in cost["device"]) / 60
    on_cpu = sum(cost["seconds"] for cost in costs if "NVIDIA" not in cost["device"]) / 3600
    counted = sum(cost["cells"] for cost in costs)
    unknown = f" ({len(results) - counted} runs were not timed)" if counted < len(results) else ""
    times = [f"{on_gpu:.0f} GPU minutes"] * (on_gpu > 0) + [f"{on_cpu:.1f} CPU hours"] * (
        on_cpu > 0
    )
    return (
        f"All in all {len(results)} runs with {seeds} seeds took {steps / 1e6:,.0f} million "
        f"environment steps{''.join(f', {time}' for time in times)}{unknown}."
    )


def _time(seconds: float) -> str:
    return f"{seconds // 60:.0f} min {seconds % 60:.0f} s"


def _verdict(interval: Interval, words: tuple[str, str, str] = BETTER) -> str:
    """The first word for an interval above 0, the last for one below, the middle one for
    neither."""
    return words[0] if interval.low > 0 else words[2] if interval.high < 0 else words[1]


def _judged(interval: Interval, words: tuple[str, str, str] = BETTER) -> tuple[str, str]:
    return text(interval), _verdict(interval, words)


def _tally(judged: Iterable[tuple[str, str]]) -> str:
    """A list of who got which verdict, the favourable one first."""
    judged = list(judged)
    lines = []
    for word in ("better", "wider", "open", "worse", "narrower"):
        named = [name for name, verdict in judged if verdict == word]
        if named:
            lines.append(f"- {word} in {len(named)} of {len(judged)}: {', '.join(named)}")
    return "\n".join(lines)


def _means(trio: Trio) -> tuple[str, ...]:
    return tuple(text(mean_interval(result.final)) for result in trio.results)


def _listed(values: Iterable[object]) -> str:
    """Distinct values in a sentence; usually there is only one."""
    return ", ".join(sorted(set(map(str, values))))


def write_page(results: Path, out: Path, readme: Path | None = None) -> Path:
    """Write `results.md` and `figures/` into a folder, and the README's section."""
    found, costs = (
        read_results(results),
        read_json(results / COSTS) if (results / COSTS).is_file() else [],
    )
    content, figures = page(found, costs)
    for old in (out / "figures").glob("*.svg"):
        if old.name.startswith(tuple(f"{name}-" for name in FIGURES)) and old.name not in figures:
            old.unlink()
    for name, figure in figures.items():
        write_atomic(out / "figures" / name, figure)
    if readme is not None:
        write_atomic(
            readme, with_section(readme.read_text(encoding="utf-8"), readme_section(found, costs))
        )
    credit = out / "credit.md"
    if credit.is_file():
        write_atomic(credit, with_credit(credit.read_text(encoding="utf-8"), found, results))
    return write_atomic(out / "results.md", content)


def with_credit(document: str, found: Sequence[Result], results: Path) -> str:
    """`docs/credit.md` with its comparison of rules."""
    section = credit_section(found, read_json(results / SPEEDS)["rows"])
    return with_section(document, f"{MARKS[0]}\n{section}\n{MARKS[1]}")


def with_section(readme: str, section: str) -> str:
    """A document with what stands between its marks replaced."""
    between = re.compile(f"{re.escape(MARKS[0])}.*?{re.escape(MARKS[1])}", re.DOTALL)
    if not between.search(readme):
        raise UsageError(
            f"The document lacks the lines {MARKS[0]!r} and {MARKS[1]!r}: put them where the "
            "results shall stand."
        )
    return between.sub(lambda _: section, readme)


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
