"""Which code named in a file may be executed.

A run folder or configuration file is data, but `env: file.py:Class` in it names Python code. Such
code is executed only if the user typed the name himself, gave `--trust` (`trust=True`), or trained
or checked the same unchanged file before on this machine. What was trained or checked is remembered
as path and SHA-256 of the file in `trusted.json` in the user's configuration folder.

Nothing here imports or executes what it judges."""

import sys
from importlib.machinery import PathFinder
from pathlib import Path


def module_file(module: str) -> Path | None:
    """File of a module, found without importing it or its parent packages; None if there is none.

    `importlib.util.find_spec("a.b")` imports `a`; here each level is looked up on the search path
    of the level above."""
    search: list[str] | None = [*sys.path]
    spec = None
    for name in module.split("."):
        if search is None:
            return None
        spec = PathFinder.find_spec(name, search)
        if spec is None:
            return None
        locations = spec.submodule_search_locations
        search = None if locations is None else list(locations)
    return Path(spec.origin) if spec is not None and spec.has_location and spec.origin else None
