"""Ways in which a file can be other than what was written: text, plain values, arrays, bytes."""

import copy
import json
import random
from pathlib import Path
from typing import Any

import numpy as np

ODD = (
    *(None, True, -1, 0, 1.5, 1e30, 1e308, 2**65, -(10**400), float("nan"), float("inf")),
    *("", "7", "[/x]", "</script>", "\x1b[2J", "\u2028", "x" * 10_000, [], {}, [[]], {"a": []}),
    *([1, [2]], [[1, 2], [3]], "NaN"),
)
"""Values where others belong."""


def damage_bytes(content: bytes, chance: random.Random) -> bytes:
    """Cut, emptied, or with some bytes changed, removed or repeated."""
    at = chance.randrange(len(content) + 1)
    length = chance.choice((1, 7, 100, 5000))
    return chance.choice(
        (
            content[:at],
            b"",
            content[:at] + chance.randbytes(length) + content[at + length :],
            content[:at] + content[at + length :],
            content[:at] + content[max(at - length, 0) :],
            chance.randbytes(len(content)),
            b"[" * 200_000,
        )
    )


def damage_lines(content: bytes, chance: random.Random) -> bytes:
    """Lines lost, emptied, repeated, in another order, or with another value."""
    lines = content.splitlines(keepends=True)
    k = chance.randrange(len(lines))
    n = chance.randint(1, 4)
    kind = chance.randrange(6)
    if kind == 0:
        del lines[k : k + n]
    elif kind == 1:
        lines[k : k + n] = [b"\n"] * n
    elif kind == 2:
        lines.insert(chance.randrange(len(lines)), lines[k])
    elif kind == 3:
        lines = lines[:k]
    elif kind == 4:
        chance.shuffle(lines)
    else:
        lines[k] = json.dumps(damage_values(json.loads(lines[k]), chance)).encode() + b"\n"
    return b"".join(lines)


def damage_values(values: Any, chance: random.Random) -> Any:
    """A copy of plain values in which one, anywhere, is odd, missing, moved or another number."""
    values = copy.deepcopy(values)
    places = [(values, name) for name in _names(values)]
    for parent, name in places:
        places += [(parent[name], below) for below in _names(parent[name])]
    if not places:
        return chance.choice(ODD)
    parent, name = chance.choice(places)
    kind = chance.randrange(8)
    if kind == 0:
        del parent[name]
    elif kind == 1 and isinstance(parent[name], list):
        parent[name].reverse()
    elif kind == 2 and type(parent[name]) in (int, float):
        parent[name] = parent[name] * chance.choice((-1, 10, 0.5, 10**20))
    elif kind == 3 and isinstance(parent, dict):
        parent[chance.choice(("[/x]", "\x1b[2J", "a" * 500, ""))] = parent.pop(name)
    else:
        parent[name] = chance.choice(ODD)
    return values


def damage_arrays(path: Path, chance: random.Random) -> None:
    """An .npz file in which one array has another shape, type or content, or is missing."""
    with np.load(path) as stored:
        arrays = {name: stored[name] for name in stored.files}
    name = chance.choice(sorted(arrays))
    array = arrays[name]
    flat = array.copy()
    flat.ravel()[chance.randrange(max(array.size, 1))] += 1
    arrays[name] = chance.choice(
        (
            array[:-1],
            array[:, :-1] if array.ndim > 1 else array[:0],
            array.T,
            array.ravel(),
            array[::-1],
            array.astype(chance.choice((float, complex, bool, "U8", np.int8))),
            flat,
            np.full(array.shape, np.nan),
            np.zeros(0),
        )
    )
    if not chance.randrange(6):
        del arrays[name]
    np.savez(path, **arrays)


def _names(values: Any) -> list[Any]:
    if isinstance(values, dict):
        return list(values)
    return list(range(len(values))) if isinstance(values, list) else []
