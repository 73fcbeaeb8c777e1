"""Replays: what is written is read back, credit weights are those of training, forged files are
refused."""

import io
import json
import zipfile

import jax
import numpy as np
import pytest

from dgmarl import credited_rewards, make_env
from dgmarl.errors import UsageError
from dgmarl.rollout import act_randomly, record_episodes
from dgmarl.runs.replays import (
    NEVER,
    credit_weights,
    make_replay,
    paths_through,
    read_replay,
    write_replay,
)

CREDIT = {
    "gamma": 0.9,
    "lambda_": 0.8,
    "unreached_weight": 0.2,
    "advantage_form": "td",
    "cross_weight": 0.5,
}


@pytest.fixture(scope="module")
def recorded():
    env = make_env("star-spread/4", horizon=9)
    return env, record_episodes(env, act_randomly, jax.random.key(0), 2)


@pytest.fixture(scope="module")
def replay(recorded):
    return make_replay(*recorded, "random ü", "A note.", CREDIT)


def forged(path, replay, **changed):
    """The file of a replay with some arrays replaced; None leaves one out."""
    write_replay(path, replay)
    with np.load(path, allow_pickle=True) as stored:
        arrays = {**dict(stored.items()), **changed}
    kept = {name: array for name, array in arrays.items() if array is not None}
    np.savez_compressed(path, **kept)
    return path


def about(replay, tmp_path, **changed) -> np.ndarray:
    """The description in a file, changed."""
    with np.load(write_replay(tmp_path / "whole.npz", replay)) as stored:
        facts = json.loads(stored["about"].tobytes())
    return np.frombuffer(json.dumps({**facts, **changed}).encode(), np.uint8)


def test_what_is_written_is_read_back(tmp_path, replay, recorded):
    path = write_replay(tmp_path / "replay.npz", replay)
    found = read_replay(path)
    assert found[:4] == replay[:4] == ("star-spread/4", 4, "random ü", "A note.")
    for written, read in zip(replay.episodes, found.episodes, strict=True):
        for name, value in written._asdict().items():
            np.testing.assert_array_equal(getattr(read, name), value)
    for written, read in zip(replay.weights, found.weights, strict=True):
        np.testing.assert_array_equal(read, written)
    np.testing.assert_allclose(found.episodes[1].rewards, recorded[1].reward[1])
    np.testing.assert_array_equal(found.episodes[1].actions, recorded[1].action[1])
    assert found.action_names == ("none", "up", "down", "left", "right")
    assert found.episodes[0].frames[0] == recorded[0].draw(
        jax.tree.map(lambda leaf: leaf[0, 0], recorded[1].state), recorded[1].graph[0, 0]
    )
    assert path.stat().st_size < 50_000


def test_files_of_versions_without_actions_are_read(tmp_path, replay):
    facts = [{"stride": 1, "terminated": False, "graph": True}] * 2
    without = {"about": about(replay, tmp_path, episodes=facts), "actions_0": None}
    found = read_replay(forged(tmp_path / "replay.npz", replay, **without))
    assert [episode.actions for episode in found.episodes] == [None, None]


@pytest.mark.parametrize(("form", "others"), [("td", "sum"), ("td", "mean"), ("return", "sum")])
@pytest.mark.parametrize("unreached", [0.2, 0.0])
def test_weights_are_those_of_credited_rewards_on_any_graph(form, others, unreached):
    """Looked up by meeting lag, they are the derivative of the advantage for every agent and
    step."""
    options = {**CREDIT, "advantage_form": form, "unreached_weight": unreached, "others": others}
    graph = np.random.default_rng(1).uniform(size=(6, 5, 5)) < 0.12
    graph |= np.eye(5, dtype=bool)
    from dgmarl import meeting_times

    lags = np.asarray(meeting_times(graph, np.arange(6) == 5))
    lags = np.where(lags > 6, NEVER, lags)
    assert {NEVER, 0, 1} <= set(lags.ravel())
    weights = credit_weights([lags], options)
    rows = dict(zip(weights.lags.tolist(), weights.reached, strict=True))
    for t, agent in ((0, 0), (1, 3), (4, 2)):
        expected = np.asarray(credited_rewards(graph, np.arange(6) == 5, t, agent, **options))
        found = np.zeros((6, 5))
        for i in range(5):
            lag = int(lags[t, agent, i])
            table = weights.own if i == agent else rows.get(lag, weights.unreached)
            found[t:, i] = table[: 6 - t]
        if others == "mean":
            away = np.arange(5) != agent
            total = found[t:, away].sum(-1) / weights.full[: 6 - t]
            found[t:, away] /= np.maximum(total, 1)[:, None]
        np.testing.assert_allclose(found, expected, atol=1e-6)


def test_paths_lead_back_to_their_source_one_edge_per_step():
    chain = np.eye(4, dtype=bool)
    chain[0, 1] = chain[1, 2] = chain[2, 3] = True
    graph = np.stack([chain] * 3)
    lags = np.array([[[0, 0, 1, 2], [-1, 0, 0, 1], [-1, -1, 0, 0], [-1, -1, -1, 0]]] * 3, np.int32)
    lags[1, 0, 3] = lags[2, 0, 2:] = lags[2, 1, 3] = NEVER
    through = paths_through(graph, lags)
    assert through[0, 0].tolist() == [0, 0, 1, 2]
    assert through[1, 0].tolist() == [0, 0, 1, NEVER]
    assert through[2, 1].tolist() == [NEVER, 1, 1, NEVER]


def test_large_replays_lose_episodes_then_pictures(recorded):
    one = make_replay(*recorded, "random").episodes[0]
    size = sum(map(len, one.frames))
    fewer = make_replay(*recorded, "random", most_bytes=int(1.5 * size))
    assert [episode.stride for episode in fewer.episodes] == [1]
    thin = make_replay(*recorded, "random", most_bytes=size // 3)
    assert [episode.stride for episode in thin.episodes] == [4]
    assert thin.episodes[0].frames == (*(one.frames[t] for t in (0, 4, 8)), one.frames[-1])


def test_recordings_without_a_graph_have_no_credit(recorded):
    env, recording = recorded
    replay = make_replay(env, recording._replace(graph=None), "random", credit=CREDIT)
    assert replay.weights is None
    assert replay.mean_graph() is None
    assert replay.episodes[0].lags is None


def test_pictures_with_active_content_are_refused_when_they_are_drawn(recorded, monkeypatch):
    env, recording = recorded
    monkeypatch.setattr(type(env), "draw", lambda self, state, graph=None: "<svg><script/></svg>")
    with pytest.raises(UsageError, match="holds a <script> element"):
        make_replay(env, recording, "random")


def test_a_missing_file_says_how_to_make_one(tmp_path):
    with pytest.raises(UsageError, match="dgmarl watch"):
        read_replay(tmp_path / "replay.npz")


SVG = '<svg xmlns="http://www.w3.org/2000/svg">{}</svg>'


@pytest.mark.parametrize(
    "picture",
    [
        SVG.format("<script>alert(1)</script>"),
        SVG.format('<a href="https://example.org">x</a>'),
        SVG.format('<image href="https://example.org/x.png"/>'),
        SVG.format('<rect onclick="x()"/>'),
        SVG.format("<style>body { display: none }</style>"),
        SVG.format('<rect fill="url(https://example.org/x)"/>'),
        SVG.format('<foreignObject><meta http-equiv="refresh"/></foreignObject>'),
        SVG.format("<!-- x -->"),
        '<!DOCTYPE svg [<!ENTITY a "b">]>' + SVG.format("&a;"),
        "<p>no picture</p>",
        "<svg><g></svg>",
        "</script><script>alert(1)</script>",
    ],
)
def test_forged_pictures_are_refused(tmp_path, replay, picture):
    first = replay.episodes[0]
    worse = first._replace(frames=(picture, *first.frames[1:]))
    path = write_replay(tmp_path / "replay.npz", replay._replace(episodes=(worse,)))
    with pytest.raises(UsageError, match="not static SVG"):
        read_replay(path)


@pytest.mark.parametrize(
    "changed",
    [
        {"rewards_0": None},
        {"rewards_0": np.zeros((9, 3), np.float32)},
        {"rewards_0": np.full((9, 4), np.nan, np.float32)},
        {"rewards_0": np.array([["a"] * 4] * 9)},
        {"rewards_0": np.array([[{}] * 4] * 9, object)},
        {"actions_0": None},
        {"actions_0": np.zeros((9, 4), np.float32)},
        {"frame_ends_0": np.arange(3)},
        {"frame_ends_0": np.full(10, -5)},
        {"frame_ends_0": np.full(10, 10**15)},
        {"frames_0": np.full(10, 255, np.uint8)},
        {"graph_0": np.zeros((9, 4, 4), np.float32)},
        {"lags_0": np.full((9, 4, 4), 100, np.int32)},
        {"lags_0": np.full((9, 4, 4), -7, np.int32)},
        {"through_0": np.full((9, 4, 4), 99, np.int32)},
        {"through_0": np.zeros((9, 4, 4), np.int32)},
        {"weights_own": np.zeros(2, np.float32)},
        {"weights_lags": np.array([5], np.int32)},
        {"about": np.frombuffer(b"{", np.uint8)},
        {"about": np.frombuffer(b"[]", np.uint8)},
        {"about": np.zeros((), object)},
    ],
)
def test_forged_arrays_are_refused_in_one_sentence(tmp_path, replay, changed):
    path = forged(tmp_path / "replay.npz", replay, **changed)
    with pytest.raises(UsageError, match="dgmarl watch") as refused:
        read_replay(path)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "changed",
    [
        {"format": 2},
        {"n_agents": "4"},
        {"n_agents": 0},
        {"env": None},
        {"note": ["x"]},
        {"action_names": "up"},
        {"action_names": [1]},
        {"episodes": []},
        {"episodes": 3},
        {"episodes": [{"stride": 0, "terminated": True, "graph": True}]},
        {"episodes": [{"stride": 1, "terminated": "no", "graph": True}]},
        {"episodes": [{"stride": 1, "terminated": True, "graph": True}] * 9},
    ],
)
def test_forged_descriptions_are_refused(tmp_path, replay, changed):
    path = forged(tmp_path / "replay.npz", replay, about=about(replay, tmp_path, **changed))
    with pytest.raises(UsageError, match="dgmarl watch"):
        read_replay(path)


def test_paths_that_circle_are_refused(tmp_path, replay):
    lags, through = np.zeros((9, 4, 4), np.int32), np.zeros((9, 4, 4), np.int32)
    through[:] = [1, 2, 3, 0]
    path = forged(tmp_path / "replay.npz", replay, lags_0=lags, through_0=through)
    with pytest.raises(UsageError, match="contradict"):
        read_replay(path)


def test_archives_that_would_fill_the_memory_are_refused(tmp_path):
    buffer = io.BytesIO()
    np.save(buffer, np.zeros(1, np.uint8))
    with zipfile.ZipFile(tmp_path / "replay.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("about.npy", buffer.getvalue() + bytes(200_000_000))
    with pytest.raises(UsageError, match="would take 200 MB"):
        read_replay(tmp_path / "replay.npz")


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut", b"\x93NUMPY", b"\x80\x04."])
def test_other_files_are_refused(tmp_path, content):
    (tmp_path / "replay.npz").write_bytes(content)
    with pytest.raises(UsageError, match="is damaged"):
        read_replay(tmp_path / "replay.npz")
