"""Which code named in a file may be executed.

A run folder or a configuration file is data, but `env: file.py:Class` in it names Python code. Such
code is executed only if the user typed the name, gave `--trust` (`trust=True`), or trained or
checked the same, unchanged files before on this machine. These are stored by path and SHA-256 in
`trusted.json` in the user's configuration folder.

This module does not import or execute the code in question."""

import json
import os
import sys
from contextlib import suppress
from importlib.machinery import PathFinder
from pathlib import Path

from dgmarl.classes import without_class
from dgmarl.errors import RunError, UnknownNameError, UsageError, did_you_mean
from dgmarl.files import DAMAGE, sha256, write_atomic

GRAPH_KINDS = {
    "learned": "",
    "oracle": "",
    "interventional": "[:H[:K]]",
    "attention": "[:C]",
    "self": "",
    "complete": "",
    "random": ":P",
    "fixed": ":FILE",
}
"""Registered graph sources, which execute no user code, and the syntax of their arguments;
`register_source` adds others."""
LIBRARIES = ("jaxmarl", "jumanji")
"""Prefixes of ids in a library's own registry, for which no other code is imported."""
HOST_ADAPTERS = ("pettingzoo", "gymnasium")
"""Prefixes of environments whose module is imported."""
GYMNASIUM_MODULES = {"Foraging": "lbforaging", "rware": "rware"}
"""Prefixes of Gymnasium ids, and the module that registers them."""


def is_code(name: str) -> bool:
    """Whether a name has the form `module:name`, `file.py:name`, `pettingzoo:...` or
    `gymnasium:...`. No other name is ever imported."""
    place, colon, _ = name.rpartition(":")
    is_module = all(part.isidentifier() for part in place.split("."))
    is_code = is_module or place.endswith(".py") or name.partition(":")[0] in HOST_ADAPTERS
    return bool(colon) and is_code


def host_module(adapter: str, name: str) -> str:
    """The module that `pettingzoo:name` or `gymnasium:name` imports; empty if only the library."""
    if adapter == "pettingzoo":
        return name
    module, colon, _ = name.rpartition(":")
    known = (each for start, each in GYMNASIUM_MODULES.items() if name.startswith(start))
    return module if colon else next(known, "")


def code_names(**names: str) -> list[str]:
    """The names that refer to Python code, not to part of the package or a data file. names: by
    field, as in `TrainConfig.names`."""
    tables = {"env": LIBRARIES, "graph": GRAPH_KINDS}
    return [
        name
        for field, name in names.items()
        if is_code(name) and name.partition(":")[0] not in tables.get(field, ())
    ]


def unknown_graph(text: str) -> UnknownNameError:
    """The error for a graph source that is neither registered nor code."""
    if text.endswith(".py") and ":" not in text:
        return without_class(text, "graph source")
    allowed = ", ".join(name + argument for name, argument in GRAPH_KINDS.items())
    return UnknownNameError(
        f"--graph is {text!r}, but must be {allowed} or file.py:Source"
        f"{did_you_mean(text.partition(':')[0], GRAPH_KINDS)}"
    )


def remember(**names: str) -> None:
    """Trust the code that these names refer to as long as its files are unchanged. Does nothing if
    the configuration folder cannot be written. names: see `code_names`."""
    hashes = {
        str(path): digest
        for name in code_names(**names)
        for path in code_files(name)
        if (digest := _digest(path)) is not None
    }
    path, known = store_path(), _stored()
    if path is None or hashes.items() <= known.items():
        return
    content = json.dumps({"format": 1, "files": {**known, **hashes}}, indent=1)
    with suppress(UsageError, RunError):
        write_atomic(path, content + "\n")


def is_trusted(name: str) -> bool:
    """Whether the files that a name executes are stored as trusted and unchanged."""
    files, known = code_files(name), _stored()
    return bool(files) and all(known.get(str(path), "") == _digest(path) for path in files)


def require_trust(origin: Path | str, *, trust: bool = False, **names: str) -> None:
    """Raise a UsageError if the file `origin` names code that is not trusted. trust: allow all.
    names: see `code_names`."""
    for name in () if trust else code_names(**names):
        if not is_trusted(name):
            raise UsageError(_refusal(name, origin))


def code_files(name: str) -> tuple[Path, ...]:
    """The files that loading `module:name` or `file.py:name` executes, found without importing
    anything: the `__init__.py` of parent packages and the module's file; empty if not found."""
    place = _place(name)
    if place.endswith(".py"):
        path = Path(place).resolve()
        return (path,) if path.is_file() else ()
    return _module_files(place)


def file_hashes(**names: str) -> dict[str, str]:
    """SHA-256 of the file of each name that refers to code, by field. names: see `code_names`."""
    found = {
        field: code_files(name) for field, name in names.items() if code_names(**{field: name})
    }
    hashes = {field: _digest(files[-1]) for field, files in found.items() if files}
    return {field: digest for field, digest in hashes.items() if digest is not None}


def _place(name: str) -> str:
    """The module or file that loading a name imports."""
    adapter, _, rest = name.partition(":")
    if adapter in HOST_ADAPTERS:
        return host_module(adapter, rest) or adapter
    return name.rpartition(":")[0]


def module_file(module: str) -> Path | None:
    """File of a module, found without importing it or its parents; None if there is none."""
    files = _module_files(module)
    return files[-1] if files else None


def store_path() -> Path | None:
    """The file with the trusted files; None if the user has no home folder."""
    base = os.environ.get("APPDATA" if os.name == "nt" else "XDG_CONFIG_HOME", "")
    if not os.path.isabs(base):
        try:
            base = str(Path.home() / ".config")
        except RuntimeError:
            return None
    return Path(base) / "dgmarl" / "trusted.json"


def _module_files(module: str) -> tuple[Path, ...]:
    """Files of a module and its parents; `importlib.util.find_spec("a.b")` would import `a`."""
    search: list[str] = [*sys.path, os.getcwd()]
    files: list[Path] = []
    spec = None
    for name in module.split("."):
        spec = PathFinder.find_spec(name, search) if search else None
        if spec is None:
            return ()
        if spec.has_location and spec.origin:
            files.append(Path(spec.origin).resolve())
        search = list(spec.submodule_search_locations or ())
    return tuple(files) if spec is not None and spec.has_location else ()


def _stored() -> dict[str, str]:
    """Hashes of the trusted files by path; empty if the file is missing or damaged."""
    path = store_path()
    try:
        files = json.loads(path.read_bytes())["files"] if path else {}
        return {name: value for name, value in files.items() if isinstance(value, str)}
    except DAMAGE:
        return {}


def _digest(path: Path) -> str | None:
    with suppress(OSError):
        return sha256(path)
    return None


def _refusal(name: str, origin: Path | str) -> str:
    files = code_files(name)
    if not files:
        reason = "which is not a file that was trained or checked here"
    elif str(files[-1]) in _stored():
        reason = "which has changed since it was trained or checked here"
    else:
        reason = "which was never trained or checked here"
    place = files[-1] if files else _place(name)
    return (
        f"{origin} names {name!r}: that would execute {place}, {reason}; read the code, then "
        "allow it with --trust (in Python: trust=True)."
    )
