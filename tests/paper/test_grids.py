"""Grids: what is done is skipped, what was cut off goes on, cells of equal shape share a
program."""

import json
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest

from dgmarl.config.presets import resolve
from dgmarl.paper.grids import GRIDS, Cell, main, programs, run_grid
from tests.tiny import GIFT, SMALL


def cell(method, **overrides):
    return Cell(
        "toys", "gift", method, resolve(GIFT, method, {**SMALL, **overrides}, seeds=1, steps=40)
    )


def test_finished_cells_are_skipped_and_a_file_holds_every_seeds_curve(tmp_path, monkeypatch):
    cells = [cell("ippo-local"), cell("ippo-dg")]
    out, runs = tmp_path / "results", tmp_path / "runs"
    run_grid(cells, out, runs=runs)
    facts = json.loads((out / "toys" / "gift__ippo-dg.json").read_text())
    assert len(facts["return_mean"]) == 1
    assert len(facts["steps"][0]) == len(facts["return_mean"][0]) > 1
    assert "graph_density" in facts
    assert "graph_density" not in json.loads((out / "toys" / "gift__ippo-local.json").read_text())
    monkeypatch.setattr("dgmarl.paper.grids.train_all", lambda recorders: 1 / 0)
    run_grid(cells, out, runs=runs)


def test_ctrl_c_stops_what_runs_begins_nothing_more_and_publishes_nothing(tmp_path, monkeypatch):
    began = threading.Event()

    def train_until_told(recorders):
        began.set()
        while not recorders[0].interrupted:
            time.sleep(0.01)
        return [SimpleNamespace(interrupted=True) for _ in recorders]

    def ctrl_c(jobs):
        began.wait()
        raise KeyboardInterrupt

    monkeypatch.setattr("dgmarl.paper.grids.train_all", train_until_told)
    monkeypatch.setattr("dgmarl.paper.grids.as_completed", ctrl_c)
    cells = [cell("ippo-local"), cell("mappo-local")]
    with pytest.raises(KeyboardInterrupt):
        run_grid(cells, tmp_path, workers=1, lanes=1)
    assert not list(tmp_path.iterdir())


def test_every_grid_has_one_file_per_cell_and_programs_hold_all_of_them(tmp_path):
    for make in GRIDS.values():
        cells = make()
        assert len({cell.path(tmp_path) for cell in cells}) == len(cells)
        together = programs(cells, lanes=8)
        assert sum(map(len, together)) == len(cells)
        assert max(map(len, together)) <= 8


def test_battles_come_first_as_in_the_paper_and_credit_modes_share_a_program():
    cells = GRIDS["smaclite"]()
    assert [f"{cell.scenario}__{cell.method}" for cell in cells[:3]] == [
        "MMM__mappo-local",
        "MMM__mappo-global",
        "MMM__mappo-dg-learned",
    ]
    names = [
        [cell.method for cell in program]
        for program in programs(cells, lanes=8)
        if program[0].scenario == "MMM"
    ]
    # A learned graph has networks of its own, and its critic one head per agent.
    assert names == [
        ["mappo-local", "mappo-global"],
        ["mappo-dg-learned"],
        ["qmix"],
        ["mappo-local-fast", "mappo-global-fast"],
        ["mappo-dg-learned-fast"],
    ]


def test_programs_apart_are_processes_that_get_their_own_cells_and_a_failure_is_told(
    tmp_path, monkeypatch
):
    out, commands = tmp_path / "results", []

    def process(command, **_):
        commands.append(command)
        for name in ("15x15-4p-3f__ippo-local", "15x15-4p-3f__ippo-global"):
            (out / "lbf").mkdir(parents=True, exist_ok=True)
            (out / "lbf" / f"{name}.json").write_text("{}")
        return subprocess.CompletedProcess(command, 0, "", "out of memory")

    monkeypatch.setattr(subprocess, "run", process)
    arguments = [
        "lbf",
        "--only",
        "^15x15-4p-3f__ippo-(local|global)$",
        "--out",
        str(out),
        "--steps",
        "1e6",
        "--apart",
    ]
    monkeypatch.setattr(sys, "argv", ["grid", *arguments])
    main()
    names = r"^(15x15\-4p\-3f__ippo\-local|15x15\-4p\-3f__ippo\-global)$"
    passed = [
        "--out",
        str(out),
        "--lanes",
        "8",
        "--steps",
        "1000000",
        "--only",
        names,
        "--workers",
        "1",
    ]
    assert commands == [[sys.executable, "-m", "dgmarl.paper.grids", "lbf", *passed]]
    arguments[2] = "^15x15-4p-3f__mappo-dg-oracle$"
    monkeypatch.setattr(sys, "argv", ["grid", *arguments])
    with pytest.raises(RuntimeError, match=r"left mappo-dg-oracle undone:\nout of memory"):
        main()
