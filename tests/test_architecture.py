"""The order of the rooms, and what keeps each of them readable.

Data flows one way: no module imports one that comes after its own in `ROOMS`."""

import ast
import builtins
import dis
import importlib
import subprocess
import sys
from pathlib import Path
from types import CodeType
from typing import NamedTuple

import pytest

import dgmarl

SOURCE = Path(dgmarl.__file__).resolve().parent
BASE = (
    "errors",
    "files",
    "classes",
    "trust",
    "device",
    "hosts",
    "seeds",
    "optional",
    "arrays",
    "blocks",
)
"""May be imported by all, and import one another."""
ROOMS = (
    "config",
    "envs",
    "rollout",
    "nets",
    "graphs",
    "credit",
    "learners",
    "training",
    "runs",
    "sweeps",
    "track",
    "api",
    "report",
    "cli",
    "paper",
)
"""From left to right. `paper` may import all, and nothing imports it."""
MODULES = sorted(SOURCE.rglob("*.py"))
LONGEST_FUNCTION = 70
METHOD_TABLE = SOURCE / "config" / "methods.py"


class Import(NamedTuple):
    """One imported module of the package, as a dotted name below `dgmarl`."""

    line: int
    target: str


def room_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def rank(room: str) -> int:
    return -1 if room in BASE else ROOMS.index(room)


def imports_of(path: Path) -> list[Import]:
    """Everything of the package that a module imports, inside functions too, except for type
    checkers only."""
    tree = ast.parse(path.read_text())
    skipped = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for statement in node.body
        for inner in ast.walk(statement)
    }
    found = []
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            found += [Import(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            module = _absolute(path, node)
            # `from dgmarl import api` names a module, `from dgmarl.api import train` a part of one.
            inside = module == "dgmarl"
            found += [
                Import(node.lineno, f"{module}.{alias.name}" if inside else module)
                for alias in node.names
            ]
    below = "dgmarl."
    return [Import(i.line, i.target[len(below) :]) for i in found if i.target.startswith(below)]


def _absolute(path: Path, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    package = ("dgmarl", *path.relative_to(SOURCE).parts[:-1])
    return ".".join(
        [*package[: len(package) - node.level + 1], *([node.module] * bool(node.module))]
    )


def rooms_imported(path: Path) -> list[Import]:
    """The room of each import; of what the package itself offers, the room it comes from."""
    offered = {name: module.split(".")[1] for name, module in dgmarl._MODULES.items()}
    first = [Import(line, target.split(".")[0]) for line, target in imports_of(path)]
    return [
        Import(line, offered.get(name, name)) for line, name in first if not name.startswith("__")
    ]


def test_every_module_has_a_room():
    rooms = {room_of(path) for path in MODULES} - {"__init__", "__main__"}
    assert rooms <= {*BASE, *ROOMS}


@pytest.mark.parametrize("room", [*BASE, *ROOMS])
def test_no_module_imports_one_to_its_right(room):
    arrows = [
        f"{path.relative_to(SOURCE)}:{line} imports {target}"
        for path in MODULES
        if room_of(path) == room
        for line, target in rooms_imported(path)
        if rank(target) > rank(room)
    ]
    assert arrows == []


def test_nothing_imports_the_paper():
    assert [
        f"{path.relative_to(SOURCE)}:{line}"
        for path in MODULES
        if room_of(path) != "paper"
        for line, target in rooms_imported(path)
        if target == "paper"
    ] == []


def test_the_walk_sees_every_kind_of_import(tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "SOURCE", tmp_path)
    (tmp_path / "envs").mkdir()
    module = tmp_path / "envs" / "one.py"
    module.write_text(
        "import dgmarl.cli.main\n"
        "from dgmarl import api\n"
        "from ..training import train\n"
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    from dgmarl.paper import grids\n"
        "def late():\n    from dgmarl.report.table import table\n"
    )
    assert {found.target for found in imports_of(module)} == {
        "cli.main",
        "api",
        "training",
        "report.table",
    }


def test_the_configuration_does_without_jax():
    """So that `--help` answers, and a file is checked, before JAX is imported."""
    names = "dgmarl.config.schema, dgmarl.config.presets, dgmarl.config.methods"
    code = f"import sys, {names}; sys.exit('jax' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr or "importing the configuration imports jax"


def test_functions_are_short():
    lengths = {
        f"{path.relative_to(SOURCE)}:{node.lineno} {node.name}": _length(node)
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef)
    }
    assert {name: n for name, n in lengths.items() if n > LONGEST_FUNCTION} == {}


def _length(node: ast.FunctionDef) -> int:
    """Lines of code: a public function's docstring may be as long as its contract needs."""
    lines = (node.end_lineno or node.lineno) - node.lineno + 1
    first = node.body[0]
    has_docstring = ast.get_docstring(node) is not None
    return lines - ((first.end_lineno or 0) - first.lineno + 1 if has_docstring else 0)


def test_only_the_table_of_methods_tells_methods_apart():
    """Elsewhere nothing asks for the name of a method or for the type of its configuration."""
    found = []
    for path in MODULES:
        if path == METHOD_TABLE:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "isinstance":
                asked = ast.unparse(node.args[1])
                dispatches = any(name in asked for name in ("PPOConfig", "QConfig"))
            elif isinstance(node, ast.Compare):
                operands = [ast.unparse(operand) for operand in node.comparators]
                dispatches = any(operand.endswith("MIXERS") for operand in operands)
            else:
                continue
            if dispatches:
                found.append(f"{path.relative_to(SOURCE)}:{node.lineno} {ast.unparse(node)}")
    assert found == []


def global_names(code: CodeType) -> set[str]:
    """The global names that a module reads, in all its functions."""
    own = {each.argval for each in dis.get_instructions(code) if each.opname == "LOAD_GLOBAL"}
    inner = [const for const in code.co_consts if isinstance(const, CodeType)]
    return own.union(*map(global_names, inner))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_every_global_name_exists(path):
    """The linter cannot tell: shapes in annotations are strings with undefined names."""
    if path.name == "__main__.py":
        return
    parts = path.relative_to(SOURCE).with_suffix("").parts
    module = importlib.import_module(".".join(["dgmarl", *parts]).removesuffix(".__init__"))
    code = compile(path.read_text(), str(path), "exec")
    missing = {
        name
        for name in global_names(code)
        if not hasattr(module, name) and not hasattr(builtins, name)
    }
    assert not missing
