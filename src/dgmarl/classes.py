"""The classes of a Python file that a name may mean, found in its source: nothing is executed."""

import ast
from pathlib import Path

from dgmarl.errors import UnknownNameError, did_you_mean
from dgmarl.files import DAMAGE, read_bytes

MOST_BYTES = 1_000_000
"""Size limit of a source file."""
MOST_NAMES = 10
"""Names in a message."""
METHODS = {
    "environment": {"reset", "step"},
    "graph source": {"infer"},
    "network": {"__call__"},
}
"""By what is looked for: methods of which its classes define one, unless they inherit all."""
DATA = ("NamedTuple", "Protocol", "Enum", "Exception", "Error")
"""Ends of the names of base classes that no such class has."""


def without_class(text: str, what: str) -> UnknownNameError:
    """The error for `file.py` in place of `file.py:Class`."""
    if not Path(text).is_file():
        return UnknownNameError(f"{text!r}: there is no file {text}; check the path.")
    return UnknownNameError(f"{text!r} is a Python file; name the class{choices(text, text, what)}")


def choices(place: str, file: str, what: str, given: str = "") -> str:
    """End of a sentence: `place:Class` for the classes in a file. given: what was written in place
    of the class."""
    names = classes_in(file, what)
    if not names:
        return f" of the {what}, {place}:Class."
    if len(names) == 1:
        return f": {place}:{names[0]}."
    shown = ", ".join(names[:MOST_NAMES]) + ", ..." * (len(names) > MOST_NAMES)
    return f": {place}:NAME, where NAME is one of {shown}{did_you_mean(given, names)}"


def classes_in(file: str, what: str) -> list[str]:
    """Names of the top-level classes in a file that may be `what`, a key of `METHODS`, and of
    functions declared to return an environment; empty if the file cannot be parsed."""
    try:
        body = ast.parse(read_bytes(file, MOST_BYTES)).body
    except DAMAGE:  # a UsageError of `read_bytes` is a ValueError
        return []
    classes = [part for part in body if isinstance(part, ast.ClassDef) and _may_be_meant(part)]
    wanted = METHODS[what]
    others = set().union(*METHODS.values()) - wanted
    found = [part for part in classes if wanted & _methods(part)]
    found = found or [part for part in classes if not others & _methods(part)]
    # A subclass of a class that is listed may inherit all of its methods.
    listed = {part.name for part in found}
    found = [part for part in classes if part.name in listed or listed & set(_bases(part))]
    names = [part.name for part in found]
    if what == "environment":
        functions = [part for part in body if isinstance(part, ast.FunctionDef)]
        names += [part.name for part in functions if _returns_environment(part)]
    return names


def _may_be_meant(part: ast.ClassDef) -> bool:
    is_data = any(base.endswith(DATA) for base in _bases(part))
    decorated = any("dataclass" in ast.unparse(each) for each in part.decorator_list)
    return not (is_data or decorated or part.name.startswith("_"))


def _bases(part: ast.ClassDef) -> list[str]:
    return [ast.unparse(base).partition("[")[0] for base in part.bases]


def _methods(part: ast.ClassDef) -> set[str]:
    return {each.name for each in part.body if isinstance(each, ast.FunctionDef)}


def _returns_environment(part: ast.FunctionDef) -> bool:
    if part.returns is None:
        return False
    returned = ast.unparse(part.returns).partition("[")[0].strip("'\"")
    return returned.endswith("Environment") and not part.name.startswith("_")
