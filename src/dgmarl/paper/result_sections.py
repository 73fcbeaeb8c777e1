"""The sections of `docs/results.md`: one table and one picture each, and the rest folded."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from dgmarl.paper.claims import FAST, VALUES_OF_PAPER, compare_values, neighbours
from dgmarl.paper.grids import BACKBONES, LBF_STEPS, SIX, SMACLITE_STEPS, VALUE_BASED
from dgmarl.paper.judging import Claim, Trio, difference, gap_change, trios
from dgmarl.paper.paper_figures import FIGURES, IQM_OF_PAPER, PaperFigure
from dgmarl.paper.tables import final_table, final_text, iqm_table, markdown, text
from dgmarl.report.aggregate import Aggregates, over_scenarios
from dgmarl.report.results import Result, budget_text, span
from dgmarl.report.statistics import Interval, mean_interval
from dgmarl.report.style import order, style, uses_graph

CREDIT_TITLES = ("local", "global", "graph", "graph minus the better of the two", "")
BETTER = ("better", "open", "worse")
WIDTHS = ("wider", "open", "narrower")
GRAPHS = {
    "oracle": "",
    "learned": " (as the paper has it)",
    "learned-tuned": " (the learned one with the numbers we prefer)",
}
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
Drawn = Mapping[str, Mapping[str, Figure]]
"""Pictures by figure of the paper and kind."""


def folded(title: str, content: str) -> str:
    """Markdown that opens with a click, on the site and on the code host."""
    if not content:
        return ""
    return f"""<details markdown="1">
<summary>{title}</summary>

{content}

</details>"""


def joined(*parts: str) -> str:
    """Paragraphs, without the empty ones."""
    return "\n\n".join(filter(None, parts))


def star_spread(results: Sequence[Result], shown: Sequence[Result], drawn: Drawn) -> str:
    """Known graphs and a growing number of agents."""
    spread = trios(shown, "star-spread", "dg")
    if not spread:
        return ""
    local_gaps = [(trio, difference(trio.local, trio.globe)) for trio in spread]
    control = trios(results, UNSCALED, "dg")
    return joined(
        f"""## Star-Spread: the graph is known

A hub and N - 1 leaves; {_size(FIGURES["mpe"].chosen(shown))}. Returns are sums over all agents, so
those of different N do not compare. The graph is the oracle's, in which every agent influences
itself and the hub; *learned* is learned in the paper's setting for it (no encoder, one head per
agent; findings: [learned-graphs.md](learned-graphs.md#smaclite-and-star-spread)).""",
        _spread_table(spread, shown),
        _picture("mpe", "curves", drawn),
        folded(
            "Does the gap to global reward widen with N?",
            joined(_widening(spread), _picture("mpe", "graphs", drawn)),
        ),
        folded(
            "Local against global reward, and why local reward falls behind",
            f"""Local minus global reward is

{_tally((f"{trio.named()} ({text(gap)})", verdict(gap)) for trio, gap in local_gaps)}

To a leaf any landmark is as good as another; only the hub is
paid for covering all of them. Leaves that learn from their own reward agree on one landmark and
gather there, which is what the task was designed to provoke. The returns above are consistent with
it, and it was seen in replays of two seeds at N = 5 (larger N were not looked at):

    dgmarl train star-spread/5 --method ippo-local --seeds 1 --out runs/local
    dgmarl watch runs/local""",
        ),
        folded("Control: rewards that are not standardised", _unscaled(spread, control)),
    )


def _spread_table(spread: Sequence[Trio], results: Sequence[Result]) -> str:
    learned = {(one.scenario, one.method): one for one in results if one.benchmark == "star-spread"}
    rows = []
    for trio in spread:
        own = learned.get((trio.scenario, f"{trio.backbone}-dg-learned"))
        cell = final_text(own, trio.graph.budget) if own else ""
        judged = _judged(trio.advantage)
        rows.append((trio.n_agents, BACKBONES[trio.backbone], *_means(trio), *judged, cell))
    return markdown(("N", "backbone", *CREDIT_TITLES[:-1], "", "learned graph"), rows)


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
    return f"""The paper standardises Star-Spread's rewards with other statistics for each credit
rule: per agent for local credit, of the sum for global credit, pooled over agents for graph credit,
each with its mean subtracted. So the published runs differ in more than credit. The control differs
from them in nothing but `credit.reward_scaling none` (`dgmarl grid {UNSCALED}`).

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
            changes.append((trio.after(before), change[1]))
        rows.append((BACKBONES[trio.backbone], trio.n_agents, text(gap), share, *change))
    share_title, change_title = "in % of global's return", "change from the N before"
    titles = ("backbone", "N", "graph minus global", share_title, change_title, "")
    return f"""From one N to the next the graph's lead over global reward is

{_tally(changes)}

Returns grow with N by themselves, so the gap is also given relative to global reward's return. At
N = 50 and 100 agents move half as far per step as at smaller N.

{markdown(titles, rows)}"""


def foraging(results: Sequence[Result], drawn: Drawn) -> str:
    """Six scenarios, with the methods' interquartile means beside the paper's."""
    own = FIGURES["lbf"].chosen(results)
    if not own:
        return ""
    together = over_scenarios(own)
    assert isinstance(together, Aggregates)  # foraging's returns share a scale
    further = ("intervals", "profiles", "sample-efficiency", "improvement", "graphs")
    return joined(
        f"""## Level-based foraging

A return of 1 is all the food. In `-coop` scenarios every food needs two players and pays only the
stronger; elsewhere some foods can be taken alone, and those who take one together share it. The
oracle's graph joins players near each other. {_size(own)}; the last column has the
steps of each seed.""",
        _methods_table(own, together),
        _picture("lbf", "curves", drawn),
        folded("Interquartile means beside the paper's", _against_paper(together)),
        folded("Every final return with its interval", final_table(own)),
        *(
            folded(
                f"The {graph} graph{note} against the better of local and global reward",
                _graph_credit(results, graph),
            )
            for graph, note in GRAPHS.items()
        ),
        folded("Value-based methods beside what the paper says of them", _values(own)),
        folded("Density of the graphs", _densities(own)),
        folded("Further figures", joined(*(_picture("lbf", kind, drawn) for kind in further))),
    )


def _methods_table(own: Sequence[Result], together: Aggregates) -> str:
    """Methods down, scenarios across: mean final returns, the IQM and the paper's."""
    found = {(one.scenario, one.method): one for one in own}
    scenarios = list(dict.fromkeys(one.scenario for one in own))
    rows = []
    for method in sorted({one.method for one in own}, key=order):
        mine = [one for one in own if one.method == method]
        means = [
            f"{found[name, method].final.mean():.3f}" if (name, method) in found else ""
            for name in scenarios
        ]
        iqm = text(together.iqm(method)) if method in together.of_method else ""
        paper = f"{IQM_OF_PAPER[method]:.2f}" if method in IQM_OF_PAPER else ""
        rows.append((style(method).name, *means, iqm, paper, budget_text(*mine)))
    names = (f"`{name}`" for name in scenarios)
    return markdown(("method", *names, "IQM", "the paper's IQM", "steps"), rows)


def _values(results: Sequence[Result]) -> str:
    """The value-based methods beside what the paper says of them, scenario by scenario."""
    found = {(one.benchmark, one.scenario, one.method): one for one in results}
    rows = []
    for scenario, paper in VALUES_OF_PAPER.items():
        own = [found.get(("lbf", scenario, method)) for method in VALUE_BASED]
        if any(own):
            cells = ["" if result is None else final_text(result, LBF_STEPS) for result in own]
            judged = Claim("Foraging", paper, compare_values(scenario, found)).verdict
            rows.append((f"`{scenario}`", *cells, paper, f"**{judged}**"))
    if not rows:
        return ""
    names = (style(method).name for method in VALUE_BASED)
    table = markdown(("scenario", *names, "the paper", "here"), rows)
    return f"""Numbers without steps are of {LBF_STEPS / 1e6:g} million; results of fewer steps do
not predict those of more, and IQL and QMIX are compared at equal numbers. IQL learns from local,
the others from global reward.

{table}"""


def _graph_credit(results: Sequence[Result], graph: str) -> str:
    found = trios(results, "lbf", f"dg-{graph}")
    if not found:
        return ""
    rows = [
        (f"`{trio.scenario}`", BACKBONES[trio.backbone], *_means(trio), *_judged(trio.advantage))
        for trio in found
    ]
    return markdown(("scenario", "backbone", *CREDIT_TITLES), rows)


def _against_paper(together: Aggregates) -> str:
    """Whether the paper's numbers lie within our intervals, if all scenarios are here."""
    lacking = "; ".join(
        f"{style(one).name} lacks {', '.join(names)}" for one, names in together.left_out.items()
    )
    left_out = f"Left out, because they lack scenarios: {lacking}.\n\n" if lacking else ""
    if set(together.scenarios) != set(SIX):
        return f"{left_out}{paper_iqms()} Nothing on this page tests them before all six are here."
    rows = []
    for method, theirs in IQM_OF_PAPER.items():
        if method in together.of_method:
            ours, place = together.iqm(method), "within our interval"
            if not ours.low <= theirs <= ours.high:
                place = "above ours" if theirs > ours.high else "below ours"
            rows.append((style(method).name, f"{theirs:.2f}", text(ours), place))
    return f"""{left_out}{markdown(("method", "the paper's IQM", "ours", "the paper's lies"), rows)}

The paper states neither the number of seeds nor intervals, so a number outside ours does not prove
a difference."""


def paper_iqms() -> str:
    """The paper's interquartile means in a sentence."""
    numbers = ", ".join(
        f"{value:.2f} for {style(method).name}" for method, value in IQM_OF_PAPER.items()
    )
    return f"The paper's IQMs are of 6 scenarios and a *learned* graph: {numbers}."


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
    return f"The share of possible edges that are on, half-way through training:\n\n{table}"


def _half_way(result: Result) -> float:
    """Mean graph density over seeds at half of the steps, while policies still change."""
    densities = result.metric("graph_density")
    assert densities is not None
    seeds = zip(result.steps, densities, strict=True)
    return float(np.mean([np.interp(steps[-1] / 2, steps, row) for steps, row in seeds]))


def battles(results: Sequence[Result], drawn: Drawn) -> str:
    """Six maps of SMAClite: returns and battles won, greedy and sampled."""
    own = FIGURES["smaclite"].chosen(results)
    if not own:
        return ""
    return joined(
        f"""## SMAClite

Six maps, {_size(own)}. Returns of MAPPO with greedy actions, as in the paper, and with the preset
*fast*, which has 128 environments instead of the paper's ten; *the better* is the better of local
and global reward. A won battle pays about 20. Findings: [smaclite.md](smaclite.md#learning-results)
and [learned-graphs.md](learned-graphs.md#smaclite-and-star-spread).""",
        _maps_table(own),
        _picture("smaclite", "curves", drawn),
        folded(
            "Every run: battles won, greedy and sampled, and the graphs",
            f"""*Sampled* was measured beside the greedy evaluation; F1 is that of learned graphs
against the interventional one. Runs without *fast* are in the paper's setting.

{_battles_table(own)}""",
        ),
        folded("All maps together", _over_several(own)),
        folded(
            "Further figures",
            joined(*(_picture("smaclite", kind, drawn) for kind in list(PICTURES)[1:])),
        ),
    )


def _maps_table(own: Sequence[Result]) -> str:
    """One row per map: local and global credit, and how graphs compare with the better of them."""
    learned, oracle = (
        {trio.scenario: trio for trio in trios(own, "smaclite", f"dg-{graph}", FAST)}
        for graph in ("learned", "oracle")
    )
    rows = []
    for name in filter(learned.get, SMACLITE_STEPS):
        local, globe, _ = _means(learned[name])
        row = [f"`{name}`", local, globe]
        for trio in (learned[name], oracle.get(name)):
            row += (_means(trio)[2], *_judged(trio.advantage)) if trio else ("", "", "")
        rows.append((*row, _steps(learned[name].graph)))
    if not rows:
        return ""
    minus = ("minus the better", "")
    titles = ("map", "local", "global", "learned graph", *minus, "oracle's graph", *minus, "steps")
    return markdown(titles, rows)


def _battles_table(own: Sequence[Result]) -> str:
    rows, maps = [], list(SMACLITE_STEPS)
    won, played = "final_battle_won", ("sampled_return", "sampled_final_battle_won")
    metrics = (won, *played, "graph_density", "graph_f1_interventional")
    for result in sorted(own, key=lambda one: (maps.index(one.scenario), order(one.method))):
        cells = [last_mean(result, name) for name in metrics]
        final = text(mean_interval(result.final))
        name = (f"`{result.scenario}`", style(result.method).name)
        rows.append((*name, final, *cells, len(result.final), _steps(result)))
    titles = ("map", "method", "greedy return", "won", "sampled return", "won", "density", "F1")
    return markdown((*titles, "seeds", "steps"), rows)


def _steps(battle: Result) -> str:
    """Those that a run on SMAClite had, and the paper's where they are more."""
    full = SMACLITE_STEPS[battle.scenario]
    short = f"{budget_text(battle).removesuffix(' million')} of " * (1.1 * battle.budget < full)
    return f"{short}{full / 1e6:g} million"


def last_mean(result: Result, metric: str) -> str:
    """Mean over seeds at the last evaluation; empty where it was not measured."""
    values = result.metric(metric)
    return "" if values is None else f"{values[:, -1].mean():.3g}"


def plain(figure: PaperFigure, results: Sequence[Result], drawn: Drawn) -> str:
    """A figure's table and pictures, folded."""
    own = figure.chosen(results)
    if not own:
        return ""
    pictures = (_picture(figure.name, kind, drawn) for kind in drawn.get(figure.name, ()))
    return folded(
        figure.about,
        joined(
            f"Chosen here, because the paper does not say it: {figure.choices}",
            final_table(own),
            _over_several(own),
            *pictures,
        ),
    )


def _over_several(results: Sequence[Result]) -> str:
    """Interquartile means, where there is more than one scenario."""
    together = over_scenarios(results)
    if isinstance(together, str) or len(together.scenarios) < 2:
        return ""
    return iqm_table(together)


def _size(results: Sequence[Result]) -> str:
    """Runs and environment steps in a sentence."""
    steps = sum(int(one.steps[:, -1].sum()) for one in results) / 1e6
    seeds = span(len(one.final) for one in results)
    return f"{len(results)} runs with {seeds} seeds, {steps:,.0f} million steps"


def _picture(name: str, kind: str, drawn: Drawn) -> str:
    if kind not in drawn.get(name, {}):
        return ""
    return f"![{name}: {PICTURES[kind]}](figures/{name}-{kind}.svg)"


def verdict(interval: Interval, words: tuple[str, str, str] = BETTER) -> str:
    """The first word for an interval above 0, the last for one below, else the middle one."""
    return words[0] if interval.low > 0 else words[2] if interval.high < 0 else words[1]


def _judged(interval: Interval, words: tuple[str, str, str] = BETTER) -> tuple[str, str]:
    return text(interval), verdict(interval, words)


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
