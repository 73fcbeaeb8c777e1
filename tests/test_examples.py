"""The examples are executed: the relay keeps the contract, and its graph is the one that
interventions find."""

from pathlib import Path

import jax
import numpy as np

from dgmarl import make_env
from dgmarl.envs.checker import check_env
from dgmarl.graphs.interventional import intervene

RELAY = f"{Path(__file__).resolve().parents[1] / 'examples' / 'relay.py'}:Relay"


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
