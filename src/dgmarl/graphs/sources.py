"""Where dependence graphs come from. One contract: `init`, `infer` before the update, `update`
after it.

    source.needs                            what the rollout must record (rollout.RECORDABLE)
    source.init(key, env)                   -> graph_state, a pytree, part of the checkpoint
    source.infer(graph_state, batch, key)   -> graph [T, B, N, N], row = source, column = target
    source.update(graph_state, batch, key)  -> graph_state, metrics

A graph is Boolean, or floats in [0, 1] (soft edges); `Graphs` adds a reward graph. A user's own
source is any class with these four members: `--graph file.py:Source` makes it without arguments,
and `register_source` gives it a name.
"""

import sys
from collections.abc import Callable
from io import BytesIO, StringIO
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
from dgmarl.rollout import RECORDABLE, Batch
from dgmarl.trust import GRAPH_KINDS, module_file, unknown_graph

Graph = Bool[Array, "T B N N"] | Float[Array, "T B N N"]
MOST_BYTES = 10_000_000
"""Of a file with a graph."""
METHODS = ("init", "infer", "update")
"""Of a user's own source, checked before it is made; `needs` may be set when it is."""


class Graphs(NamedTuple):
    """Who can influence whom at each step."""

    edges: Graph
    """A: whose action can reach whose next local state; self-loops on."""
    reward_edges: Bool[Array, "T B N N"] | None = None
    """B: whose action moves whose reward immediately; None: only the agent's own."""


class GraphSource(Protocol):
    """A source of dependence graphs."""

    needs: frozenset[str]
    """What the rollout must record beyond the ordinary batch."""

    def init(self, key: PRNGKeyArray, env: Environment) -> Any:
        """The state of the source at the start of training."""
        ...

    def infer(self, graph_state: Any, batch: Batch, key: PRNGKeyArray) -> Graph | Graphs:
        """The graph of every step of the batch."""
        ...

    def update(
        self, graph_state: Any, batch: Batch, key: PRNGKeyArray
    ) -> tuple[Any, dict[str, Array]]:
        """Learn from the batch, after its graph has been used."""
        ...


class GivenSource:
    """Base of sources that have no state and learn nothing."""

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
        """matrix: from the number of agents."""
        self.matrix = matrix

    def init(self, key: PRNGKeyArray, env: Environment) -> Bool[Array, "N N"]:
        """The matrix is part of the run, hence of its checkpoint."""
        n_agents = env.spec.n_agents
        matrix = check_graph(self.matrix(n_agents))
        if matrix.shape != (n_agents, n_agents):
            raise UsageError(
                f"The fixed graph is {matrix.shape}, but {env.spec.name} has {n_agents} agents: "
                "give a square of that size."
            )
        return matrix

    def infer(self, graph_state: Any, batch: Batch, key: PRNGKeyArray) -> Graph:
        return jnp.broadcast_to(graph_state, (*batch.reward.shape, batch.reward.shape[-1]))


class RandomSource(GivenSource):
    """Every ordered pair of different agents has an edge with probability p, anew at each step."""

    def __init__(self, probability: float):
        if not 0 <= probability <= 1:
            raise _not_a_probability(f"{probability:g}")
        self.probability = probability

    def infer(self, graph_state: Any, batch: Batch, key: PRNGKeyArray) -> Graph:
        shape = (*batch.reward.shape, batch.reward.shape[-1])
        return add_self_loops(jax.random.bernoulli(key, self.probability, shape))


class OracleSource(GivenSource):
    """The graph that the environment itself knows."""

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
"""From the text after the colon, the configuration, the environment and the varying numbers."""
SOURCES: dict[str, Factory] = {}
"""By name; what may follow the name is in `trust.GRAPH_KINDS`."""


def register_source(name: str, factory: Factory, argument: str = "") -> None:
    """Add a source under the name that `--graph` takes; `argument` shows what follows the name."""
    if name in SOURCES:
        raise UsageError(f"The graph source {name} exists already: choose another name.")
    SOURCES[name] = factory
    GRAPH_KINDS.setdefault(name, argument)


def make_source(
    text: str, config: TrainConfig, env: Environment, varying: Varying | None = None
) -> GraphSource:
    """The source with this name on the command line."""
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
    """What a source inferred, as one record."""
    return found if isinstance(found, Graphs) else Graphs(found)


def _custom_source(text: str) -> GraphSource:
    """A user's own source: its members are checked before anything is called."""
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
            f"--graph {text}: the source cannot be made without arguments ({error})."
        ) from error
    _refuse_incomplete(text, source, ("needs",))
    if not set(source.needs) <= set(RECORDABLE):
        raise UsageError(
            f"--graph {text}: the source needs {sorted(source.needs)}, but allowed are "
            f"{', '.join(RECORDABLE)}."
        )
    return source


def _refuse_incomplete(text: str, source: Any, members: tuple[str, ...]) -> None:
    missing = [name for name in members if not hasattr(source, name)]
    if missing:
        raise UsageError(
            f"--graph {text} is not a graph source, it lacks {', '.join(missing)}: see "
            "dgmarl.graphs.sources.GraphSource."
        )


def fixed_source(path: str) -> FixedSource:
    """A matrix from a text file of 0s and 1s, separated by spaces or commas, or from a .npy file
    (never a pickle). Self-loops are always on."""
    content = read_bytes(path, MOST_BYTES)
    try:
        # Not by its name: loadtxt would fetch URLs.
        if path.endswith(".npy"):
            matrix = np.lib.format.read_array(BytesIO(content), allow_pickle=False)
        else:
            lines = content.decode("utf-8-sig").replace(",", " ")
            matrix = np.loadtxt(StringIO(lines), ndmin=2)
    except DAMAGE as error:
        reason = " ".join(str(error).split())
        raise UsageError(
            f"The graph file {path} cannot be read ({reason}): give a .npy file or rows of 0 and 1."
        ) from None
    if matrix.ndim == 2:
        matrix = np.where(np.eye(*matrix.shape, dtype=bool), 1, matrix)
    return FixedSource(lambda n: matrix)


def _random(argument: str, config: TrainConfig, env: Environment, varying: Varying) -> GraphSource:
    try:
        return RandomSource(float(argument))
    except ValueError as error:
        raise error if isinstance(error, UsageError) else _not_a_probability(argument) from None


def _interventional(
    argument: str, config: TrainConfig, env: Environment, varying: Varying
) -> GraphSource:
    from dgmarl.graphs.interventional import InterventionalSource

    if argument and not argument.isdecimal():
        raise UsageError(
            f"interventional:{argument} needs a number of steps, 1 or more, for example "
            "interventional:2; a reward graph is asked for by --credit.reward-graph measured."
        )
    measured = getattr(config.credit, "reward_graph", "none") == "measured"
    horizon = int(argument[:20] or 1)  # a text of digits has any length
    return InterventionalSource(horizon, rewards=measured, env=env)


def _learned(argument: str, config: TrainConfig, env: Environment, varying: Varying) -> GraphSource:
    from dgmarl.graphs.learned import LearnedSource

    return LearnedSource(config.graph_model, env, varying.threshold)


def _attention(
    argument: str, config: TrainConfig, env: Environment, varying: Varying
) -> GraphSource:
    from dgmarl.graphs.attention import THRESHOLD, AttentionSource

    try:
        threshold = float(argument or THRESHOLD)
    except ValueError:
        threshold = -1.0
    if not threshold >= 0:
        raise UsageError(
            f"attention:{argument} is not a threshold of attention: choose a number of 0 or more, "
            "relative to equal attention, for example attention:0.5."
        )
    return AttentionSource(config, env, threshold)


def _not_a_probability(text: str) -> UsageError:
    return UsageError(
        f"random:{text} is not a probability: choose a number from 0 to 1, for example random:0.3."
    )


register_source("learned", _learned)
register_source("oracle", lambda *_: OracleSource())
register_source("interventional", _interventional)
register_source("attention", _attention)
register_source("self", lambda *_: FixedSource(lambda n: np.eye(n, dtype=bool)))
register_source("complete", lambda *_: FixedSource(lambda n: np.ones((n, n), bool)))
register_source("random", _random)
register_source("fixed", lambda path, *_: fixed_source(path))
