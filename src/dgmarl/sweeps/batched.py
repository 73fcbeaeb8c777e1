"""Runs of equal shape, batched into one program.

Ten seeds do not saturate an accelerator: eighty take about twice as long. Runs that differ only in
credit rule, in a given graph or in a few numbers do the same computation with other values
(`Varying`), so their seeds share one program. Up to rounding, each has the result that it would
have alone.
"""

from collections.abc import Callable, Sequence
from functools import partial
from operator import itemgetter
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from dgmarl.config.methods import METHODS, find_method
from dgmarl.config.parts import GraphCreditConfig
from dgmarl.config.resolve import with_n_envs
from dgmarl.config.schema import TrainConfig
from dgmarl.config.varying import Varying
from dgmarl.config.yaml import build, plain
from dgmarl.credit.base import team_sum
from dgmarl.credit.graph import GraphRule
from dgmarl.envs.base import Environment
from dgmarl.envs.registry import make_env
from dgmarl.graphs.sources import GivenSource, Graph, GraphSource, as_graphs, make_source
from dgmarl.rollout import Batch, Recording, needs_of
from dgmarl.runs.callbacks import TrainResult
from dgmarl.runs.playing import (
    REPLAY_EPISODES,
    infer_edges,
    record,
    write_final_replay,
    write_final_replays,
)
from dgmarl.runs.recorder import Recorder
from dgmarl.seeds import compile_together, for_seeds, spread
from dgmarl.training import Advanced, Program, Trainer, TrainState, init_seeds, train

GIVEN = ("self", "complete", "oracle", "random:", "fixed:")
"""Prefixes of graph sources that cost little and learn nothing."""
NUMBERS = (
    "learner.learning_rate",
    "learner.entropy_coef",
    "credit.unreached_weight",
    "credit.cross_weight",
    "credit.others",
    "graph_model.threshold",
)
"""Fields that may differ between batched runs besides credit rule and graph."""
TEAM_RULE, GRAPH_RULE = "dgmarl.credit.team:TeamRule", "dgmarl.credit.graph:GraphRule"
RULES = ("dgmarl.credit.local:LocalRule", TEAM_RULE, GRAPH_RULE)
"""Rules that `BatchedRule` covers."""


class BatchedRule(GraphRule):
    """Local, team and graph credit in one computation: local and team credit have a cross weight
    of 0, and with team credit every agent's reward is the sum."""

    def __init__(self, config: TrainConfig, env: Environment, varying: Varying):
        super().__init__(config, env, varying)
        self.team_reward = varying.team_reward

    def paid(self, batch: Batch) -> Float[Array, "T B N"]:
        return jnp.where(self.team_reward, team_sum(batch.reward), batch.reward)


class ChosenSource(GivenSource):
    """The graph sources of all runs of a program; each run uses one. Not updated: a source that
    learns is not batched with others."""

    def __init__(self, sources: Sequence[GraphSource], chosen: Array):
        self.sources, self.chosen = sources, chosen
        self.needs = frozenset[str]().union(*map(needs_of, sources))

    def init(self, key: PRNGKeyArray, env: Environment) -> list[Any]:
        return [source.init(key, env) for source in self.sources]

    def infer(self, graph_state: list[Any], batch: Batch, key: PRNGKeyArray) -> Graph:
        pairs = zip(self.sources, graph_state, strict=True)
        graphs = [as_graphs(source.infer(part, batch, key)).edges for source, part in pairs]
        return jnp.stack(graphs)[self.chosen]


def shape(config: TrainConfig) -> str:
    """A key that is equal for configurations that can be batched into one program."""
    method, values = find_method(config.method), plain(config)
    if method.rule not in RULES or method.whole_episodes or config.separate_seeds:
        return repr(values)
    # Local and team credit are batched with graph credit whose options are the defaults.
    values["credit"] = {**plain(GraphCreditConfig()), **values["credit"]}
    for name in NUMBERS:
        section, _, field = name.partition(".")
        values[section].pop(field, None)
    # Batched runs compute the graphs of all sources and train none, so costly, learning and custom
    # sources are not batched with others.
    apart = method.uses_graph and not config.graph.startswith(GIVEN)
    values["method"], values["graph"] = method.learner, config.graph if apart else ""
    if not config.graph.startswith(("learned", "attention")):
        del values["graph_model"]
    if config.credit.reward_scaling == "standardise":  # the shapes of the statistics differ
        values["rule"] = method.rule
    return repr(values)


def train_all(recorders: Sequence[Recorder]) -> list[TrainResult]:
    """Train or resume one run, or several batched into one program, and write replays."""
    first = recorders[0].config
    env = make_env(first.env, **first.env_options)  # the same for all
    for recorder in recorders:
        recorder.resume = recorder.has_begun
        recorder.config = with_n_envs(recorder.config, env.spec.horizon)
    configs = [recorder.config for recorder in recorders]
    if len(configs) == 1:
        program = Program(Trainer(configs[0], env))
        results = train(program, recorders)
        write_final_replay(recorders[0], program.trainer, results[0])
        return results
    batched = BatchedRuns(configs, env)
    results = train(batched, recorders)
    recorded = partial(batched.record, [result.state for result in results])
    write_final_replays(recorders, results, env, recorded)
    return results


class BatchedRuns:
    """Several runs as one program; the interface of `training.Program`."""

    def __init__(self, configs: Sequence[TrainConfig], env: Environment):
        self.configs, self.base, self.env = configs, _common(configs), env
        self.n_seeds = len(configs) * self.base.seeds
        names = [
            config.graph if find_method(config.method).uses_graph else "self" for config in configs
        ]
        self.graphs = sorted(set(names))
        pairs = zip(configs, names, strict=True)
        runs = [_varying(config, self.graphs.index(name)) for config, name in pairs]
        self.varying = jax.tree.map(
            lambda *numbers: jnp.repeat(jnp.stack(numbers), self.base.seeds, axis=0), *runs
        )
        self.iterations_per_evaluation = self._trainer().iterations_per_evaluation

    def init(self) -> list[TrainState]:
        """The initial state of each run, as if trained alone."""
        self.alone = [init_seeds(Trainer(config, self.env)) for config in self.configs]
        return list(self.alone)

    def join(self, states: list[TrainState]) -> TrainState:
        """The states of all runs, concatenated along the axis of seeds."""
        form = init_seeds(self._trainer())
        joined = jax.tree.map(
            lambda *parts: jnp.concatenate(parts), *(_in_form(state, form) for state in states)
        )
        return spread(joined, self.n_seeds)

    def compile(self, carried: TrainState) -> Callable[[Any, int], Any]:
        def stage(number: int) -> Callable[..., Any]:
            def of_run(run: tuple[Varying, Any], *common: Any) -> Any:
                return self._trainer(run[0]).stages[number](run[1], *common)

            together = self._trainer().seeds_together
            of_seeds = for_seeds(of_run, self.n_seeds, together=together)
            return lambda given, *common: of_seeds((self.varying, given), *common)

        return compile_together([stage(k) for k in range(len(self._trainer().stages))], carried)

    def part(self, advanced: Advanced, run: int) -> Advanced:
        """The part of one run, on one device: XLA ends a process whose devices wait for each other
        for longer than 40 s."""
        seeds = slice(run * self.base.seeds, (run + 1) * self.base.seeds)
        part: Advanced = jax.tree.map(
            lambda leaf: leaf[seeds], jax.device_put(advanced, jax.devices()[0])
        )
        return part._replace(state=_in_form(part.state, self.alone[run]))

    def record(self, states: list[TrainState]) -> list[Recording]:
        """Episodes of the first seed of every run, recorded by one program. As for a single run,
        those without graph credit have the oracle's graphs."""
        key = jax.random.key(0)
        oracle = frozenset({"oracle"} if self.env.offers("oracle_graph") else ())
        joined = jax.device_put(self.join(states), jax.devices()[0])
        trained = (self.varying, joined.learner.params, joined.graph_state)

        def play(run: tuple[Varying, Any, Any]) -> Recording:
            varying, params, graph_state = run
            trainer = self._trainer(varying)

            def infer(batch: Batch) -> dict[str, Array]:
                own = infer_edges(trainer, graph_state, key, batch)
                return {"own": own} | {name: batch.extras[name] for name in oracle}

            return record(trainer, params, graph_state, key, REPLAY_EPISODES, oracle, infer)

        first_seeds = jax.tree.map(lambda leaf: leaf[:: self.base.seeds], trained)
        played = jax.device_get(jax.jit(jax.vmap(play))(first_seeds))
        of_run = [jax.tree.map(itemgetter(k), played) for k in range(len(self.configs))]
        shown = ["own" if find_method(one.method).uses_graph else "oracle" for one in self.configs]
        pairs = zip(of_run, shown, strict=True)
        return [one._replace(graph=one.graph.get(graph)) for one, graph in pairs]

    def _trainer(self, varying: Varying | None = None) -> Trainer:
        """The common computation with the values of one run."""
        config, env = self.base, self.env
        numbers = varying or _varying(config, 0)
        mixed = len({config.method for config in self.configs}) > 1
        rule = BatchedRule(config, env, numbers) if mixed else None
        source = None
        if len(self.graphs) > 1 or self.graphs[0] != config.graph:
            sources = [make_source(name, config, env) for name in self.graphs]
            source = ChosenSource(sources, numbers.graph)
        return Trainer(config, env, numbers, rule, source)


def _common(configs: Sequence[TrainConfig]) -> TrainConfig:
    """The configuration that all batched runs compute: graph credit, if their methods differ."""
    graphs = [config for config in configs if find_method(config.method).uses_graph]
    if len({config.method for config in configs}) == 1 or graphs:
        return (graphs or configs)[0]
    first = configs[0]
    own = find_method(first.method)
    same = [m for m in METHODS.values() if (m.learner, m.allowed) == (own.learner, own.allowed)]
    method = next(method for method in same if method.rule == GRAPH_RULE)
    return build(TrainConfig, {**plain(first), "method": method.name})


def _in_form(state: TrainState, like: TrainState) -> TrainState:
    """`state` with the graph state of `like` if their shapes differ."""
    own, other = (jax.tree.map(jnp.shape, each.graph_state) for each in (state, like))
    return state if own == other else state._replace(graph_state=like.graph_state)


def _varying(config: TrainConfig, graph: int) -> Varying:
    numbers = Varying.of(config)._replace(
        team_reward=find_method(config.method).rule == TEAM_RULE, graph=graph
    )
    return jax.tree.map(jnp.asarray, numbers)
