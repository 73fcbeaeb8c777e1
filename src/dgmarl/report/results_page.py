"""The page of results, `docs/results.md` with its figures: `python -m dgmarl.report.results_page`.

Every number and every verdict on the page is computed from the files in `results/`, so that the page cannot say more than
they do; a test checks that the committed page is the one the files give.
"""

import argparse
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from dgmarl.files import write_atomic
from dgmarl.report.curves import Curve, curve_figure
from dgmarl.report.results import Result, read_results
from dgmarl.report.statistics import Interval, contrast_interval, mean_interval
from dgmarl.report.table import aggregates, interval_texts

NAMES = {"ippo": "IPPO", "mappo": "MAPPO"}
BETTER = ("better", "open", "worse")
WIDTHS = ("wider", "open", "narrower")


class Trio(NamedTuple):
    """The three kinds of credit with one backbone in one scenario."""

    scenario: str
    backbone: str
    local: Result
    globe: Result
    graph: Result

    @property
    def results(self) -> tuple[Result, Result, Result]:
        """Local, global, graph."""
        return self.local, self.globe, self.graph

    @property
    def better_baseline(self) -> Result:
        """Local or global, whichever has the higher mean. Choosing after the fact favours the baseline."""
        return max((self.local, self.globe), key=lambda result: result.final.mean())

    @property
    def advantage(self) -> Interval:
        """Mean of the graph minus mean of the better baseline, seeds of both resampled independently."""
        return difference(self.graph, self.better_baseline)

    @property
    def n_agents(self) -> int:
        """N of a Star-Spread scenario."""
        return int(self.scenario.removeprefix("n"))

    def named(self) -> str:
        """For a sentence."""
        spread = self.graph.benchmark == "star-spread"
        return f"{NAMES[self.backbone]} {f'at N = {self.n_agents}' if spread else f'in `{self.scenario}`'}"


def difference(first: Result, second: Result) -> Interval:
    """Mean final return of the first minus that of the second."""
    return contrast_interval([first.final, second.final], [1, -1])


def gap_change(before: Trio, after: Trio) -> Interval:
    """How much the graph's lead over global reward grew from one scenario to another."""
    groups = [after.graph.final, after.globe.final, before.graph.final, before.globe.final]
    return contrast_interval(groups, [1, -1, -1, 1])


def trios(results: list[Result], benchmark: str, graph_method: str) -> list[Trio]:
    """Every scenario and backbone of a benchmark that has all three kinds of credit; `graph_method` is `dg` or `dg-SOURCE`."""
    found = {(result.scenario, result.method): result for result in results if result.benchmark == benchmark}
    groups = []
    for scenario in dict.fromkeys(scenario for scenario, _ in found):
        for backbone in NAMES:
            keys = [(scenario, f"{backbone}-{credit}") for credit in ("local", "global", graph_method)]
            if all(key in found for key in keys):
                groups.append(Trio(scenario, backbone, *(found[key] for key in keys)))
    return groups


def page(results: list[Result]) -> tuple[str, dict[str, str]]:
    """The text of the page, and its figures by file name."""
    spread, foraging = trios(results, "star-spread", "dg"), trios(results, "lbf", "dg-oracle")
    figures = {
        "star-spread-ippo.svg": _figure([trio for trio in spread if trio.backbone == "ippo"]),
        "star-spread-mappo.svg": _figure([trio for trio in spread if trio.backbone == "mappo"]),
        "lbf-oracle.svg": _figure(foraging),
    }
    sections = [_head(_results([*spread, *foraging])), _star_spread(spread), _foraging(foraging), _commands(spread, foraging)]
    return "\n\n".join(sections) + "\n", figures


def _head(results: list[Result]) -> str:
    seeds = _listed(len(result.final) for result in results)
    episodes = _listed(result.facts["episodes_per_evaluation"] for result in results)
    return f"""# Results

<!-- Written by `python -m dgmarl.report.results_page` from the files in results/; change those, not this page. -->

What the three kinds of credit reach, beside what the paper says. Each number is the mean over {seeds} seeds of the final
return: the last evaluation ({episodes} episodes, actions sampled from the policy), not the best. In brackets stands the 95 %
percentile-bootstrap interval over seeds. Differences resample the seeds of both methods independently: *better* and *worse*
mean that the interval leaves 0 out, *open* that it does not. Many intervals are looked at, and none is corrected for that.
The curves of every seed are in [`results/`](../results); `dgmarl table results` prints plain tables of them."""


def _star_spread(spread: list[Trio]) -> str:
    rows = [(trio.n_agents, NAMES[trio.backbone], *_means(trio), *_judged(trio.advantage)) for trio in spread]
    return f"""## Star-Spread: the graph is known

A hub and N - 1 leaves. Returns are sums over all agents, so those of different N do not compare. The graph is the oracle's:
everybody influences itself and the hub.

{_markdown(("N", "backbone", "local", "global", "graph", "graph minus the better of the two", ""), rows)}

![Star-Spread with IPPO: learning curves for each N](figures/star-spread-ippo.svg)

![Star-Spread with MAPPO: learning curves for each N](figures/star-spread-mappo.svg)

Lines are means over seeds, bands their 95 % intervals.

**The paper: the graph is competitive with both local and global reward.** Against the better of the two, the graph is

{_tally((trio.named(), _verdict(trio.advantage)) for trio in spread)}

{_widening(spread)}

**The paper: global reward does well for small N but scales poorly; local reward scales better.** Local minus global reward is

{_tally((f"{trio.named()} ({_text(gap)})", _verdict(gap)) for trio in spread for gap in [difference(trio.local, trio.globe)])}

**Why local reward falls behind.** To a leaf any landmark is as good as another; only the hub is paid for covering all of them.
Leaves that learn from their own reward agree on one landmark and gather there: the trap that the task was built to be. The
returns above are consistent with it, and it was seen in replays of two seeds at N = 5 (larger N were not looked at):

    dgmarl train star-spread/5 --method ippo-local --seeds 1 --out runs/local
    dgmarl watch runs/local"""


def _widening(spread: list[Trio]) -> str:
    rows, changes = [], []
    for before, trio in _neighbours(spread):
        gap = difference(trio.graph, trio.globe)
        share = f"{gap.estimate / abs(trio.globe.final.mean()):+.0%}"
        change = ("", "")
        if before:
            change = _judged(gap_change(before, trio), WIDTHS)
            changes.append((f"{NAMES[trio.backbone]} from N = {before.n_agents} to {trio.n_agents}", change[1]))
        rows.append((NAMES[trio.backbone], trio.n_agents, _text(gap), share, *change))
    titles = ("backbone", "N", "graph minus global", "in % of global's return", "change from the N before", "")
    return f"""**The paper: the gap between the graph and global reward widens with N.** From one N to the next it is

{_tally(changes)}

Returns grow with N by themselves, so the gap is also given relative to global reward's return. At N = 50 agents move half as
far per step as at smaller N.

{_markdown(titles, rows)}"""


def _neighbours(spread: list[Trio]) -> list[tuple[Trio | None, Trio]]:
    """Each trio after the one with the same backbone and the next smaller N, if there is one."""
    pairs = []
    for backbone in dict.fromkeys(trio.backbone for trio in spread):
        own = sorted((trio for trio in spread if trio.backbone == backbone), key=lambda trio: trio.n_agents)
        pairs += zip([None, *own], own, strict=False)
    return pairs


def _foraging(foraging: list[Trio]) -> str:
    rows = [(f"`{trio.scenario}`", *_means(trio), *_judged(trio.advantage)) for trio in foraging]
    densities = ", ".join(f"{_density_half_way(trio.graph):.2f} in `{trio.scenario}`" for trio in foraging)
    return f"""## Level-based foraging: the oracle graph

IPPO, with the graph that joins players near each other. A return of 1 is all the food. In `-coop` scenarios every food needs
two players and pays only the stronger; elsewhere some foods can be taken alone, and those who take one together share it.

{_markdown(("scenario", "local", "global", "graph", "graph minus the better of the two", ""), rows)}

![Foraging: learning curves for each scenario](figures/lbf-oracle.svg)

**The paper: where an oracle or heuristic graph is at hand, as in foraging, it outperforms both local and global reward.**
Against the better of the two, the graph is

{_tally((trio.named(), _verdict(trio.advantage)) for trio in foraging)}

Half-way through training the density of the graph (the share of possible edges that are on) is {densities}.

Over {len(foraging)} scenarios, the interquartile mean (IQM) of all runs, resampled within scenarios:

{_over_scenarios(_results(foraging))}

The paper's IQM for IPPO, 0.89 with the graph, 0.66 with local and 0.68 with global reward, are of 6 scenarios and a *learned*
graph; nothing on this page tests them."""


def _over_scenarios(results: list[Result]) -> str:
    rows = []
    for aggregate in aggregates(results):
        lowest = min(result.final.mean() for result in results if result.method == aggregate.method)
        rows.append((f"`{aggregate.method}`", _text(aggregate.iqm), f"{lowest:.3f}", aggregate.runs))
    return _markdown(("method", "IQM", "mean in its worst scenario", "runs"), rows)


def _commands(spread: list[Trio], foraging: list[Trio]) -> str:
    first, second = _results(spread), _results(foraging)
    devices, versions = (_listed(result.facts[name] for result in first + second) for name in ("device", "jax"))
    codes = [_listed(result.facts["code"] for result in group) for group in (first, second)]
    return f"""## How these were made

    python -m dgmarl.experiments.grid star-spread --out results --workers 6    # {len(first)} cells: 6 min 37 s
    python -m dgmarl.experiments.grid lbf-oracle --out results --workers 6     # {len(second)} cells: 4 min 39 s
    python -m dgmarl.report.results_page                                       # this page, from results/

On one {devices} with jax {versions}, all seeds of a cell side by side; the times include compiling. Code: {codes[0]}
(Star-Spread), {codes[1]} (foraging). Every file holds the whole configuration of its cell."""


def _verdict(interval: Interval, words: tuple[str, str, str] = BETTER) -> str:
    """The first word for an interval above 0, the last for one below, the middle one for neither."""
    return words[0] if interval.low > 0 else words[2] if interval.high < 0 else words[1]


def _judged(interval: Interval, words: tuple[str, str, str] = BETTER) -> tuple[str, str]:
    return _text(interval), _verdict(interval, words)


def _tally(judged: Iterable[tuple[str, str]]) -> str:
    """A list of who got which verdict, the favourable one first."""
    judged = list(judged)
    lines = []
    for word in ("better", "wider", "open", "worse", "narrower"):
        named = [name for name, verdict in judged if verdict == word]
        if named:
            lines.append(f"- {word} in {len(named)} of {len(judged)}: {', '.join(named)}")
    return "\n".join(lines)


def _density_half_way(result: Result) -> float:
    """Mean graph density over seeds at half of the steps: while policies still change, and after they have found food."""
    densities: Float[np.ndarray, "S K"] = np.array(result.facts["graph_density"], float)
    return float(np.mean([np.interp(steps[-1] / 2, steps, row) for steps, row in zip(result.steps, densities, strict=True)]))


def _means(trio: Trio) -> tuple[str, ...]:
    return tuple(_text(mean_interval(result.final)) for result in trio.results)


def _text(interval: Interval) -> str:
    return " ".join(interval_texts(interval))


def _results(group: list[Trio]) -> list[Result]:
    return [result for trio in group for result in trio.results]


def _listed(values: Iterable[object]) -> str:
    """Distinct values in a sentence; usually there is only one."""
    return ", ".join(sorted(set(map(str, values))))


def _figure(group: list[Trio]) -> str:
    panels = {}
    for trio in group:
        curves = zip(("local", "global", "dg"), trio.results, strict=True)
        panels[trio.named().replace("`", "")] = {credit: Curve(result.steps, result.returns) for credit, result in curves}
    return curve_figure(panels, "return over environment steps")


def _markdown(titles: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    lines = [tuple(titles), *rows]
    lines.insert(1, ["---"] * len(lines[0]))
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def write_page(results: Path, out: Path) -> Path:
    """Write `results.md` and `figures/` into a folder."""
    text, figures = page(read_results(results))
    for name, figure in figures.items():
        write_atomic(out / "figures" / name, figure)
    return write_atomic(out / "results.md", text)


def main() -> None:
    """Command line of this module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument("--out", type=Path, default=Path("docs"))
    options = parser.parse_args()
    print(write_page(options.results, options.out))


if __name__ == "__main__":
    main()
