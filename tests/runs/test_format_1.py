"""Run folders of format 1, written before the configuration had sections `credit` and
`rollout_length`, are evaluated, watched and reported as they were then."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import yaml

from dgmarl import api, cli

FOLDER = Path(__file__).resolve().parents[1] / "data" / "format-1"
RUNS = sorted(path.name for path in FOLDER.iterdir() if path.is_dir())


@pytest.fixture(params=RUNS)
def run(request, tmp_path) -> Path:
    """A copy, because reading a run may lock its folder."""
    return Path(shutil.copytree(FOLDER / request.param, tmp_path / request.param))


def command(*arguments: object) -> None:
    with pytest.raises(SystemExit) as stop:
        cli.main([str(argument) for argument in arguments])
    assert stop.value.code == 0


def test_runs_of_both_learners_and_of_a_learned_graph_are_here():
    assert {"ippo-dg-learned", "mappo-dg-oracle", "qmix"} <= set(RUNS)


def test_evaluation_gives_the_recorded_returns(run, capsys):
    recorded = json.loads((FOLDER / f"{run.name}.json").read_text())
    returns = api.evaluate(run, n_episodes=recorded["episodes"])
    found = {str(seed): float(value) for seed, value in enumerate(returns.mean(axis=1))}
    assert found.keys() == recorded["seeds"].keys()
    np.testing.assert_allclose(
        list(found.values()), list(recorded["seeds"].values()), rtol=1e-5, atol=1e-5
    )
    command("evaluate", run, "--episodes", recorded["episodes"], "--json")
    told = json.loads(capsys.readouterr().out)
    np.testing.assert_allclose(told["mean"]["estimate"], recorded["mean"]["estimate"], rtol=1e-5)


def test_it_can_be_watched(run, tmp_path):
    page = tmp_path / "replay.html"
    command("watch", run, "--episodes", 1, "--out", page)
    assert folder_env(run) in page.read_text()


def test_it_can_be_reported_with_its_own_numbers(run, tmp_path, capsys):
    page = tmp_path / "report.html"
    command("report", run, "--out", page)
    assert folder_env(run).partition("/")[2] in page.read_text()
    capsys.readouterr()
    command("table", run, "--json")
    (entries, *_) = json.loads(capsys.readouterr().out).values()
    with np.load(run / "returns.npz") as arrays:
        final = arrays["returns"][:, -1].mean()
    assert entries[0]["final_return"]["estimate"] == pytest.approx(final, rel=1e-5)


def folder_env(run: Path) -> str:
    return yaml.safe_load((run / "config.yaml").read_text())["env"]
