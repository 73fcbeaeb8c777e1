"""Meeting times, parents and reach against their definitions in the paper."""

import doctest

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings

import dgmarl.graphs.reach as module
from dgmarl import UsageError, meeting_times
from dgmarl.graphs.reach import (
    NEVER,
    add_self_loops,
    check_graph,
    neighbour_lists,
    reward_lags,
)
from tests.credit.double_loop import meeting_loop
from tests.credit.windows import padded, random_window, windows

CHAIN = np.array([[1, 1, 0], [0, 1, 1], [0, 0, 1]], bool)


@pytest.fixture(scope="module")
def small():
    """Graphs [T, N, N] of one window with a few episodes, and their ends."""
    window = random_window(np.random.default_rng(0), 14, 4, batch=1, edge=0.15, end=0.2)
    return window.graph[:, 0], ~window.continues[:, 0]


@settings(max_examples=30, deadline=None)
@given(windows())
def test_equals_repeated_products(window):
    n_steps, batch, n_agents = window.reward.shape
    wide = padded(window)
    ours = np.asarray(meeting_times(wide.graph, ~wide.continues))[:n_steps, :, :n_agents, :n_agents]
    theirs = np.stack(
        [meeting_loop(window.graph[:, b], ~window.continues[:, b], NEVER) for b in range(batch)], 1
    )
    np.testing.assert_array_equal(ours, theirs)


def test_chain_is_met_one_hop_per_step_and_only_forwards():
    lags = meeting_times(np.stack([CHAIN] * 3), np.zeros(3, bool))
    np.testing.assert_array_equal(lags[0], [[0, 0, 1], [NEVER, 0, 0], [NEVER, NEVER, 0]])
    np.testing.assert_array_equal(lags[2], [[0, 0, NEVER], [NEVER, 0, 0], [NEVER, NEVER, 0]])


def test_episode_end_cuts_paths_but_not_its_own_edge():
    lags = meeting_times(np.stack([CHAIN] * 3), np.array([True, False, False]))
    assert lags[0, 0, 2] == NEVER
    assert lags[0, 0, 1] == 0
    assert lags[1, 0, 2] == 1


def test_missing_self_loops_count_as_set(small):
    graph, ends = small
    without = graph & ~np.eye(4, dtype=bool)
    np.testing.assert_array_equal(meeting_times(without, ends), meeting_times(graph, ends))


@pytest.mark.parametrize(("max_degree", "edge"), [(None, 0.03), (1, 0.03), (12, 0.03), (50, 0.5)])
def test_neighbour_version_is_exact_whatever_the_degree(max_degree, edge):
    window = random_window(np.random.default_rng(3), 8, 70, edge=edge)
    ends = ~window.continues
    dense = meeting_times(window.graph, ends, method="dense")
    sparse = meeting_times(window.graph, ends, method="neighbours", max_degree=max_degree)
    np.testing.assert_array_equal(sparse, dense)
    np.testing.assert_array_equal(meeting_times(window.graph, ends), dense)


def test_neighbour_lists_hold_the_targets_in_order():
    lists = neighbour_lists(jnp.asarray(CHAIN), 2)
    np.testing.assert_array_equal(lists, [[0, 1], [1, 2], [2, 2]])


def test_a_graph_may_be_given_as_neighbour_lists(small):
    graph, ends = small
    lists = neighbour_lists(jnp.asarray(graph | np.eye(4, dtype=bool)), 4)
    np.testing.assert_array_equal(
        meeting_times(lists, ends, method="lists"), meeting_times(graph, ends)
    )
    for wrong in (graph, lists + 1):
        with pytest.raises(ValueError, match="integers from 0 to 3"):
            meeting_times(wrong, ends, method="lists")


def test_more_steps_than_16_bits_count():
    """The lags of long windows need 32 bits."""
    n_steps = 2**14 + 1
    graph = np.broadcast_to(np.eye(2, dtype=bool), (n_steps, 2, 2)).copy()
    graph[-1, 0, 1] = True
    lags = meeting_times(graph, np.zeros(n_steps, bool))
    assert lags[0, 0, 1] == n_steps - 1
    assert lags[0, 1, 0] == NEVER


def test_reward_lags_are_the_definition_by_parents(small):
    """T_ji(t) = min { t' >= t : j in Pa^i(s_t', t' - t) } - t, where Pa^i(s_t', k) holds the agents
    with a path from their action at t' - k to i's state at t'."""
    graph, ends = small
    lags = np.asarray(reward_lags(meeting_times(graph, ends)))
    for t in range(len(graph)):
        expected = np.where(np.eye(4), 0, NEVER)
        paths = np.eye(4, dtype=bool)
        for k in range(t, len(graph)):
            paths = (paths.astype(int) @ graph[k]) > 0
            expected = np.minimum(expected, np.where(paths, k - t + 1, NEVER))
            if ends[k]:
                break
        np.testing.assert_array_equal(lags[t], expected)


def test_reward_lags_are_one_more_except_for_oneself():
    lags = np.array([[0, 0, 3], [NEVER, 0, 1], [2, NEVER, 0]])
    np.testing.assert_array_equal(reward_lags(lags), [[0, 1, 4], [NEVER, 0, 2], [3, NEVER, 0]])


def test_jit_vmap_batch_axes_and_float64():
    window = random_window(np.random.default_rng(1), 9, 5, batch=3)
    graph, ends = window.graph, ~window.continues
    direct = meeting_times(graph, ends)
    np.testing.assert_array_equal(jax.jit(meeting_times)(graph, ends), direct)
    np.testing.assert_array_equal(
        jax.vmap(meeting_times, in_axes=1, out_axes=1)(graph, ends), direct
    )
    np.testing.assert_array_equal(meeting_times(graph[:, 0], ends[:, 0]), direct[:, 0])
    stacked = meeting_times(np.stack([graph, graph], 1), np.stack([ends, ends], 1))
    np.testing.assert_array_equal(stacked[:, 1], direct)
    with jax.enable_x64(True):
        wide = meeting_times(graph, ends)
        assert wide.dtype == jnp.int32
        np.testing.assert_array_equal(wide, direct)


@pytest.mark.parametrize(
    ("graph", "ends", "message"),
    [
        (np.ones((4, 3, 3)), np.zeros(4, bool), "graph must be Boolean, got float"),
        (
            np.ones((4, 3, 2), bool),
            np.zeros(4, bool),
            r"graph must have the shape \[T, ..., N, N\]",
        ),
        (np.ones((3, 3), bool), np.zeros((), bool), r"graph must have the shape \[T, ..., N, N\]"),
        (np.ones((4, 3, 3), bool), np.zeros(5, bool), r"ends must have the shape \(4,\)"),
        (np.ones((4, 3, 3), bool), np.zeros(4), "ends must be Boolean"),
    ],
)
def test_bad_input_is_refused(graph, ends, message):
    with pytest.raises(ValueError, match=message):
        jax.eval_shape(meeting_times, graph, ends)


def test_neighbours_under_jit_need_a_degree(small):
    with pytest.raises(ValueError, match="needs max_degree"):
        jax.jit(lambda graph, ends: meeting_times(graph, ends, method="neighbours"))(*small)


def test_check_graph_passes_what_is_right_and_names_what_is_wrong(small):
    graph, _ = small
    np.testing.assert_array_equal(check_graph(graph.astype(np.uint8)), graph)
    with pytest.raises(
        UsageError, match=r"has no self-loop for agent 2; use add_self_loops\(graph\)"
    ):
        check_graph(np.eye(4)[None] * (np.arange(4) != 2))
    with pytest.raises(UsageError, match=r"only 0 and 1, got values from 0.0 to 0.5"):
        check_graph(np.eye(3) * 0.5)
    with pytest.raises(UsageError, match=r"must have the shape \[..., N, N\], got \(4, 3\)"):
        check_graph(np.ones((4, 3)))


def test_the_fix_that_check_graph_offers_works():
    np.testing.assert_array_equal(
        check_graph(add_self_loops(np.zeros((2, 3, 3)))), np.stack([np.eye(3, dtype=bool)] * 2)
    )


def test_examples_in_the_documentation():
    assert doctest.testmod(module).failed == 0
