"""Graph advantages against the double loop of Algorithm 1, the identities that must hold, and
recordings of the original."""

import doctest
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.test_util import check_grads

import dgmarl.credit.graph_gae as module
from dgmarl import gae, graph_gae
from dgmarl.credit.graph_gae import credited_rewards, soft_graph_gae
from dgmarl.graphs.reach import neighbour_lists
from tests.credit.double_loop import pair_loop
from tests.credit.windows import Window, over_batch, padded, random_window, windows
from tests.parity import replay_gae

GAMMA, LAMBDA = 0.99, 0.95
UNREACHED = 1 - LAMBDA
"""The weight of unreached agents in the paper's runs."""
VARIANTS = [
    {"unreached_weight": weight, "advantage_form": form}
    for weight in (UNREACHED, 0.3, 0.0)
    for form in ("td", "return")
]
# Padding agents that keep a weight would be averaged over.
VARIANTS.append({"unreached_weight": 0.0, "others": "mean"})


def run(window: Window, gamma: Any = GAMMA, lambda_: Any = LAMBDA, **options: Any) -> Any:
    return graph_gae(*window, gamma, lambda_, **options)


def by_loop(window, gamma=GAMMA, lambda_=LAMBDA, **options):
    return over_batch(pair_loop, window, gamma, lambda_, options).sum(-1)


def plain_gae(window: Window):
    return np.asarray(gae(*window[:3], window.bootstrap, window.continues, GAMMA, LAMBDA))


@pytest.fixture
def window():
    return random_window(np.random.default_rng(0), 20, 4, dtype=np.float32)


@settings(max_examples=40, deadline=None)
@given(
    windows(),
    st.sampled_from(VARIANTS),
    st.sampled_from([0.0, 0.9, 1.0]),
    st.sampled_from([0.0, 0.3, 0.95, 1.0]),
)
def test_equals_the_double_loop(window, variant, gamma, lambda_):
    n_steps, _, n_agents = window.reward.shape
    ours = run(padded(window), gamma, lambda_, per_pair=True, **variant)[
        :n_steps, :, :n_agents, :n_agents
    ]
    theirs = over_batch(pair_loop, window, gamma, lambda_, variant)
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(ours.sum(-1), theirs.sum(-1), rtol=1e-5, atol=1e-5)


@settings(max_examples=10, deadline=None)
@given(windows(dtype=np.float64), st.sampled_from(VARIANTS))
def test_equals_the_double_loop_in_float64(window, variant):
    n_steps, _, n_agents = window.reward.shape
    with jax.enable_x64(True):
        ours = run(padded(window), **variant)[:n_steps, :, :n_agents]
        assert ours.dtype == jnp.float64
        np.testing.assert_allclose(ours, by_loop(window, **variant), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("n_steps", "n_agents"), [(1, 1), (1, 12), (2, 2), (60, 1), (33, 7)])
def test_equals_the_double_loop_without_padding(n_steps, n_agents):
    window = random_window(np.random.default_rng(n_steps), n_steps, n_agents, dtype=np.float32)
    for weight, others in ((0.0, "sum"), (UNREACHED, "sum"), (UNREACHED, "mean")):
        options = {"unreached_weight": weight, "others": others}
        theirs = by_loop(window, **options)
        np.testing.assert_allclose(run(window, **options), theirs, rtol=1e-5, atol=1e-5)


def test_the_cap_of_the_original_matters_only_beyond_100_steps(golden):
    (path,) = golden("gae.npz")
    with np.load(path) as recording:
        arrays = {
            name: recording[name]
            for name in recording.files
            if name.startswith("case7") or name == "meta_json"
        }
    reward, values, mask, graph = (
        np.swapaxes(arrays[f"case7_{n}"], 0, 1) for n in ("rewards", "values", "mask", "graph")
    )
    valid = mask[1:, :, 0] > 0
    steps = (reward, values[:-1], values[1:], graph > 0, valid, valid)
    uncapped = graph_gae(*steps, GAMMA, LAMBDA, unreached_weight=UNREACHED)
    gap = np.abs(uncapped - np.swapaxes(arrays["case7_adv_graph_noise1_f32"], 0, 1)).max(
        axis=(1, 2)
    )
    assert len(reward) == 130
    assert gap[30:].max() < 1e-5
    assert 1e-3 < gap[:30].max() < 0.05
    renamed = {name.replace("case7", "case0"): array for name, array in arrays.items()}
    assert replay_gae.replay(renamed) == (1, [])


def test_a_wrong_recording_is_noticed(golden):
    (path,) = golden("gae.npz")
    with np.load(path) as recording:
        arrays = {
            name: recording[name]
            for name in recording.files
            if name.startswith("case0") or name == "meta_json"
        }
    arrays["case0_graph"] = np.swapaxes(arrays["case0_graph"], -1, -2)
    n_cases, differences = replay_gae.replay(arrays)
    assert n_cases == 1
    assert len(differences) == 2


# Identities of the specification.


@pytest.mark.parametrize("weight", [UNREACHED, 0.3, 1.0])
def test_unreached_agents_add_the_global_signal_with_their_weight(window, weight):
    total = plain_gae(window).sum(-1, keepdims=True)
    # An agent reaches itself, so its own GAE stands in both parts.
    mixture = (1 - weight) * run(window) + weight * total
    np.testing.assert_allclose(run(window, unreached_weight=weight), mixture, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("weight", [UNREACHED, 0.0])
def test_complete_graph_gives_the_global_signal(window, weight):
    complete = window._replace(graph=np.ones_like(window.graph))
    total = np.broadcast_to(plain_gae(window).sum(-1, keepdims=True), window.reward.shape)
    np.testing.assert_allclose(run(complete, unreached_weight=weight), total, rtol=1e-5, atol=1e-5)


def test_identity_graph_gives_the_local_signal(window):
    alone = window._replace(graph=np.broadcast_to(np.eye(4, dtype=bool), window.graph.shape))
    own = plain_gae(window)
    np.testing.assert_array_equal(run(alone), own)
    mixture = LAMBDA * own + (1 - LAMBDA) * own.sum(-1, keepdims=True)
    np.testing.assert_allclose(
        run(alone, unreached_weight=UNREACHED), mixture, rtol=1e-5, atol=1e-5
    )


def test_star_graph_credits_leaves_with_the_hub(window):
    star = np.eye(4, dtype=bool)
    star[:, 0] = True
    own = plain_gae(window)
    leaves = own + own[..., :1]
    expected = np.concatenate([own[..., :1], leaves[..., 1:]], -1)
    constant = window._replace(graph=np.broadcast_to(star, window.graph.shape))
    np.testing.assert_allclose(run(constant), expected, rtol=1e-5, atol=1e-5)


def test_constant_idempotent_graph_reaches_at_once_or_never(window):
    groups = np.kron(np.eye(2, dtype=bool), np.ones((2, 2), bool))
    constant = window._replace(graph=np.broadcast_to(groups, window.graph.shape))
    np.testing.assert_allclose(run(constant), plain_gae(window) @ groups.T, rtol=1e-5, atol=1e-5)


def test_chain_credits_the_source_and_never_the_target():
    chain = np.eye(3, dtype=bool)
    chain[0, 1] = chain[1, 2] = True
    zero, on = np.zeros((3, 3), np.float32), np.ones(3, bool)
    graph = np.stack([chain] * 3)

    def credit(agent, step):
        reward = zero.copy()
        reward[step, agent] = 1.0
        return np.asarray(graph_gae(reward, zero, zero, graph, on, on, 1.0, 1.0)[0])

    np.testing.assert_array_equal(credit(agent=2, step=2), [1, 1, 1])
    np.testing.assert_array_equal(credit(agent=2, step=1), [1, 1, 1])
    np.testing.assert_array_equal(credit(agent=2, step=0), [0, 1, 1])
    np.testing.assert_array_equal(credit(agent=0, step=2), [1, 0, 0])


# Forms and options.


def test_return_form_subtracts_the_baseline_from_others_only(window):
    baseline = np.random.default_rng(1).normal(size=window.graph.shape).astype(np.float32)
    without = run(window, advantage_form="return", per_pair=True)
    others = ~np.eye(4, dtype=bool)
    np.testing.assert_allclose(
        run(window, advantage_form="return", pair_baseline=baseline),
        (without - others * baseline).sum(-1),
        rtol=1e-5,
        atol=1e-5,
    )


@pytest.mark.parametrize("form", ["td", "return"])
def test_cross_weight_scales_what_comes_from_others(window, form):
    pairs = run(window, advantage_form=form, per_pair=True)
    own = np.eye(4, dtype=bool)
    weights = np.random.default_rng(1).random(window.graph.shape).astype(np.float32)
    for weight in (0.3, weights[0, 0], weights):
        expected = (np.where(own, 1, weight) * pairs).sum(-1)
        np.testing.assert_allclose(
            run(window, advantage_form=form, cross_weight=weight), expected, rtol=1e-5, atol=1e-5
        )
    np.testing.assert_allclose(
        run(window, advantage_form=form, cross_weight=0.0), plain_gae(window), rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize("weight", [UNREACHED, 0.0])
def test_the_mean_over_one_other_is_the_sum(weight):
    pair = random_window(np.random.default_rng(3), 20, 2, dtype=np.float32)
    summed, mean = (run(pair, unreached_weight=weight, others=kind) for kind in ("sum", "mean"))
    np.testing.assert_allclose(mean, summed, rtol=1e-6, atol=1e-6)
    if not weight:
        np.testing.assert_array_equal(mean, summed)


def test_the_mean_over_a_complete_graph_is_the_mean_of_the_others_gae(window):
    complete = window._replace(graph=np.ones_like(window.graph))
    own = plain_gae(window)
    expected = own + (own.sum(-1, keepdims=True) - own) / 3
    np.testing.assert_allclose(run(complete, others="mean"), expected, rtol=1e-5, atol=1e-5)


@settings(max_examples=10, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([UNREACHED, 0.0]),
    st.sampled_from(["sum", "mean"]),
)
def test_reward_graph_equals_the_double_loop(seed, weight, others):
    rng = np.random.default_rng(seed)
    window = random_window(rng, 20, 4, edge=0.1, dtype=np.float32)
    constant = rng.random((4, 4)) < 0.2
    # One matrix for each step and batch entry; the loop takes one entry of the batch, so all share
    # the same.
    changing = np.broadcast_to((rng.random((20, 1, 4, 4)) < 0.2), window.graph.shape)
    for reward_graph, for_loop in ((constant, constant), (changing, changing[:, 0])):
        options = {"unreached_weight": weight, "others": others}
        theirs = by_loop(window, reward_graph=for_loop, **options)
        ours = run(window, reward_graph=reward_graph, **options)
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.rounding
def test_fast_and_slow_reward_graph_agree(window):
    constant = np.random.default_rng(1).random((4, 4)) < 0.3
    continues = np.concatenate([window.continues[:-2], [[False] * 2], window.continues[-1:]])
    window = window._replace(continues=continues)  # nothing counts across the last step but one
    same = np.broadcast_to(constant, window.graph.shape)
    changing = np.concatenate([same[:-1], ~same[-1:]])
    fast = run(window, reward_graph=constant)
    np.testing.assert_array_equal(run(window, reward_graph=same), fast)
    slow = run(window, reward_graph=changing)
    np.testing.assert_allclose(slow[:-1], fast[:-1], rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(run(window, reward_graph=np.eye(4, dtype=bool)), run(window))


def test_return_form_with_a_reward_graph_equals_the_loop(window):
    constant = np.random.default_rng(2).random((4, 4)) < 0.3
    theirs = by_loop(window, advantage_form="return", reward_graph=constant)
    np.testing.assert_allclose(
        run(window, advantage_form="return", reward_graph=constant), theirs, rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize("variant", VARIANTS)
def test_credited_rewards_are_the_weights_of_the_definition(variant):
    rng = np.random.default_rng(5)
    window = random_window(rng, 8, 3, batch=1, end=0.2)
    graph, ends = window.graph[:, 0], ~window.continues[:, 0]
    t, agent = 1, 2
    weights = credited_rewards(graph, ends, t, agent, 0.9, 0.8, **variant)
    expected = np.zeros((8, 3))
    zero = np.zeros((8, 3))
    for step, target in np.ndindex(8, 3):
        reward = zero.copy()
        reward[step, target] = 1.0
        expected[step, target] = pair_loop(
            reward, zero, zero, graph, ~ends, ~ends, 0.9, 0.8, variant
        )[t, agent].sum()
    np.testing.assert_allclose(weights, expected, atol=1e-6)


def test_neighbour_lists_give_the_same():
    window = random_window(np.random.default_rng(3), 6, 70, batch=2, edge=0.03, dtype=np.float32)
    dense = run(window, method="dense")
    for options in (
        {"method": "neighbours"},
        {"method": "auto"},
        {"method": "neighbours", "max_degree": 2},
    ):
        np.testing.assert_allclose(run(window, **options), dense, rtol=1e-6, atol=1e-6)
    looped = window.graph | np.eye(70, dtype=bool)
    lists = neighbour_lists(jnp.asarray(looped), int(looped.sum(-1).max()))
    listed = run(window._replace(graph=np.asarray(lists)), method="lists")
    np.testing.assert_allclose(listed, dense, rtol=1e-6, atol=1e-6)


def test_soft_edges_of_zero_and_one_are_boolean(window):
    steps = window._replace(graph=window.graph.astype(np.float32))
    for weight, others in ((UNREACHED, "sum"), (0.0, "sum"), (UNREACHED, "mean")):
        options = {"unreached_weight": weight, "others": others}
        soft = soft_graph_gae(*steps, gamma=GAMMA, lambda_=LAMBDA, **options)
        boolean = run(window, **options)
        np.testing.assert_allclose(soft, boolean, rtol=1e-5, atol=1e-5)


def test_soft_credit_fades_along_a_chain():
    weights = np.zeros((3, 3, 3), np.float32)
    weights[:, 0, 1], weights[:, 1, 2] = 0.5, 0.4
    reward, zero, on = np.zeros((3, 3), np.float32), np.zeros((3, 3), np.float32), np.ones(3, bool)
    reward[2, 2] = 1.0
    credit = soft_graph_gae(reward, zero, zero, weights, on, on, 1.0, 1.0)
    np.testing.assert_allclose(credit, [[0.2, 0.4, 1], [0.2, 0.4, 1], [0, 0.4, 1]], rtol=1e-6)


# Masks, shapes and transformations.


@pytest.mark.parametrize("options", [{}, {"advantage_form": "return"}, {"others": "mean"}], ids=str)
def test_nothing_leaks_out_of_padding(options):
    window = padded(random_window(np.random.default_rng(2), 10, 3, end=0.0, dtype=np.float32))
    poisoned = window._replace(
        reward=window.reward.copy(), value=window.value.copy(), next_value=window.next_value.copy()
    )
    poisoned.reward[10:], poisoned.value[10:], poisoned.next_value[10:] = np.nan, np.inf, np.nan
    complete = np.ones_like(window.graph)
    kept, ours = (run(w._replace(graph=complete), **options)[:10] for w in (window, poisoned))
    np.testing.assert_array_equal(ours, kept)


def test_any_batch_axes(window):
    one = run(Window(*(array[:, 0] for array in window)))
    more = run(Window(*(np.stack([array, array], axis=1) for array in window)))
    direct = run(window)
    np.testing.assert_allclose(one, direct[:, 0], rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(more[:, 1], direct, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("others", ["sum", "mean"])
def test_jit_and_vmap(window, others):
    credit = partial(run, others=others)
    direct = credit(window)
    jitted = jax.jit(lambda lambda_, *w: credit(Window(*w), lambda_=lambda_))(LAMBDA, *window)
    mapped = jax.vmap(lambda *w: credit(Window(*w)), in_axes=1, out_axes=1)(*window)
    np.testing.assert_allclose(jitted, direct, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(mapped, direct, rtol=1e-6, atol=1e-6)


def test_gradients_of_values_and_constants():
    rng = np.random.default_rng(4)
    with jax.enable_x64(True):
        window = random_window(rng, 6, 3)
        probe = rng.normal(size=window.reward.shape)

        def loss(value, gamma, lambda_):
            weights = {"unreached_weight": 1 - lambda_, "advantage_form": "return"}
            return jnp.sum(probe * run(window._replace(value=value), gamma, lambda_, **weights))

        check_grads(loss, (window.value, 0.9, 0.8), order=1, modes=["fwd", "rev"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"graph": np.ones((4, 2, 3, 3), np.float32)}, "graph must be Boolean, got float32"),
        ({"graph": np.ones((4, 2, 3, 3), np.uint8)}, "check_graph"),
        ({"graph": np.ones((4, 2, 3, 2), bool)}, r"graph must have the shape \[T, ..., N, N\]"),
        ({"graph": np.ones((4, 3, 3), bool)}, "graph must have the shape"),
        ({"value": np.zeros((4, 2, 4), np.float32)}, "value has the shape"),
        ({"continues": np.ones((4, 2), np.int32)}, "continues must be Boolean"),
        ({"lambda_": 1.01}, r"lambda_ must lie in \[0, 1\]"),
        ({"unreached_weight": -0.1}, r"unreached_weight must lie in \[0, 1\]"),
        ({"advantage_form": "TD"}, "advantage_form must be 'td' or 'return'"),
        (
            {"pair_baseline": np.zeros((4, 2, 3, 3), np.float32)},
            "is for advantage_form='return'",
        ),
        (
            {"pair_baseline": np.zeros((2, 3, 3), np.float32), "advantage_form": "return"},
            "pair_baseline must have the shape",
        ),
        ({"reward_graph": np.ones((3, 3))}, "reward_graph must be Boolean"),
        ({"reward_graph": np.ones((4, 3, 3), bool)}, "reward_graph must have the shape"),
        (
            {"reward_graph": np.ones((4, 2, 3, 3), bool), "advantage_form": "return"},
            "constant in time",
        ),
        ({"cross_weight": np.ones(2)}, "cross_weight must be a scalar"),
        ({"others": "median"}, "others must be 'sum' or 'mean'"),
        ({"others": "mean", "advantage_form": "return"}, "needs advantage_form='td'"),
        ({"method": "fast"}, "method must be"),
        ({"max_degree": 0}, "max_degree counts"),
    ],
)
def test_bad_input_is_refused(change, message):
    window = random_window(np.random.default_rng(0), 4, 3, dtype=np.float32)._asdict()
    with pytest.raises(ValueError, match=message):
        jax.eval_shape(lambda: graph_gae(**(window | {"gamma": 0.99, "lambda_": 0.95} | change)))


def test_soft_and_one_window_functions_refuse_what_is_not_theirs(window):
    with pytest.raises(ValueError, match="weights must be floats"):
        soft_graph_gae(*window, gamma=GAMMA, lambda_=LAMBDA)
    with pytest.raises(ValueError, match=r"weights must lie in \[0, 1\]"):
        soft_graph_gae(
            *window._replace(graph=2 * window.graph.astype(np.float32)), gamma=GAMMA, lambda_=LAMBDA
        )
    with pytest.raises(ValueError, match=r"graph must have the shape \[T, N, N\]"):
        credited_rewards(window.graph, ~window.continues, 0, 0, GAMMA, LAMBDA)


def test_examples_in_the_documentation():
    assert doctest.testmod(module).failed == 0
