"""Sources of dependence graphs, with the interface `GraphSource`.

In each iteration `infer` is called before the learner's update, and `update` after it. A graph is
Boolean, or floats in [0, 1] (soft edges); `Graphs` adds a reward graph. A custom source is any
class with the members of `GraphSource`: `--graph file.py:Source` constructs it without arguments,
and `register_source` gives it a name.
"""

import sys
from collections.abc import Callable
from io import BytesIO
from math import inf, nan
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from dgmarl.config.schema import TrainConfig
from dgmarl.config.varying import Varying
from dgmarl.envs.base import Environment
from dgmarl.envs.registry import load_object
from dgmarl.errors import UsageError
from dgmarl.files import DAMAGE, read_bytes
from dgmarl.graphs.reach import add_self_loops, check_graph
from dgmarl.rollout import Batch, needs_of
from dgmarl.trust import GRAPH_KINDS, module_file, unknown_graph

Graph = Bool[Array, "T B N N"] | Float[Array, "T B N N"]
MOST_BYTES = 10_000_000
"""Size limit of a graph file."""
METHODS = ("init", "infer", "update")
"""Required of the class of a custom source; `needs` may be set in its constructor."""


class Graphs(NamedTuple):
    """Who can influence whom at each step."""

    edges: Graph
    """A: whose action can influence whose next local state; self-loops set."""
    reward_edges: Bool[Array, "T B N N"] | None = None
    """B: whose action affects whose reward in the same step; None: only the agent's own."""


class GraphSource(Protocol):
    """A source of dependence graphs."""

    needs: frozenset[str]
    """Extras that the rollout must record, of `rollout.RECORDABLE`."""

    def init(self, key: PRNGKeyArray, env: Environment) -> Any:
        """The initial state, a pytree and part of the checkpoint."""
        ...

    def infer(self, graph_state: Any, batch: Batch, key: PRNGKeyArray) -> Graph | Graphs:
        """The graph of every step of the batch, [T, B, N, N], row = source, column = target."""
        ...

    def update(
        self, graph_state: Any, batch: Batch, key: PRNGKeyArray
    ) -> tuple[Any, dict[str, Array]]:
        """The state after learning from the batch, whose graph has been used, and metrics."""
        ...


class GivenSource:
    """Base class of sources without a state, which learn nothing."""

    needs: frozenset[str] = frozenset()

    def init(self, key: PRNGKeyArray, env: Environment) -> Any:
        return None

    def update(
        self, graph_state: Any, batch: Batch, key: PRNGKeyArray
    ) -> tuple[Any, dict[str, Array]]:
        return graph_state, {}


class FixedSource(GivenSource):
    """The same matrix at every step."""

    def __init__(self, matrix: Callable[[int], np.ndarray]):
        """matrix: maps the number of agents to the graph."""
        self.matrix = matrix

    def init(self, key: PRNGKeyArray, env: Environment) -> Bool[Array, "N N"]:
        """The matrix, as the state, so that checkpoints contain it."""
        n_agents = env.spec.n_agents
        matrix = check_graph(self.matrix(n_agents))
        if matrix.shape != (n_agents, n_agents):
            raise UsageError(
                f"The fixed graph has the shape {matrix.shape}, but {env.spec.name} has {n_agents} "
                "agents: give a square matrix of that size."
            )
        return matrix

    def infer(self, graph_state: Any, batch: Batch, key: PRNGKeyArray) -> Graph:
        return jnp.broadcast_to(graph_state, (*batch.reward.shape, batch.reward.shape[-1]))


class RandomSource(GivenSource):
    """Each pair of different agents has an edge with probability p, independently per step."""

    def __init__(self, probability: float):
        self.probability = probability

    def infer(self, graph_state: Any, batch: Batch, key: PRNGKeyArray) -> Graph:
        shape = (*batch.reward.shape, batch.reward.shape[-1])
        return add_self_loops(jax.random.bernoulli(key, self.probability, shape))


class OracleSource(GivenSource):
    """The environment's `oracle_graph`."""

    needs: frozenset[str] = frozenset({"oracle"})

    def init(self, key: PRNGKeyArray, env: Environment) -> None:
        if not env.offers("oracle_graph"):
            raise UsageError(
                f"{env.spec.name} offers no oracle graph: define oracle_graph, or choose --graph "
                "interventional."
            )

    def infer(self, graph_state: Any, batch: Batch, key: PRNGKeyArray) -> Graph:
        return batch.extras["oracle"]


Factory = Callable[[str, TrainConfig, Environment, Varying], GraphSource]
"""Arguments: the text after the colon, configuration, environment and varying numbers."""
SOURCES: dict[str, Factory] = {}
"""Factories by name; `trust.GRAPH_KINDS` has the syntax of their arguments."""


def register_source(name: str, factory: Factory, argument: str = "") -> None:
    """Add a source for `--graph NAME`. argument: syntax of what may follow the name."""
    if name in SOURCES:
        raise UsageError(f"The graph source {name} exists already: choose another name.")
    SOURCES[name] = factory
    GRAPH_KINDS.setdefault(name, argument)


def make_source(
    text: str, config: TrainConfig, env: Environment, varying: Varying | None = None
) -> GraphSource:
    """The source for the value of `--graph`."""
    name, colon, argument = text.partition(":")
    if name in SOURCES:
        allowed = GRAPH_KINDS[name]
        empty = colon and not argument and not allowed.startswith(":")
        if empty or (argument and not allowed):
            raise UsageError(f"--graph is {text!r}, but must be written {name}{allowed}.")
        return SOURCES[name](argument, config, env, varying or Varying.of(config))
    if colon and name:
        return _custom_source(text)
    raise unknown_graph(text)


def as_graphs(found: Graph | Graphs) -> Graphs:
    """The result of `infer` as `Graphs`."""
    return found if isinstance(found, Graphs) else Graphs(found)


def _custom_source(text: str) -> GraphSource:
    """Load and construct a custom source; its members are checked before any is called."""
    module = text.rpartition(":")[0]
    if module.isidentifier() and module not in sys.modules and module_file(module) is None:
        raise unknown_graph(text)
    cls = load_object(text, "graph source")
    if not isinstance(cls, type):
        raise UsageError(f"--graph {text} is not a graph source: name a class.")
    _refuse_incomplete(text, cls, METHODS)
    try:
        source = cls()
    except TypeError as error:
        raise UsageError(
            f"--graph {text}: the source cannot be constructed without arguments ({error})."
        ) from error
    _refuse_incomplete(text, source, ("needs",))
    needs_of(source)  # raises
    return source


def _refuse_incomplete(text: str, source: Any, members: tuple[str, ...]) -> None:
    missing = [name for name in members if not hasattr(source, name)]
    if missing:
        raise UsageError(
            f"--graph {text} is not a graph source, because it lacks {', '.join(missing)}: see "
            "dgmarl.graphs.sources.GraphSource."
        )


def fixed_source(path: str) -> FixedSource:
    """A matrix from a text file of 0s and 1s, separated by spaces or commas, or from a .npy file
    (never a pickle). Self-loops are always set."""
    if not path:
        raise UsageError("fixed needs a file with rows of 0 and 1, for example fixed:graph.txt.")
    content = read_bytes(path, MOST_BYTES)
    try:
        if path.endswith(".npy"):
            matrix = np.lib.format.read_array(BytesIO(content), allow_pickle=False)
        else:
            matrix = _matrix_of_text(content.decode("utf-8-sig"))
    except DAMAGE as error:
        reason = " ".join(str(error).split())
        raise UsageError(
            f"The graph file {path} cannot be read ({reason}): give a .npy file or rows of 0 and 1."
        ) from None
    _check_matrix(path, matrix)
    matrix = np.where(np.eye(*matrix.shape, dtype=bool), 1, matrix)
    return FixedSource(lambda n: matrix)


def _matrix_of_text(text: str) -> Float[np.ndarray, "R C"]:
    """Rows of numbers, separated by spaces or commas, with comments after #."""
    lines = (line.partition("#")[0].replace(",", " ").split() for line in text.splitlines())
    rows = [line for line in lines if line]
    if not rows:
        raise ValueError("it is empty")
    for number, row in enumerate(rows, start=1):
        if len(row) != len(rows[0]):
            raise ValueError(f"row 1 has {len(rows[0])} numbers, but row {number} has {len(row)}")
    return np.array([[float(word) for word in row] for row in rows])


def _check_matrix(path: str, matrix: np.ndarray) -> None:
    """Raise UsageError unless the content of a graph file is a square matrix of 0s and 1s."""
    if matrix.ndim != 2 or len(set(matrix.shape)) != 1 or not matrix.size:
        raise UsageError(
            f"The graph file {path} has the shape {matrix.shape}, but must be a square matrix: "
            "give a row and a column for each agent."
        )
    is_number = matrix.dtype == bool or np.issubdtype(matrix.dtype, np.number)
    wrong = ~np.isin(matrix, (0, 1)) if is_number else np.ones(matrix.shape, bool)
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        found = f"{matrix[row, column]:g}" if is_number else str(matrix[row, column])[:20]
        raise UsageError(
            f"The graph file {path} holds {found} in row {row + 1}, column {column + 1}, but must "
            "hold only 0 and 1: write 1 for an edge from the row's agent to the column's."
        )


def _number(text: str, highest: float, sentence: str) -> float:
    """The number from 0 to `highest`; a UsageError with the sentence for anything else."""
    try:
        number = float(text)
    except ValueError:
        number = nan
    if not 0 <= number <= highest:
        raise UsageError(sentence)
    return number


def _random(argument: str, config: TrainConfig, env: Environment, varying: Varying) -> GraphSource:
    given = f"random:{argument}" if argument else "random without a number"
    advice = "is not a probability: choose a number from 0 to 1, for example random:0.3."
    return RandomSource(_number(argument, 1, f"{given} {advice}"))


def _interventional(
    argument: str, config: TrainConfig, env: Environment, varying: Varying
) -> GraphSource:
    from dgmarl.graphs.interventional import InterventionalSource

    numbers = argument.split(":") if argument else ["1"]
    if len(numbers) > 2 or not all(number.isdecimal() for number in numbers):
        raise UsageError(
            f"interventional:{argument} needs a number of steps H and may have a number K of "
            "alternative actions per agent, both 1 or more, for example interventional:2 or "
            "interventional:1:2; for a reward graph use --credit.reward-graph measured."
        )
    measured = getattr(config.credit, "reward_graph", "none") == "measured"
    horizon, *alternatives = (int(number[:20]) for number in numbers)  # int() refuses long texts
    return InterventionalSource(horizon, measured, env, *alternatives)


def _learned(argument: str, config: TrainConfig, env: Environment, varying: Varying) -> GraphSource:
    from dgmarl.graphs.learned import LearnedSource

    return LearnedSource(config.graph_model, env, varying.threshold)


def _attention(
    argument: str, config: TrainConfig, env: Environment, varying: Varying
) -> GraphSource:
    from dgmarl.graphs.attention import THRESHOLD, AttentionSource

    sentence = (
        f"attention:{argument} is not a threshold: choose a number of 0 or more, relative to "
        "uniform attention, for example attention:0.5."
    )
    threshold = _number(argument, inf, sentence) if argument else THRESHOLD
    return AttentionSource(config, env, threshold)


register_source("learned", _learned)
register_source("oracle", lambda *_: OracleSource())
register_source("interventional", _interventional)
register_source("attention", _attention)
register_source("self", lambda *_: FixedSource(lambda n: np.eye(n, dtype=bool)))
register_source("complete", lambda *_: FixedSource(lambda n: np.ones((n, n), bool)))
register_source("random", _random)
register_source("fixed", lambda path, *_: fixed_source(path))
