"""The demo end to end on a tiny budget: genuine runs, one page that loads silently."""

import json
import re

import pytest

from dgmarl.cli.demo_page import CREDIT_NAMES, CREDITS, TASKS, run_demo


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    seen = []
    path = run_demo(
        tmp_path_factory.mktemp("demo"),
        seeds=1,
        scale=1e-9,
        watch=lambda label, steps: seen.append(label) or (lambda p: None),
    )
    return path, seen


@pytest.mark.slow
def test_every_task_and_credit_is_trained_and_drawn(demo):
    path, seen = demo
    assert sorted(seen) == sorted(
        f"{task.env} {CREDIT_NAMES[credit]}" for task in TASKS for credit in CREDITS
    )
    (data,) = re.findall('id="data">(.*?)</script>', path.read_text())
    assert [(chart["title"], len(chart["series"])) for chart in json.loads(data)["charts"]] == [
        (task.title, len(CREDITS)) for task in TASKS
    ]


@pytest.mark.slow
@pytest.mark.browser
def test_the_page_loads_without_complaints_and_plays(demo, browser):
    browser.errors.clear()
    browser.open(demo[0])
    browser.evaluate("document.getElementById('play').focus()")
    browser.press("ArrowRight")
    assert browser.evaluate("document.getElementById('where').textContent").startswith("step 1")
    assert browser.errors == []
