"""Shared by all tests: where the recordings of the original environments are, if they are here."""

from pathlib import Path

import pytest

GOLDEN = Path(__file__).resolve().parents[2] / "shared" / "golden"


@pytest.fixture
def golden():
    """The recordings of a kind, or a skip where there are none."""

    def find(pattern: str) -> list[Path]:
        found = sorted(GOLDEN.glob(pattern))
        if not found:
            pytest.skip(f"no recordings {pattern} beside this checkout")
        return found

    return find


@pytest.fixture(scope="session")
def browser():
    """A headless Chromium, or a skip on machines without one."""
    from tests.browser import CHROMIUM, Browser

    if CHROMIUM is None:
        pytest.skip("chromium is not installed, so pages are not tested")
    opened = Browser()
    yield opened
    opened.close()
