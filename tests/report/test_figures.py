"""Figures: one visual language, whole files, the same data the same text; drawn from made-up
results."""

import re
import warnings
from itertools import combinations
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from PIL import Image

from dgmarl.config import methods
from dgmarl.report import figures
from dgmarl.report.aggregate import over_scenarios
from dgmarl.report.charts import charts_data, curve
from dgmarl.report.figures import (
    Panel,
    graph_panels,
    inline_svg,
    learning_curves,
    save,
    scenario_panels,
    svg,
)
from dgmarl.report.results import Result
from dgmarl.report.statistics import Interval
from dgmarl.report.style import GRAPHS, env_names, order, style, styles

METHODS = ("ippo-local", "mappo-global", "ippo-dg-oracle", "mappo-dg-random0.3", "qmix")


def result(method: str, scenario: str = "8x8-2p-2f", seeds: int = 3, **facts) -> Result:
    steps = np.tile(np.arange(1, 5) * 1000, (seeds, 1))
    returns = np.linspace(0, 1, 4) * np.linspace(0.5, 0.9, seeds)[:, None]
    return Result("lbf", scenario, method, f"lbf/{scenario}", steps, returns, facts)


RESULTS = [
    result(method, scenario) for scenario in ("8x8-2p-2f", "10x10-3p-3f") for method in METHODS
]


def test_curves_name_units_methods_and_seeds():
    text = svg(learning_curves(scenario_panels(RESULTS)))
    for words in (
        "team return per episode",
        "environment steps",
        "mean over 3 seeds",
        "IPPO local",
        "MAPPO-DG random 0.3",
    ):
        assert words in text
    assert "mean over 1 seed;" in svg(learning_curves([Panel("one", [result("qmix", seeds=1)])]))


def test_a_method_has_one_colour_everywhere():
    together = over_scenarios(RESULTS)
    drawn = [learning_curves(scenario_panels(RESULTS)), *together.figures().values()]
    on_page = {
        one["name"]: one["colour"]
        for chart in charts_data({"a": RESULTS})["charts"]
        for one in chart["series"]
    }
    for method in METHODS:
        assert on_page[style(method).name] == style(method).colour
    for figure in drawn[:3]:
        assert all(style(method).colour.lower() in svg(figure).lower() for method in METHODS)


def test_two_runs_of_one_method_can_be_told_apart_on_a_page():
    looks = styles(
        ["ippo-dg-oracle (b)", "ippo-dg-oracle (a)", "ippo-local", "mappo-dg-oracle (a)"]
    )
    assert looks["ippo-dg-oracle (a)"] == style("ippo-dg-oracle (a)")
    assert looks["ippo-local"] == style("ippo-local")
    assert len({(look.colour, look.dash) for look in looks.values()}) == 4


def simulated(colour: str, kind: str) -> np.ndarray:
    """RGB as people see it who lack one kind of cone (Viénot and others, 1999)."""
    matrices = {
        "protan": [[0.11238, 0.88762, 0], [0.11238, 0.88762, 0], [0.00401, -0.00401, 1]],
        "deutan": [[0.29275, 0.70725, 0], [0.29275, 0.70725, 0], [-0.02234, 0.02234, 1]],
        "normal": np.eye(3),
    }
    return (np.asarray(matrices[kind]) @ np.asarray(to_rgb(colour)) ** 2.2).clip(0) ** (1 / 2.2)


@pytest.mark.parametrize("kind", ["normal", "protan", "deutan"])
def test_colours_are_told_apart_by_the_colour_blind(kind):
    colours = {
        **{method.label.split()[-1]: method.colour for method in methods.METHODS.values()},
        **GRAPHS,
    }
    for first, second in combinations(dict.fromkeys(colours.values()), 2):
        assert np.linalg.norm(simulated(first, kind) - simulated(second, kind)) > 0.12, (
            first,
            second,
        )


def test_variants_of_a_graph_have_its_colour():
    colours = {
        "oracle-weighted=off": "oracle",
        "learned-threshold=0.7": "learned",
        "learned-tuned": "learned-tuned",
        "interventional-fast": "interventional",
        "interventional-sampled2-fast": "interventional-sampled",
        "interventional3-sampled10": "interventional-sampled",
    }
    assert {graph: style(f"ippo-dg-{graph}").colour for graph in colours} == {
        graph: GRAPHS[source] for graph, source in colours.items()
    }
    assert style("ippo-dg-oracles").colour not in GRAPHS.values()


def test_backbones_differ_by_their_dash():
    assert style("ippo-local").colour == style("mappo-local").colour
    assert style("ippo-local").dash != style("mappo-local").dash


def test_lists_of_methods_have_one_order():
    given = ["qmix", "mappo-dg-oracle", "ippo-global", "mappo-local", "ippo-dg (b)", "ippo-local"]
    assert sorted(given, key=order) == [
        "ippo-local",
        "ippo-global",
        "ippo-dg (b)",
        "mappo-local",
        "mappo-dg-oracle",
        "qmix",
    ]


def test_files_are_whole_and_the_same_every_time(tmp_path):
    paths = save(learning_curves(scenario_panels(RESULTS)), tmp_path / "a.b")
    assert [path.name for path in paths] == ["a.b.svg", "a.b.png"]
    ElementTree.parse(paths[0])
    assert Image.open(paths[1]).size[0] == 2 * figures.COLUMN * 200
    assert (
        save(learning_curves(scenario_panels(RESULTS)), tmp_path / "again")[0].read_text()
        == paths[0].read_text()
    )


def test_pictures_have_the_colours_of_white_paper(tmp_path):
    path = save(learning_curves(scenario_panels(RESULTS)), tmp_path / "curves")[1]
    pixels = np.asarray(Image.open(path).convert("RGB")).reshape(-1, 3)
    found = {f"#{colour.tobytes().hex()}" for colour in np.unique(pixels, axis=0)}
    assert set(figures.ON_WHITE.values()) - {figures.ON_WHITE[figures.FAINT]} <= found
    assert not found & {figures.INK, figures.FAINT, figures.RULE}


def test_many_long_names_leave_room_for_the_curves():
    methods = [f"ippo-dg-oracle-{'some_number=1-' * 4}{k}" for k in range(12)]
    chances = {(method, "ippo-local"): Interval(0.5, 0.4, 0.6) for method in methods}
    for figure in (
        learning_curves([Panel("many", [result(one) for one in methods])]),
        figures.improvement(chances, "", styles([*methods, "ippo-local"])),
    ):
        with warnings.catch_warnings(action="error"):  # matplotlib warns where no room is left
            svg(figure)
        assert figure.axes[0].get_position().width > 0.2
        assert figure.axes[0].get_position().height > 0.3


def test_a_legend_of_seven_methods_stays_within_the_figure():
    credits = ("local", "global", "dg-learned")
    presets = [f"mappo-{credit}{end}" for credit in credits for end in ("", "-fast")]
    methods = [*presets, "mappo-dg-oracle-fast"]
    figure = learning_curves([Panel(name, [result(one) for one in methods]) for name in "ab"])
    svg(figure)
    box = figure.legends[0].get_window_extent()
    assert 0 <= box.x0 < box.x1 <= figure.bbox.width


def test_the_last_line_changes_with_the_data_alone():
    changed = [one._replace(returns=one.returns + 0.01) for one in RESULTS]
    lines = [
        svg(learning_curves(scenario_panels(results))).splitlines()[-1]
        for results in (RESULTS, RESULTS, changed)
    ]
    assert re.fullmatch("<!-- data [0-9a-f]{16} -->", lines[0])
    assert lines[0] == lines[1] != lines[2]


def test_on_a_page_figures_take_its_colours():
    text = inline_svg(learning_curves(scenario_panels(RESULTS)))
    assert "currentColor" in text
    assert "var(--faint)" in text
    assert not any(mark in text for mark in figures.ON_PAGE)
    assert "#ffffff" not in text.lower().replace("fill-opacity: 0", "")


def test_density_and_f1_are_drawn_where_they_were_measured():
    rising = np.tile(np.linspace(0, 1, 4), (3, 1))
    results = [
        result("ippo-dg-learned", graph_density=rising, graph_f1_oracle=rising),
        result("ippo-dg-oracle", graph_density=np.full((3, 4), 0.2)),
        result("ippo-local"),
    ]
    panels = graph_panels(results)
    assert [(panel.metric, len(panel.results)) for panel in panels] == [
        ("graph_density", 1),
        ("graph_f1_oracle", 1),
    ]
    assert "F1 against the oracle's edges" in svg(learning_curves(panels)).replace(
        "&#39;", "'"
    ).replace("&apos;", "'")


def test_cost_against_return_has_a_mark_per_method():
    points = {
        "ippo-local": (10.0, Interval(0.5, 0.4, 0.6)),
        "mappo-dg-oracle": (100.0, Interval(0.9, np.nan, np.nan)),
    }
    figure = figures.cost_against_return(points, "seconds per seed", "3 seeds", styles(points))
    assert [len(line.get_xdata()) for line in figure.axes[0].lines] == [2, 1, 1]
    text = svg(figure)
    assert "seconds per seed" in text
    assert "MAPPO-DG oracle" in text


def test_names_are_not_read_as_mathematics():
    assert "ippo-$x" in svg(learning_curves([Panel("$a_", [result("ippo-$x")])]))


def test_a_logarithmic_axis_has_plain_numbers():
    points = {"ippo-local": (0.5, Interval(0.1, 0, 0.2)), "qmix": (3000.0, Interval(0.2, 0, 0.3))}
    text = svg(figures.cost_against_return(points, "seconds per seed", "", styles(points)))
    assert "mathdefault" not in text
    assert {">1<", ">100<", ">1k<"} <= set(re.findall(r">[^<>]*<", text))


def test_variants_have_colours_of_their_own_in_every_figure():
    variants = [f"ippo-dg-oracle-cross_weight={k}" for k in range(14)]
    looks = styles([*variants, "ippo-local", "mappo-global"])
    assert len({(look.colour, look.dash) for look in looks.values()}) == 16
    assert not {looks[name].colour for name in variants} & {looks["mappo-global"].colour}
    together = over_scenarios([result(method) for method in (*variants[:4], "ippo-local")])
    for figure in together.figures(looks).values():
        drawn = svg(figure).lower()
        assert all(looks[name].colour.lower() in drawn for name in variants[:4])


def test_a_curve_ends_with_the_final_return_and_may_be_one_point():
    steps, returns = np.array([[10, 20], [10, 24]]), np.array([[0.0, 1.0], [0.0, 0.5]])
    assert [part and part[-1] for part in curve(steps, returns)] == [20, 0.75, 0.5, 1]
    assert [part and len(part) for part in curve(steps[:, :1], returns[:, :1])] == [1] * 4


def test_environments_from_files_are_named_without_the_folder():
    envs = ["/home/me/relay.py:Relay", "lbf/8x8-2p-2f", "smaclite//maps/mine.yaml", "pack.age:Env"]
    assert list(env_names(envs).values()) == [
        "relay.py:Relay",
        "lbf/8x8-2p-2f",
        "smaclite/mine.yaml",
        "pack.age:Env",
    ]
    same = ["/a/relay.py:Relay", "/b/relay.py:Relay"]
    assert list(env_names(same).values()) == same
