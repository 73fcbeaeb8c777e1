"""Results in one form, wherever they come from: published files, run folders, or the marl-eval
format of others.

A published result is one file `<benchmark>/<scenario>__<method>.json` with the evaluations of every
seed (`dgmarl.sweeps.published` writes them). The final return of a seed is its last evaluation,
never its best."""

import json
import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from dgmarl.config.methods import find_method
from dgmarl.config.yaml import read_yaml
from dgmarl.errors import UsageError
from dgmarl.runs.reading import ROW_FIELDS, graph_tag, read_metrics, read_returns, read_timing

# Families of environments whose returns mean the same in every scenario, so that runs of several
# scenarios may be pooled: foraging pays 1 for all the food, a won battle 20, whereas Star-Spread's
# returns grow with the number of agents.
SHARED_SCALE = {"lbf": 1.0, "smaclite": 20.0}
"""Family -> the highest return, by which scores are divided where they are compared with 1."""


class Result(NamedTuple):
    """One method in one scenario, all seeds."""

    benchmark: str
    """Name of the folder, or of the family of environments."""
    scenario: str
    method: str
    env: str
    """Id of the environment."""
    steps: Int[np.ndarray, "S K"]
    returns: Float[np.ndarray, "S K"]
    facts: dict[str, Any]
    """Everything else that is known: config, and where they were measured wall_s, episodes,
    graph_density, ... [S][K]."""

    @property
    def final(self) -> Float[np.ndarray, "S"]:
        """The last evaluation of each seed."""
        return self.returns[:, -1]

    @property
    def budget(self) -> int:
        """Environment steps of the seed that had the fewest."""
        return int(self.steps[:, -1].min())

    def up_to(self, steps: int) -> "Result":
        """As if it had ended then: of every seed its last evaluation before, or at, that many
        steps."""
        last = np.maximum((self.steps <= steps).sum(axis=1, keepdims=True) - 1, 0)
        cut = (np.take_along_axis(values, last, axis=1) for values in (self.steps, self.returns))
        return self._replace(**dict(zip(("steps", "returns"), cut, strict=True)))

    def metric(self, name: str) -> Float[np.ndarray, "S K"] | None:
        """Something measured at each evaluation; None if it was not, or if it is damaged."""
        try:
            values = np.asarray(self.facts[name], float)
        except (KeyError, TypeError, ValueError):
            return None
        fits = values.shape == self.steps.shape and np.isfinite(values).all()
        return values if fits else None


def same_budget(results: Iterable[Result]) -> bool:
    """Whether all had about as many steps; final returns of the same scenario compare only then."""
    budgets = [result.budget for result in results]
    return max(budgets) <= 1.1 * min(budgets)


def budget_text(*results: Result) -> str:
    """Steps in a sentence: `5 million`, or of several results `0.5 to 5 million`."""
    budgets = sorted({f"{result.budget / 1e6:.2g}" for result in results}, key=float)
    return " to ".join(dict.fromkeys((budgets[0], budgets[-1]))) + " million"


class NoEvaluationError(UsageError):
    """A run that has nothing to show yet."""


def gather(paths: Sequence[Path]) -> list[Result]:
    """Results of run folders, published files, marl-eval files, and of all run folders and
    published files below a folder."""
    return sorted(
        _distinct([result for path in dict.fromkeys(paths) for result in _read(path)]), key=place
    )


def read_results(folder: Path) -> list[Result]:
    """All published results below a folder, by benchmark, scenario (numbers in numerical order) and
    method."""
    if not folder.is_dir():
        raise UsageError(
            f"{folder} is not a folder: name one with files SCENARIO__METHOD.json, for example "
            "results/lbf."
        )
    paths = _published_below(folder)
    if not paths:
        raise UsageError(
            f"{folder} holds no file SCENARIO__METHOD.json: name a folder of published results, "
            "such as results."
        )
    return sorted(map(read_result, paths), key=place)


def read_result(path: Path) -> Result:
    """One published result; a damaged file is refused."""
    facts = read_json(path)
    try:
        steps, returns = np.array(facts["steps"], int), np.array(facts["return_mean"], float)
        env = str(facts["config"]["env"])
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        reason = f"lacks {error}" if isinstance(error, KeyError) else f"is damaged ({error})"
        raise UsageError(
            f"{path} {reason}, so it is no published result: delete it and train it again."
        ) from None
    if (
        returns.ndim != 2
        or not returns.size
        or steps.shape != returns.shape
        or not np.isfinite(returns).all()
    ):
        raise UsageError(
            f"{path} has steps of shape {steps.shape} and returns of shape {returns.shape}, but "
            "both must be finite numbers [seeds, evaluations]: delete it and train it again."
        )
    n_seeds = len(_listed(facts.get("seeds", [0] * len(returns))))
    if n_seeds != len(returns):
        raise UsageError(
            f"{path} names {n_seeds} seeds, but holds the curves of {len(returns)}: train it again."
        )
    # Where its author kept the run means nothing here, and must not choose what is read.
    of_runs = ("folder", "name", "episode_returns")
    facts = {name: value for name, value in facts.items() if name not in of_runs}
    facts["timing"] = _scalars(facts.get("timing"))
    facts["notes"] = [str(note) for note in _listed(facts.get("notes"))]
    scenario, _, method = path.stem.partition("__")
    return Result(path.absolute().parent.name, scenario, method, env, steps, returns, facts)


class RunValues(NamedTuple):
    """What a report needs of a run's config.yaml."""

    values: dict[str, Any]
    """All of it, as plain values."""
    env: str
    method: str
    graph: str
    seeds: range
    steps: int
    n_envs: int
    whole_episodes: bool
    """Iterations collect whole episodes, not windows of a fixed length."""
    evaluation_episodes: int


def read_run(path: Path) -> Result:
    """A run folder, finished or not: what `metrics.jsonl` holds of all seeds; a line that a crash
    cut short is left out.

    The configuration is read as plain values: nothing that it names is imported or built."""
    config = read_config(path)
    curves, notes = _curves(read_metrics(path), config.seeds, config.steps, path)
    n_evaluations = curves["step"].shape[1]
    if config.whole_episodes:
        curves["episodes"] = curves["iteration"] * config.n_envs
    else:  # windows do not end with episodes, so that their number follows from how long they are
        lengths = np.maximum(curves["length_mean"], 1)
        curves["episodes"] = np.cumsum(np.diff(curves["step"], axis=1, prepend=0) / lengths, axis=1)
    facts: dict[str, Any] = {
        "config": config.values,
        "folder": path,
        "name": path.absolute().name,
        "seeds": list(config.seeds),
        "episodes_per_evaluation": config.evaluation_episodes,
        "timing": _timing(path),
        "episode_returns": _episode_returns(path, n_evaluations),
        "notes": notes,
        **{
            name: values
            for name, values in curves.items()
            if name not in ("step", "return_mean", "seed", "evaluation")
        },
    }
    family, _, scenario = (
        config.env.partition("/")
        if ":" not in config.env
        else ("own", "", config.env.rpartition(":")[2])
    )
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
    """A run folder, or a sentence why it has no curves yet."""
    try:
        return read_run(path)
    except UsageError as error:
        return str(error)


def read_config(path: Path) -> RunValues:
    """Of a run folder of any format; fields are checked as far as a report uses them."""
    if not (path / "config.yaml").is_file():
        raise UsageError(
            f"{path} is not a run folder (it has no config.yaml): name the folder that "
            "`dgmarl train` wrote."
        )
    values = read_yaml(path / "config.yaml")

    def field(name: str, kind: type, default: Any = None) -> Any:
        found: Any = values
        for part in name.split("."):
            found = found.get(part, default) if isinstance(found, dict) else None
        if not isinstance(found, kind) or isinstance(found, bool):
            raise UsageError(
                f"{path / 'config.yaml'} has {name} = {str(found)[:80]!r}, but a run has "
                f"{'a number' if kind is int else 'text'} there: the file is damaged, so start "
                "the run again in a new folder."
            )
        return found

    first, n_seeds = field("seed", int, 0), field("seeds", int, 5)
    # The first format had `collect: episodes`; since then `rollout_length: 0` says it.
    whole = (
        values["collect"] == "episodes"
        if "collect" in values
        else field("rollout_length", int, 0) == 0
    )
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
    """`[S, n_points]`: returns, or a metric, at steps from 0 to `last` (by default the slowest
    seed's last), interpolated."""
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
                f"{path} holds no file SCENARIO__METHOD.json and no run folder: name a folder "
                "that does."
            )
        return results
    if not path.exists():
        raise UsageError(
            f"{path} does not exist: name run folders that `dgmarl train` wrote, or published "
            "results."
        )
    if "__" in path.name:
        return [read_result(path)]
    from dgmarl.report.marl_eval import read_marl_eval

    return read_marl_eval(path)


def _evaluated_runs(folder: Path) -> Iterator[Result]:
    """All run folders below a folder, but for those that have only just begun, which are named in a
    warning."""
    for path in sorted(found.parent for found in folder.rglob("config.yaml")):
        try:
            yield read_run(path)
        except NoEvaluationError as error:
            warnings.warn(f"Left out: {error}", stacklevel=2)


def _distinct(results: list[Result]) -> list[Result]:
    """Several results of one method in one scenario are told apart by the names of their folders,
    then by number."""
    seen: dict[tuple[str, str, str], int] = {}
    places = [result[:3] for result in results]
    for k, result in enumerate(results):
        if places.count(result[:3]) > 1:
            named = f"{result.method} ({result.facts.get('name', 'file')})"
            count = seen[result.benchmark, result.scenario, named] = (
                seen.get((*result[:2], named), 0) + 1
            )
            results[k] = result._replace(method=named if count == 1 else f"{named[:-1]}, {count})")
    return results


def _published_below(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*__*.json") if not path.name.startswith(".")]


def read_json(path: Path) -> Any:
    """The content of a file."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read ({error.strerror}): check that it is a readable file."
        ) from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is damaged ({error}): delete it and make it again.") from None


def _curves(
    rows: list[dict[str, Any]], seeds: Sequence[int], steps: int, path: Path
) -> tuple[dict[str, np.ndarray], list[str]]:
    """`[S, K]` per column of metrics.jsonl, up to the last evaluation of all seeds; one that was
    done repeats its last."""
    by_place = {(int(row["seed"]), int(row["evaluation"])): row for row in _numbers(rows, path)}
    last = max((evaluation for _, evaluation in by_place), default=-1)
    complete: list[list[dict[str, float]]] = []
    # A run of which some seed has no line at all has no complete evaluation.
    for evaluation in range(last + 1 if len(seeds) <= len(by_place) else 0):
        before = complete[-1] if complete else [{"step": -np.inf}] * len(seeds)
        here = [
            by_place.get((seed, evaluation), done if done["step"] >= steps else None)
            for seed, done in zip(seeds, before, strict=True)
        ]
        if any(row is None for row in here):
            break
        complete.append([row for row in here if row is not None])
    if not complete or not len(seeds):
        raise NoEvaluationError(
            f"{path} holds no evaluation of all its seeds yet: let it train on (dgmarl train "
            f"--resume {path})."
        )
    notes = []
    if len(complete) <= last:
        missing = [seed for seed in seeds if (seed, len(complete)) not in by_place]
        named = ", ".join(map(str, missing))
        notes.append(
            f"Evaluations from {len(complete)} to {last} are left out: {len(complete)} lacks the "
            f"seeds {named}."
        )
    names = set.intersection(*(set(row) for rows in complete for row in rows))
    return {
        name: np.array([[row[name] for row in rows] for rows in complete]).T
        for name in sorted(names)
    }, notes


def _numbers(rows: list[Any], path: Path) -> list[dict[str, float]]:
    """The finite numbers of every line of metrics.jsonl, `ROW_FIELDS` among them."""
    found = []
    for row in rows:
        kept = {
            name: float(value)
            for name, value in (row.items() if isinstance(row, dict) else ())
            if isinstance(value, int | float) and abs(value) < 1e30
        }
        if not kept.keys() >= set(ROW_FIELDS):
            raise UsageError(
                f"{path / 'metrics.jsonl'} is damaged: a line lacks one of "
                f"{', '.join(ROW_FIELDS)}, or it is no number."
            )
        found.append(kept)
    return found


def _timing(folder: Path) -> dict[str, Any]:
    try:
        return _scalars(read_timing(folder))
    except (OSError, ValueError, RecursionError):  # damaged; the curves do not need it
        return {}


def _scalars(values: Any) -> dict[str, Any]:
    """Numbers and texts of a mapping; nothing of anything else."""
    found = values.items() if isinstance(values, dict) else ()
    return {str(name): value for name, value in found if isinstance(value, str | int | float)}


def _listed(values: Any) -> list[Any]:
    return values if isinstance(values, list) else []


def _episode_returns(folder: Path, n_evaluations: int) -> np.ndarray | None:
    """returns[seed, evaluation, episode] where the file is as long as the curves."""
    try:
        returns = read_returns(folder).returns
    except UsageError:
        return None
    return returns if returns.ndim == 3 and returns.shape[1] == n_evaluations else None


def place(result: Result) -> tuple:
    """For lists of results: by benchmark, scenario (numbers in numerical order) and method."""
    digits = [int(part) if part.isdigit() else -1 for part in re.split(r"(\d+)", result.scenario)]
    return result.benchmark, digits, result.scenario, result.method
