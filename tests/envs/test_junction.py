"""The junction, which `dgmarl new-env` writes for a user to change."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dgmarl import cli, make_env
from dgmarl.envs.checker import check_env
from dgmarl.envs.junction import Junction, JunctionState
from dgmarl.graphs.check_oracle import check_oracle

BRAKE, DRIVE = 0, 1


def new_env(path) -> int:
    with pytest.raises(SystemExit) as stop:
        cli.main(["new-env", str(path)])
    return int(stop.value.code or 0)


def step(cells, actions):
    env = Junction(junctions=1)
    state = JunctionState(jnp.array(cells), jnp.array([1.0, 0.1, 0.1, 0.1]), jnp.int32(0))
    after, _, outcome = env.step(jax.random.key(0), state, jnp.array(actions))
    return after.cell.tolist(), np.asarray(outcome.reward).tolist()


def test_the_written_file_keeps_the_contract_and_is_short(tmp_path, capsys):
    assert new_env(tmp_path / "mine.py") == 0
    assert f"dgmarl check-env {tmp_path}/mine.py:Junction" in capsys.readouterr().out
    text = (tmp_path / "mine.py").read_text()
    assert len(text.splitlines()) <= 90
    assert "my_env.py" not in text
    env = make_env(f"{tmp_path}/mine.py:Junction", junctions=1)
    assert check_env(env) == []
    assert check_oracle(env) == []


def test_a_file_that_exists_is_not_overwritten(tmp_path, capsys):
    (tmp_path / "mine.py").write_text("precious")
    assert new_env(tmp_path / "mine.py") == 2
    assert "exists already" in capsys.readouterr().err
    assert (tmp_path / "mine.py").read_text() == "precious"
    assert new_env(tmp_path / "mine.txt") == 2
    assert not (tmp_path / "mine.txt").exists()


def test_rivals_stay_and_pay_and_hold_up_those_behind():
    cells, reward = step([1, 2, 1, 2], [DRIVE] * 4)
    assert cells == [1, 2, 1, 2]
    assert reward == pytest.approx([-1.0, -1.1, -0.1, -1.1])


def test_a_queue_moves_on_together_while_the_other_road_waits():
    cells, reward = step([1, 2, 1, 2], [DRIVE, DRIVE, DRIVE, BRAKE])
    assert cells == [2, 3, 1, 2]
    assert reward == pytest.approx([-1.0, -0.1, -0.1, -0.1])


def test_who_has_left_pays_nothing():
    cells, reward = step([4, 4, 2, 3], [DRIVE] * 4)
    assert cells == [4, 4, 3, 4]
    assert reward == pytest.approx([0.0, 0.0, -0.1, -0.1])


@pytest.mark.slow
@pytest.mark.parametrize("graph", ["oracle", "interventional", "learned"])
def test_it_is_trained_without_registration(tmp_path, graph, capsys):
    new_env(tmp_path / "mine.py")
    train = ["train", f"{tmp_path}/mine.py:Junction", "--method", "mappo-dg", "--graph", graph]
    small = ["--steps", "200", "--learner.hidden", "8", "--out", str(tmp_path / "run"), "--quiet"]
    with pytest.raises(SystemExit) as stop:
        cli.main([*train, *small])
    assert stop.value.code == 0, capsys.readouterr().err
