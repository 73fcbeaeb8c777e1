"""Shared by all tests: compiled programs, and the recordings of the original environments."""

import gc
import os
import sys
import tempfile
from pathlib import Path

import pytest

EXCERPTS = Path(__file__).resolve().parent / "data" / "golden"
FULL_RECORDINGS = Path(__file__).resolve().parents[2] / "shared" / "golden"

# Every program is compiled once: tests, and the processes they start, find it here afterwards. Set
# before JAX is imported.
os.environ.setdefault(
    "JAX_COMPILATION_CACHE_DIR", str(Path(__file__).resolve().parents[1] / ".pytest_cache" / "jax")
)
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.2")
# One device, whatever the machine has: what runs over several is tested on its own.
os.environ["JAX_NUM_CPU_DEVICES"] = "1"
# Tests compile much and compute little: less optimised programs take a quarter less time to make.
os.environ["XLA_FLAGS"] = f"--xla_backend_optimization_level=1 {os.environ.get('XLA_FLAGS', '')}"
# What tests train is trusted in a folder of its own, not in the home of who runs them.
os.environ["XDG_CONFIG_HOME"] = tempfile.mkdtemp(prefix="dgmarl-tests-")


@pytest.fixture
def golden():
    """The recordings of a kind: the full ones beside this checkout, else the excerpts that are part
    of it, else a skip."""

    def find(pattern: str) -> list[Path]:
        found = sorted(FULL_RECORDINGS.glob(pattern)) or sorted(EXCERPTS.glob(pattern))
        if not found:
            pytest.skip(f"no recordings {pattern} here")
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


@pytest.fixture(autouse=True, scope="module")
def _bounded_memory():
    """Compiled programs of a module are dropped after it: a worker would gather gigabytes."""
    yield
    if "jax" in sys.modules:
        sys.modules["jax"].clear_caches()
        gc.collect()
