"""Grids of configurations: a list is an axis, anything else is common to all runs.

    env: [lbf/5x5-2p-1f, star-spread/3]
    method: [ippo-local, ippo-dg]
    learner.hidden: [32, 64]
    learner.learning_rate: {loguniform: [1e-4, 1e-2]}
    samples: 5
    steps: 2e3

Fields are those of `TrainConfig`, dotted or nested, and `preset`. The grid is the product of all
lists and of `samples` random points; with `halving: R` all but the best R-th of the runs are
stopped early (`halving.py`). No JAX, and no environment is built."""

import hashlib
import json
import math
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from itertools import product
from typing import Any, NamedTuple

from dgmarl.config.methods import METHODS
from dgmarl.config.presets import Preset
from dgmarl.config.resolve import SECTIONS, resolve
from dgmarl.config.schema import TrainConfig
from dgmarl.config.yaml import convert, dotted
from dgmarl.errors import UsageError
from dgmarl.runs.reading import graph_tag
from dgmarl.trust import is_code

MOST_RUNS = 100_000
LONGEST_NAME = 150
MAPPINGS = (*SECTIONS, "env_options")
"""Fields that are mappings."""
KIND = ("env", "method", "graph")
"""Fields whose values appear in a run's name without the field's name."""
UNNAMED = "run"
"""Folder of the run of a grid without an axis."""
Values = dict[str, Any]
"""Values of one run by dotted name."""
DISTRIBUTIONS: dict[str, Callable[[list[Any], float], Any]] = {
    "uniform": lambda ends, u: ends[0] + (ends[1] - ends[0]) * u,
    "loguniform": lambda ends, u: ends[0] * (ends[1] / ends[0]) ** u,
    "choice": lambda options, u: options[int(u * len(options))],
}
"""A sample from the values in the file and a number in [0, 1)."""


class Halving(NamedTuple):
    """Successive halving of the runs of a grid."""

    reduction: int
    """One in this many runs continues after each rung."""
    rungs: int = 3
    """Number of rungs; the last is at a `reduction`-th of the steps, each other one at a
    `reduction`-th of the next."""


def halving_of(grid: Mapping[str, Any]) -> Halving | None:
    """The successive halving that a grid asks for."""
    given = {name: convert(grid[name], int, name) for name in ("halving", "rungs") if name in grid}
    if not given:
        return None
    halving = Halving(given.get("halving", 0), given.get("rungs", 3))
    if not (2 <= halving.reduction <= 100 and 1 <= halving.rungs <= 20):
        raise UsageError(
            f"halving is {given.get('halving')!r} and rungs is {halving.rungs}, but must be from 2 "
            "to 100 and from 1 to 20: give for example `halving: 3` and `rungs: 3`."
        )
    return halving


def expand(grid: Mapping[str, Any]) -> dict[str, Values]:
    """The runs of a grid by name; a name contains only the values that vary."""
    halving_of(grid)
    fields = _flatten({name: grid[name] for name in grid if name not in ("halving", "rungs")})
    samples = convert(fields.pop("samples", 1), int, "samples")
    seed = convert(fields.pop("search_seed", 0), int, "search_seed")
    if "env" not in fields:
        raise UsageError("The grid names no env: add a line such as `env: lbf/5x5-2p-1f`.")
    axes = {name: _axis(name, value) for name, value in fields.items() if isinstance(value, list)}
    searched = {name: value for name, value in fields.items() if _is_search(name, value)}
    if samples < 1 or bool(searched) != ("samples" in grid):
        raise UsageError(
            "samples is the number of random points, at least 1, and goes with fields such as "
            "`learner.learning_rate: {loguniform: [1e-4, 1e-2]}`: give both or neither."
        )
    size = samples * math.prod(map(len, axes.values()))
    if size > MOST_RUNS:
        raise UsageError(f"The grid has {size:,} runs, but at most {MOST_RUNS:,}: make it smaller.")
    points = _points(searched, samples, seed)
    crossed = [dict(zip(axes, chosen, strict=True)) for chosen in product(*axes.values())]
    runs = (_relevant({**fields, **one, **point}) for one in crossed for point in points)
    varying = [name for name in fields if len(axes.get(name, ())) > 1 or name in searched]
    return _named({_key(run): run for run in runs}.values(), varying)


def shown_name(name: str, config: TrainConfig) -> str:
    """The name of a run in messages: environment and method if the grid has no axis."""
    kind = {"env": config.env, "method": config.method}
    return _name(kind, dict(zip(kind, kind, strict=True))) if name == UNNAMED else name


def config_of(values: Values, like: str = "") -> TrainConfig:
    """The resolved configuration of one run of a grid. like: see `resolve`."""
    rest = dotted(values)
    given = {name: rest.pop(name) for name in ("env", "method", "graph", "preset") if name in rest}
    words = {name: convert(value, str, name) for name, value in given.items()}
    preset: Preset = words.pop("preset", "tuned")  # pyright: ignore[reportAssignmentType]
    env, method = words.pop("env", ""), words.pop("method", "ippo-dg")
    return resolve(env, method, rest, preset, like, **words)


def _flatten(values: Mapping[Any, Any], where: str = "") -> Values:
    """Nested fields by dotted name; a duplicate raises UsageError."""
    flat: Values = {}
    for key, value in values.items():
        if not isinstance(key, str) or not key:
            raise UsageError(f"{key!r} is not a field: write NAME: VALUE lines.")
        name = where + key
        nests = isinstance(value, Mapping) and not _is_search(name, value)
        for inner, part in (_flatten(value, f"{name}.") if nests else {name: value}).items():
            if inner in flat:
                raise UsageError(f"{inner} is given twice: leave one of them out.")
            flat[inner] = part
    return flat


def _axis(name: str, values: list[Any]) -> list[Any]:
    if not values:
        raise UsageError(f"{name} is {values!r}, but an axis needs at least one value.")
    for key, count in Counter(map(_key, values)).items():
        if count > 1:
            raise UsageError(f"{name} lists {key} {count} times: give every value once.")
    return values


def _is_search(name: str, value: Any) -> bool:
    single = isinstance(value, Mapping) and len(value) == 1 and name not in MAPPINGS
    return single and next(iter(value)) in DISTRIBUTIONS


def _points(searched: Values, samples: int, seed: int) -> list[Values]:
    """`samples` random points; the first ones do not depend on `samples`."""
    ranges = {name: _range(name, *next(iter(searched[name].items()))) for name in sorted(searched)}
    draw = random.Random(seed).random
    return [
        {name: DISTRIBUTIONS[kind](values, draw()) for name, (kind, values) in ranges.items()}
        for _ in range(samples)
    ]


def _range(name: str, kind: str, values: Any) -> tuple[str, list[Any]]:
    """Kind and parameters of a distribution; invalid ones raise UsageError."""
    if not isinstance(values, list) or not values:
        raise UsageError(f"{name} is {{{kind}: {values!r}}}, but {kind} needs a list of values.")
    if kind == "choice":
        return kind, _axis(name, values)
    ends = [convert(value, float, f"{name}: {kind}") for value in values]
    low = 0.0 if kind == "loguniform" else -math.inf
    if len(ends) != 2 or not low < ends[0] < ends[1] < math.inf:
        above = " above 0" if kind == "loguniform" else ""
        raise UsageError(
            f"{name} is {{{kind}: {values!r}}}, but {kind} needs two numbers{above}, the smaller "
            "one first."
        )
    return kind, ends


def _relevant(run: Values) -> Values:
    """Drop `graph` if the method uses none, since it has no effect."""
    method = METHODS.get(str(run.get("method", TrainConfig.method)))
    unused = method is not None and not method.uses_graph
    return {name: value for name, value in run.items() if name != "graph" or not unused}


def _named(runs: Iterable[Values], varying: list[str]) -> dict[str, Values]:
    last = Counter(name.rpartition(".")[2] for name in varying)
    shown = {
        name: short if last[short := name.rpartition(".")[2]] == 1 else name for name in varying
    }
    pairs = [(_name(run, shown), run) for run in runs]
    count = Counter(name.casefold() for name, _ in pairs)
    return {
        name
        if count[name.casefold()] == 1 and len(name) <= LONGEST_NAME
        else f"{name[:LONGEST_NAME]}-{hashlib.sha256(_key(run).encode()).hexdigest()[:8]}": run
        for name, run in pairs
    }


def _name(run: Values, shown: Mapping[str, str]) -> str:
    """A path below the sweep's folder: `lbf_5x5-2p-1f__ippo-dg/hidden=32`. Reports label variants
    of a method by the last part, which is the same in every environment."""
    kind = [_text(name, run[name]) for name in KIND if name in shown and name in run]
    others = [f"{shown[name]}={_text(name, run[name])}" for name in shown if name not in KIND]
    parts = ("__".join(part) for part in (kind, others) if part)
    # Field names may contain any characters, too.
    safe = (re.sub(r"[^A-Za-z0-9_.+=-]+", "_", part).strip("._-") or "run" for part in parts)
    return "/".join(safe) or UNNAMED


def _text(name: str, value: Any) -> str:
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    if name == "graph":
        return graph_tag(text)
    return text.rpartition(":")[2] if is_code(text) else text


def _key(value: Any) -> str:
    """A key that is equal for equal values."""
    return json.dumps(value, sort_keys=True, default=str)
