"""Results in one form, read from published files, run folders or files in the marl-eval format.

A published result is one file `<benchmark>/<scenario>__<method>.json` with the evaluations of all
seeds (`dgmarl.sweeps.published` writes it). The final return of a seed is its last evaluation, not
its best."""

import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from dgmarl.config.methods import find_method
from dgmarl.config.yaml import read_yaml
from dgmarl.errors import UsageError
from dgmarl.files import from_json, is_count, is_number, read_bytes
from dgmarl.runs.reading import (
    RETURNS,
    STOPPED_EARLY,
    graph_tag,
    read_curves,
    read_returns,
    read_timing,
    require_run_folder,
    scalars,
)

SHARED_SCALE = {"lbf": 1.0, "smaclite": 20.0}
"""Reference return of environment families whose returns share a scale over scenarios, so that runs
may be pooled: all food in foraging, a won battle in SMAClite. Star-Spread's returns grow with N."""
COMPARABLE = 1.1
"""Final returns after numbers of steps that differ by no more than this factor may be compared."""

Key = tuple[str, str, str]
"""Benchmark, scenario and method."""


class Result(NamedTuple):
    """One method in one scenario, all seeds."""

    benchmark: str
    """Name of the folder or of the environment family."""
    scenario: str
    method: str
    env: str
    """Id of the environment."""
    steps: Int[np.ndarray, "S K"]
    returns: Float[np.ndarray, "S K"]
    facts: dict[str, Any]
    """Other data: config and, if recorded, metrics [S][K] such as wall_s, episodes or
    graph_density."""

    @property
    def key(self) -> Key:
        """Benchmark, scenario and method."""
        return self.benchmark, self.scenario, self.method

    @property
    def final(self) -> Float[np.ndarray, "S"]:
        """The last evaluation of each seed."""
        return self.returns[:, -1]

    @property
    def budget(self) -> int:
        """Smallest number of environment steps over seeds."""
        return int(self.steps[:, -1].min())

    def up_to(self, steps: int) -> "Result":
        """Each seed's last evaluation within this number of steps, as a single evaluation."""
        last = np.maximum((self.steps <= steps).sum(axis=1, keepdims=True) - 1, 0)
        taken, returns = (np.take_along_axis(x, last, axis=1) for x in (self.steps, self.returns))
        return self._replace(steps=taken, returns=returns)

    def metric(self, name: str) -> Float[np.ndarray, "S K"] | None:
        """A metric at each evaluation; None if it is missing or damaged."""
        try:
            values = np.asarray(self.facts[name], float)
        except (KeyError, TypeError, ValueError, OverflowError):
            return None
        fits = values.shape == self.steps.shape and np.isfinite(values).all()
        return values if fits else None


def same_budget(results: Iterable[Result]) -> bool:
    """Whether final returns may be compared, by `COMPARABLE`."""
    budgets = [result.budget for result in results]
    return max(budgets) <= COMPARABLE * min(budgets)


def budget_text(*results: Result) -> str:
    """Steps as text: `5 million`, or `0.5 to 5 million` for several results."""
    return f"{span(float(f'{result.budget / 1e6:.2g}') for result in results)} million"


def span(numbers: Iterable[float]) -> str:
    """Numbers as text: `5`, or `3 to 5` if they differ."""
    found = sorted(set(numbers))
    return " to ".join(f"{n:g}" for n in dict.fromkeys((found[0], found[-1])))


def by_key(results: Iterable[Result]) -> dict[Key, Result]:
    """Results by benchmark, scenario and method."""
    return {result.key: result for result in results}


def grouped(results: Iterable[Result], field: str) -> dict[str, list[Result]]:
    """Results by the value of a field, in order of appearance."""
    groups: dict[str, list[Result]] = {}
    for result in results:
        groups.setdefault(getattr(result, field), []).append(result)
    return groups


class NoEvaluationError(UsageError):
    """A run without an evaluation of all seeds."""


def gather(paths: Sequence[Path]) -> list[Result]:
    """Results of files, run folders, and folders that contain them."""
    results = [result for path in dict.fromkeys(paths) for result in _read(path)]
    for result in results:
        for note in result.facts["notes"] if "folder" in result.facts else ():
            warnings.warn(f"{result.facts['folder']}: {note}", stacklevel=2)
    return sorted(_distinct(results), key=place)


def read_results(folder: Path) -> list[Result]:
    """All published results below a folder, in the order of `place`."""
    if not folder.is_dir():
        raise UsageError(
            f"{folder} is not a folder: give one with files SCENARIO__METHOD.json in it or in its "
            "folders, such as results."
        )
    paths = _published_below(folder)
    if not paths:
        raise UsageError(
            f"{folder} holds no file SCENARIO__METHOD.json: give a folder of published results, "
            "such as results."
        )
    return sorted(map(read_result, paths), key=place)


def read_result(path: Path) -> Result:
    """One published result; a damaged file is refused."""
    facts = read_json(path)
    try:
        _require(isinstance(facts, dict), "it is not a mapping")
        steps = read_steps(facts.get("steps"), "steps")
        returns = _table(facts.get("return_mean"), is_number, "return_mean", float)
        _require(steps.shape == returns.shape, "steps and return_mean have different shapes")
        config = facts.get("config")
        _require(isinstance(config, dict), "config is not a mapping")
        env = config.get("env")
        _require(isinstance(env, str), "config.env is not a string")
        seeds = facts.get("seeds", list(range(len(returns))))
        _require(
            isinstance(seeds, list) and all(map(is_count, seeds)) and len(seeds) == len(returns),
            f"seeds are not {len(returns)} whole numbers, one per curve",
        )
    except ValueError as error:
        raise _damaged(path, error) from None
    # Paths on the author's machine have no meaning here and must not decide what is read.
    of_runs = ("folder", "name", "episode_returns")
    facts = {name: value for name, value in facts.items() if name not in of_runs}
    facts["timing"] = scalars(facts.get("timing"))
    notes = facts.get("notes")
    facts["notes"] = [str(note) for note in notes] if isinstance(notes, list) else []
    scenario, _, method = path.stem.partition("__")
    return Result(path.absolute().parent.name, scenario, method, env, steps, returns, facts)


class RunValues(NamedTuple):
    """Fields of a run's config.yaml that reports use."""

    values: dict[str, Any]
    """All fields as plain values."""
    env: str
    method: str
    graph: str
    seeds: range
    steps: int
    n_envs: int
    whole_episodes: bool
    """Whether iterations collect whole episodes instead of rollouts of a fixed length."""
    evaluation_episodes: int


def read_run(path: Path) -> Result:
    """Result of a run folder, finished or not; an incomplete line of `metrics.jsonl` is ignored.

    The configuration is read as plain values: nothing that it names is imported or built."""
    config = read_config(path)
    curves = _curves(path, config)
    n_evaluations, budget = curves["step"].shape[1], int(curves["step"][:, -1].min())
    unfinished = f"It has trained for {budget:,} of {config.steps:,} steps."
    stopped_early = (path / STOPPED_EARLY).is_file()
    if config.whole_episodes:
        curves["episodes"] = curves["iteration"] * config.n_envs
    else:  # rollouts do not end with episodes: estimate their number from the mean length
        lengths = np.maximum(curves["length_mean"], 1)
        curves["episodes"] = np.cumsum(np.diff(curves["step"], axis=1, prepend=0) / lengths, axis=1)
    facts: dict[str, Any] = {
        "config": config.values,
        "folder": path,
        "name": path.absolute().name,
        "seeds": list(config.seeds),
        "episodes_per_evaluation": config.evaluation_episodes,
        "timing": read_timing(path),
        "episode_returns": _episode_returns(path, n_evaluations),
        "stopped_early": stopped_early,
        "notes": [unfinished] if budget < config.steps and not stopped_early else [],
        **{
            name: values
            for name, values in curves.items()
            if name not in ("step", "return_mean", "seed", "evaluation")
        },
    }
    family, _, scenario = config.env.partition("/")
    if ":" in config.env:
        family, scenario = "own", config.env.rpartition(":")[2]
    tag = f"-{graph_tag(config.graph)}" if find_method(config.method).uses_graph else ""
    return Result(
        family,
        scenario,
        config.method + tag,
        config.env,
        curves["step"].astype(int),
        curves["return_mean"],
        facts,
    )


def run_or_reason(path: Path) -> Result | str:
    """Result of a run folder, or the reason why it has none yet."""
    try:
        return read_run(path)
    except UsageError as error:
        return str(error)


def read_config(path: Path) -> RunValues:
    """Configuration of a run folder of any format version; only the fields used are checked."""
    require_run_folder(path)
    values = read_yaml(path / "config.yaml")

    def field(name: str, kind: type, default: Any = None) -> Any:
        found: Any = values
        for part in name.split("."):
            found = found.get(part, default) if isinstance(found, dict) else None
        if not isinstance(found, kind) or (kind is int and not is_count(found)):
            raise UsageError(
                f"{path / 'config.yaml'} has {name} = {str(found)[:80]!r}, but it must be "
                f"{'a count' if kind is int else 'text'}: the file is damaged, so start the run "
                "again in a new folder."
            )
        return found

    first, n_seeds = field("seed", int, 0), field("seeds", int, 5)
    # Format 1 has `collect: episodes` instead of `rollout_length: 0`.
    whole = field("rollout_length", int, 0) == 0
    if "collect" in values:
        whole = values["collect"] == "episodes"
    return RunValues(
        values,
        field("env", str),
        field("method", str),
        field("graph", str, "oracle"),
        range(first, first + n_seeds),
        field("steps", int),
        field("n_envs", int, 1),
        whole,
        field("evaluation.episodes", int, 1),
    )


def on_grid(
    result: Result, n_points: int = 60, last: float | None = None, metric: str | None = None
) -> np.ndarray:
    """`[S, n_points]`: returns, or a metric, interpolated at steps from 0 to `last` (default: the
    last step that all seeds have reached)."""
    values = result.returns if metric is None else result.metric(metric)
    assert values is not None
    grid = np.linspace(0, result.steps[:, -1].min() if last is None else last, n_points)
    return np.array([np.interp(grid, *seed) for seed in zip(result.steps, values, strict=True)])


def _read(path: Path) -> list[Result]:
    if (path / "config.yaml").is_file():
        return [read_run(path)]
    if path.is_dir():
        results = [*map(read_result, _published_below(path)), *_evaluated_runs(path)]
        if not results:
            raise UsageError(
                f"{path} holds no file SCENARIO__METHOD.json and no run folder: give a folder that "
                "does."
            )
        return results
    if not path.exists():
        raise UsageError(
            f"{path} does not exist: give run folders that `dgmarl train` wrote, or published "
            "results."
        )
    if "__" in path.name:
        return [read_result(path)]
    from dgmarl.report.marl_eval import read_marl_eval

    return read_marl_eval(path)


def _evaluated_runs(folder: Path) -> Iterator[Result]:
    """Results of all run folders below a folder; warns about runs without an evaluation."""
    for path in sorted(found.parent for found in folder.rglob("config.yaml")):
        try:
            yield read_run(path)
        except NoEvaluationError as error:
            warnings.warn(f"Left out: {error}", stacklevel=2)


def _distinct(results: list[Result]) -> list[Result]:
    """Append the folder's name, then a number, to equal methods of the same scenario."""
    places, seen = Counter(result.key for result in results), Counter()
    for k, result in enumerate(results):
        if places[result.key] > 1:
            named = f"{result.method} ({result.facts.get('name', 'file')})"
            seen[(*result[:2], named)] += 1
            count = seen[(*result[:2], named)]
            results[k] = result._replace(method=named if count == 1 else f"{named[:-1]}, {count})")
    return results


def _published_below(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*__*.json") if not path.name.startswith(".")]


def read_json(path: Path) -> Any:
    """Content of a JSON file."""
    content = read_bytes(path)
    try:
        return from_json(content)
    except ValueError as error:
        if path.suffix != ".json":
            raise UsageError(
                f"{path} is not a run folder or a result file SCENARIO__METHOD.json: give a run "
                "folder that `dgmarl train` wrote, a result file, or a folder of either."
            ) from None
        raise _damaged(path, error) from None


def _damaged(path: Path, reason: ValueError) -> UsageError:
    return UsageError(
        f"{path} is damaged ({reason}): restore it (for example from version control) or leave it "
        "out."
    )


def read_steps(values: Any, name: str) -> Int[np.ndarray, "S K"]:
    """Environment steps of each seed and evaluation, from plain values."""
    steps = _table(values, is_count, name, int)
    _require(bool((np.diff(steps, axis=1) >= 0).all()), f"{name} decrease")
    return steps


def _table(values: Any, valid: Callable[[Any], bool], name: str, kind: type) -> np.ndarray:
    """Array `[seeds, evaluations]` from lists of lists of numbers."""
    rows = values if isinstance(values, list) else []
    lists = bool(rows) and all(isinstance(row, list) and row for row in rows)
    _require(
        lists and len({len(row) for row in rows}) == 1 and all(valid(x) for r in rows for x in r),
        f"{name} is not a table [seeds, evaluations] of finite numbers",
    )
    return np.array(rows, kind)


def _require(condition: bool, problem: str) -> None:
    if not condition:
        raise ValueError(problem)


def _curves(path: Path, config: RunValues) -> dict[str, np.ndarray]:
    """`[S, K]` per column of metrics.jsonl, up to the last evaluation of all seeds; finished seeds
    repeat their last evaluation."""
    found = read_curves(path, config.seeds, config.steps)
    if not found:
        raise NoEvaluationError(
            f"{path} holds no evaluation of all its seeds yet: continue training with `dgmarl "
            f"train --resume {path}`."
        )
    names = set.intersection(*(set(row) for rows in found for row in rows))
    return {
        name: np.array([[row[name] for row in rows] for rows in found]).T for name in sorted(names)
    }


def _episode_returns(folder: Path, n_evaluations: int) -> np.ndarray | None:
    """returns[seed, evaluation, episode]; None if missing or not as long as the curves."""
    if not (folder / RETURNS).exists():
        return None
    _, returns = read_returns(folder)
    return returns if returns.shape[1] == n_evaluations else None


def place(result: Result) -> tuple:
    """Sort key of results: benchmark, scenario (numbers in numerical order), method."""
    digits = [int(part) if part.isdigit() else -1 for part in re.split(r"(\d+)", result.scenario)]
    return result.benchmark, digits, result.scenario, result.method
