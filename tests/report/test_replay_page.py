"""The replay page, as a person uses it: loads silently, plays, scrubs, shows where credit goes,
executes no data."""

import jax
import pytest

from dgmarl import make_env
from dgmarl.report.html import page
from dgmarl.report.replay_page import replay_page
from dgmarl.rollout import act_randomly, record_episodes

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def replay(tmp_path_factory):
    env = make_env("star-spread/4", horizon=12)
    recording = record_episodes(env, act_randomly, jax.random.key(0), 2)
    path = tmp_path_factory.mktemp("replay") / "page.html"
    path.write_text(replay_page(env, recording, "random"))
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
        "(s => { s.value = 5; s.dispatchEvent(new Event('input')) })(document.getElementById('scrub'))"
    )
    assert browser.evaluate(shown) == "step 5 of 12"
    browser.evaluate(
        "(s => { s.value = 1; s.dispatchEvent(new Event('change')) })(document.getElementById('episode'))"
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


def test_arrows_can_be_hidden(browser, replay):
    browser.open(replay[0])
    visible = "getComputedStyle(document.querySelector('#stage .dependence')).display !== 'none'"
    assert browser.evaluate(visible)
    browser.press("a")
    assert not browser.evaluate(visible)


def test_data_is_never_executed(browser, tmp_path):
    hostile = "</script><script>window.owned = 1</script><img src=x onerror='window.owned = 1'>"
    script = "document.body.insertAdjacentHTML('beforeend', JSON.parse(document.getElementById('data').textContent).name)"
    path = tmp_path / "hostile.html"
    path.write_text(page(hostile, "", script, {"name": hostile}))
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
