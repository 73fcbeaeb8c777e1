"""`dgmarl graph`: the page shows the edges that Python computes, at any threshold, for every kind
of run."""

import json
import re

import jax
import numpy as np
import pytest

from dgmarl import api
from dgmarl.cli import main
from dgmarl.config.resolve import resolve
from dgmarl.graphs.metrics import agreement, density
from dgmarl.report.graph_page import graph_page, over_training, thousandths
from dgmarl.report.results import read_run, run_or_reason
from dgmarl.runs.folder import RunFolder
from dgmarl.runs.graphs import record_graphs
from dgmarl.runs.replays import Compared
from dgmarl.training import Trainer, init_seeds
from tests.report.fake_runs import rows, write_run
from tests.tiny import GIFT, SMALL

NO_ORACLE = GIFT.replace(":Gift", ":NoOracle")
KEY = jax.random.key(0)
MEASURES = ("f1", "precision", "recall")
CURVES = {
    **{f"graph_{measure}_oracle": 0.1 * k + 0.3 for k, measure in enumerate(MEASURES)},
    **{f"graph_{measure}_interventional": 0.1 * k + 0.6 for k, measure in enumerate(MEASURES)},
    **{"graph_ratio": 0.97, "graph_pair_entropy": 1.5, "graph_predictor_entropy": 1.55},
}


def untrained(
    folder, env: str, method: str, graph: str, options: dict | None = None, seeds: int = 1
):
    """A run folder as it is before the first step."""
    config = resolve(env, method, {**SMALL, **(options or {})}, graph=graph, seeds=seeds, steps=100)
    RunFolder(folder).create(config, init_seeds(Trainer(config)))
    return folder


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    """A run whose models know nothing yet, with a threshold in the midst of their ratios, and
    curves written by hand."""
    options = {"env_options.horizon": 8, "graph_model.encoding": 8, "graph_model.threshold": 0.95}
    folder = untrained(
        tmp_path_factory.mktemp("learned") / "run",
        "star-spread/3",
        "ippo-dg",
        "learned",
        options,
        seeds=2,
    )
    lines = [
        {**row, **CURVES} for seed in (0, 1) for row in rows(seed, finals=(0.1, 0.2), steps=100)
    ]
    lines[-1]["graph_f1_oracle"] = 0.9
    RunFolder(folder).append_metrics(lines)
    return folder


@pytest.fixture(scope="module")
def page(learned, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "graph.html"
    with pytest.raises(SystemExit) as stop:
        main(["graph", str(learned), "--episodes", "2", "--trained-seed", "1", "--out", str(path)])
    assert stop.value.code == 0
    return path


@pytest.fixture(scope="module")
def compared(learned):
    """All episodes have the same length, so that their graphs are stacked: [E, T, N, N]."""
    found = record_graphs(api.load(learned, seed=1), KEY, 2)
    return found._replace(graphs={name: np.stack(of) for name, of in found.graphs.items()})


def text_of(browser, selector: str) -> str:
    return browser.evaluate(f"document.querySelector({json.dumps(selector)}).textContent")


def numbers(browser) -> dict[str, list[float]]:
    """By comparison: F1, precision, recall, and edges hit, missed and false."""
    rows = browser.evaluate(
        "[...document.querySelectorAll('#numbers tbody tr')].map(r => [...r.cells].map(c => "
        "c.textContent))"
    )
    return {
        name: [np.nan if value == "–" else float(value) for value in values]
        for name, *values in rows
    }


def set_threshold(browser, thousandths: int) -> None:
    browser.evaluate(
        f"(s => {{ s.value = {thousandths}; s.dispatchEvent(new Event('input')) "
        f"}})(document.getElementById('threshold'))"
    )


def expected(predicted, truth) -> list[float]:
    """F1, precision and recall; NaN for 0 / 0."""
    found = agreement(predicted, truth)
    n_predicted, n_true = ((graph & ~np.eye(3, dtype=bool)).sum() for graph in (predicted, truth))
    return [
        float(value) if whole else np.nan
        for value, whole in (
            (found.f1, n_predicted + n_true),
            (found.precision, n_predicted),
            (found.recall, n_true),
        )
    ]


def test_ratios_in_thousandths_give_the_edges_of_training_at_every_threshold():
    ratios = np.concatenate(
        [np.random.default_rng(0).uniform(0, 1.3, 2000), np.arange(1200) / 1000, [50.0]]
    ).astype(np.float32)
    for c in range(0, 1201, 25):
        assert np.array_equal(thousandths(ratios) < c, ratios < np.float32(c / 1000))


def test_the_learned_edges_are_those_that_the_run_itself_infers(learned, compared):
    inferred = np.asarray(api.load(learned, seed=1).recording(KEY, 2).graph)
    edges = (compared.graphs["learned"] < np.float32(compared.threshold)) | np.eye(3, dtype=bool)
    assert np.array_equal(edges, inferred)
    assert 0.05 < density(inferred) < 0.95, (
        "the threshold should lie among the ratios, or nothing is tested"
    )


@pytest.mark.browser
def test_it_loads_without_complaints_and_without_network(browser, page):
    browser.errors.clear()
    browser.open(page)
    assert browser.evaluate("document.querySelectorAll('#matrices svg').length") == 3
    assert browser.evaluate("document.querySelector('#stage svg .dependence') === null")
    assert browser.evaluate("performance.getEntriesByType('resource').length") == 0
    assert browser.errors == []


@pytest.mark.browser
def test_numbers_are_those_of_the_metrics_at_the_runs_own_threshold_and_at_others(
    browser, page, compared
):
    browser.open(page)
    ratios, oracle, interventional = (
        compared.graphs[name] for name in ("learned", "oracle", "interventional")
    )
    assert text_of(browser, "#own-threshold").endswith("0.950")
    for c in (950, 900, 1010, 0):
        if c != 950:
            set_threshold(browser, c)
        edges = ratios < np.float32(c / 1000)
        shown = numbers(browser)
        assert shown["learned against oracle"][:3] == pytest.approx(
            expected(edges, oracle), abs=6e-4, nan_ok=True
        )
        assert shown["learned against interventional"][:3] == pytest.approx(
            expected(edges, interventional), abs=6e-4, nan_ok=True
        )
        assert shown["oracle against interventional"][:3] == pytest.approx(
            expected(oracle, interventional), abs=6e-4
        )
        told = re.search(r"learned ([0-9.]+)", text_of(browser, "#densities"))
        assert told is not None
        assert float(told[1]) == pytest.approx(float(density(edges)), abs=6e-4)


@pytest.mark.browser
def test_edges_of_the_step_follow_the_threshold(browser, page, compared):
    browser.open(page)
    browser.press("ArrowRight")
    label = "document.querySelector('#matrices svg').getAttribute('aria-label')"
    off = ~np.eye(3, dtype=bool)
    truth = compared.graphs["oracle"][0, 1] & off
    for c in (0, 950, 1200):
        set_threshold(browser, c)
        edges = (compared.graphs["learned"][0, 1] < np.float32(c / 1000)) & off
        counts = ((edges & truth).sum(), (~edges & truth).sum(), (edges & ~truth).sum())
        assert browser.evaluate(
            label
        ) == "learned against oracle: {} hit, {} missed, {} false".format(*counts)


@pytest.mark.browser
def test_the_best_threshold_is_the_best(browser, page, compared):
    browser.open(page)
    oracle = compared.graphs["oracle"]
    f1 = [
        float(agreement(compared.graphs["learned"] < np.float32(c / 1000), oracle).f1)
        for c in range(0, 1201, 8)
    ]
    browser.evaluate("document.querySelector('#best button').click()")
    best = numbers(browser)["learned against oracle"][0]
    assert best >= max(f1) - 6e-4
    assert f"is highest, {best:.3f}," in text_of(browser, "#best p")


@pytest.mark.browser
def test_all_of_it_can_be_done_with_keys(browser, page, compared):
    browser.open(page)
    browser.evaluate("document.getElementById('threshold').focus()")
    browser.press("ArrowRight")
    assert browser.evaluate("document.getElementById('threshold-number').value") == "0.951"
    assert text_of(browser, "#where") == "step 0 of 8"
    browser.evaluate("document.activeElement.blur()")
    browser.press("End")
    assert text_of(browser, "#where").startswith("end after 8")
    browser.press("Home")
    browser.evaluate("document.querySelector('#matrices svg').focus()")
    browser.press("ArrowDown")  # from 0 → 1 over the diagonal to 2 → 1
    assert text_of(browser, "#pair").startswith("1 → 1: always on")
    browser.press("ArrowDown")
    ratio = thousandths(compared.graphs["learned"][0, 0, 2, 1]) / 1000
    assert text_of(browser, "#pair").startswith(f"2 → 1: entropy ratio {ratio:.3f};")
    assert text_of(browser, "#where") == "step 0 of 8"


@pytest.mark.browser
def test_a_cell_that_is_pointed_at_tells_its_ratio(browser, page, compared):
    browser.open(page)
    browser.evaluate("""(() => {
        const svg = document.querySelector('#matrices svg'), box = svg.getBoundingClientRect();
        const at = (k) => box.width * (22 + 198 / 3 * (k + 0.5)) / 221;
        const event = {clientX: box.left + at(2), clientY: box.top + at(0), bubbles: true};
        svg.dispatchEvent(new PointerEvent('pointermove', event));
    })()""")
    ratio = thousandths(compared.graphs["learned"][0, 0, 0, 2]) / 1000
    assert text_of(browser, "#pair").startswith(f"0 → 2: entropy ratio {ratio:.3f};")


@pytest.mark.browser
def test_curves_over_training_end_with_the_last_evaluation(browser, page):
    browser.open(page)
    panels = browser.evaluate("[...document.querySelectorAll('.chart')].map(c => c.textContent)")
    oracle, interventional, models = (
        re.sub(r"\[[^]]*\]n = 2", " ", panel.split("environment steps")[-1]) for panel in panels
    )
    assert panels[0].startswith("against the oracle graph")
    assert oracle.split() == [
        "F10.600",
        "precision0.400",
        "recall0.500",
        "density0.250",
    ]  # F1: the mean of 0.3 and 0.9
    assert interventional.split() == ["F10.600", "precision0.700", "recall0.800", "density0.250"]
    assert models.split()[-1] == "nats1.550"


def test_0_of_0_has_no_value_in_the_curves(tmp_path):
    """Recall is stored as 1 where the reference has no edge, precision where the graph has none."""
    empty = {"graph_f1_oracle": 0.0, "graph_precision_oracle": 0.0, "graph_recall_oracle": 1.0}
    some = {"graph_f1_oracle": 1.0, "graph_precision_oracle": 1.0, "graph_recall_oracle": 1.0}
    none = {"graph_f1_oracle": 0.0, "graph_precision_oracle": 1.0, "graph_recall_oracle": 0.0}
    run = write_run(tmp_path / "run", finals=(0.1, 0.2), graph="learned")
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    for line in lines:
        k = line["evaluation"]
        line |= empty if k == 0 or (k == 3 and line["seed"]) else none if k == 2 else some
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    chart = over_training(read_run(run))[0]
    curves = {one["name"]: one["curves"]["value"]["steps"] for one in chart["series"]}
    assert all(None not in line for line in curves["F1"])
    x, recall, low, high = curves["recall"]
    at = {step: recall[int(np.argmin(np.abs(np.array(x) - step)))] for step in (1000, 3000, 4000)}
    assert at == {1000: None, 3000: pytest.approx(0, abs=0.03), 4000: None}
    assert [value is None for value in low] == [value is None for value in recall]
    assert [value is None for value in high] == [value is None for value in recall]
    precision = curves["precision"][1]
    assert precision[0] == 0
    assert precision[int(np.argmin(np.abs(np.array(x) - 3000)))] is None


@pytest.mark.browser
def test_gaps_are_drawn_as_gaps_and_told_as_a_dash(browser, tmp_path, compared):
    empty = {"graph_f1_oracle": 0.0, "graph_precision_oracle": 0.0, "graph_recall_oracle": 1.0}
    run = write_run(tmp_path / "run", finals=(0.1, 0.2), graph="learned", metrics=empty)
    nothing = compared._replace(
        graphs={
            "learned": tuple(compared.graphs["learned"]),
            "oracle": tuple(np.zeros_like(of, bool) for of in compared.graphs["oracle"]),
            "interventional": tuple(compared.graphs["interventional"]),
        }
    )
    (tmp_path / "page.html").write_text(graph_page(nothing, run_or_reason(run)))
    browser.errors.clear()
    browser.open(tmp_path / "page.html")
    panel = text_of(browser, ".chart").split("environment steps")[-1]
    assert "recall–no value" in panel
    assert "precision0" in panel
    assert "NaN" not in browser.evaluate("document.querySelector('.chart').innerHTML")
    # F1, precision and density have a line, recall has none.
    assert browser.evaluate("document.querySelectorAll('.chart polyline').length") == 3
    shown = numbers(browser)["learned against oracle"]
    assert shown[0] == 0
    assert np.isnan(shown[2])
    assert "An oracle graph usually has more edges" in text_of(browser, "body")
    assert browser.errors == []


@pytest.mark.browser
def test_light_dark_and_narrow(browser, page, tmp_path):
    papers = []
    for dark, width in ((False, 1280), (True, 420)):
        browser.open(page, dark=dark, width=width)
        browser.screenshot(tmp_path / f"{dark}.png")
        papers.append(browser.evaluate("getComputedStyle(document.body).backgroundColor"))
        assert browser.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert papers[0] != papers[1]


@pytest.mark.browser
@pytest.mark.parametrize(
    ("env", "method", "graph", "names", "sentence"),
    [
        (
            GIFT,
            "ippo-dg",
            "random:0.5",
            ["random0.5", "oracle", "interventional"],
            "no local_state",
        ),
        (
            GIFT,
            "ippo-dg",
            "oracle",
            ["oracle", "interventional"],
            "trained with the oracle graph itself",
        ),
        (
            NO_ORACLE,
            "ippo-local",
            "oracle",
            ["interventional"],
            "trained with ippo-local, without a graph",
        ),
    ],
)
def test_runs_without_a_learned_graph_have_no_threshold(
    browser, tmp_path, env, method, graph, names, sentence
):
    run = untrained(tmp_path / "run", env, method, graph)
    compared = record_graphs(api.load(run), KEY, 1)
    (tmp_path / "page.html").write_text(graph_page(compared, run_or_reason(run)))
    browser.errors.clear()
    browser.open(tmp_path / "page.html")
    assert browser.evaluate("data.graphs.names") == names
    assert sentence in text_of(browser, "body")
    told = "An oracle graph usually has more edges" in text_of(browser, "body")
    assert told == ("oracle" in names)
    assert ("offers no oracle graph" in text_of(browser, "body")) == ("oracle" not in names)
    assert browser.evaluate("document.getElementById('threshold-panel').hidden")
    assert browser.evaluate("document.querySelectorAll('#matrices svg').length") == max(
        1, len(names) * (len(names) - 1) // 2
    )
    assert "no curves over training" in text_of(browser, "body")
    assert browser.errors == []


@pytest.mark.browser
def test_no_threshold_is_recommended_against_an_empty_graph(browser, tmp_path, compared):
    """Two empty graphs agree perfectly, which says nothing about a threshold."""
    graphs = {
        "learned": tuple(compared.graphs["learned"]),
        "oracle": tuple(np.zeros_like(of, bool) for of in compared.graphs["oracle"]),
    }
    empty = Compared(compared.replay, graphs, compared.threshold, ())
    (tmp_path / "page.html").write_text(graph_page(empty, "there is no metrics.jsonl."))
    browser.open(tmp_path / "page.html")
    assert "no edge in these steps" in text_of(browser, "#best")
    assert browser.evaluate("document.querySelector('#best button') === null")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere"], "nowhere is not a run folder"),
        (["{}", "--episodes", "0"], "--episodes is 0"),
        (["{}", "--trained-seed", "7"], "but not 7"),
        (["{}", "--out", "file/page.html"], "is a file, not a folder"),
        (["{}", "--out", "."], "is a folder"),
    ],
)
def test_wrong_arguments_are_named_and_nothing_is_written(
    capsys, monkeypatch, tmp_path, learned, arguments, words
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(SystemExit) as stop:
        main(["graph", *(argument.format(learned) for argument in arguments)])
    assert stop.value.code == 2
    assert words in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.browser
def test_marks_of_short_episodes_are_small_and_leave_the_numbers_free(browser, page):
    browser.open(page)
    set_threshold(browser, 1200)  # every pair is an edge, most of them false
    assert text_of(browser, "#actions").startswith("Actions: 0 ")
    heights = browser.evaluate(
        "[...document.querySelectorAll('.strip text')].map(t => t.getBoundingClientRect().height)"
    )
    assert 0 < max(heights) < 20
    gaps = browser.evaluate("""(() => {
        const matrix = document.querySelector('svg.matrix');
        const box = (shape) => shape.getBoundingClientRect();
        const numbers = [...matrix.querySelectorAll('.ratio')].map(box);
        const crosses = [...matrix.querySelectorAll('path[stroke-linecap]')].map(box);
        const over = (a, b) => Math.abs(a.x + a.width / 2 - b.x - b.width / 2) < 5 && a.y < b.y;
        const below = (cross) => numbers.filter((number) => over(cross, number));
        return crosses.map(c => Math.min(...below(c).map(n => n.top - c.bottom)));
    })()""")
    assert gaps
    assert min(gaps) >= 0
