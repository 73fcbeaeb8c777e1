"""Shared by all tests: compiled programs, and the recordings of the original environments."""

import ctypes
import gc
import mmap
import os
import shutil
import sys
import tempfile
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import hypothesis
import pytest

EXCERPTS = Path(__file__).resolve().parent / "data" / "golden"
FULL_RECORDINGS = Path(__file__).resolve().parents[2] / "shared" / "golden"

# Every program is compiled once: tests, and the processes they start, find it here afterwards. Set
# before JAX is imported.
os.environ.setdefault(
    "JAX_COMPILATION_CACHE_DIR", str(Path(__file__).resolve().parents[1] / ".pytest_cache" / "jax")
)
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
# One device, whatever the machine has: what runs over several is tested on its own.
os.environ["JAX_NUM_CPU_DEVICES"] = "1"


def compile_quickly() -> None:
    """Tests compile much and compute little: programs without optimisation take a fifth of the time
    to make. XLA ends a process that names a flag it does not know, so the library is searched."""
    flags = [f"--xla_backend_optimization_level={os.environ.get('TEST_OPTIMISATION', '0')}"]
    found = find_spec("jaxlib")
    library = Path(found.origin or "").parent / "libjax_common.so" if found else Path()
    if library.is_file():
        with (
            library.open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as code,
        ):
            if code.find(b"xla_cpu_use_fusion_emitters") >= 0:
                flags.append("--xla_cpu_use_fusion_emitters=false")
    os.environ["XLA_FLAGS"] = " ".join([*flags, os.environ.get("XLA_FLAGS", "")])


if "--xla_backend_optimization_level" not in os.environ.get("XLA_FLAGS", ""):
    compile_quickly()
# A deadline per example would be a timed assertion, which a busy machine breaks.
hypothesis.settings.register_profile("dgmarl", deadline=None)
hypothesis.settings.load_profile("dgmarl")
# What tests train is trusted in a folder of its own, not in the home of who runs them.
CONFIG_HOME = tempfile.mkdtemp(prefix="dgmarl-tests-")
os.environ["XDG_CONFIG_HOME"] = CONFIG_HOME


def pytest_unconfigure():
    shutil.rmtree(CONFIG_HOME, ignore_errors=True)


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


LONG = (
    *("test_devices", "test_smaclite", "test_folder", "test_resume", "test_ppo", "test_train"),
    *("test_q_learning", "test_results_page"),
)
"""Modules that take longest; they come first, so that no worker is left alone with one."""


def pytest_collection_modifyitems(items):
    """Order the modules; `--no-loadscope-reorder` keeps the order."""
    items.sort(key=lambda item: Path(item.fspath).stem not in LONG)


def pytest_collection_finish():
    """Tracing makes many objects, so garbage was collected often, a tenth of the time: what is
    imported by now is left out, and `_bounded_memory` collects after each module."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


@pytest.fixture(autouse=True, scope="module")
def _bounded_memory():
    """Compiled programs of a module are dropped after it, and their memory given back to the
    system: a worker would gather gigabytes."""
    yield
    if "jax" in sys.modules:
        sys.modules["jax"].clear_caches()
        gc.collect()
        with suppress(OSError, AttributeError):  # only the GNU library has it
            ctypes.CDLL(None).malloc_trim(0)
