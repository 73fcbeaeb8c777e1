"""The documentation site: generated pages are current, and a browser walks what `make docs`
builds."""

import os
import re
import subprocess
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from urllib.parse import unquote, urldefrag

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
WIDTHS = (400, 1400)
LIMIT = 300_000
"""Bytes of an interactive figure."""


def load(path: Path) -> ModuleType:
    spec = spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_api_page_is_current():
    hint = "run `python docs/make_api.py`"
    assert load(DOCS / "make_api.py").page() == (DOCS / "api.md").read_text(), hint


@pytest.mark.slow
def test_the_pictures_are_current():
    hint = "run `python docs/images/make.py`"
    for name, text in load(DOCS / "images" / "make.py").pictures().items():
        assert text == (DOCS / "images" / name).read_text(), hint
        assert len(text) < LIMIT


def navigation() -> list[str]:
    """The pages of mkdocs.yml, as files of the site."""

    def pages(entry) -> list[str]:
        if isinstance(entry, str):
            return [entry]
        parts = entry.values() if isinstance(entry, dict) else entry
        return [page for part in parts for page in pages(part)]

    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
    return [page.replace(".md", ".html") for page in pages(nav)]


def test_every_page_is_in_the_navigation():
    assert sorted(navigation()) == sorted(path.stem + ".html" for path in DOCS.glob("*.md"))


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format, *args):
        """Nothing: a test reads the browser's errors."""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the built site, and its address."""
    pytest.importorskip("material", reason="the site is built with dgmarl[docs]")
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield folder, f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.parametrize("width", WIDTHS)
def test_a_browser_walks_the_site(browser, site, width):
    """Every page loads without an error, from this server alone, fits the window, and has a name
    for every picture."""
    _, address = site
    browser.errors.clear()
    for page in navigation():
        browser.open(address + page, width)
        assert browser.evaluate("document.querySelector('article h1') !== null"), page
        wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert browser.evaluate(wide) == 0, page
        nameless = "article img:not([alt]), article img[alt=''], article iframe:not([title])"
        assert browser.evaluate(f'document.querySelector("{nameless}") === null'), page
        loaded = "performance.getEntriesByType('resource').map(each => each.name)"
        assert [name for name in browser.evaluate(loaded) if not name.startswith(address)] == []
        assert browser.errors == [], page


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.parametrize("width", WIDTHS)
def test_players_show_whole_and_take_keys(browser, site, width):
    """Without a scroll bar of their own; every control and picture has a name."""
    browser.open(f"{site[1]}concepts.html", width)
    for k in range(2):
        frame = f"document.querySelectorAll('iframe.player')[{k}]"
        browser.evaluate(f"{frame}.scrollIntoView()")
        loaded = (
            f"new Promise(done => {frame}.contentDocument?.getElementById('where')?.textContent"
        )
        browser.evaluate(f"{loaded} ? done() : {frame}.addEventListener('load', done))")
        inside = f"{frame}.contentDocument"
        root = f"{inside}.documentElement"
        assert browser.evaluate(f"{root}.scrollHeight <= {root}.clientHeight"), width
        named = "e.getAttribute('aria-label') || e.labels?.length || e.textContent.trim()"
        controls = f"[...{inside}.querySelectorAll('button, select, input, svg')]"
        assert browser.evaluate(f"{controls}.every(e => {named})")
        browser.evaluate(f"{inside}.getElementById('play').focus()")
        browser.press("ArrowRight")
        assert browser.evaluate(f"{inside}.getElementById('where').textContent").startswith(
            "step 1"
        )


@pytest.mark.slow
@pytest.mark.browser
def test_every_link_and_figure_of_the_site_is_there(browser, site):
    """As the browser resolves them, headings included."""
    folder, address = site
    found = set()
    for page in navigation():
        browser.open(address + page)
        found |= set(browser.evaluate("[...document.links].map(link => link.href)"))
        sources = "[...document.querySelectorAll('article img, article iframe')].map(e => e.src)"
        found |= set(browser.evaluate(sources))
    inside = [urldefrag(link) for link in found if link.startswith(address)]
    assert len(inside) > 100
    for link, heading in inside:
        path = folder / unquote(link.removeprefix(address) or "index.html")
        assert path.is_file(), link
        if heading:
            assert re.search(rf'id="{re.escape(unquote(heading))}"', path.read_text()), link
