"""Where dependence graphs come from. One interface: `init`, `infer` before the update, `update`
after it.

    source.needs                                what the rollout must record: "oracle", "states", "keys", "local"
    source.init(key, env)            -> gstate  a pytree, part of the checkpoint
    source.infer(gstate, batch, key) -> bool[T, B, N, N], row = source, column = target, self-loops on
    source.update(gstate, batch, key) -> gstate, metrics

A user's own source is any object with these four; `--graph file.py:Source` calls it without
arguments."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, PRNGKeyArray

from dgmarl.envs.base import Environment
from dgmarl.envs.registry import load_object
from dgmarl.errors import UsageError
from dgmarl.graphs.interventional import InterventionalSource
from dgmarl.graphs.learned import GraphModelConfig, LearnedSource
from dgmarl.graphs.reach import add_self_loops, check_graph
from dgmarl.rollout import RECORDABLE, Batch

Graph = Bool[Array, "T B N N"]
NAMES = "learned, self, complete, oracle, interventional, interventional:H, random:P, fixed:FILE or file.py:Source"


class GraphSource(Protocol):
    """What a source of dependence graphs offers."""

    needs: frozenset[str]
    """What the rollout must record for `infer` and `update` beyond the ordinary batch."""

    def init(self, key: PRNGKeyArray, env: Environment) -> Any:
        """The state of the source at the start of training."""
        ...

    def infer(self, graph_state: Any, batch: Batch, key: PRNGKeyArray) -> Graph:
        """The graph of every step of the batch."""
        ...

    def update(
        self, graph_state: Any, batch: Batch, key: PRNGKeyArray
    ) -> tuple[Any, dict[str, Array]]:
        """Learn from the batch, after its graph has been used."""
        ...


class FixedSource:
    """The same graph at every step, by name or as a matrix; nothing to learn."""

    needs: frozenset[str] = frozenset()

    def __init__(self, matrix: Callable[[int], np.ndarray]):
        self.matrix = matrix

    def init(self, key: PRNGKeyArray, env: Environment) -> Bool[Array, "N N"]:
        """The matrix itself: it is part of the run, so it is part of its checkpoint."""
        matrix, n_agents = check_graph(self.matrix(env.spec.n_agents)), env.spec.n_agents
        if matrix.shape != (n_agents, n_agents):
            raise UsageError(
                f"The fixed graph is {matrix.shape}, but {env.spec.name} has {n_agents} agents: "
                "give a square of that size."
            )
        return matrix

    def infer(self, graph_state: Any, batch: Batch, key: PRNGKeyArray) -> Graph:
        """The matrix, for every step."""
        return jnp.broadcast_to(graph_state, (*batch.reward.shape, batch.reward.shape[-1]))

    def update(
        self, graph_state: Any, batch: Batch, key: PRNGKeyArray
    ) -> tuple[Any, dict[str, Array]]:
        """Nothing to learn."""
        return graph_state, {}


class RandomSource:
    """Every ordered pair of different agents has an edge with probability p, anew at each step."""

    needs: frozenset[str] = frozenset()

    def __init__(self, probability: float):
        if not 0 <= probability <= 1:
            raise UsageError(
                f"random:{probability:g} is not a probability: choose a number from 0 to 1, for "
                "example random:0.3."
            )
        self.probability = probability

    def init(self, key: PRNGKeyArray, env: Environment) -> None:
        """Nothing to remember."""

    def infer(self, graph_state: Any, batch: Batch, key: PRNGKeyArray) -> Graph:
        """Fresh edges for every step."""
        shape = (*batch.reward.shape, batch.reward.shape[-1])
        return add_self_loops(jax.random.bernoulli(key, self.probability, shape))

    def update(
        self, graph_state: Any, batch: Batch, key: PRNGKeyArray
    ) -> tuple[Any, dict[str, Array]]:
        """Nothing to learn."""
        return graph_state, {}


class OracleSource:
    """The graph that the environment itself knows."""

    needs: frozenset[str] = frozenset({"oracle"})

    def init(self, key: PRNGKeyArray, env: Environment) -> None:
        """Nothing to remember, but the environment must know its graph."""
        if not env.offers("oracle_graph"):
            raise UsageError(
                f"{env.spec.name} offers no oracle graph: define oracle_graph, or choose --graph "
                "interventional."
            )

    def infer(self, graph_state: Any, batch: Batch, key: PRNGKeyArray) -> Graph:
        """What was recorded at each step."""
        return batch.extras["oracle"]

    def update(
        self, graph_state: Any, batch: Batch, key: PRNGKeyArray
    ) -> tuple[Any, dict[str, Array]]:
        """Nothing to learn."""
        return graph_state, {}


def self_source() -> FixedSource:
    """Nobody influences anybody else."""
    return FixedSource(lambda n: np.eye(n, dtype=bool))


def complete_source() -> FixedSource:
    """Everybody influences everybody."""
    return FixedSource(lambda n: np.ones((n, n), bool))


def fixed_source(path: str) -> FixedSource:
    """A matrix from a text file of 0s and 1s, or from a .npy file (never a pickle)."""
    try:
        matrix = (
            np.load(path, allow_pickle=False)
            if path.endswith(".npy")
            else np.loadtxt(path, ndmin=2)
        )
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise UsageError(
            f"The graph file {path} cannot be read ({reason}): give a .npy file or rows of 0 and 1."
        ) from None
    return FixedSource(lambda n: matrix)


def make_source(
    text: str, env: Environment, rows: int = 1, model: GraphModelConfig | None = None
) -> GraphSource:
    """A source by its name on the command line: one of `NAMES`.

    rows: steps per batch over all environments, and model: its numbers, both for the learned source
      only."""
    simple: dict[str, Callable[[], GraphSource]] = {
        "learned": lambda: LearnedSource(model or GraphModelConfig(), env, rows),
        "self": self_source,
        "complete": complete_source,
        "oracle": OracleSource,
        "interventional": lambda: InterventionalSource(env=env),
    }
    if text in simple:
        return simple[text]()
    kind, colon, rest = text.partition(":")
    if kind == "interventional" and colon:
        return InterventionalSource(_horizon(rest), env=env)
    if kind == "random" and colon:
        return RandomSource(_probability(rest))
    if kind == "fixed" and colon:
        return fixed_source(rest)
    if colon and Path(kind).stem:
        return _custom_source(text)
    raise UsageError(f"--graph is {text!r}, but must be {NAMES}.")


def _custom_source(text: str) -> GraphSource:
    """A user's own source, which must have the four members and ask only for what a rollout can
    record."""
    found = load_object(text, "graph source")
    if not isinstance(found, type):
        raise UsageError(f"--graph {text} is not a graph source: name a class.")
    # Checked before the call: not every class that a name finds may be called.
    _refuse_incomplete(text, found, ("init", "infer", "update"))
    try:
        source = found()
    except TypeError as error:
        raise UsageError(
            f"--graph {text}: the source cannot be made without arguments ({error})."
        ) from error
    _refuse_incomplete(text, source, ("needs",))
    if not set(source.needs) <= set(RECORDABLE):
        raise UsageError(
            f"--graph {text}: the source needs {sorted(source.needs)}, but allowed are {', '.join(RECORDABLE)}."
        )
    return source


def _refuse_incomplete(text: str, source: Any, members: tuple[str, ...]) -> None:
    missing = [name for name in members if not hasattr(source, name)]
    if missing:
        raise UsageError(
            f"--graph {text}: the source lacks {', '.join(missing)}; see "
            "dgmarl.graphs.sources.GraphSource."
        )


def _probability(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UsageError(
            f"random:{text} is not a probability: choose a number from 0 to 1, for example "
            "random:0.3."
        ) from None


def _horizon(text: str) -> int:
    if not text.isdecimal():
        raise UsageError(
            f"interventional:{text} needs a number of steps, 1 or more, for example "
            "interventional:2."
        )
    return int(text)
