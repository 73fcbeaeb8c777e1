"""The training loop: collect -> graph -> credit -> update; evaluate, log, checkpoint.

`Trainer.iterate` is one iteration of one seed, `Trainer.advance` all iterations up to the next
evaluation: a compiled program for all seeds that never leaves the device. `train` calls it and the
evaluations (`Trainer.stages`) until the slowest seed has had its steps, and hands what comes back
to recorders (the run folder, the display). All that training changes is one pytree, the
`TrainState`: a checkpoint is that pytree, so a resumed run continues exactly.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from importlib import import_module
from operator import itemgetter
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from dgmarl.config.methods import find_method
from dgmarl.config.resolve import with_n_envs
from dgmarl.config.schema import TrainConfig
from dgmarl.config.varying import Varying
from dgmarl.credit.base import CreditRule
from dgmarl.device import Devices, loops_kept, mesh_for
from dgmarl.envs.base import Environment
from dgmarl.envs.registry import make_env
from dgmarl.errors import RunError, UsageError, quiet_callbacks, raised_by_callback
from dgmarl.graphs.comparison import compare, references
from dgmarl.graphs.metrics import density
from dgmarl.graphs.reach import check_graph
from dgmarl.graphs.sources import Graphs, GraphSource, as_graphs, make_source
from dgmarl.hosts import all_together, any_process, lost_process, whole
from dgmarl.learners.base import Learner, where_active
from dgmarl.rollout import (
    Batch,
    Evaluation,
    RolloutState,
    anywhere,
    collect,
    count_unusable,
    evaluate,
    reset_envs,
)
from dgmarl.seeds import compile_separately, compile_together, for_seeds, of_seed, spread

NOT_RECORDED = frozenset({"graph", "probs"})
"""Needs of credit rules that are computed from the batch instead of recorded in the rollout."""
GRAPH_EPISODES = 10
"""Interventional ground truth costs N x A environment steps per state, so only this many episodes
are scored."""


class Best(NamedTuple):
    """The policy with the highest evaluation so far. Its evaluation is biased upwards by the
    choice: report the last policy, use this one."""

    mean_return: Float[Array, ""]
    params: Any


class TrainState(NamedTuple):
    """Everything about one seed."""

    key: PRNGKeyArray
    iteration: Int[Array, ""]
    step: Int[Array, ""]
    """Environment steps that really happened."""
    rollout_state: RolloutState | None
    """The environments between two rollouts; None if every iteration starts with fresh episodes."""
    learner: Any
    graph_state: Any
    credit_state: Any
    best: Best


class Iterated(NamedTuple):
    """After the iterations between two evaluations."""

    state: TrainState
    metrics: dict[str, Array]
    """Averaged over the iterations."""
    active: Bool[Array, ""]
    """Whether the seed still had steps to go before them."""


class Advanced(NamedTuple):
    """What comes back from the device at an evaluation."""

    state: TrainState
    metrics: dict[str, Array]
    evaluation: Evaluation
    active: Bool[Array, ""]


class Trainer:
    """The pure functions of one run."""

    def __init__(
        self,
        config: TrainConfig,
        env: Environment | None = None,
        varying: Varying | None = None,
        rule: CreditRule | None = None,
        source: GraphSource | None = None,
    ):
        """env, rule, source: instead of those that the configuration names. varying: instead of the
        configuration's numbers, for runs that are batched into one program."""
        self.env = env or make_env(config.env, **config.env_options)
        self.config = config = with_n_envs(config, self.env.spec.horizon)
        varying = varying or Varying.of(config)
        method = find_method(config.method)
        self.learner: Learner = _load(method.learner)(config, self.env, varying)
        self.rule: CreditRule = rule or _load(method.rule)(config, self.env, varying)
        self.uses_graph = "graph" in self.rule.needs
        graph = config.graph if self.uses_graph else "self"
        self.source = source or make_source(graph, config, self.env, varying)
        self.resets = config.rollout_length > 0
        self.length = config.rollout_length or self.env.spec.horizon
        self.needs = self.source.needs | self.learner.needs | (self.rule.needs - NOT_RECORDED)
        self.probs = getattr(self.learner, "probs", None) if "probs" in self.rule.needs else None
        if "probs" in self.rule.needs and self.probs is None:
            raise UsageError(
                f"method is {config.method}, whose credit rule needs the policy's probabilities, "
                f"but {type(self.learner).__name__} has no `probs`: define it, or choose another "
                "learner."
            )
        per_iteration = self.length * config.n_envs
        if config.steps < per_iteration:
            raise UsageError(
                f"steps is {config.steps:,}, but one iteration alone can take {per_iteration:,}: "
                "train for at least that long."
            )
        self.iterations_per_evaluation = -(-config.evaluation.interval // per_iteration)

    def init(self, key: PRNGKeyArray) -> TrainState:
        """One seed before its first step."""
        key, learner_key, graph_key, rollout_key = jax.random.split(key, 4)
        learner = self.learner.init(learner_key)
        return TrainState(
            key=key,
            iteration=jnp.int32(0),
            step=jnp.int32(0),
            rollout_state=self._reset_envs(rollout_key) if self.resets else None,
            learner=learner,
            graph_state=self.source.init(graph_key, self.env),
            credit_state=self.rule.init(jax.random.fold_in(graph_key, 1), self.env),
            best=Best(jnp.float32(-jnp.inf), learner.params),
        )

    def iterate(self, state: TrainState) -> tuple[TrainState, dict[str, Array]]:
        """One iteration of one seed. Seeds past `config.steps` are frozen by masking."""
        active = self._active(state)
        key, start_key, play_key, infer_key, learn_key, update_key = jax.random.split(state.key, 6)
        rollout_state = state.rollout_state or self._reset_envs(start_key)
        policy = self.learner.behaviour(state.learner, state.step)

        rollout_state, batch = collect(
            self.env, policy, rollout_state, play_key, self.length, self.needs, reset=self.resets
        )
        if self.probs is not None:
            probs = self.probs(state.learner, batch)
            batch = batch._replace(extras={**batch.extras, "probs": probs})
        # The graph comes from models that have not seen this batch.
        graph = self.infer_graph(state, batch, infer_key) if self.uses_graph else None
        values = self.learner.values(state.learner, batch)
        credit = self.rule.assign(state.credit_state, batch, values, graph)
        learner, metrics = self.learner.update(state.learner, batch, credit, learn_key, active)

        graph_state, graph_metrics = self.source.update(state.graph_state, batch, update_key)
        rule_key = jax.random.fold_in(update_key, 1)
        credit_state, credit_metrics = self.rule.update(state.credit_state, batch, rule_key)
        new = state._replace(
            key=key,
            iteration=state.iteration + 1,
            step=state.step + batch.valid.sum(),
            rollout_state=rollout_state if self.resets else None,
            graph_state=graph_state,
            credit_state=credit_state,
        )
        # The learner has masked itself: its replay buffer is too large to be copied here.
        frozen = where_active(active, new._replace(learner=None), state._replace(learner=None))
        metrics |= graph_metrics | credit_metrics | self._rollout_metrics(batch, graph)
        metrics |= count_unusable(batch)
        return frozen._replace(learner=learner), metrics

    def infer_graph(self, state: TrainState, batch: Batch, key: PRNGKeyArray) -> Graphs:
        """The dependence graph of every step."""
        return as_graphs(self.source.infer(state.graph_state, batch, key))

    @property
    def stages(self) -> list[Callable[..., Any]]:
        """`advance` and the evaluations after it, each of what the one before returns. They are
        programs of their own because those compile at the same time."""
        learns = self.uses_graph and getattr(self.source, "learns", False)
        return [self.advance, *([self.evaluate_graph] if learns else []), self.evaluate_policy]

    def advance(self, state: TrainState, n_iterations: Int[Array, ""]) -> Iterated:
        """Up to `n_iterations` of one seed, fewer if all seeds have had their steps."""

        def unfinished(carry: tuple[Array, TrainState, dict[str, Array]]) -> Bool[Array, ""]:
            return (carry[0] < n_iterations) & anywhere(self._active(carry[1]))

        def one_iteration(carry: tuple[Array, TrainState, dict[str, Array]]) -> Any:
            count, state, sums = carry
            active = self._active(state)
            state, metrics = self.iterate(state)
            sums = {name: sums[name] + jnp.where(active, metrics[name], 0) for name in sums}
            return count + 1, state, sums

        before, active = state.iteration, self._active(state)
        with loops_kept(self.env.loops_inside):
            shapes = jax.eval_shape(lambda state: self.iterate(state)[1], state)
            zeros = {name: jnp.zeros(shape.shape, shape.dtype) for name, shape in shapes.items()}
            start = (jnp.int32(0), state, zeros)
            _, state, sums = jax.lax.while_loop(unfinished, one_iteration, start)
        count = jnp.maximum(state.iteration - before, 1)
        return Iterated(state, {name: sums[name] / count for name in sums}, active)

    def evaluate_graph(self, iterated: Iterated) -> Iterated:
        """Agreement of a learned graph with oracle and simulator, on fresh episodes."""
        state = iterated.state
        start_key, play_key, infer_key = jax.random.split(_evaluation_keys(state)[2], 3)
        n_envs = min(self.config.n_envs, GRAPH_EPISODES)
        hidden_state = self.learner.init_hidden_state(n_envs)
        start = reset_envs(self.env, start_key, hidden_state, n_envs)
        policy = self.learner.behaviour(state.learner, state.step)
        needs, horizon = self.needs | references(self.env), self.env.spec.horizon
        _, batch = collect(self.env, policy, start, play_key, horizon, needs, reset=False)
        agreement = compare(self.env, self.infer_graph(state, batch, infer_key).edges, batch)
        return iterated._replace(metrics=iterated.metrics | agreement)

    def evaluate_policy(self, iterated: Iterated) -> Advanced:
        """Episodes of the current policy; it is kept if it is the best so far."""
        state, active = iterated.state, iterated.active
        key, evaluation_key, _ = _evaluation_keys(state)
        params = state.learner.params
        evaluation, sampled = self.play_episodes(params, evaluation_key)
        mean_return = evaluation.returns.mean()
        better = active & (mean_return > state.best.mean_return)
        best = where_active(better, Best(mean_return, params), state.best)
        state = state._replace(key=where_active(active, key, state.key), best=best)
        # Losses are those before the last update; this shows whether that one diverged.
        metrics = iterated.metrics | {"parameter_norm": optax.global_norm(params)}
        metrics |= _endings(evaluation)
        if sampled is not None:
            metrics["sampled_return"] = sampled.returns.mean()
            metrics |= {f"sampled_{name}": mean for name, mean in _endings(sampled).items()}
        return Advanced(state, metrics, evaluation, active)

    def evaluate(self, params: Any, key: PRNGKeyArray, n_episodes: int) -> Evaluation:
        """Whole episodes with a fixed policy."""
        act = partial(self.learner.act, params, greedy=self.config.evaluation.greedy)
        hidden_state = self.learner.init_hidden_state(n_episodes)
        return evaluate(self.env, act, key, hidden_state, n_episodes)

    def play_episodes(self, params: Any, key: PRNGKeyArray) -> tuple[Evaluation, Evaluation | None]:
        """The policy as it is judged, and if that is greedy, as many further episodes with sampled
        actions. They are played side by side, which compiles the environment once."""
        n = self.config.evaluation.episodes
        if not self.config.evaluation.greedy:
            return self.evaluate(params, key, n), None

        def act(*situation: Any) -> tuple[Array, Array, Any]:
            best, log_prob, hidden_state = self.learner.act(params, *situation, greedy=True)
            sampled, _, _ = self.learner.act(params, *situation)
            return jnp.where(jnp.arange(2 * n)[:, None] < n, best, sampled), log_prob, hidden_state

        both = evaluate(self.env, act, key, self.learner.init_hidden_state(2 * n), 2 * n)
        greedy, other = (
            jax.tree.map(itemgetter(part), both) for part in (slice(n), slice(n, None))
        )
        return greedy, other

    def check_graphs(self, state: TrainState) -> None:
        """Inspect real graphs, of the first seed, of a source or environment from outside the
        package: values cannot be seen while tracing."""
        if all(type(part).__module__.startswith("dgmarl.") for part in (self.env, self.source)):
            return

        @jax.jit
        def first_graph(state: TrainState) -> Graphs:
            state = of_seed(state, 0)
            start = self._reset_envs(state.key)
            act = partial(self.learner.act, state.learner.params)
            _, batch = collect(self.env, act, start, state.key, 1, self.needs, reset=False)
            return self.infer_graph(state, batch, state.key)

        try:
            found = first_graph(state).edges
        except Exception as error:
            reason = " ".join(str(error).split())[:200]
            raise UsageError(
                f"The graph source failed with {type(error).__name__}: {reason}."
            ) from error
        _check_edges(found, (1, self.config.n_envs, *(self.env.spec.n_agents,) * 2))

    def _rollout_metrics(self, batch: Batch, graph: Graphs | None) -> dict[str, Array]:
        """Return of whole episodes; fixed-length rollouts cut episodes, so they have none."""
        metrics = {}
        if not self.resets:
            metrics["episode_return"] = batch.reward.sum() / batch.valid.shape[1]
        if graph is not None:
            metrics["graph_density"] = density(graph.edges > 0, batch.valid)
        return metrics

    def _reset_envs(self, key: PRNGKeyArray) -> RolloutState:
        n_envs = self.config.n_envs
        return reset_envs(self.env, key, self.learner.init_hidden_state(n_envs), n_envs)

    def _active(self, state: TrainState) -> Bool[Array, ""]:
        """Whether a seed has steps left."""
        return state.step < self.config.steps


class Recorder(Protocol):
    """Keeps, writes and shows what one run gives; used as a context."""

    interrupted: bool

    def __enter__(self) -> Any: ...
    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None: ...

    def start(self, state: TrainState) -> TrainState:
        """Begin a new run, or restore one: `state` is then its template."""
        ...

    def share(self, state: TrainState) -> TrainState:
        """The state and the history of process 0, in every process of a run."""
        ...

    def compiled(self, seconds: float) -> None:
        """Compilation is over."""
        ...

    def wants_more(self) -> bool:
        """Some seed has steps left, and nobody asked to stop."""
        ...

    def is_new(self) -> bool:
        """Nothing has been evaluated yet."""
        ...

    def record(self, advanced: Advanced) -> None:
        """One evaluation of all seeds."""
        ...

    def failure(self, what: str) -> RunError:
        """The error for an environment that failed."""
        ...

    def finish(self, state: TrainState) -> Any:
        """Save, and return the run as arrays."""
        ...


class Program:
    """One run as a program; `sweeps.batched` has the same interface for several runs."""

    def __init__(self, trainer: Trainer, init_params: Any = None, devices: Devices = None):
        """init_params: policy and critic that all seeds start from, instead of fresh ones. devices:
        see `mesh_for`."""
        self.trainer, self.n_seeds, self.init_params = trainer, trainer.config.seeds, init_params
        if trainer.env.on_host and devices not in (None, 1, "1"):
            raise UsageError(
                f"{trainer.config.env} is played in worker processes, so its program has one "
                f"device, not {devices}: leave devices away, or give the environment more workers."
            )
        self.separate = trainer.config.separate_seeds
        n_envs = 1 if self.separate else trainer.config.n_envs  # may be divided among devices
        self.mesh = mesh_for(self.n_seeds, n_envs, devices)
        self.iterations_per_evaluation = trainer.iterations_per_evaluation

    def init(self) -> list[TrainState]:
        """The state of each run, seeds first, before its first step."""
        state = init_seeds(self.trainer)
        if self.init_params is not None:
            state = _start_from(self.init_params, state)
        if self.trainer.uses_graph:
            self.trainer.check_graphs(state)
        return [state]

    def join(self, states: list[TrainState]) -> Any:
        """All that is carried, from the states of the runs."""
        return spread(states[0], self.n_seeds, self.mesh)

    def compile(self, carried: Any) -> Callable[[Any, int], Any]:
        """The stages as compiled programs, for each device its own if seeds are separate."""
        stages = self.trainer.stages
        if self.separate:
            return compile_separately(stages, carried)
        return compile_together(
            [for_seeds(stage, self.n_seeds, self.mesh) for stage in stages], carried
        )

    def part(self, advanced: Advanced, run: int) -> Advanced:
        """What belongs to one run."""
        return advanced


def train(program: Any, recorders: Sequence[Recorder]) -> list[Any]:
    """Train all runs of a program until the slowest seed has had its steps; one result for each."""
    fresh = program.init()  # refuses what cannot run before anything is written
    with ExitStack() as stack:
        stack.enter_context(quiet_callbacks())
        for recorder in recorders:
            stack.enter_context(recorder)
        pairs = zip(recorders, fresh, strict=True)
        with all_together():
            states = [recorder.start(state) for recorder, state in pairs]
        states = [recorder.share(state) for recorder, state in zip(recorders, states, strict=True)]
        if any(recorder.wants_more() for recorder in recorders):
            states = _train(program, recorders, states)
        pairs = zip(recorders, states, strict=True)
        with all_together():
            return [recorder.finish(state) for recorder, state in pairs]


def _train(program: Any, recorders: Sequence[Recorder], states: list[Any]) -> list[Any]:
    """Compile, then alternate between the device and the recorders."""
    carried = program.join(states)
    began = time.perf_counter()
    advance = program.compile(carried)
    for recorder in recorders:
        recorder.compiled(time.perf_counter() - began)
    while any(recorder.wants_more() for recorder in recorders):
        # The first evaluation comes after one iteration.
        n_iterations = 1 if recorders[0].is_new() else program.iterations_per_evaluation
        try:
            advanced = jax.block_until_ready(advance(carried, n_iterations))
        except jax.errors.JaxRuntimeError as error:
            if raised := raised_by_callback(error):
                raise recorders[0].failure(raised) from None
            raise lost_process(error) or error from None
        carried, advanced = advanced.state, whole(advanced)
        with all_together():
            for k, recorder in enumerate(recorders):
                part = program.part(advanced, k)
                states[k] = part.state
                if recorder.wants_more():
                    recorder.record(part)
        if any_process(any(recorder.interrupted for recorder in recorders)):
            break
    return states


def init_seeds(trainer: Trainer) -> TrainState:
    """All seeds of a run before their first step."""
    keys = jax.vmap(jax.random.key)(trainer.config.seed + jnp.arange(trainer.config.seeds))
    one_by_one = trainer.config.separate_seeds
    init = partial(jax.lax.map, trainer.init) if one_by_one else jax.vmap(trainer.init)
    return jax.jit(init)(keys)


def _start_from(params: Any, state: TrainState) -> TrainState:
    """Every seed begins with the same policy and critic, which must have the shapes of its own."""
    fresh = state.learner.params
    if jax.tree.map(jnp.shape, params) != jax.tree.map(lambda leaf: leaf.shape[1:], fresh):
        raise UsageError(
            "The policy to start from has other sizes than this run's: use the same environment, "
            "method and network."
        )
    params = jax.tree.map(lambda new, old: jnp.broadcast_to(new, old.shape), params, fresh)
    return state._replace(learner=state.learner.with_params(params))


def _check_edges(found: Array, expected: tuple[int, ...]) -> None:
    """What a source from outside the package gives: Boolean edges, or soft ones in [0, 1]."""
    if found.dtype != bool and not jnp.issubdtype(found.dtype, jnp.floating):
        raise UsageError(
            f"The graph source gives {found.dtype}, but must give booleans, or floats from 0 to 1: "
            "add .astype(bool) or a threshold."
        )
    if found.dtype == bool:
        check_graph(found)
    elif not bool(jnp.all((found >= 0) & (found <= 1))):
        raise UsageError("The graph source gives soft edges outside [0, 1]: clip them.")
    if found.shape != expected:
        raise UsageError(
            f"The graph source gives the shape {found.shape}, but must give [T, B, N, N], here "
            f"{expected}."
        )


def _evaluation_keys(state: TrainState) -> PRNGKeyArray:
    """Of the state after an evaluation, of the policy's episodes and of the graph's."""
    return jax.random.split(state.key, 3)


def _endings(evaluation: Evaluation) -> dict[str, Array]:
    """Means over episodes of the numbers of `info` after the last step."""
    return {f"final_{name}": each.mean() for name, each in evaluation.endings.items()}


def _load(name: str) -> Any:
    """The class that the table of methods names."""
    module, _, cls = name.partition(":")
    return getattr(import_module(module), cls)
