"""The examples are executed: the relay keeps the contract, and its graph is the one that
interventions find; the loop in PyTorch learns with graph credit and not with local credit."""

import ast
import json
from pathlib import Path

import jax
import numpy as np
import pytest

from dgmarl import make_env
from dgmarl.envs.checker import check_env
from dgmarl.envs.registry import load_object
from dgmarl.graphs.interventional import intervene

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
RELAY = f"{EXAMPLES / 'relay.py'}:Relay"


def test_the_relay_keeps_the_contract():
    assert [
        finding.sentence for finding in check_env(make_env(RELAY)) if finding.kind == "violation"
    ] == []


def test_interventions_find_the_oracle_graph_of_the_relay():
    env = make_env(RELAY, n_agents=4)
    state, _ = env.reset(jax.random.key(0))
    for holder in range(4):
        here = state._replace(holder=state.holder + holder)
        found = intervene(env, here, jax.random.key(1), jax.numpy.zeros(4, int))
        np.testing.assert_array_equal(found.action_graph, env.oracle_graph(here))


@pytest.mark.slow
def test_the_loop_in_pytorch_learns_through_the_graph():
    pytest.importorskip("torch")
    train = load_object(f"{EXAMPLES / 'torch_mappo.py'}:train", "example")
    assert train("graph") > 0.2
    assert train("local") < 0.05


@pytest.mark.slow
def test_the_notebook_trains_plots_and_shows_a_replay():
    cells = json.loads((EXAMPLES / "tour.ipynb").read_text())["cells"]
    names, shown = {}, []
    for cell in cells:
        if cell["cell_type"] == "code":
            source = "".join(cell["source"]).replace("60_000, 3", "500, 1")
            tree = ast.parse(source)
            last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
            exec(compile(tree, "tour.ipynb", "exec"), names)
            if isinstance(last, ast.Expr):
                shown.append(eval(compile(ast.Expression(last.value), "tour.ipynb", "eval"), names))
    pages = [value._repr_html_() or "" for value in shown if hasattr(value, "_repr_html_")]
    assert any(page.startswith("<iframe") and "replay" in page for page in pages)
