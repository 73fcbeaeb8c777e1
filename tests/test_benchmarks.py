"""The parts of `benchmarks/` that decide something: the comparison of `make bench-check`, exponents
of growth, and which rows are measured again."""

import json
import shutil
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"


@pytest.fixture
def scripts(monkeypatch):
    """The scripts import one another by name."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if (BENCHMARKS / f"{name}.py").exists():
            del sys.modules[name]


def row(value, calibration_ms=10.0, spread=0.05, key="play"):
    low, high = value * (1 - spread), value * (1 + spread)
    return {
        "key": key,
        "value": value,
        "low": low,
        "high": high,
        "calibration_ms": calibration_ms,
    }


@pytest.mark.parametrize(
    ("now", "slower"),
    [
        (row(100), False),
        (row(80), False),  # within 1.3 times
        (row(50), True),
        (row(50, calibration_ms=20), False),  # a machine that is half as fast
        (row(100, calibration_ms=5), True),  # as fast on one that is twice as fast
        (row(50, spread=0.5), False),  # within the spread of its repeats
        ({"key": "play", "error": "out of memory"}, True),
        (row(1, key="new"), False),  # nothing to compare with
    ],
)
def test_slow_downs_are_told_from_busy_machines(scripts, now, slower):
    from report import compare

    (verdict,) = compare([row(100)], [now])
    assert verdict.slower is slower


def test_exponent_is_the_slope_of_the_tail(scripts):
    from growth import exponent

    curve = [{"size": n, "value": 1 / (1000 + n**2)} for n in (1, 2, 1e4, 2e4, 4e4)]
    assert exponent(curve) == pytest.approx(2, abs=0.01)


def test_a_program_that_dies_costs_only_its_row(scripts, tmp_path, monkeypatch):
    import common

    script = tmp_path / "dies.py"
    script.write_text(
        "import sys, json\n"
        "for text in sys.argv[1:]:\n"
        "    if json.loads(text)['n'] == 2: sys.exit('killed')\n"
        "    print('noise'); print(json.dumps({'job': json.loads(text), 'value': 1}), flush=True)\n"
    )
    monkeypatch.setattr(common, "VENVS", tmp_path)
    program = common.Program(sys.executable, script)
    found = list(program([{"n": n} for n in (1, 2, 3)]))
    assert [line.get("value") for line in found] == [1, None, 1]
    assert found[1]["error"] == "no result: killed"


@pytest.mark.parametrize("name", ["bench-cpu", "bench-gpu", "growth-cpu", "growth-gpu"])
def test_the_page_has_the_stored_tables(scripts, name, tmp_path):
    import bench
    import growth
    import report

    stored = BENCHMARKS.parent / "results" / "benchmarks" / f"{name}.json"
    if not stored.exists():
        pytest.skip("not measured yet")
    docs = tmp_path / "docs"
    (docs / "figures").mkdir(parents=True)
    page = Path(shutil.copy(BENCHMARKS.parent / "docs" / "performance.md", docs))
    for file in stored.parent.glob(f"{name}.*"):
        shutil.copy(file, tmp_path)
    script = bench if name.startswith("bench") else growth
    script.write_markdown(tmp_path / stored.name)
    report.embed(tmp_path / stored.name, page, script.CAPTION)
    assert page.read_text() == (BENCHMARKS.parent / "docs" / "performance.md").read_text()


def test_rows_of_the_same_commit_are_kept(scripts, tmp_path, monkeypatch):
    import common

    monkeypatch.setattr(common, "commit", lambda: "abc")
    path = tmp_path / "bench.json"
    rows = common.Rows(path)
    rows.add("fast", {"value": 1.0})
    rows.add("broken", {"error": "no memory"})
    again = common.Rows(path)
    assert again.done("fast")
    assert not again.done("broken")
    monkeypatch.setattr(common, "commit", lambda: "def")
    assert not common.Rows(path).done("fast")
    assert [row["key"] for row in json.loads(path.read_text())["rows"]] == ["fast", "broken"]


def test_a_belt_moves_others_through_their_states_alone(scripts):
    from state_influence import Belt, measured, play

    belt = Belt()
    one, three = measured(belt, play(belt, 8, belt.spec.horizon))
    assert one["unexplained"] == 0
    assert three["unexplained"] == pytest.approx(2 / 3, abs=0.1)  # agents 2 and 3 of 1, 2 and 3
    assert three["reached"] > 2 * one["reached"]
