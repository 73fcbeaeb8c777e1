"""train, evaluate and watch as a user meets them, end to end on a run of seconds."""

import json
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest

import dgmarl
from dgmarl.cli import main
from dgmarl.cli.train import Train
from dgmarl.config.resolve import resolve
from dgmarl.config.schema import TrainConfig
from dgmarl.config.yaml import build, read_yaml
from dgmarl.runs.folder import RunFolder
from dgmarl.runs.reading import read_metrics
from tests.tiny import GIFT, SMALL, WINDOWS

RUN = ["--graph", "random:0.5", "--seeds", "2", "--steps", "8e2", "--quiet"]


def assignments(options: dict) -> list[str]:
    return [word for name, value in options.items() for word in ("--set", f"{name}={value}")]


def run(capsys, *arguments: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    return int(stop.value.code or 0), out, err


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("cli") / "run"
    with pytest.raises(SystemExit) as stop:
        main(["train", GIFT, *RUN, "--out", str(path), *assignments(WINDOWS)])
    assert not stop.value.code
    return path


def numbers(path: Path) -> list[dict]:
    return [
        {name: value for name, value in row.items() if name != "wall_s"}
        for row in read_metrics(path)
    ]


def test_options_and_overrides_reach_the_run(trained):
    config = RunFolder(trained).config()
    assert config == resolve(GIFT, "ippo-dg", WINDOWS, graph="random:0.5", seeds=2, steps=800)
    assert (config.learner.hidden, config.rollout_length, config.env_options) == (
        8,
        4,
        {"stop": 0.3},
    )


def test_a_runs_own_configuration_file_gives_the_same_run_again(trained, tmp_path, capsys):
    code, out, _ = run(
        capsys, "train", "--config", trained / "config.yaml", "--out", tmp_path / "again", "--quiet"
    )
    assert code == 0
    assert f"dgmarl watch {tmp_path / 'again'}" in out
    said = "Gift used the general hyperparameters in preset tuned, with 2 environments per update"
    assert said in out
    assert numbers(tmp_path / "again") == numbers(trained)


def test_evaluate_reports_every_seed_and_the_mean(trained, capsys):
    code, out, _ = run(capsys, "evaluate", trained, "--episodes", "5")
    assert code == 0
    assert [line.split(":")[0] for line in out.splitlines()] == [
        "seed 0",
        "seed 1",
        "mean over 2 seeds",
    ]
    code, out, _ = run(capsys, "evaluate", trained, "--episodes", "5", "--json")
    report = json.loads(out)
    np.testing.assert_allclose(
        report["mean"]["estimate"], np.mean(list(report["seeds"].values())), rtol=1e-6
    )
    np.testing.assert_allclose(
        list(report["seeds"].values()), dgmarl.evaluate(trained, 5).mean(axis=1), rtol=1e-6
    )


def test_watch_shows_the_trained_policy_and_the_graphs_of_its_training(trained, tmp_path, capsys):
    page = tmp_path / "page.html"
    code, out, _ = run(
        capsys, "watch", trained, "--episodes", "2", "--trained-seed", "1", "--out", page
    )
    assert code == 0
    assert page.as_uri() in out
    assert "ippo-dg (last)" in page.read_text()
    code, _, _ = run(
        capsys,
        "watch",
        trained,
        "--episodes",
        "1",
        "--policy",
        "random",
        "--out",
        tmp_path / "random.html",
    )
    assert code == 0
    assert "ippo-dg" not in (tmp_path / "random.html").read_text()


def test_a_finished_run_is_trained_on(trained, tmp_path, capsys):
    out = tmp_path / "longer"
    shutil.copytree(trained, out)
    code, _, err = run(capsys, "train", "--resume", out, "--steps", "700", "--quiet")
    assert code == 2
    assert "steps is 700, but the run has 800" in err
    assert numbers(out) == numbers(trained)
    assert run(capsys, "train", "--resume", out, "--steps", "1e3", "--quiet")[0] == 0
    assert RunFolder(out).config().steps == 1000
    assert numbers(out)[: len(numbers(trained))] == numbers(trained)
    assert numbers(out)[-1]["step"] >= 1000
    assert dgmarl.load(out).state.step.min() >= 1000


def write_env(path: Path, cost: float) -> str:
    """A file with an environment that gives another reward for each cost."""
    path.write_text(
        "from tests.tiny import Gift\n\n"
        "class Mine(Gift):\n"
        f"    def __init__(self): super().__init__(cost={cost})\n"
    )
    return f"{path}:Mine"


def test_a_run_notices_that_its_environment_has_changed(tmp_path, capsys):
    out, file = tmp_path / "run", tmp_path / "mine.py"
    env = write_env(file, 0.1)
    options = ["--seeds", "1", "--steps", "40", "--quiet", *assignments(SMALL)]
    assert run(capsys, "train", env, "--out", out, *options)[0] == 0
    evaluate = ["evaluate", out, "--episodes", "1"]
    resume = ["train", "--resume", out, "--steps", "80", "--quiet"]
    assert "another version" not in run(capsys, *evaluate)[2]

    write_env(file, 0.9)
    assert run(capsys, "check-env", env)[0] == 0
    code, _, err = run(capsys, *evaluate)
    assert code == 0
    assert err.count("another version") == 1
    assert f"{out} was trained with another version of {file}: the numbers may differ" in err
    before = numbers(out)
    code, _, err = run(capsys, *resume)
    assert (code, numbers(out)) == (2, before)
    assert f"{out} was trained with another version of {file}: start a new run with" in err
    assert "--accept-changes" in err

    assert run(capsys, *resume, "--accept-changes")[0] == 0
    assert numbers(out)[-1]["step"] == 80
    assert "another version" not in run(capsys, *evaluate)[2], "it is the run's file now"


def test_runs_without_hashes_are_read(trained, tmp_path):
    out = tmp_path / "old"
    shutil.copytree(trained, out)
    folder = RunFolder(out)
    assert set(json.loads((out / "run.json").read_text())["files"]) == {"env"}
    for facts in ({"id": folder.run_id}, {"id": folder.run_id, "files": [1]}, {}, []):
        (out / "run.json").write_text(json.dumps(facts))
        assert folder.changed_files(folder.config()) == []
    (out / "run.json").unlink()
    assert folder.changed_files(folder.config()) == []


def test_a_finished_run_is_not_told_as_if_it_had_trained(trained, capsys):
    reached = RunFolder(trained).config().steps
    code, out, _ = run(capsys, "train", "--resume", trained, "--quiet")
    assert code == 0
    assert out.startswith(f"{trained}: already finished (8")
    assert out.endswith(" steps): give --steps N to train on\n")
    assert out.count("\n") == 1
    assert numbers(trained)[-1]["step"] >= reached


def test_a_single_view_needs_no_axis_of_environments(trained):
    loaded = dgmarl.load(trained)
    _, observation = loaded.env.reset(jax.random.key(0))
    action, memory = loaded.act(jax.random.key(1), observation, loaded.init_hidden_state(1), True)
    batch = jax.tree.map(lambda leaf: leaf[None], observation)
    batched, _ = loaded.act(jax.random.key(1), batch, loaded.init_hidden_state(1), np.ones(1, bool))
    np.testing.assert_array_equal(action, batched[0])
    assert memory.shape == loaded.init_hidden_state(1).shape
    with pytest.raises(dgmarl.UsageError, match=r"shape \(2, 2\).*needs \(3, 2, 2\)"):
        loaded.act(jax.random.key(1), observation, loaded.init_hidden_state(3), np.ones(3, bool))
    assert len(repr(loaded)) < 200 + len(GIFT)


def test_a_loaded_policy_acts(trained):
    loaded = dgmarl.load(trained, seed=1, which="best")
    state, observation = jax.vmap(loaded.env.reset)(jax.random.split(jax.random.key(0), 3))
    hidden_state, is_first = loaded.init_hidden_state(3), np.ones(3, bool)
    for key in jax.random.split(jax.random.key(1), 2):
        action, hidden_state = loaded.act(key, observation, hidden_state, is_first)
        assert action.shape == (3, 2)
        state, observation, _ = jax.vmap(loaded.env.step)(jax.random.split(key, 3), state, action)
        is_first = ~is_first
    assert np.abs(hidden_state).max() > 0
    with pytest.raises(dgmarl.UsageError, match="seeds 0 to 1, but not 7"):
        dgmarl.load(trained, seed=7)


@pytest.mark.slow
def test_ctrl_c_while_compiling_still_leaves_a_run_that_can_go_on(trained, tmp_path, capsys):
    out = tmp_path / "stopped"
    program = [sys.executable, "-c", "import sys; from dgmarl.cli import main; main(sys.argv[1:])"]
    arguments = ["train", GIFT, *RUN, "--out", str(out), *assignments(WINDOWS)]
    process = subprocess.Popen(
        [*program, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    while process.poll() is None and not (out / "config.yaml").exists():
        time.sleep(0.002)
    process.send_signal(signal.SIGINT)
    said, errors = process.communicate()
    assert process.returncode == 130, errors
    assert f"dgmarl train --resume {out}" in said + errors
    assert "Traceback" not in errors
    assert len(numbers(out)) < len(numbers(trained))
    assert run(capsys, "train", "--resume", out, "--quiet")[0] == 0
    assert numbers(out) == numbers(trained)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (
            {"env": "star-spread/5", "method": "mappo-local"},
            resolve("star-spread/5", "mappo-local"),
        ),
        (
            {"env": "star-spread/5", "learner": {"hidden": 9}},
            resolve("star-spread/5", "ippo-dg", {"learner.hidden": 9}),
        ),
        (
            {"env": "lbf/8x8-2p-2f", "env_options": {"horizon": 7}},
            resolve("lbf/8x8-2p-2f", overrides={"env_options.horizon": 7}),
        ),
    ],
)
def test_a_configuration_file_need_not_be_complete(values, expected):
    """What it does not say is the preset of environment and method; what it says wins over the
    preset."""
    assert Train.from_arguments([], values).resolved() == expected


def test_saved_options_are_the_whole_configuration(trained, tmp_path, capsys):
    saved = tmp_path / "saved.yaml"
    code, _, err = run(
        capsys,
        "train",
        "--config",
        trained / "config.yaml",
        "--seeds",
        "3",
        "--out",
        trained,
        "--save-config",
        saved,
    )
    assert code == 2
    assert "already holds a run" in err
    assert build(TrainConfig, read_yaml(saved)) == resolve(
        GIFT, "ippo-dg", WINDOWS, graph="random:0.5", seeds=3, steps=800
    )
    assert numbers(trained)


NO_ORACLE = GIFT.replace(":Gift", ":NoOracle")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], ["needs an environment"]),
        (["gift"], ["'gift'", "dgmarl envs"]),
        ([GIFT, "--seeds", "0"], ["seeds is 0", "from 1 to"]),
        ([GIFT, "--steps", "0"], ["steps is 0", "from 1 to"]),
        ([GIFT, "--steps", "49"], ["steps is 49", "one iteration can take 50 steps"]),
        ([GIFT, "--steps", "1e12"], ["steps is 1,000,000,000,000", "2,000,000,000"]),
        ([GIFT, "--seed", "-1"], ["seed is -1", "from 0"]),
        (
            [GIFT, "--method", "mappo-dg", "--set", "learner.critic=agent"],
            ["mappo-dg", "learner.critic is 'agent'"],
        ),
        ([GIFT, "--keep-every", "-1"], ["--keep-every is -1"]),
        ([GIFT, "--accept-changes"], ["give it with --resume RUN"]),
        (["--resume", "somewhere", "--seeds", "2"], ["--resume", "no other option"]),
        ([GIFT, "--method", "ipo-dg"], ["'ipo-dg'", "did you mean ippo-dg"]),
        ([GIFT, "--method", "coma"], ["'coma'", "allowed are ippo-local"]),
        (
            [GIFT, "--method", "qmix", "--set", "learner.mixer=vdn"],
            ["learner.mixer is 'vdn'", "for qmix"],
        ),
        (
            [GIFT, "--method", "qmix", "--set", "learner.mixr=vdn"],
            ["learner.mixr is not a field", "did you mean mixer"],
        ),
        (
            [GIFT, "--method", "iql", "--set", "learner.clip_eps=0.1"],
            ["learner.clip_eps is not a field of QConfig"],
        ),
        (
            [GIFT, "--method", "vdn", "--rollout-length", "5"],
            ["rollout_length is 5", "whole episodes"],
        ),
        (
            [GIFT, "--method", "vdn", "--set", "learner.episodes_per_update=3"],
            ["n_envs is 10", "multiple"],
        ),
        (
            [GIFT, "--method", "vdn", "--set", "learner.buffer_size=8"],
            ["buffer_size is 8", "batch_size, which is 32"],
        ),
        (
            [GIFT, "--method", "vdn", "--set", "learner.evaluation_epsilon=2"],
            ["evaluation_epsilon is 2", "from 0 to 1"],
        ),
        ([GIFT, "--graph", "orackle"], ["'orackle'", "did you mean oracle?"]),
        ([GIFT, "--graph", "random:2"], ["random:2", "from 0 to 1"]),
        ([GIFT, "--graph", "fixed:none.txt"], ["none.txt", "cannot be read"]),
        ([NO_ORACLE], ["gift", "no oracle graph"]),
        (
            [GIFT, "--method", "ippo-local", "--set", "credit.cross_weight=0.3"],
            ["credit.cross_weight is not a field"],
        ),
        ([GIFT, "--set", "learner.hiden=3"], ["learner.hiden", "did you mean hidden"]),
        ([GIFT, "--set", "learner.hidden=0"], ["learner.hidden is 0", "from 1 to"]),
        ([GIFT, "--set", "learner.gamma=1.5"], ["learner.gamma is 1.5", "from 0 to 1"]),
        ([GIFT, "--set", "learner.critic=gru"], ["learner.critic", "'gru'", "central"]),
        ([GIFT, "--n-envs", "10", "--set", "learner.minibatches=3"], ["n_envs is 10", "multiple"]),
        (
            [GIFT, "--method", "iql", "--graph", "learned"],
            ["--graph is learned", "iql uses no graph", "ippo-dg"],
        ),
        ([GIFT, "--rollout-length", "-5"], ["rollout_length is -5", "whole episodes"]),
        ([GIFT, "--set", "evaluation.episodes=0"], ["evaluation.episodes", "from 1 to"]),
        ([GIFT, "--set", "env_options.size=3"], ["size"]),
        ([GIFT, "--set", "format=1"], ["format is 1"]),
        ([GIFT, "--init-from", "nowhere"], ["nowhere", "not a run folder"]),
        (["--resume", "nowhere"], ["nowhere", "not a run folder"]),
        (["--config", "none.yaml"], ["none.yaml", "cannot be read"]),
    ],
)
def test_a_mistake_is_one_sentence_and_writes_nothing(
    capsys, tmp_path, monkeypatch, arguments, words
):
    monkeypatch.chdir(tmp_path)
    code, out, err = run(capsys, "train", *arguments)
    assert code == 2, err
    assert out == ""
    assert len(err.strip().splitlines()) == 1
    for word in words:
        assert word in err
    assert list(tmp_path.iterdir()) == []


def test_a_graph_of_the_wrong_size_is_refused(capsys, tmp_path):
    (tmp_path / "graph.txt").write_text("1 1 0\n0 1 0\n0 0 1\n")
    code, _, err = run(
        capsys, "train", GIFT, "--graph", f"fixed:{tmp_path}/graph.txt", "--out", tmp_path / "run"
    )
    assert code == 2
    assert "(3, 3)" in err
    assert "2 agents" in err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "arguments", [["evaluate", "{}", "--episodes", "0"], ["watch", "{}", "--trained-seed", "9"]]
)
def test_a_question_to_a_run_that_it_cannot_answer_is_refused(
    trained, tmp_path, monkeypatch, capsys, arguments
):
    monkeypatch.chdir(tmp_path)
    code, _, err = run(capsys, *(word.format(trained) for word in arguments))
    assert code == 2
    assert re.search(r"--episodes is 0|but not 9", err)
    assert list(tmp_path.iterdir()) == []
