"""The training loop: collect -> graph -> credit -> update; evaluate, log, checkpoint.

`Trainer.iterate` is one iteration of one seed. `Trainer.advance` loops over the iterations up to
the next evaluation; it is compiled for all seeds and runs entirely on the device. `train` calls it
and the evaluations (`Trainer.stages`) until every seed has reached `config.steps`, and passes the
results to recorders (run folder, display). Everything that changes during training is one pytree,
`TrainState`; a checkpoint is that pytree, so a resumed run continues exactly.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from dgmarl.arrays import anywhere
from dgmarl.config.methods import find_method
from dgmarl.config.resolve import with_n_envs
from dgmarl.config.schema import TrainConfig
from dgmarl.config.varying import Varying
from dgmarl.credit.base import CreditRule
from dgmarl.device import Devices, loops_kept, mesh_for
from dgmarl.envs.base import Environment
from dgmarl.envs.registry import make_env
from dgmarl.errors import RunError, UsageError, one_line, quiet_callbacks, raised_by_callback
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
    collect,
    count_unusable,
    evaluate,
    needs_of,
    reset_envs,
)
from dgmarl.seeds import compile_separately, compile_together, for_seeds, of_seed, spread

NOT_RECORDED = frozenset({"graph", "probs"})
"""Needs of credit rules that are computed from the batch instead of recorded in the rollout."""
GRAPH_EPISODES = 10
"""Most episodes on which a learned graph is evaluated: interventional ground truth costs N x A
environment steps per state."""


class Best(NamedTuple):
    """The policy with the highest mean evaluation return so far. The selection biases this return
    upwards: use this policy, but report the last one."""

    mean_return: Float[Array, ""]
    params: Any


class TrainState(NamedTuple):
    """Everything that changes during the training of one seed."""

    key: PRNGKeyArray
    iteration: Int[Array, ""]
    step: Int[Array, ""]
    """Environment steps taken; padding after the end of an episode does not count."""
    rollout_state: RolloutState | None
    """The environments between two rollouts; None if every iteration starts new episodes."""
    learner: Any
    graph_state: Any
    credit_state: Any
    best: Best


class Iterated(NamedTuple):
    """Result of the iterations between two evaluations."""

    state: TrainState
    metrics: dict[str, Array]
    """Averaged over the iterations."""
    active: Bool[Array, ""]
    """Whether the seed was below `config.steps` before the first of them."""


class Advanced(NamedTuple):
    """Result of all stages: the iterations and the evaluation after them."""

    state: TrainState
    metrics: dict[str, Array]
    evaluation: Evaluation
    active: Bool[Array, ""]


class Trainer:
    """Environment, learner, credit rule and graph source of a run, and its pure functions."""

    def __init__(
        self,
        config: TrainConfig,
        env: Environment | None = None,
        varying: Varying | None = None,
        rule: CreditRule | None = None,
        source: GraphSource | None = None,
    ):
        """env, rule, source: replace those named in the configuration. varying: replaces the
        configuration's numbers where several runs are batched into one program."""
        self.env = env or make_env(config.env, **config.env_options)
        self.config = config = with_n_envs(config, self.env.spec.horizon)
        varying = varying or Varying.of(config)
        method = find_method(config.method)
        self.learner: Learner = _load(method.learner)(config, self.env, varying)
        self.rule: CreditRule = rule or _load(method.rule)(config, self.env, varying)
        of_rule = needs_of(self.rule, sorted(NOT_RECORDED))
        self.uses_graph = "graph" in of_rule
        graph = config.graph if self.uses_graph else "self"
        self.source = source or make_source(graph, config, self.env, varying)
        self.learns_graph = self.uses_graph and getattr(self.source, "learns", False)
        self.resets = config.rollout_length > 0  # else each iteration plays whole episodes
        self.length = config.rollout_length or self.env.spec.horizon
        self.needs = needs_of(self.source) | needs_of(self.learner) | (of_rule - NOT_RECORDED)
        self.probs = getattr(self.learner, "probs", None) if "probs" in of_rule else None
        if "probs" in of_rule and self.probs is None:
            raise UsageError(
                f"method is {config.method}, whose credit rule needs the policy's probabilities, "
                f"but {type(self.learner).__name__} has no `probs`: define it, or choose another "
                "learner."
            )
        per_iteration = self.length * config.n_envs
        if config.steps < per_iteration:
            raise UsageError(
                f"steps is {config.steps:,}, but one iteration can take {per_iteration:,} steps: "
                "set steps to at least that number."
            )
        self.iterations_per_evaluation = -(-config.evaluation.interval // per_iteration)

    def init(self, key: PRNGKeyArray) -> TrainState:
        """The initial state of one seed."""
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
        """One iteration of one seed; returns the new state and metrics. Seeds past `config.steps`
        are frozen by masking."""
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
        # [T, B, N, N], by models that were not trained on this batch; they are updated below.
        graph = self.infer_graph(state, batch, infer_key) if self.uses_graph else None
        values = self.learner.values(state.learner, batch)  # of each step and its successor
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
        # `learner.update` masks its own state: a replay buffer is too large to be copied here.
        new = where_active(active, new._replace(learner=None), state._replace(learner=None))
        metrics |= graph_metrics | credit_metrics | self._rollout_metrics(batch, graph)
        return new._replace(learner=learner), metrics

    def infer_graph(self, state: TrainState, batch: Batch, key: PRNGKeyArray) -> Graphs:
        """The dependence graph of every step of a batch."""
        return as_graphs(self.source.infer(state.graph_state, batch, key))

    @property
    def stages(self) -> list[Callable[..., Any]]:
        """`advance` and the evaluations; each takes what the previous one returns. They are
        separate programs so that they compile in parallel."""
        of_graph = [self.evaluate_graph] if self.learns_graph else []
        return [self.advance, *of_graph, self.evaluate_policy]

    @property
    def seeds_together(self) -> bool:
        """Whether a CPU, too, computes seeds together: environments in worker processes step side
        by side, and replay buffers are not copied."""
        return self.env.on_host or getattr(self.learner, "has_replay", False)

    def advance(self, state: TrainState, n_iterations: Int[Array, ""]) -> Iterated:
        """Up to `n_iterations` iterations of one seed; stops when all seeds have reached
        `config.steps`."""

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
        """Agreement of a learned graph with the oracle and the interventional graph, measured on
        new episodes."""
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
        """Evaluate the current policy, and keep it if it is the best so far."""
        state, active = iterated.state, iterated.active
        key, evaluation_key, _ = _evaluation_keys(state)
        params = state.learner.params
        evaluation, sampled = self.play_episodes(params, evaluation_key)
        mean_return = evaluation.returns.mean()
        better = active & (mean_return > state.best.mean_return)
        best = where_active(better, Best(mean_return, params), state.best)
        state = state._replace(key=where_active(active, key, state.key), best=best)
        # The losses were computed before the last update; the norm shows whether it diverged.
        metrics = iterated.metrics | {"parameter_norm": jnp.linalg.norm(ravel_pytree(params)[0])}
        metrics |= _final_info(evaluation)
        if sampled is not None:
            metrics["sampled_return"] = sampled.returns.mean()
            metrics |= {f"sampled_{name}": mean for name, mean in _final_info(sampled).items()}
        return Advanced(state, metrics, evaluation, active)

    def evaluate(self, params: Any, key: PRNGKeyArray, n_episodes: int) -> Evaluation:
        """Play whole episodes with the evaluation policy."""
        act = partial(self.learner.act, params, greedy=self.config.evaluation.greedy)
        hidden_state = self.learner.init_hidden_state(n_episodes)
        return evaluate(self.env, act, key, hidden_state, n_episodes)

    def play_episodes(self, params: Any, key: PRNGKeyArray) -> tuple[Evaluation, Evaluation | None]:
        """The evaluation of the policy and, if that is greedy, one with sampled actions. Both are
        played in one batch, so that the environment is compiled once."""
        n = self.config.evaluation.episodes
        if not self.config.evaluation.greedy:
            return self.evaluate(params, key, n), None

        def act(*inputs: Any) -> tuple[Array, Array, Any]:
            best, log_prob, hidden_state = self.learner.act(params, *inputs, greedy=True)
            sampled, _, _ = self.learner.act(params, *inputs)
            return jnp.where(jnp.arange(2 * n)[:, None] < n, best, sampled), log_prob, hidden_state

        both = evaluate(self.env, act, key, self.learner.init_hidden_state(2 * n), 2 * n)
        return jax.tree.map(lambda x: x[:n], both), jax.tree.map(lambda x: x[n:], both)

    def check_graphs(self, state: TrainState) -> None:
        """Validate the first graphs of a user's source or environment, for the first seed; their
        values cannot be inspected while tracing."""
        parts: list[Any] = [self.source, self.env]
        while inner := getattr(parts[-1], "env", None):  # of a wrapper
            parts.append(inner)
        if all(type(part).__module__.startswith("dgmarl.") for part in parts):
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
            raise UsageError(f"The graph source failed with {one_line(error)}.") from error
        _check_edges(found, (1, self.config.n_envs, *(self.env.spec.n_agents,) * 2))

    def _rollout_metrics(self, batch: Batch, graph: Graphs | None) -> dict[str, Array]:
        """Metrics of the batch; fixed-length rollouts cut episodes, so they have no return."""
        metrics = count_unusable(batch)
        if not self.resets:
            metrics["episode_return"] = batch.reward.sum() / batch.valid.shape[1]
        if graph is not None:
            metrics["graph_density"] = density(graph.edges > 0, batch.valid)
        return metrics

    def _reset_envs(self, key: PRNGKeyArray) -> RolloutState:
        n_envs = self.config.n_envs
        return reset_envs(self.env, key, self.learner.init_hidden_state(n_envs), n_envs)

    def _active(self, state: TrainState) -> Bool[Array, ""]:
        """Whether a seed is below `config.steps`."""
        return state.step < self.config.steps


class Recorder(Protocol):
    """Collects, writes and displays the results of one run; a context manager."""

    interrupted: bool

    def __enter__(self) -> Any: ...
    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None: ...

    def start(self, state: TrainState) -> TrainState:
        """Begin a new run, or restore one, with `state` as the template of its checkpoint."""
        ...

    def share(self, state: TrainState) -> TrainState:
        """Broadcast the state and the history of process 0 to every process of the run."""
        ...

    def compiled(self, seconds: float) -> None:
        """Called after compilation."""
        ...

    def wants_more(self) -> bool:
        """Whether some seed is below `config.steps` and no stop was requested."""
        ...

    def is_new(self) -> bool:
        """Whether nothing has been evaluated yet."""
        ...

    def record(self, advanced: Advanced) -> None:
        """Record one evaluation of all seeds."""
        ...

    def failure(self, what: str) -> RunError:
        """The error to raise if the environment failed; `what` says how."""
        ...

    def finish(self, state: TrainState) -> Any:
        """Save, and return the run as arrays."""
        ...


class Program:
    """One run as a compiled program; `sweeps.batched` has the same interface for several runs."""

    def __init__(self, trainer: Trainer, init_params: Any = None, devices: Devices = None):
        """init_params: parameters of policy and critic that all seeds start from. devices: see
        `mesh_for`."""
        self.trainer, self.n_seeds, self.init_params = trainer, trainer.config.seeds, init_params
        if trainer.env.on_host and devices not in (None, 1, "1"):
            raise UsageError(
                f"{trainer.config.env} runs in worker processes, so its program uses one device, "
                f"not {devices}: omit devices, or give the environment more workers."
            )
        self.separate = trainer.config.separate_seeds
        n_envs = 1 if self.separate else trainer.config.n_envs  # may be divided among devices
        self.mesh = mesh_for(self.n_seeds, n_envs, devices)
        self.iterations_per_evaluation = trainer.iterations_per_evaluation

    def init(self) -> list[TrainState]:
        """The initial state of each run, with a leading axis of seeds."""
        state = init_seeds(self.trainer)
        if self.init_params is not None:
            state = _start_from(self.init_params, state)
        if self.trainer.uses_graph:
            self.trainer.check_graphs(state)
        return [state]

    def join(self, states: list[TrainState]) -> Any:
        """Combine the states of the runs into the one that the program carries, on its devices."""
        return spread(states[0], self.n_seeds, self.mesh)

    def compile(self, carried: Any) -> Callable[[Any, int], Any]:
        """Compile and chain the stages; separate seeds have programs for each device."""
        stages = self.trainer.stages
        if self.separate:
            return compile_separately(stages, carried)
        together = self.trainer.seeds_together
        return compile_together(
            [for_seeds(stage, self.n_seeds, self.mesh, together) for stage in stages], carried
        )

    def part(self, advanced: Advanced, run: int) -> Advanced:
        """Select the results of one run."""
        return advanced


def train(program: Any, recorders: Sequence[Recorder]) -> list[Any]:
    """Train all runs of a program until every seed has reached `config.steps`; returns a result per
    run."""
    initial = program.init()  # raises on invalid input, before anything is written
    with ExitStack() as stack:
        stack.enter_context(quiet_callbacks())
        for recorder in recorders:
            stack.enter_context(recorder)
        pairs = zip(recorders, initial, strict=True)
        with all_together():
            states = [recorder.start(state) for recorder, state in pairs]
        states = [recorder.share(state) for recorder, state in zip(recorders, states, strict=True)]
        if any(recorder.wants_more() for recorder in recorders):
            states = _train(program, recorders, states)
        pairs = zip(recorders, states, strict=True)
        with all_together():
            return [recorder.finish(state) for recorder, state in pairs]


def _train(program: Any, recorders: Sequence[Recorder], states: list[Any]) -> list[Any]:
    """Compile, then alternate between training on the device and recording."""
    carried = program.join(states)
    began = time.perf_counter()
    advance = program.compile(carried)
    for recorder in recorders:
        recorder.compiled(time.perf_counter() - began)
    while any(recorder.wants_more() for recorder in recorders):
        # The first evaluation follows the first iteration.
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
    """The initial state of all seeds of a run."""
    config = trainer.config
    keys = jax.vmap(jax.random.key)(config.seed + jnp.arange(config.seeds))
    init = partial(jax.lax.map, trainer.init) if config.separate_seeds else jax.vmap(trainer.init)
    return jax.jit(init)(keys)


def _start_from(params: Any, state: TrainState) -> TrainState:
    """The state with these parameters of policy and critic in every seed."""
    fresh = state.learner.params
    if jax.tree.map(jnp.shape, params) != jax.tree.map(lambda leaf: leaf.shape[1:], fresh):
        raise UsageError(
            "The policy to start from has parameters of other shapes than this run: use the same "
            "environment, method and network."
        )
    params = jax.tree.map(lambda new, old: jnp.broadcast_to(new, old.shape), params, fresh)
    return state._replace(learner=state.learner.with_params(params))


def _check_edges(found: Array, expected: tuple[int, ...]) -> None:
    """Validate the edges of a user's source: Boolean, or soft in [0, 1]."""
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
    """Keys of the state after an evaluation, of the policy's episodes and of the graph's."""
    return jax.random.split(state.key, 3)


def _final_info(evaluation: Evaluation) -> dict[str, Array]:
    """Numbers of `info` after the last step, averaged over episodes."""
    return {f"final_{name}": each.mean() for name, each in evaluation.endings.items()}


def _load(name: str) -> Any:
    """Import a class from its name in the table of methods, `module:Class`."""
    module, _, cls = name.partition(":")
    return getattr(import_module(module), cls)
