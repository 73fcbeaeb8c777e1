"""Pages of documentation as steps that can be executed: shell commands, Python blocks and files."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "examples").glob("*.py")),
]
INSTALLING = ("git ", "make ", "python3 -m venv", "source ", "pip ")
"""How lines begin that get or install the package."""
NOT_RUN = {
    "#SBATCH": "needs Slurm",
    "ssh ": "needs other hosts",
    "--process ": "needs other hosts; tests/test_devices.py has two processes",
    "ray start": "needs a cluster; tests/sweeps/test_ray.py has one",
    "--address ": "needs a cluster; tests/sweeps/test_ray.py has one",
    'ray.init(address="auto")': "needs a cluster with GPUs",
    "/shared/": "needs a disk that several machines share",
    "tensorboard --logdir": "serves until it is stopped",
    "python tests/parity/": "needs recordings of the original environments",
    "python -m dgmarl.": "says how published results were made",
    "dgmarl grid ": "takes hours; tests/paper/test_grids.py has smaller ones",
    "--method mappo-global --preset fast": "SMAClite with 128 environments takes hours",
}
"""Commands and blocks that are only parsed: what they contain, and why they are not executed."""
SMALL = """
import dgmarl, runpy
train, sweep = dgmarl.train, dgmarl.sweep
sizes = {"evaluation.interval": 500, "evaluation.episodes": 2, "learner.hidden": 8}
dgmarl.train = lambda *given, **values: train(
    *given, **{**values, "steps": 500, "seeds": 1}, overrides=sizes
)
dgmarl.sweep = lambda grid, out: sweep({**grid, **sizes, "steps": 500, "seeds": 1}, out)
given = {}
"""
"""Before a block of Python: one seed and 500 steps."""


class Step(NamedTuple):
    """Something that a reader of a page does."""

    kind: str
    """shell, python, or the name of the file that it writes."""
    text: str
    appended: bool = False
    """To a file that is there."""


def steps_of(page: Path) -> list[Step]:
    """What a page asks for, in its order; without installing, and without the signatures of the
    API."""
    signatures = {"python"} if page.name == "api.md" else set()
    steps = [_step(*block) for block in _blocks(page) if block[0] not in signatures]
    return [step for step in steps if step is not None]


def left_out(text: str) -> bool:
    """Whether a command or block is one of `NOT_RUN`."""
    return any(words in text for words in NOT_RUN)


def smaller(block: str) -> str:
    """The lines of a block of shell or YAML that are executed, with one seed instead of several,
    two samples of a search, and a five-hundredth of the steps, but at least 1000 and at most
    3000."""
    if block.startswith("#!"):  # a script is executed as a whole, or not
        return "" if left_out(block) else block
    lines = [x for x in block.splitlines() if not x.startswith(INSTALLING) and not left_out(x)]
    text = "\n".join(lines)
    for flag, default in (("seeds", "1"), ("steps", "4e3" if "--n-envs" in text else "2e3")):
        missing = rf"^dgmarl train (?!.*--({flag}|resume)\b)"
        text = re.sub(missing, f"dgmarl train --{flag} {default} ", text, flags=re.MULTILINE)
    text = re.sub(r"(--seeds|^seeds:) \d+", r"\1 1", text, flags=re.MULTILINE)
    text = re.sub(r"^samples: \d+", "samples: 2", text, flags=re.MULTILINE)
    return re.sub(
        r"(--steps|^steps:) (\d\S*)",
        lambda found: f"{found[1]} {_fewer(float(found[2]))}",
        text,
        flags=re.MULTILINE,
    )


def execute(step: Step, folder: Path, known: dict[str, str], given: str = "") -> None:
    """Do it in a folder. known: the environment of processes. given: Python that defines names,
    as `given[name] = value`, for blocks that are not complete."""
    if step.kind not in ("shell", "python"):
        with (folder / step.kind).open("a" if step.appended else "w") as file:
            file.write(smaller(step.text) + "\n")
        return
    command = ["bash", "-e", "-c", smaller(step.text)]
    if step.kind == "python":
        (folder / "block.py").write_text(step.text)
        run = f"{SMALL}{given}\nrunpy.run_path('block.py', init_globals=given)"
        command = ["python", "-c", run]
    done = subprocess.run(command, cwd=folder, env=known, capture_output=True, text=True)
    assert done.returncode == 0, f"{step.text}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"


def _fewer(steps: float) -> int:
    return int(steps) if steps <= 4000 else int(min(max(1000, steps / 500), 3000))


def _step(language: str, text: str) -> Step | None:
    first = text.partition("\n")[0]
    file = re.match(r"# (added to )?([\w-]+\.(?:ya?ml|py))\b", first)
    if file:
        return Step(file[2], text, bool(file[1]))
    if language == "pycon":
        return Step("python", "\n".join(re.findall(r"^(?:>>>|\.\.\.) (.*)", text, re.MULTILINE)))
    if language == "python" and not left_out(text):
        return Step("python", text)
    if language == "":
        text = "\n".join(re.findall(r"^(?:dgmarl|python) .*", text, flags=re.MULTILINE))
    if language in ("bash", "") and smaller(text).strip():
        return Step("shell", text)
    return None


def _blocks(page: Path) -> Iterator[tuple[str, str]]:
    """Language and text of fenced blocks, and of runs of indented lines, which have none."""
    pattern = r"^```(\w*)\n(.*?)^```|((?:^    \S[^\n]*\n)+)"
    for found in re.finditer(pattern, page.read_text(), flags=re.DOTALL | re.MULTILINE):
        text = found[2] if found[3] is None else re.sub("^    ", "", found[3], flags=re.MULTILINE)
        yield found[1] or "", text
