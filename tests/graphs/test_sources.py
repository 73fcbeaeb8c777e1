"""The simple graph sources by name: what they give, and what they refuse."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dgmarl.config.resolve import resolve
from dgmarl.config.yaml import override
from dgmarl.envs.base import Environment
from dgmarl.envs.star_spread import StarSpread, StarSpreadConfig
from dgmarl.errors import UsageError
from dgmarl.graphs.interventional import InterventionalSource
from dgmarl.graphs.sources import Graphs, as_graphs, make_source
from dgmarl.rollout import act_randomly, collect, reset_envs

KEY = jax.random.key(0)
N, T, B = 3, 40, 25
ENV = StarSpread(StarSpreadConfig(N))
CONFIG = resolve("star-spread/3")


class Silent(StarSpread):
    """Star-Spread that does not tell its graph."""

    oracle_graph = Environment.oracle_graph


def graphs(text, env=ENV):
    """What the source named `text` says about random play."""
    source = make_source(text, CONFIG, ENV)

    @jax.jit
    def play(key):
        batch = collect(
            env, act_randomly, reset_envs(env, key, None, B), key, T, source.needs, reset=False
        )[1]
        state = source.init(key, env)
        found = as_graphs(source.infer(state, batch, key)).edges
        after, metrics = source.update(state, batch, key)
        return found, state, after, metrics

    found, state, after, metrics = play(KEY)
    assert found.shape == (T, B, N, N)
    assert found.dtype == bool
    assert metrics == {}
    jax.tree.map(np.testing.assert_array_equal, state, after)
    return np.asarray(found)


def test_self_and_complete_are_the_two_extremes():
    np.testing.assert_array_equal(
        graphs("self"), np.broadcast_to(np.eye(N, dtype=bool), (T, B, N, N))
    )
    assert graphs("complete").all()


def test_a_fixed_graph_comes_from_a_file_of_either_kind(tmp_path):
    matrix = np.array([[1, 1, 0], [0, 1, 0], [0, 1, 1]])
    np.save(tmp_path / "graph.npy", matrix)
    (tmp_path / "graph.txt").write_text("1 1 0\n0 1 0\n0 1 1\n")
    for name in ("graph.npy", "graph.txt"):
        np.testing.assert_array_equal(
            graphs(f"fixed:{tmp_path / name}"), np.broadcast_to(matrix, (T, B, N, N))
        )


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("1 0\n0 1\n", "star-spread/3 has 3 agents"),
        ("1 0 0.5\n0 1 0\n0 0 1\n", "holds 0.5 in row 1, column 3, but must hold only 0 and 1"),
        ("1 0 0\n0 1 -1\n0 0 1\n", "holds -1 in row 2, column 3, but must hold only 0 and 1"),
        ("1 0 0\n0 1 nan\n0 0 1\n", "holds nan in row 2, column 3"),
        ("1 0 0\n0 1 0\n", r"has the shape \(2, 3\), but must be a square matrix"),
        ("1 0 yes\n", r"cannot be read \(could not convert string to float: 'yes'\)"),
        ("", r"cannot be read \(it is empty\): give a .npy file or rows of 0 and 1\."),
        (" \n# nothing\n", r"cannot be read \(it is empty\)"),
        ("1 0 0\n0 1\n0 0 1\n", r"cannot be read \(row 1 has 3 numbers, but row 2 has 2\)"),
    ],
)
@pytest.mark.filterwarnings("error")
def test_a_bad_fixed_graph_is_refused_with_a_reason(tmp_path, text, sentence):
    path = tmp_path / "graph.txt"
    path.write_text(text)
    with pytest.raises(UsageError, match=sentence) as refusal:
        make_source(f"fixed:{path}", CONFIG, ENV).init(KEY, ENV)
    assert "star-spread" in sentence or str(path) in str(refusal.value)
    assert "soft_graph_gae" not in str(refusal.value)


@pytest.mark.parametrize(
    "array", [np.ones(3), np.ones((0, 0)), np.full((3, 3), "yes"), np.full((3, 3), 2j)]
)
def test_a_bad_array_is_refused_with_its_file(tmp_path, array):
    np.save(tmp_path / "graph.npy", array)
    with pytest.raises(UsageError, match=r"graph\.npy (has the shape|holds) .*, but must"):
        make_source(f"fixed:{tmp_path / 'graph.npy'}", CONFIG, ENV)


def test_fixed_without_a_file_asks_for_one():
    for text in ("fixed:", "fixed"):
        with pytest.raises(UsageError, match=r"fixed needs a file .*for example fixed:graph\.txt"):
            make_source(resolve("star-spread/3", graph=text).graph, CONFIG, ENV)


@pytest.mark.parametrize("text", ["0 1 0\n0 0 0\n0 0 1\n", "0,1,0\n0,0,0\n0,0,1\n"])
def test_a_fixed_graph_may_lack_self_loops_and_be_separated_by_commas(tmp_path, text):
    path = tmp_path / "graph.csv"
    path.write_text(text)
    matrix = make_source(f"fixed:{path}", CONFIG, ENV).init(KEY, ENV)
    np.testing.assert_array_equal(matrix, [[1, 1, 0], [0, 1, 0], [0, 0, 1]])


def test_a_missing_file_and_a_pickle_are_refused(tmp_path):
    with pytest.raises(UsageError, match="cannot be read"):
        make_source(f"fixed:{tmp_path / 'nothing.txt'}", CONFIG, ENV)
    np.save(tmp_path / "pickled.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(UsageError, match="cannot be read"):
        make_source(f"fixed:{tmp_path / 'pickled.npy'}", CONFIG, ENV)


def test_random_edges_have_their_probability_independently_and_self_loops_always():
    found = graphs("random:0.3")
    assert found[..., np.arange(N), np.arange(N)].all()
    share = found.mean(axis=(0, 1))[~np.eye(N, dtype=bool)]
    # The standard error of each of the six shares is 0.0145 with 1000 steps.
    np.testing.assert_allclose(share, 0.3, atol=0.06)
    both = (found[..., 0, 1] & found[..., 1, 0]).mean()
    np.testing.assert_allclose(both, 0.09, atol=0.04)
    assert (found[0] != found[1]).any()
    np.testing.assert_array_equal(graphs("random:0"), graphs("self"))
    assert graphs("random:1").all()


@pytest.mark.parametrize(
    "text", ["random:1.5", "random:-0.1", "random:often", "random:", "random:nan"]
)
def test_a_bad_probability_is_refused(text):
    with pytest.raises(UsageError, match="is not a probability: choose a number from 0 to 1"):
        make_source(text, CONFIG, ENV)


def test_the_oracle_is_what_the_environment_says():
    star = np.eye(N, dtype=bool)
    star[:, 0] = True
    np.testing.assert_array_equal(graphs("oracle"), np.broadcast_to(star, (T, B, N, N)))


def test_an_environment_without_an_oracle_is_told_what_to_do():
    with pytest.raises(
        UsageError,
        match="offers no oracle graph: define oracle_graph, or choose --graph interventional",
    ):
        make_source("oracle", CONFIG, ENV).init(KEY, Silent(ENV.config))


def test_interventional_needs_no_oracle_and_takes_a_horizon():
    np.testing.assert_array_equal(graphs("interventional", Silent(ENV.config)), graphs("oracle"))
    source = make_source("interventional:4", CONFIG, ENV)
    assert isinstance(source, InterventionalSource)
    assert (source.horizon, source.rewards, source.alternatives) == (4, False, None)


def test_interventional_takes_a_number_of_alternatives():
    source = make_source("interventional:2:3", CONFIG, ENV)
    assert isinstance(source, InterventionalSource)
    assert (source.horizon, source.rewards, source.alternatives) == (2, False, 3)
    sampled, full = graphs("interventional:1:1"), graphs("interventional")
    assert not (sampled & ~full).any()
    assert (sampled & ~np.eye(N, dtype=bool)).any()


@pytest.mark.parametrize("text", ["interventional", "interventional:2"])
def test_interventional_gives_the_reward_graph_where_it_is_asked_for(text):
    source = make_source(text, override(CONFIG, {"credit.reward_graph": "measured"}), ENV)
    start = reset_envs(ENV, KEY, None, 2)
    batch = collect(ENV, act_randomly, start, KEY, 3, source.needs, reset=False)[1]
    found = source.infer(source.init(KEY, ENV), batch, KEY)
    assert isinstance(found, Graphs)
    assert found.edges.shape == (3, 2, N, N)
    assert found.reward_edges is not None
    # Leaves cover landmarks, the hub is paid for it.
    assert found.reward_edges[..., 1:, 0].any()


@pytest.mark.parametrize(
    "text",
    [
        "interventional:0",
        "interventional:-1",
        "interventional:1.5",
        "interventional:1:2:3",
        "interventional:1:x",
        "interventional:1:-1",
        "interventional:1:",
        "interventional:rewards",
        "interventional:99999999999",
    ],
)
def test_a_bad_horizon_is_refused(text):
    with pytest.raises(UsageError, match=r"1 or more.*for example interventional:2|from 1 to"):
        make_source(text, CONFIG, ENV)


def test_wrong_arguments_of_interventional_are_named():
    for text in ("interventional:1:2:3", "interventional:1:x"):
        with pytest.raises(UsageError, match=f"{text} needs .* alternative actions.*:1:2;"):
            make_source(text, CONFIG, ENV)
    for text in ("interventional:1:0", "interventional:1:99999999999"):
        with pytest.raises(UsageError, match=r"K in .*from 1 to 1,000,000 alternative actions"):
            make_source(text, CONFIG, ENV)


def test_a_source_of_ones_own_comes_from_a_file(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(
        "import jax.numpy as jnp\n"
        "class Source:\n"
        "    needs = frozenset()\n"
        "    def init(self, key, env): return jnp.tri(env.spec.n_agents, dtype=bool)\n"
        "    def infer(self, gstate, batch, key): return jnp.broadcast_to(gstate, "
        "(*batch.reward.shape, gstate.shape[0]))\n"
        "    def update(self, gstate, batch, key): return gstate, {}\n"
    )
    np.testing.assert_array_equal(
        graphs(f"{path}:Source"), np.broadcast_to(jnp.tri(N, dtype=bool), (T, B, N, N))
    )
    with pytest.raises(UsageError, match="has no Sauce"):
        make_source(f"{path}:Sauce", CONFIG, ENV)


@pytest.mark.parametrize("text", ["orakle", "", "Complete", "orakle:1"])
def test_an_unknown_name_is_refused_with_all_names(text):
    with pytest.raises(UsageError, match=r"must be learned, .*oracle, interventional"):
        make_source(text, CONFIG, ENV)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (
            "needs = init = infer = update = None\n    def __init__(self, size): pass",
            "without arguments",
        ),
        ("needs = frozenset()", "lacks init, infer, update"),
        ("needs = {'dreams'}\n    init = infer = update = None", "needs ['dreams']"),
        ("needs = ['keys', 3]\n    init = infer = update = None", "needs ['3', 'keys']"),
        ("needs = 3\n    init = infer = update = None", "needs is 3, but must be a collection"),
    ],
)
def test_a_users_source_that_cannot_work_is_refused(tmp_path, body, words):
    (tmp_path / "mine.py").write_text(f"class Mine:\n    {body}\n")
    with pytest.raises(UsageError) as refusal:
        make_source(f"{tmp_path}/mine.py:Mine", CONFIG, ENV)
    assert words in str(refusal.value)
