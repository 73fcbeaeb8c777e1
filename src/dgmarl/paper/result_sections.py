"""Sections of `docs/results.md`: one table and one figure each, with details folded."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from dgmarl.paper.claims import FAST, VALUES_OF_PAPER, compare_values, neighbours
from dgmarl.paper.grids import BACKBONES, LBF_STEPS, SIX, SMACLITE_STEPS, VALUE_BASED
from dgmarl.paper.judging import Claim, Trio, at_equal_steps, difference, gap_change, trios
from dgmarl.paper.paper_figures import FIGURES, IQM_OF_PAPER, PaperFigure
from dgmarl.paper.tables import (
    final_table,
    final_text,
    iqm_table,
    is_short,
    last_mean,
    markdown,
    text,
)
from dgmarl.report.aggregate import Aggregates, over_scenarios
from dgmarl.report.results import Result, budget_text, by_key, on_grid, span
from dgmarl.report.statistics import Interval
from dgmarl.report.style import order, style, uses_graph

CREDIT_TITLES = ("local", "global", "graph", "graph minus the better of the two", "")
BETTER = ("better", "open", "worse")
WIDTHS = ("wider", "open", "narrower")
GRAPHS = {
    "oracle": "",
    "learned": " (the paper's settings)",
    "learned-tuned": " (tuned hyperparameters)",
}
PICTURES = {
    "curves": "learning curves for each scenario",
    "intervals": "all scenarios together",
    "profiles": "share of runs above each return",
    "sample-efficiency": "interquartile mean over environment steps",
    "improvement": "probability of improvement",
    "graphs": "graphs over training",
}
WON = "final_battle_won"
"""Metric of SMAClite: the share of battles won."""
BY_ALL, BY_SAMPLE = "dg-interventional", "dg-interventional-sampled2"
"""Graph credit by interventions with all alternative actions, and with two of them."""
BATTLE_GRAPHS = {
    "dg-learned": "learned graph",
    "dg-oracle": "oracle graph",
    BY_SAMPLE: "sampled interventions",
    BY_ALL: "all interventions",
}
"""Graphs on SMAClite, by kind of credit."""
UNSCALED = "star-spread-unscaled"
"""Benchmark of the control without reward standardisation."""
Drawn = Mapping[str, Mapping[str, Figure]]
"""Plots by figure of the paper and kind."""
Costs = Sequence[Mapping[str, Any]]
"""Commands that trained runs, with their `benchmarks`, `cells` (number of runs), `device` and
`seconds`."""


def folded(title: str, content: str) -> str:
    """Collapsed Markdown block; empty without content."""
    if not content:
        return ""
    return f"""<details markdown="1">
<summary>{title}</summary>

{content}

</details>"""


def joined(*parts: str) -> str:
    """Join non-empty paragraphs."""
    return "\n\n".join(filter(None, parts))


def star_spread(
    results: Sequence[Result], shown: Sequence[Result], drawn: Drawn, costs: Costs
) -> str:
    """Star-Spread: known graphs and an increasing number of agents."""
    spread = trios(shown, "star-spread", "dg")
    if not spread:
        return ""
    local_gaps = {
        f"{BACKBONES[trio.backbone]} at N = {trio.n_agents}": difference(trio.local, trio.globe)
        for trio in spread
    }
    control = trios(results, UNSCALED, "dg")
    return joined(
        f"""## Star-Spread: the graph is known

One hub and N - 1 leaves; {_size(FIGURES["mpe"].chosen(shown), costs)}.
Returns are summed over all agents and cannot be compared between different N. *Graph* is the oracle
graph, in which every agent influences itself and the hub; the learned graph uses the paper's
settings (no encoder, one head per agent), and was not trained with 50 and 100 agents, because the
star is not found with 20 ([learned-graphs.md](learned-graphs.md#smaclite-and-star-spread)).""",
        _spread_table(spread, shown),
        _picture("mpe", "curves", drawn),
        folded(
            "Does the gap to global reward widen with N?",
            joined(_widening(spread), _picture("mpe", "graphs", drawn)),
        ),
        folded(
            "Local against global reward, and why local reward falls behind",
            f"""Local minus global reward is

{_tally((f"{name} ({text(gap)})", verdict(gap)) for name, gap in local_gaps.items())}

For a leaf all landmarks are equally good; only the hub is rewarded for covering all of them. Leaves
that learn from their own reward gather at one landmark, as the task was designed to show. This is
consistent with the returns above and was seen in replays of two seeds at N = 5 (larger N were not
checked):

    dgmarl train star-spread/5 --method ippo-local --seeds 1 --out runs/local
    dgmarl watch runs/local""",
        ),
        folded("Control: rewards without standardisation", _unscaled(spread, control)),
    )


def _spread_table(spread: Sequence[Trio], results: Sequence[Result]) -> str:
    found = by_key(results)
    rows = []
    for trio in spread:
        own = found.get(("star-spread", trio.scenario, f"{trio.backbone}-dg-learned"))
        cells = (*_compared(trio), final_text(own, trio.graph.budget))
        rows.append((trio.n_agents, BACKBONES[trio.backbone], *cells))
    return markdown(("N", "backbone", *CREDIT_TITLES[:-1], "", "learned graph"), rows)


def _unscaled(published: Sequence[Trio], control: Sequence[Trio]) -> str:
    """The control without the paper's reward standardisation, beside the published runs."""
    found = {(trio.scenario, trio.backbone): trio for trio in control}
    rows = []
    for one in published:
        if other := found.get((one.scenario, one.backbone)):
            name = (one.n_agents, BACKBONES[one.backbone])
            rows.append((*name, "published", *_compared(one)))
            rows.append((*name, "not standardised", *_compared(other)))
    if not rows:
        return ""
    return f"""The paper standardises Star-Spread's rewards with different statistics for each
credit rule: per agent for local credit, of the sum for global credit, pooled over agents for graph
credit, each with the mean subtracted. The published runs therefore differ in more than the credit
rule. The control differs from them only in `credit.reward_scaling none` (`dgmarl grid {UNSCALED}`).

{markdown(("N", "backbone", "rewards", *CREDIT_TITLES), rows)}

Of the other published results, IQL, VDN, QMIX and QPLEX on foraging were trained with EPyMARL's
standardisation (per agent for IQL, of the sum for the others). IPPO and MAPPO on foraging and
SMAClite were trained on raw rewards and are not affected. On Star-Spread, presets other than
`paper` scale rewards by one statistic for all rules, without subtracting the mean
([credit.md](credit.md))."""


def _widening(spread: Sequence[Trio]) -> str:
    rows, changes = [], []
    for before, trio in neighbours(spread):
        name, gap = BACKBONES[trio.backbone], difference(trio.graph, trio.globe)
        share = f"{gap.estimate / abs(trio.globe.final.mean()):+.0%}"
        change = ("", "")
        if before:
            change = judged(gap_change(before, trio), WIDTHS)
            changes.append((f"{name} from N = {before.n_agents} to {trio.n_agents}", change[1]))
        rows.append((name, trio.n_agents, text(gap), share, *change))
    share_title, change_title = "in % of global's return", "change from the previous N"
    titles = ("backbone", "N", "graph minus global", share_title, change_title, "")
    return f"""From one N to the next the gap between graph credit and global reward is

{_tally(changes)}

Returns scale with N, so the gap is also given relative to the return of global reward. At N = 50
and 100 agents move half as far per step as at smaller N.

{markdown(titles, rows)}"""


def foraging(results: Sequence[Result], drawn: Drawn, costs: Costs) -> str:
    """Foraging: six scenarios, with interquartile means beside the paper's."""
    own = FIGURES["lbf"].chosen(results)
    if not own:
        return ""
    together = over_scenarios(own)
    return joined(
        f"""## Level-based foraging

A return of 1 means that all food was collected. In `-coop` scenarios all food requires two players
and rewards only the stronger one; in the others some food can be collected alone, and players who
collect food together share the reward. The oracle graph connects players near each other.
{_size(own, costs)}.
The last column is the number of steps per seed.""",
        _methods_table(own, together),
        _picture("lbf", "curves", drawn),
        folded("Interquartile means compared with the paper's", _against_paper(together)),
        folded("All final returns with intervals", final_table(own).markdown()),
        *(
            folded(
                f"The {graph} graph{note} against the better of local and global reward",
                _graph_credit(results, graph),
            )
            for graph, note in GRAPHS.items()
        ),
        folded("Value-based methods and the paper's claims about them", _values(own)),
        folded("Density of the graphs", _densities(own)),
        _further("lbf", drawn),
    )


def _methods_table(own: Sequence[Result], together: Aggregates) -> str:
    """One row per method: mean final return per scenario, IQM, and the paper's IQM."""
    found = by_key(own)
    scenarios = list(dict.fromkeys(one.scenario for one in own))
    rows = []
    for method in sorted({one.method for one in own}, key=order):
        mine = [one for one in own if one.method == method]
        means = [
            f"{one.final.mean():.3f}" if (one := found.get(("lbf", name, method))) else ""
            for name in scenarios
        ]
        iqm = text(together.iqm(method)) if method in together.of_method else ""
        paper = f"{IQM_OF_PAPER[method]:.2f}" if method in IQM_OF_PAPER else ""
        rows.append((style(method).name, *means, iqm, paper, budget_text(*mine)))
    names = (f"`{name}`" for name in scenarios)
    return markdown(("method", *names, "IQM", "the paper's IQM", "steps"), rows)


def _values(results: Sequence[Result]) -> str:
    """Final returns of value-based methods with the paper's claim about each scenario."""
    found = by_key(results)
    rows = []
    for scenario, paper in VALUES_OF_PAPER.items():
        own = [found.get(("lbf", scenario, method)) for method in VALUE_BASED]
        if any(own):
            cells = [final_text(result, LBF_STEPS) for result in own]
            claim = Claim(paper, compare_values(scenario, found))
            rows.append((f"`{scenario}`", *cells, paper, f"**{claim.verdict}**"))
    if not rows:
        return ""
    names = (style(method).name for method in VALUE_BASED)
    table = markdown(("scenario", *names, "claim of the paper", "verdict"), rows)
    return f"""Results without a number of steps are after {LBF_STEPS / 1e6:g} million. Results
after fewer steps do not predict later ones; IQL and QMIX are compared at equal steps. IQL learns
from local reward, the others from global reward.

{table}"""


def _graph_credit(results: Sequence[Result], graph: str) -> str:
    found = trios(results, "lbf", f"dg-{graph}")
    if not found:
        return ""
    rows = [(f"`{trio.scenario}`", BACKBONES[trio.backbone], *_compared(trio)) for trio in found]
    return markdown(("scenario", "backbone", *CREDIT_TITLES), rows)


def _against_paper(together: Aggregates) -> str:
    """Whether the paper's numbers lie within our intervals, if all scenarios have results."""
    lacking = "; ".join(
        f"{style(one).name} ({', '.join(names)})" for one, names in together.left_out.items()
    )
    left_out = f"Omitted because scenarios are missing: {lacking}.\n\n" if lacking else ""
    if set(together.scenarios) != set(SIX):
        return f"{left_out}{paper_iqms()} They are compared once all six have results."
    rows = []
    for method, theirs in IQM_OF_PAPER.items():
        if method in together.of_method:
            ours, place = together.iqm(method), "within our interval"
            if not ours.low <= theirs <= ours.high:
                place = "above ours" if theirs > ours.high else "below ours"
            rows.append((style(method).name, f"{theirs:.2f}", text(ours), place))
    return f"""{left_out}{markdown(("method", "the paper's IQM", "ours", "the paper's is"), rows)}

The paper states neither the number of seeds nor intervals, so a number outside ours does not prove
a difference."""


def paper_iqms() -> str:
    """Sentence with the paper's interquartile means."""
    numbers = ", ".join(
        f"{value:.2f} for {style(method).name}" for method, value in IQM_OF_PAPER.items()
    )
    return f"The paper's IQMs over 6 scenarios, with a *learned* graph: {numbers}."


def _densities(results: Sequence[Result]) -> str:
    of = {
        (result.scenario, result.method): f"{_half_way(result):.2f}"
        for result in results
        if uses_graph(result.method) and "graph_density" in result.facts
    }
    if not of:
        return ""
    scenarios, methods = (list(dict.fromkeys(key[part] for key in of)) for part in (0, 1))
    rows = [
        (f"`{scenario}`", *(of.get((scenario, method), "") for method in methods))
        for scenario in scenarios
    ]
    table = markdown(("scenario", *(style(method).name for method in methods)), rows)
    return f"Share of possible edges that are present halfway through training:\n\n{table}"


def _half_way(result: Result) -> float:
    """Graph density at half of the steps, while policies still change; mean over seeds."""
    densities = result.metric("graph_density")
    assert densities is not None
    seeds = zip(result.steps, densities, strict=True)
    return float(np.mean([np.interp(steps[-1] / 2, steps, row) for steps, row in seeds]))


def battles(results: Sequence[Result], drawn: Drawn, costs: Costs) -> str:
    """SMAClite: returns and battles won on six maps, greedy and sampled."""
    own = FIGURES["smaclite"].chosen(results)
    if not own:
        return ""
    return joined(
        f"""## SMAClite

Six maps, {_size(own, costs)}.
Each cell is the final return of the greedy policy, as in the paper, and in parentheses the share of
battles won over the last fifth of training. A won battle gives about 20. *fast* is the preset with
128 environments; the other runs of MAPPO have the paper's settings. *interventional-sampled2*
compares the action taken with two random alternatives per agent and step, *interventional* with all
of them. Findings:
[smaclite.md](smaclite.md#learning-results),
[learned-graphs.md](learned-graphs.md#smaclite-and-star-spread) and
[value-based.md](value-based.md#experiments).""",
        _maps_table(own),
        _picture("smaclite", "curves", drawn),
        folded(
            "Graph credit against the better of local and global reward",
            _battle_graphs_table(own),
        ),
        folded("All interventions and a sample of them", _sampled_table(own)),
        folded(
            "All runs: battles won, greedy and sampled, and graphs",
            f"""*Sampled* policies were evaluated beside greedy ones, except those of QMIX, QPLEX
and the learned graph with the paper's settings (without *fast*). F1 compares learned graphs with
the interventional graph.

{_battles_table(own)}""",
        ),
        folded("All maps together", _over_several(own)),
        _further("smaclite", drawn),
    )


def _maps_table(own: Sequence[Result]) -> str:
    """One row per method and one column per map: return and share of battles won."""
    found, known = by_key(own), {one.scenario for one in own}
    maps = {name: steps for name, steps in SMACLITE_STEPS.items() if name in known}

    def cell(result: Result | None) -> str:
        if result is None:
            return ""
        share, _ = _battles_won(result)
        short = is_short(result, SMACLITE_STEPS[result.scenario])
        after = f" after {budget_text(result)}" * short
        return f"{result.final.mean():.1f}{f' ({share})' * bool(share)}{after}"

    rows = [
        (style(method).name, *(cell(found.get(("smaclite", name, method))) for name in maps))
        for method in sorted({one.method for one in own}, key=order)
    ]
    titles = (f"`{name}`, {steps / 1e6:g} million" for name, steps in maps.items())
    return markdown(("method", *titles), rows)


def _battle_graphs_table(own: Sequence[Result]) -> str:
    """One row per map and graph: graph credit against the better of local and global reward, after
    equally many steps, at the end and over the last fifth."""
    rows = []
    for scenario in SMACLITE_STEPS:
        of_map = [one for one in own if one.scenario == scenario]
        for graph, name in BATTLE_GRAPHS.items():
            for trio in trios(of_map, "smaclite", graph, FAST):
                trio = trio.at_equal_steps()
                late = judged(trio.late_advantage)
                rows.append((f"`{scenario}`", name, *_compared(trio), *late, _steps(trio.graph)))
    if not rows:
        return ""
    titles = ("map", "graph", *CREDIT_TITLES, "over the last fifth", "", "steps")
    return f"""The last evaluation alone says little where policies alternate between winning and
losing; *over the last fifth* compares mean returns over the last fifth of training with those of
the better of local and global reward there.

{markdown(titles, rows)}"""


def _sampled_table(own: Sequence[Result]) -> str:
    """One row per map with both kinds of interventions, after equally many steps."""
    found, rows = by_key(own), []
    for scenario in SMACLITE_STEPS:
        full, sampled = (
            found.get(("smaclite", scenario, f"mappo-{graph}{FAST}"))
            for graph in (BY_ALL, BY_SAMPLE)
        )
        if full and sampled:
            full, sampled = at_equal_steps(full, sampled)
            cells = (final_text(full), final_text(sampled), *judged(difference(sampled, full)))
            rows.append((f"`{scenario}`", *cells, _steps(full)))
    if not rows:
        return ""
    table = markdown(("map", "all", "sampled", "sampled minus all", "", "steps"), rows)
    return f"""Returns after equally many steps. On corridor, 25m_vs_30m and 3s5z_vs_3s6z the runs
with all interventions were stopped: whole runs would take about 28, 36 and 10 minutes of an H200 at
the speeds of `results/benchmarks/q-battles-h200.txt`. On bane_vs_bane there is none.

{table}"""


def _battles_table(own: Sequence[Result]) -> str:
    rows, maps = [], list(SMACLITE_STEPS)
    metrics = ("sampled_return", f"sampled_{WON}", "graph_density", "graph_f1_interventional")
    for result in sorted(own, key=lambda one: (maps.index(one.scenario), order(one.method))):
        cells = [last_mean(result, WON), *_battles_won(result)]
        cells += [last_mean(result, name) for name in metrics]
        name = (f"`{result.scenario}`", style(result.method).name)
        rows.append((*name, final_text(result), *cells, len(result.final), _steps(result)))
    greedy = ("greedy return", "won", "over the last fifth", "90 % won first after")
    titles = ("map", "method", *greedy, "sampled return", "won", "density", "F1")
    return markdown((*titles, "seeds", "steps"), rows)


def _battles_won(result: Result) -> tuple[str, str]:
    """Share of battles won over the last fifth of training, and the million steps after which it
    first reaches 0.9."""
    if result.metric(WON) is None:
        return "", ""
    share = on_grid(result, 101, metric=WON).mean(axis=0)
    enough = np.flatnonzero(share >= 0.9)
    first = f"{enough[0] / 100 * result.budget / 1e6:.2g} million" if enough.size else "never"
    return f"{share[80:].mean():.2f}", first


def _steps(battle: Result) -> str:
    """Steps of a SMAClite run, and the paper's number if it is larger."""
    full = SMACLITE_STEPS[battle.scenario]
    short = f"{budget_text(battle).removesuffix(' million')} of " * is_short(battle, full)
    return f"{short}{full / 1e6:g} million"


def plain(figure: PaperFigure, results: Sequence[Result], drawn: Drawn) -> str:
    """Table and plots of a figure, folded."""
    own = figure.chosen(results)
    if not own:
        return ""
    pictures = (_picture(figure.name, kind, drawn) for kind in drawn.get(figure.name, ()))
    return folded(
        figure.about,
        joined(
            f"Not stated in the paper, chosen here: {figure.choices}",
            final_table(own).markdown(),
            _over_several(own),
            *pictures,
        ),
    )


def _over_several(results: Sequence[Result]) -> str:
    """IQM table; empty for a single scenario."""
    together = over_scenarios(results)
    return iqm_table(together).markdown() if len(together.scenarios) > 1 else ""


def _size(results: Sequence[Result], costs: Costs) -> str:
    """Number of runs, seeds and environment steps, and the time of the commands that trained them,
    as text."""
    steps = sum(int(one.steps[:, -1].sum()) for one in results) / 1e6
    seeds = span(len(one.final) for one in results)
    own = [cost for cost in costs if results[0].benchmark in cost["benchmarks"]]
    alone, shared = (
        spent([cost for cost in own if (len(cost["benchmarks"]) > 1) == several])
        for several in (False, True)
    )
    parts = [alone, f"a part of {shared} shared with other benchmarks" * bool(shared)]
    took = f" ({', and '.join(filter(None, parts))})" * bool(own)
    return f"{len(results)} runs with {seeds} seeds, {steps:,.0f} million steps{took}"


def spent(costs: Costs) -> str:
    """GPU minutes and CPU hours, as text; empty without costs."""
    on_gpu, on_cpu = (
        sum(cost["seconds"] for cost in costs if ("NVIDIA" in cost["device"]) == is_gpu)
        for is_gpu in (True, False)
    )
    times = (f"{on_gpu / 60:.0f} GPU minutes", f"{on_cpu / 3600:.1f} CPU hours")
    return ", ".join(text for text, seconds in zip(times, (on_gpu, on_cpu), strict=True) if seconds)


def _picture(name: str, kind: str, drawn: Drawn) -> str:
    if kind not in drawn.get(name, {}):
        return ""
    return f"![{name}: {PICTURES[kind]}](figures/{name}-{kind}.svg)"


def _further(name: str, drawn: Drawn) -> str:
    pictures = (_picture(name, kind, drawn) for kind in PICTURES if kind != "curves")
    return folded("Further figures", joined(*pictures))


def verdict(interval: Interval, words: tuple[str, str, str] = BETTER) -> str:
    """The first word for an interval above 0, the last for one below, else the middle one."""
    return words[0] if interval.low > 0 else words[2] if interval.high < 0 else words[1]


def judged(interval: Interval, words: tuple[str, str, str] = BETTER) -> tuple[str, str]:
    """Estimate with its interval, and the verdict."""
    return text(interval), verdict(interval, words)


def _tally(judged: Iterable[tuple[str, str]]) -> str:
    """Markdown list of names per verdict, favourable verdicts first."""
    judged = list(judged)
    lines = []
    for word in ("better", "wider", "open", "worse", "narrower"):
        named = [name for name, verdict in judged if verdict == word]
        if named:
            lines.append(f"- {word} in {len(named)} of {len(judged)}: {', '.join(named)}")
    return "\n".join(lines)


def _compared(trio: Trio) -> tuple[str, ...]:
    """Cells below `CREDIT_TITLES`."""
    return (*map(final_text, trio.results), *judged(trio.advantage))
