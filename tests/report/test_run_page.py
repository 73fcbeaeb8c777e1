"""`dgmarl report`: the page says what the runs hold, does what its buttons say, and executes no
data."""

import json
import re

import pytest

from dgmarl import api
from dgmarl.cli import main
from dgmarl.config.resolve import resolve
from dgmarl.report.results import gather
from dgmarl.report.run_page import LARGEST, run_page
from tests.report.fake_runs import write_run
from tests.tiny import GIFT, SMALL

HOSTILE = "</script><script>window.owned = 1</script><img src=x onerror='window.owned = 1'>"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A trained run with a replay, and three that only have curves."""
    folder = tmp_path_factory.mktemp("runs")
    api.train_config(resolve(GIFT, "ippo-dg", SMALL, seeds=2, steps=60), folder / "gift")
    write_run(folder / "graph", "ippo-dg", finals=(0.5, 0.7))
    write_run(folder / "local", "mappo-local", finals=(0.1, 0.4), overrides={"learner.hidden": 32})
    write_run(folder / "spread", "ippo-global", env="star-spread/5", finals=(-9.0,))
    return folder


@pytest.fixture(scope="module")
def report(runs, tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "page.html"
    with pytest.raises(SystemExit) as stop:
        main(["report", str(runs), "--out", str(path), "--title", "Gifts & foragers"])
    assert stop.value.code == 0
    return path


def text_of(browser, selector: str) -> str:
    return browser.evaluate(f"document.querySelector({json.dumps(selector)}).textContent")


def choose(browser, name: str, value: str) -> None:
    browser.evaluate(
        f"(s => {{ s.value = {json.dumps(value)}; s.dispatchEvent(new Event('change')) "
        f"}})(document.getElementById('{name}'))"
    )


def test_the_page_is_small_and_says_what_the_runs_hold(report, runs):
    page = report.read_text()
    assert len(page.encode()) < LARGEST
    plain = re.sub(r"<[^>]+>", " ", page)
    assert "0.600 " in plain
    assert "[0.500, 0.700]" in plain
    assert "no interval for ippo-global" in plain
    assert "learner.hidden" in plain
    assert "No replay of lbf/8x8-2p-2f" in plain
    assert f"dgmarl watch {runs / 'graph'}" in plain
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert "https://" not in page


@pytest.mark.browser
def test_it_loads_without_complaints_and_without_network(browser, report):
    browser.errors.clear()
    browser.open(report)
    assert browser.evaluate("document.querySelectorAll('.chart svg polyline').length") == 4
    assert browser.evaluate("performance.getEntriesByType('resource').length") == 0
    assert text_of(browser, "h1") == "Gifts & foragers"
    assert browser.errors == []


@pytest.mark.browser
def test_methods_are_hidden_and_shown_in_all_charts(browser, report):
    browser.open(report)
    lines = "document.querySelectorAll('.chart svg polyline').length"
    pressed = (
        "[...document.querySelectorAll('.method')].find(b => b.textContent.startsWith('IPPO-DG'))"
    )
    browser.evaluate(f"{pressed}.click()")
    assert browser.evaluate(lines) == 2
    assert browser.evaluate(f"{pressed}.getAttribute('aria-pressed')") == "false"
    browser.evaluate(f"{pressed}.focus()")
    browser.press("Space")
    assert browser.evaluate(lines) == 4


@pytest.mark.browser
def test_the_axis_and_the_quantity_can_be_chosen(browser, report):
    browser.open(report)
    chart = ".chart svg[aria-label^='lbf']"
    assert browser.evaluate(
        "[...document.getElementById('chart-axis').options].map(o => o.value).join()"
    ) == ("steps,wall_s,episodes")
    panel = "[...document.querySelectorAll('.chart')].find(c => c.textContent.startsWith('lbf'))"
    at = f"{panel}.querySelector('output p').textContent"
    assert browser.evaluate(at) == "at 4000 environment steps"
    choose(browser, "chart-axis", "wall_s")
    assert browser.evaluate(at) == "at 2 seconds of training"
    choose(browser, "chart-axis", "episodes")
    assert browser.evaluate(at) == "at 80 training episodes"
    choose(browser, "chart-metric", "graph_density")
    assert "graph density" in browser.evaluate(
        f'document.querySelector("{chart}").getAttribute("aria-label")'
    )


@pytest.mark.browser
def test_pointing_at_a_chart_reads_values(browser, report):
    browser.open(report)
    browser.evaluate("""(() => {
        const isLbf = (chart) => chart.textContent.startsWith('lbf');
        window.panel = [...document.querySelectorAll('.chart')].find(isLbf);
        const box = panel.querySelector('svg').getBoundingClientRect();
        const event = {clientX: box.left + box.width * 56 / 460};
        panel.querySelector('svg').dispatchEvent(new PointerEvent('pointermove', event));
    })()""")
    values = "panel.querySelector('output').textContent"
    assert "IPPO-DG oracle0" in browser.evaluate(values)  # at the left end nothing has been reached
    browser.evaluate("panel.querySelector('svg').focus()")
    for _ in range(60):
        browser.press("ArrowRight")
    assert "IPPO-DG oracle0.600[0.500, 0.700]n = 2" in browser.evaluate(values)


@pytest.mark.browser
def test_the_credit_explorer_names_path_and_meeting_time(browser, report):
    """In the gift game what agent 0 does reaches agent 1 at once, and nothing leads back."""
    browser.open(report)
    browser.evaluate("document.getElementById('play').focus()")
    browser.press("ArrowRight")
    browser.press("0")
    rows = (
        "[...document.querySelectorAll('#paths tbody tr')]"
        ".map(r => [...r.cells].slice(0, 4).map(c => c.textContent).join('|'))"
    )
    assert browser.evaluate(rows) == ["0|0|0|from step 1", "1|0 → 1 (step 1)|1|from step 1"]
    browser.press("1")
    assert browser.evaluate(rows) == ["1|1|0|from step 1"]


@pytest.mark.browser
def test_a_cell_of_the_chart_chooses_agent_and_step(browser, report):
    browser.open(report)
    browser.evaluate("document.querySelectorAll('#credit rect')[3].onclick()")
    assert browser.evaluate("document.getElementById('source').value") == "0"
    assert text_of(browser, "#where").startswith("step 3 of")


@pytest.mark.browser
def test_keys_outside_the_replay_leave_it_alone(browser, report):
    browser.open(report)
    before = text_of(browser, "#where")
    browser.press("ArrowRight")
    assert text_of(browser, "#where") == before


@pytest.mark.browser
def test_many_results_begin_with_a_chart_and_one_evaluation_is_a_mark(browser, tmp_path):
    """As after `reproduce`: long tables are folded, and the first chart is on the first screen."""
    steps = {"step_0": {"step_count": 9, "return": [1.0]}, "absolute_metrics": {"return": [1.0]}}
    scenarios = {f"task {k}": {"mine": {"seed_0": steps, "seed_1": steps}} for k in range(20)}
    (tmp_path / "many.json").write_text(json.dumps({"lab": scenarios}))
    (tmp_path / "page.html").write_text(run_page(gather([tmp_path / "many.json"])))
    browser.open(tmp_path / "page.html")
    assert browser.evaluate("document.querySelector('.chart').getBoundingClientRect().top") < 500
    assert not browser.evaluate("document.querySelector('table.facts').offsetParent")
    assert browser.evaluate("document.querySelectorAll('.chart svg circle').length") == 20


@pytest.mark.browser
def test_light_and_dark(browser, report, tmp_path):
    papers = []
    for dark in (False, True):
        browser.open(report, dark=dark)
        browser.screenshot(tmp_path / f"{dark}.png")
        papers.append(browser.evaluate("getComputedStyle(document.body).backgroundColor"))
        assert browser.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert papers[0] != papers[1]


@pytest.mark.browser
def test_names_are_never_executed(browser, tmp_path):
    steps = {f"step_{k}": {"step_count": k, "return": [k]} for k in (1, 2)}
    curves = {f"seed_{k}": {**steps, "absolute_metrics": {"return": [2]}} for k in (0, 1)}
    names = {HOSTILE: {"../../../etc/passwd": {HOSTILE: curves, "$x": curves}}}
    (tmp_path / "names.json").write_text(json.dumps(names))
    results = gather([tmp_path / "names.json"])
    run = gather([write_run(tmp_path / "<script>window.owned = 1<", finals=(1.0,))])
    (tmp_path / "page.html").write_text(run_page(results + run + run, HOSTILE))
    browser.errors.clear()
    browser.open(tmp_path / "page.html")
    assert browser.evaluate("window.owned === undefined")
    assert browser.evaluate("document.querySelector('img') === null")
    assert "onerror" in text_of(browser, "h1")
    assert browser.errors == []


@pytest.mark.parametrize(
    ("metrics", "graph", "words"),
    [
        ({"graph_density": 0.0}, "interventional", "graph has no edges (density 0.000)"),
        ({"graph_density": 0.95}, "learned", "nearly all edges (density 0.95)"),
        (
            {"graph_predictor_entropy": 0.01, "graph_pair_entropy": 0.012},
            "learned",
            "nearly deterministic",
        ),
        ({"graph_density": 0.0}, "self", None),
        ({"graph_density": 1.0}, "complete", None),
        ({"graph_density": 0.25, "graph_predictor_entropy": 1.0}, "learned", None),
    ],
)
def test_a_graph_that_says_nothing_is_reported_with_what_to_try(tmp_path, metrics, graph, words):
    run = write_run(tmp_path / "run", finals=(0.1, 0.2), graph=graph, metrics=metrics)
    page = run_page(gather([run]))
    warned = [word for word in ("so graph credit", "nearly deterministic") if word in page]
    assert bool(warned) == (words is not None)
    if words is not None:
        assert words in page
        ahead = ":H" if "no edges" in words else ":2" if "deterministic" in words else ""
        assert f"--graph interventional{ahead}" in page


def test_a_single_run_is_not_aggregated(tmp_path):
    runs = [
        write_run(tmp_path / method, method, finals=(0.1, 0.2))
        for method in ("ippo-dg", "ippo-local")
    ]
    title = "Over all scenarios and seeds"
    assert title not in run_page(gather(runs[:1]))
    assert title in run_page(gather(runs))


def test_a_damaged_replay_costs_only_itself(tmp_path):
    run = write_run(tmp_path / "run", finals=(0.1, 0.2))
    (run / "replay.npz").write_bytes(b"PK no archive")
    page = run_page(gather([run]))
    assert "No replay of lbf/8x8-2p-2f ippo-dg-oracle" in page
    assert "is damaged" in page
    assert "0.150" in page


@pytest.mark.parametrize("n_runs", [1, 2])
def test_equal_configurations_are_shown_once(tmp_path, n_runs):
    runs = [write_run(tmp_path / str(k), finals=(0.1, 0.2)) for k in range(n_runs)]
    section = run_page(gather(runs)).partition("<h2>Configuration</h2>")[2].partition("</section>")
    assert ("All configurations are the same." in section[0]) == (n_runs > 1)
    assert "<tr><td>steps</td><td>4000</td></tr>" in section[0]
    assert "<tr><td>env</td><td>lbf/8x8-2p-2f</td></tr>" in section[0]
    assert section[0].count("<td>learner.gamma</td>") == 1


def test_a_file_that_is_no_result_is_not_called_damaged(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "README.md").write_text("# Mine")
    (tmp_path / "cut__ippo-dg.json").write_text('{"steps": [[1')
    for name, words in (
        ("README.md", "README.md is not a run folder or a result file SCENARIO__METHOD.json: give"),
        ("cut__ippo-dg.json", "restore it (for example from version control) or leave it out."),
    ):
        with pytest.raises(SystemExit) as stop:
            main(["report", name])
        assert stop.value.code == 2
        said = capsys.readouterr().err
        assert words in said
        assert "delete" not in said
        assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "needs a run"),
        (["nowhere"], "nowhere does not exist"),
        (["."], "no run folder"),
    ],
)
def test_wrong_arguments_are_named_and_nothing_is_written(
    capsys, monkeypatch, tmp_path, arguments, words
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stop:
        main(["report", *arguments])
    assert stop.value.code == 2
    assert words in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_nothing_but_the_page_is_written(tmp_path):
    run = write_run(tmp_path / "runs" / "..<b>..", finals=(0.1, 0.2))
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(SystemExit):
        main(["report", str(run), "--out", str(tmp_path / "out" / "page.html")])
    after = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert after.keys() - before.keys() == {tmp_path / "out" / "page.html"}
    assert all(after[path] == content for path, content in before.items())
