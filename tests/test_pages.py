"""Every page of the documentation is executed, with few steps: its commands, its Python, its files;
and the first pages with nothing but the built wheel. `tests/pages.py` lists what is left out."""

import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from dgmarl import cli
from tests.pages import NOT_RUN, PAGES, ROOT, Step, execute, smaller, steps_of

SAMPLE = "lbf/5x5-2p-1f"
TRAINED = {
    "api.md": ["mine"],
    "graphs.md": ["mine"],
    "pieces.md": ["foragers"],
    "reports.md": ["local", "global", "graph"],
}
"""Run folders that a page speaks of as there already."""
PIECES = f"""
import numpy as np
spec = dgmarl.make_env("{SAMPLE}").spec
n_envs, agents = 4, (4, spec.n_agents)
given["n_envs"] = n_envs
given["agents_view"] = np.zeros((*agents, spec.obs_size), np.float32)
given["action_mask"] = np.ones((*agents, spec.n_actions), bool)
given["is_first"], given["key"] = np.ones(n_envs, bool), np.zeros(2, np.uint32)
try:
    import torch
    steps = (5, *agents)
    for name in ("reward", "value", "next_value"):
        given[name] = torch.zeros(steps)
    given["graph"] = torch.ones((*steps, spec.n_agents), dtype=torch.bool)
    given["bootstrap"] = given["continues"] = torch.ones(steps[:2], dtype=torch.bool)
except ImportError:
    pass
"""
API = """
import jax
given |= {name: getattr(dgmarl, name) for name in dgmarl.__all__}
given |= {"dgmarl": dgmarl, "jax": jax, "jnp": jax.numpy}
"""
GIVEN = {"pieces.md": PIECES, "api.md": API}
"""Names that a page explains instead of defining them."""


def runnable(page: Path) -> list[Step]:
    """Without the blocks that import PyTorch where it is not installed."""
    needed = re.compile("import torch|torch_mappo" if find_spec("torch") is None else "$^")
    return [step for step in steps_of(page) if not needed.search(step.text)]


def test_smaller_changes_nothing_but_seeds_and_steps():
    block = "pip install .\ndgmarl train a --seeds 5 --steps 1e6 --out b\nseeds: 2\nsteps: 6e4\n"
    assert smaller(block) == "dgmarl train a --seeds 1 --steps 2000 --out b\nseeds: 1\nsteps: 1000"
    assert smaller("dgmarl train a  # long") == "dgmarl train --steps 2000 --seeds 1 a  # long"
    assert smaller("dgmarl train --resume a") == "dgmarl train --resume a"
    assert smaller("dgmarl train a\ndgmarl grid a") == "dgmarl train --steps 2000 --seeds 1 a"


def test_what_is_not_executed_is_in_the_pages():
    text = "\n".join(page.read_text() for page in PAGES)
    assert [words for words in NOT_RUN if words not in text] == []


@pytest.fixture(scope="module")
def known(tmp_path_factory) -> dict[str, str]:
    """The environment of processes that find this package as if it were installed."""
    own = tmp_path_factory.mktemp("bin")
    start = "import sys; from dgmarl.cli import main; sys.argv[0] = 'dgmarl'; main()"
    (own / "dgmarl").write_text(f'#!/bin/sh\nexec {sys.executable} -c "{start}" "$@"\n')
    (own / "python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    for file in own.iterdir():
        file.chmod(0o755)
    package = str(Path(cli.__file__).parents[2])
    return {**os.environ, "PATH": f"{own}:{os.environ['PATH']}", "PYTHONPATH": package}


@pytest.fixture(scope="module")
def sample(known, tmp_path_factory) -> Path:
    """A run folder."""
    folder = tmp_path_factory.mktemp("sample")
    execute(Step("shell", f"dgmarl train {SAMPLE} --method ippo-dg --out run"), folder, known)
    return folder / "run"


@pytest.mark.slow
@pytest.mark.parametrize("page", [p for p in PAGES if runnable(p)], ids=lambda page: page.name)
def test_a_page_does_what_it_says(page, known, sample, tmp_path):
    """In a folder with the examples and results of a checkout, all in the order of the page."""
    for name in ("examples", "results"):
        (tmp_path / name).symlink_to(ROOT / name)
    for name in TRAINED.get(page.name, ()):
        shutil.copytree(sample, tmp_path / "runs" / name)
    if page.name == "README.md":  # which names a grid that it does not show
        (tmp_path / "grid.yaml").write_text(f"env: {SAMPLE}\nlearner.hidden: [8, 16]\nsteps: 500\n")
    for step in runnable(page):
        devices = {"JAX_NUM_CPU_DEVICES": "8"} if "--devices 8" in step.text else {}
        execute(step, tmp_path, {**known, **devices}, GIVEN.get(page.name, ""))


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> dict[str, str]:
    """The environment of processes in a fresh virtual environment that has only the wheel."""
    place = tmp_path_factory.mktemp("wheel")
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def call(*command: object) -> None:
        done = subprocess.run([*map(str, command)], env=clean, capture_output=True, text=True)
        if "No matching distribution" in done.stderr:
            pytest.skip("no package index can be reached")
        assert done.returncode == 0, done.stdout + done.stderr

    call(sys.executable, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", place, ROOT)
    call(sys.executable, "-m", "venv", place / "venv")
    call(place / "venv" / "bin" / "pip", "install", *place.glob("dgmarl-*.whl"))
    return {**clean, "PATH": f"{place / 'venv' / 'bin'}:{clean['PATH']}"}


@pytest.mark.slow
@pytest.mark.parametrize("page", ["quickstart.md", "tutorial.md"])
def test_the_first_pages_work_in_an_empty_folder_with_the_wheel_alone(page, installed, tmp_path):
    where = "import dgmarl; assert 'site-packages' in dgmarl.__file__"
    execute(Step("shell", f'python -c "{where}"'), tmp_path, installed)
    for step in steps_of(ROOT / "docs" / page):
        execute(step, tmp_path, installed)
    assert list((tmp_path / "runs").iterdir())
