"""`dgmarl table` on small made-up results, and on damaged ones."""

import io
import json

import numpy as np
import pytest
from rich.console import Console
from scipy import stats

from dgmarl.cli import main
from dgmarl.report.results import read_results
from dgmarl.report.table import aggregates, tables


def write(folder, name: str, final, env: str = "lbf/8x8-2p-2f", **changed):
    """A published result whose seeds end at `final` after having been better."""
    final = np.asarray(final, float)
    steps = np.tile([100, 1000], (len(final), 1))
    facts = {
        "config": {"env": env},
        "steps": steps.tolist(),
        "return_mean": np.stack([final + 9, final], 1).tolist(),
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps({**facts, **changed}))


def run(capsys, *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        main(["table", *arguments])
    out, err = capsys.readouterr()
    return int(stop.value.code or 0), out, err


def test_rows_carry_the_last_evaluation_with_interval_seeds_and_steps(capsys, tmp_path):
    write(tmp_path / "lbf", "a__ippo-dg", [0.25, 0.5, 0.75])
    code, out, _ = run(capsys, str(tmp_path))
    row = next(line for line in out.splitlines() if "ippo-dg" in line)
    assert code == 0
    assert [cell.strip() for cell in row.strip("│").split("│")] == [
        "a",
        "ippo-dg",
        "0.500",
        "[0.250, 0.750]",
        "3",
        "1,000",
    ]
    assert max(map(len, out.splitlines())) <= 100


def test_battles_have_their_win_rate_beside_the_return(capsys, tmp_path):
    rates = {"final_battle_won": [[0.9, 0.0], [0.9, 0.5], [0.9, 1.0]]}
    write(
        tmp_path / "smaclite", "MMM__mappo-local", [18.0, 19.0, 20.0], env="smaclite/MMM", **rates
    )
    write(tmp_path / "smaclite", "MMM__qmix", [18.0, 19.0, 20.0], env="smaclite/MMM")
    _, out, _ = run(capsys, str(tmp_path))
    row = next(line for line in out.splitlines() if "mappo-local" in line)
    assert [cell.strip() for cell in row.strip("│").split("│")][2:6] == [
        "19.0",
        "[18.0, 20.0]",
        "0.500",
        "[0.000, 1.000]",
    ]
    cells = json.loads(run(capsys, str(tmp_path), "--json")[1])["cells"]
    assert [cell.get("final_win_rate", {}).get("estimate") for cell in cells] == [0.5, None]


def test_long_names_are_never_cut(capsys, tmp_path):
    name = "ippo-dg-learned-" + "-".join(f"some_number={k}" for k in range(9))
    write(tmp_path / "lbf", f"a__{name}", [0.25, 0.5, 0.75])
    out = run(capsys, str(tmp_path))[1]
    assert f"│ a        │ {name} │ 0.500 │ [0.250, 0.750] │" in out
    narrow = io.StringIO()
    Console(width=80, file=narrow).print(tables(read_results(tmp_path))[0])
    rows = [line.split("│") for line in narrow.getvalue().splitlines() if line.count("│") == 7]
    assert "".join(row[2].strip() for row in rows) == name


def test_names_are_neither_markup_nor_terminal_commands(capsys, tmp_path):
    steps = {"step_1": {"step_count": 1, "return": [1]}}
    runs = {"seed_0": steps, "seed_1": steps}
    names = {"[lbf[/x]": {"a[/x]": {"ippo-dg[bold]": runs}, "b\x1b[31m": {"qmix": runs}}}
    (tmp_path / "names.json").write_text(json.dumps(names))
    code, out, _ = run(capsys, str(tmp_path / "names.json"))
    assert code == 0
    assert "a[/x]" in out
    assert "ippo-dg[bold]" in out
    assert "[lbf[/x]: final return" in out
    assert "\x1b" not in out


def test_names_that_climb_out_of_a_folder_write_nothing_there(capsys, tmp_path):
    steps = {"step_1": {"step_count": 1, "return": [1]}}
    runs = {"../../seed": steps}
    names = {"../up": {"../../etc/x": {"../../method[/x]": runs}}}
    inside = tmp_path / "deep" / "er"
    inside.mkdir(parents=True)
    (inside / "names.json").write_text(json.dumps(names))
    arguments = (str(inside / "names.json"), "--marl-eval", str(inside / "out.json"))
    assert run(capsys, *arguments)[0] == 0
    found = {path for path in tmp_path.rglob("*") if path.is_file()}
    assert found == {inside / "names.json", inside / "out.json"}
    assert list(json.loads((inside / "out.json").read_text())) == ["../up"]


def test_different_numbers_of_steps_are_said(capsys, tmp_path):
    for scenario in ("a", "b"):
        write(tmp_path / "lbf", f"{scenario}__ippo-dg", [0.25, 0.5, 0.75])
    write(tmp_path / "lbf", "b__qmix", [0.25, 0.5, 0.75])
    assert "Steps differ" not in run(capsys, str(tmp_path))[1]
    for scenario in ("a", "b"):
        write(tmp_path / "lbf", f"{scenario}__qmix", [0.2, 0.3, 0.4], steps=[[100, 500]] * 3)
    out = run(capsys, str(tmp_path))[1]
    assert out.count("Steps differ") == 2
    rows = [line for line in out.splitlines() if "qmix" in line]
    assert [row.strip("│ ").split("│")[-1].strip() for row in rows] == ["500", "500", "500"]
    pooled = json.loads(run(capsys, str(tmp_path), "--json")[1])["aggregates"]
    assert {one["method"]: (one["steps"], one["comparable"]) for one in pooled} == {
        "ippo-dg": (1000, False),
        "qmix": (500, False),
    }


def test_scenarios_are_in_numerical_order(tmp_path):
    for scenario in ("n50", "n5", "n10"):
        write(tmp_path, f"{scenario}__ippo-dg", [1.0], env="star-spread/5")
    assert [result.scenario for result in read_results(tmp_path)] == ["n5", "n10", "n50"]


def test_aggregate_pools_scenarios_and_seeds(capsys, tmp_path):
    first, second = [0.0, 0.1, 0.2, 0.9], [0.3, 0.4, 0.8, 1.0]
    write(tmp_path / "lbf", "a__ippo-dg", first)
    write(tmp_path / "lbf", "b__ippo-dg", second)
    _, out, _ = run(capsys, str(tmp_path), "--json")
    (pooled,) = json.loads(out)["aggregates"]
    assert pooled["iqm"]["estimate"] == pytest.approx(stats.trim_mean(first + second, 0.25))
    assert pooled["iqm"]["low"] < pooled["iqm"]["estimate"] < pooled["iqm"]["high"]
    assert (pooled["benchmark"], pooled["method"], pooled["runs"]) == ("lbf", "ippo-dg", 8)


def test_no_aggregate_where_scales_differ_or_a_scenario_is_missing(tmp_path):
    write(tmp_path / "star-spread", "n5__ippo-dg", [-60.0, -70.0], env="star-spread/5")
    write(tmp_path / "lbf", "a__ippo-dg", [0.5, 0.6])
    write(tmp_path / "lbf", "a__ippo-local", [0.5, 0.6])
    write(tmp_path / "lbf", "b__ippo-dg", [0.5, 0.6])
    (together,) = aggregates(read_results(tmp_path))
    assert list(together.of_method) == ["ippo-dg"]


def test_one_seed_has_a_dash_and_null_for_its_interval(capsys, tmp_path):
    write(tmp_path / "lbf", "a__ippo-dg", [0.5])
    assert "—" in run(capsys, str(tmp_path))[1]
    (cell,) = json.loads(run(capsys, str(tmp_path), "--json")[1])["cells"]
    assert cell["final_return"] == {"estimate": 0.5, "low": None, "high": None}
    assert (cell["seeds"], cell["steps"]) == (1, 1000)


def test_other_files_are_left_alone(capsys, tmp_path):
    write(tmp_path, "a__ippo-dg", [0.5, 0.6])
    (tmp_path / "theory.json").write_text("{")
    assert run(capsys, str(tmp_path))[0] == 0


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"return_mean": [[1.0, 2.0], [1.0]]}, "is damaged"),
        ({"return_mean": [[1.0, 2.0, 3.0]]}, "different shapes"),
        ({"return_mean": [[1.0, float("nan")], [1.0, 1.0]]}, "NaN"),
        ({"return_mean": []}, "return_mean is not a table"),
        ({"return_mean": None}, "return_mean is not a table"),
        ({"config": {}}, "config.env is not a string"),
        ({"config": "lbf"}, "is damaged"),
    ],
)
def test_a_wrong_file_is_named_in_one_sentence(capsys, tmp_path, changed, words):
    write(tmp_path, "good__ippo-dg", [0.5, 0.6])
    write(tmp_path, "bad__ippo-dg", [0.5, 0.6], **changed)
    refused(capsys, tmp_path, "bad__ippo-dg.json", words)


@pytest.mark.parametrize("content", [b"", b'{"steps": [[1', b"[]", b"null", b"\xff\xfe\x00"])
def test_a_truncated_or_foreign_file_is_named_in_one_sentence(capsys, tmp_path, content):
    (tmp_path / "cut__ippo-dg.json").write_bytes(content)
    refused(capsys, tmp_path, "cut__ippo-dg.json", "is damaged")


def test_a_folder_in_the_place_of_a_file_is_refused(capsys, tmp_path):
    (tmp_path / "a__b.json").mkdir()
    refused(capsys, tmp_path, "a__b.json", "cannot be read")


def test_missing_or_empty_folders_are_refused(capsys, tmp_path):
    refused(capsys, tmp_path / "none", "none does not exist")
    refused(capsys, tmp_path, "holds no file SCENARIO__METHOD.json")


def refused(capsys, folder, *words: str):
    code, out, err = run(capsys, str(folder))
    assert (code, out) == (2, "")
    assert err.startswith("dgmarl: ")
    assert err.count("\n") == 1
    for word in words:
        assert word in err
