"""The replay page, as a person uses it: loads silently, plays, scrubs, shows where credit goes,
executes no data."""

from itertools import pairwise

import jax
import numpy as np
import pytest

from dgmarl import credited_rewards, make_env
from dgmarl.report.html import render
from dgmarl.report.replay_page import replay_page
from dgmarl.rollout import act_randomly, record_episodes
from dgmarl.runs.replays import make_replay

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def replay(tmp_path_factory):
    env = make_env("star-spread/4", horizon=12)
    recording = record_episodes(env, act_randomly, jax.random.key(0), 2)
    path = tmp_path_factory.mktemp("replay") / "page.html"
    weights = {"gamma": 0.99, "lambda_": 0.9, "unreached_weight": 0.1}
    path.write_text(replay_page(make_replay(env, recording, "random", credit=weights)))
    return path, recording


def test_the_page_loads_without_complaints_and_without_network(browser, replay):
    browser.errors.clear()
    browser.open(replay[0])
    assert browser.evaluate("document.querySelector('#stage svg') !== null")
    assert browser.evaluate("document.getElementById('title').textContent") == "star-spread/4"
    assert browser.evaluate("performance.getEntriesByType('resource').length") == 0
    assert browser.errors == []


def test_buttons_keys_and_scrubber_move_through_the_episode(browser, replay):
    browser.open(replay[0])
    shown = "document.getElementById('where').textContent"
    browser.evaluate("document.getElementById('on').click()")
    assert browser.evaluate(shown) == "step 1 of 12"
    browser.press("ArrowLeft")
    assert browser.evaluate(shown) == "step 0 of 12"
    browser.press("End")
    assert browser.evaluate(shown) == "end after 12 (truncated)"
    browser.evaluate(
        "(s => { s.value = 5; s.dispatchEvent(new Event('input')) })"
        "(document.getElementById('scrub'))"
    )
    assert browser.evaluate(shown) == "step 5 of 12"
    browser.evaluate(
        "(s => { s.value = 1; s.dispatchEvent(new Event('change')) })"
        "(document.getElementById('episode'))"
    )
    assert browser.evaluate(shown) == "step 0 of 12"


def test_play_runs_to_the_end_and_pauses(browser, replay):
    browser.open(replay[0])
    browser.evaluate("(s => { s.value = 15 })(document.getElementById('speed'))")
    browser.press("Space")
    assert "pause" in browser.evaluate("document.getElementById('play').textContent")
    browser.evaluate("new Promise(done => setTimeout(done, 1500))")
    assert browser.evaluate("document.getElementById('where').textContent").startswith("end")
    assert "play" in browser.evaluate("document.getElementById('play').textContent")


def test_rewards_shown_are_those_recorded(browser, replay):
    browser.open(replay[0])
    browser.press("End")
    team = browser.evaluate(
        "document.querySelector('#rewards tbody tr:last-child td:last-child').textContent"
    )
    assert float(team) == pytest.approx(float(replay[1].reward[0].sum()), abs=0.06)


def test_each_agent_s_action_is_named_at_the_shown_step(browser, replay):
    browser.open(replay[0])
    browser.press("ArrowRight")
    column = "[...document.querySelectorAll('#rewards tbody tr')].map(r => r.cells[1].textContent)"
    names = ("none", "up", "down", "left", "right")
    actions = np.asarray(replay[1].action[0, 1])
    assert browser.evaluate(column) == [*(names[action] for action in actions), ""]
    browser.press("End")
    assert browser.evaluate(column) == [""] * 5


def test_the_bars_of_agents_and_team_have_one_scale(browser, replay):
    browser.open(replay[0])
    browser.press("End")
    widths = browser.evaluate(
        "[...document.querySelectorAll('#rewards tbody tr')]"
        ".map(r => parseFloat(r.cells[4].querySelector('i').style.width))"
    )
    returns = np.asarray(replay[1].reward[0]).sum(axis=0)
    expected = np.abs([*returns, returns.sum()]) / np.abs(returns.sum()) * 50
    np.testing.assert_allclose(widths, expected, rtol=1e-3)


def test_rewards_and_costs_have_no_colour_of_an_agent(browser, replay):
    browser.open(replay[0])
    marks = browser.evaluate(
        "[...document.querySelectorAll('#credit circle')].map(c => c.getAttribute('fill'))"
    )
    reward = np.asarray(replay[1].reward[0]).T
    assert marks == ["var(--ink)" if one > 0 else "none" for one in reward.ravel()]


@pytest.mark.parametrize("width", [1400, 400])
def test_labels_of_a_long_episode_stay_readable(browser, tmp_path, width):
    env = make_env("star-spread/3", horizon=114)
    recording = record_episodes(env, act_randomly, jax.random.key(0), 1)
    (tmp_path / "page.html").write_text(replay_page(make_replay(env, recording, "random")))
    browser.open(tmp_path / "page.html", width=width)
    boxes = browser.evaluate(
        "[...document.querySelectorAll('#credit text')].map(t => t.getBoundingClientRect())"
        ".map(b => [b.left, b.right, b.top, b.height])"
    )
    assert min(height for *_, height in boxes) > 10
    assert browser.evaluate(
        "(p => p.scrollWidth <= p.clientWidth)(document.getElementById('rewards').parentElement)"
    )
    steps = [(left, right) for left, right, top, _ in boxes if top == boxes[-1][2]]
    assert len(steps) > 10
    assert all(end <= start for (_, end), (start, _) in pairwise(steps[1:]))
    browser.press("End")
    browser.press("ArrowLeft")  # the last step must be in view, even where not all fit
    assert browser.evaluate(
        "(c => c.right)(document.querySelector('#credit rect[fill=none]').getBoundingClientRect())"
        " <= document.getElementById('credit').getBoundingClientRect().right"
    )


def test_credit_follows_the_star(browser, replay):
    """A leaf is credited with the hub's rewards, the hub with nobody's but its own."""
    browser.open(replay[0])
    browser.press("2")
    assert "2 → 0 from step 0 on" in browser.evaluate(
        "document.getElementById('credited').textContent"
    )
    browser.press("0")
    assert "its own rewards only" in browser.evaluate(
        "document.getElementById('credited').textContent"
    )


def test_weights_are_those_of_credited_rewards(browser, replay):
    """The page shows the weight with which training counts each reward: leaf 2 at step 3."""
    path, recording = replay
    browser.open(path)
    browser.press("2")
    for _ in range(3):
        browser.press("ArrowRight")
    shown = browser.evaluate(
        "[...document.querySelectorAll('#credit title')]"
        ".map(t => t.textContent.split('weight ')[1])"
    )
    ends = np.arange(12) == 11
    expected = credited_rewards(
        np.asarray(recording.graph[0]), ends, 3, 2, 0.99, 0.9, unreached_weight=0.1
    )
    np.testing.assert_allclose(
        np.array(shown, float).reshape(4, 12), np.asarray(expected).T, atol=6e-4
    )
    sums = browser.evaluate(
        "[...document.querySelectorAll('#paths tbody tr')].map(r => r.cells[5].textContent)"
    )
    products = (np.asarray(expected) * np.asarray(recording.reward[0])).sum(axis=0)
    np.testing.assert_allclose(np.array(sums, float), products[[0, 2]], rtol=5e-3, atol=6e-4)


def test_without_known_weights_nothing_is_said_about_them(browser, tmp_path):
    env = make_env("star-spread/3", horizon=4)
    recording = record_episodes(env, act_randomly, jax.random.key(0), 1)
    (tmp_path / "page.html").write_text(replay_page(make_replay(env, recording, "random")))
    browser.errors.clear()
    browser.open(tmp_path / "page.html")
    assert browser.evaluate("document.querySelectorAll('#credit rect').length") == 13
    assert browser.evaluate(
        "[...document.querySelectorAll('.weighted')].every(e => !e.offsetParent)"
    )
    assert browser.errors == []


def test_thinned_pictures_are_shown_until_the_next(browser, tmp_path):
    env = make_env("star-spread/3", horizon=5)
    recording = record_episodes(env, act_randomly, jax.random.key(0), 2)
    whole = make_replay(env, recording, "random").episodes[0]
    half = sum(map(len, whole.frames)) // 2 + 1
    thinned = make_replay(env, recording, "random", most_bytes=half)
    (tmp_path / "page.html").write_text(replay_page(thinned))
    browser.open(tmp_path / "page.html")
    pictures = "document.getElementById('stage').innerHTML"
    shown = [browser.evaluate(pictures)]
    for _ in range(5):
        browser.press("ArrowRight")
        shown.append(browser.evaluate(pictures))
    assert [shown.index(picture) for picture in shown] == [0, 0, 2, 2, 4, 5]


def test_arrows_can_be_hidden(browser, replay):
    browser.open(replay[0])
    visible = "getComputedStyle(document.querySelector('#stage .dependence')).display !== 'none'"
    assert browser.evaluate(visible)
    browser.press("a")
    assert not browser.evaluate(visible)


def test_data_is_never_executed(browser, tmp_path, monkeypatch):
    hostile = "</script><script>window.owned = 1</script><img src=x onerror='window.owned = 1'>"
    script = (
        "const { name } = JSON.parse(document.getElementById('data').textContent);"
        "document.body.insertAdjacentHTML('beforeend', name)"
    )
    path = tmp_path / "hostile.html"
    monkeypatch.setattr("dgmarl.report.html.asset", lambda name: script * (name == "common.js"))
    data = {"name": hostile}
    path.write_text(render("base.html", ("player",), data, title=hostile))
    browser.open(path)
    assert browser.evaluate("document.querySelector('img') !== null")
    assert browser.evaluate("window.owned === undefined")


def test_it_looks_right_in_light_and_dark(browser, replay, tmp_path):
    paper = []
    for dark in (False, True):
        browser.open(replay[0], dark=dark)
        browser.screenshot(tmp_path / f"{dark}.png")
        paper.append(browser.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert paper[0] != paper[1]
    assert (tmp_path / "True.png").stat().st_size > 10_000
