"""Cells of equal shape side by side in one program: lanes.

An accelerator that runs ten seeds is mostly waiting: eighty take about twice as long. Cells that
differ only in whose reward counts, in which given graph is used or in a few numbers do the same
computation with other values, so their seeds can be lanes of one program. A lane's run is the run
its configuration gives alone, up to rounding."""

import time
from collections.abc import Sequence
from contextlib import ExitStack
from copy import copy
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from dgmarl.config.presets import TrainConfig
from dgmarl.config.yaml import override, plain
from dgmarl.envs.base import Environment
from dgmarl.envs.registry import make_env
from dgmarl.graphs.sources import GraphSource, make_source
from dgmarl.learners.ppo import PPO, PPOConfig
from dgmarl.rollout import Batch
from dgmarl.runs.recorder import Recorder, TrainResult
from dgmarl.training import Trainer, TrainState, for_seeds, spread, start_seeds, train

GIVEN = ("self", "complete", "oracle", "random:", "fixed:")
"""Graph sources that cost little and learn nothing; names, or how they begin."""
NUMBERS = (
    "learner.weighted",
    "learner.cross_weight",
    "learner.entropy",
    "learner.learning_rate",
    "graph_model.threshold",
)
"""What may differ between lanes besides credit and graph."""


class Lane(NamedTuple):
    """Where one lane differs from the others."""

    team_reward: Array
    source: Array
    """Index into the sources of all lanes."""
    numbers: dict[str, Array]


class ChosenSource:
    """All sources of a program, of which each lane uses one."""

    def __init__(self, sources: Sequence[GraphSource], chosen: Array | int = 0):
        self.sources, self.chosen = sources, chosen
        self.needs = frozenset[str]().union(*(source.needs for source in sources))

    def init(self, key: PRNGKeyArray, env: Environment) -> list[Any]:
        """The states of all of them."""
        return [source.init(key, env) for source in self.sources]

    def infer(self, graph_state: list[Any], batch: Batch, key: PRNGKeyArray) -> Array:
        """The graph of the chosen one."""
        graphs = [
            source.infer(part, batch, key)
            for source, part in zip(self.sources, graph_state, strict=True)
        ]
        return jnp.stack(graphs)[self.chosen]

    def update(
        self, graph_state: list[Any], batch: Batch, key: PRNGKeyArray
    ) -> tuple[list[Any], dict[str, Array]]:
        """Nothing to learn: a source that learns is the same in all lanes and stands alone."""
        return graph_state, {}


def shape(config: TrainConfig) -> str:
    """Equal for two configurations that can be lanes of one program."""
    values = plain(config)
    if not isinstance(config.learner, PPOConfig):
        return repr(values)
    for name in NUMBERS:
        part, _, field = name.partition(".")
        del values[part][field]
    # Lanes compute the graphs of all of them, and teach none: a source that is costly or a user's
    # own stands alone.
    apart = config.learner.credit == "graph" and not config.graph.startswith(GIVEN)
    values["method"], values["graph"] = (
        config.method.partition("-")[0],
        config.graph if apart else "",
    )
    if config.graph != "learned":
        del values["graph_model"]
    if not config.learner.standardise_reward:  # otherwise the statistics have other shapes
        del values["learner"]["credit"]
    return repr(values)


def train_all(recorders: Sequence[Recorder]) -> list[TrainResult]:
    """One program: a run alone, or several as lanes; whatever has begun goes on."""
    if len(recorders) > 1:
        return train_lanes(recorders)
    return [train(recorders[0].config, recorders[0], resume=recorders[0].has_begun)]


def train_lanes(recorders: Sequence[Recorder]) -> list[TrainResult]:
    """Train the configurations of these recorders, which must have one `shape`, at once; one result
    for each.

    A recorder whose folder holds a run goes on with it; what is written there is what the run alone
    would write. Ctrl-C stops all of them."""
    configs = [recorder.config for recorder in recorders]
    base, env = _common(configs), make_env(configs[0].env, **configs[0].env_options)
    names = ["self" if config.learner.credit != "graph" else config.graph for config in configs]
    distinct = sorted(set(names))
    lanes = _repeat(
        [_lane(config, distinct.index(name)) for config, name in zip(configs, names, strict=True)],
        base.seeds,
    )

    def trainer(lane: Lane | None = None) -> Trainer:
        trainer = Trainer(_substitute(base, lane.numbers) if lane else base, env)
        if len(distinct) > 1 or distinct[0] != base.graph:
            sources = [make_source(name, env) for name in distinct]
            trainer.source = ChosenSource(sources, lane.source if lane else 0)
        if lane:
            assert isinstance(trainer.learner, PPO)
            trainer.learner.team_reward = lane.team_reward
        return trainer

    with ExitStack() as stack:
        alone = []
        for recorder, config in zip(recorders, configs, strict=True):
            stack.enter_context(recorder)
            fresh = start_seeds(Trainer(config, env), config)
            alone.append(recorder.restore(fresh) if recorder.has_begun else recorder.begin(fresh))
        as_lane = start_seeds(trainer(), base)
        state = jax.tree.map(
            lambda *parts: jnp.concatenate(parts), *(_in_form(own, as_lane) for own in alone)
        )
        lanes, state = spread((lanes, state), len(configs) * base.seeds)
        began = time.perf_counter()

        def advance_one(of_lane: tuple[Lane, TrainState], n_iterations: Array) -> Any:
            return trainer(of_lane[0]).advance(of_lane[1], n_iterations)

        advance_all = for_seeds(advance_one, len(configs) * base.seeds)
        advance = jax.jit(
            lambda lanes, state, n_iterations: advance_all((lanes, state), n_iterations),
            donate_argnums=1,
        )
        advance = advance.lower(lanes, state, 1).compile()
        for recorder in recorders:
            recorder.compiled(time.perf_counter() - began)
        between = trainer().iterations_between_evaluations
        while any(recorder.wants_more() for recorder in recorders) and not any(
            one.interrupted for one in recorders
        ):
            state, *outcome = jax.block_until_ready(
                advance(lanes, state, between if recorders[0].steps else 1)
            )
            # Lanes are taken apart on one device: several that wait for each other longer than 40 s
            # end the process.
            here, outcome = jax.device_put((state, outcome), jax.devices()[0])
            for k, recorder in enumerate(recorders):
                if recorder.wants_more():
                    recorder.record(
                        _in_form(_part(here, k, base.seeds), alone[k]),
                        *_part(outcome, k, base.seeds),
                    )
        state = jax.device_put(state, jax.devices()[0])
        ends = [_in_form(_part(state, k, base.seeds), own) for k, own in enumerate(alone)]
        for recorder, end in zip(recorders, ends, strict=True):
            recorder.save(end)
    return [recorder.result(end) for recorder, end in zip(recorders, ends, strict=True)]


def _common(configs: Sequence[TrainConfig]) -> TrainConfig:
    """What all lanes run. Local credit is graph credit without others' rewards; global credit, that
    with the team's reward."""
    first = configs[0]
    if len({config.learner.credit for config in configs}) == 1:
        return first
    return override(
        first, {"method": f"{first.method.partition('-')[0]}-dg", "learner.credit": "graph"}
    )


def _in_form(state: TrainState, like: TrainState) -> TrainState:
    """`state` with the parts of `like` that have another form there: given graphs, and statistics
    of rewards nobody scales."""

    def part(own: Any, other: Any) -> Any:
        return own if jax.tree.map(jnp.shape, own) == jax.tree.map(jnp.shape, other) else other

    statistics = part(state.learner.statistics, like.learner.statistics)
    return state._replace(
        graph=part(state.graph, like.graph), learner=state.learner._replace(statistics=statistics)
    )


def _lane(config: TrainConfig, source: int) -> Lane:
    numbers = {}
    for name in NUMBERS:
        part, _, field = name.partition(".")
        numbers[name] = jnp.asarray(getattr(getattr(config, part), field))
    if config.learner.credit != "graph":
        numbers["learner.cross_weight"] = jnp.asarray(0.0)
    return Lane(jnp.asarray(config.learner.credit == "global"), jnp.int32(source), numbers)


def _substitute(config: TrainConfig, numbers: dict[str, Array]) -> TrainConfig:
    """The configuration with values that are known only on the device, so past all checks."""
    parts = {name.partition(".")[0] for name in numbers}
    new, fresh = copy(config), {part: copy(getattr(config, part)) for part in parts}
    for name, value in numbers.items():
        part, _, field = name.partition(".")
        object.__setattr__(fresh[part], field, value)
    for part, value in fresh.items():
        object.__setattr__(new, part, value)
    return new


def _repeat(lanes: list[Lane], n_seeds: int) -> Lane:
    return jax.tree.map(lambda *values: jnp.repeat(jnp.stack(values), n_seeds, axis=0), *lanes)


def _part(tree: Any, k: int, n_seeds: int) -> Any:
    return jax.tree.map(lambda leaf: leaf[k * n_seeds : (k + 1) * n_seeds], tree)
