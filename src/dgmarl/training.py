"""The training loop: collect -> credit -> update, evaluate, log, checkpoint.

`Trainer.iterate` is one iteration and `Trainer.advance` all iterations up to the next evaluation,
with the evaluation: one compiled program that runs for all seeds side by side and never leaves the
device. `train` calls it until the slowest seed has had its steps, and hands what comes back to the
run folder and the display. All that training changes is one pytree, the `TrainState`: a checkpoint
is that pytree, so a resumed run continues exactly."""

import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from dgmarl.config.presets import TrainConfig
from dgmarl.device import devices_for
from dgmarl.envs.base import Environment, EnvSpec
from dgmarl.envs.local_states import LocalStates
from dgmarl.envs.registry import make_env
from dgmarl.errors import UsageError
from dgmarl.graphs.comparison import compare, references
from dgmarl.graphs.metrics import density
from dgmarl.graphs.reach import check_graph
from dgmarl.graphs.sources import make_source
from dgmarl.learners.base import Learner
from dgmarl.learners.ppo import PPO, PPOConfig
from dgmarl.learners.q_learning import QLearner
from dgmarl.learners.replay import Replay, add
from dgmarl.rollout import Evaluation, RolloutState, collect, evaluate, reset_envs
from dgmarl.runs.recorder import Recorder, TrainResult

JUDGED = 10
"""Episodes on which graphs are compared with what the simulator shows, which is dear: of more it
could be asked only about the first step."""


class Best(NamedTuple):
    """The policy with the highest evaluation so far (the luckiest of many: report the last one, use
    this one)."""

    mean_return: Float[Array, ""]
    params: Any


class TrainState(NamedTuple):
    """Everything about one seed."""

    key: PRNGKeyArray
    iteration: Int[Array, ""]
    step: Int[Array, ""]
    """Environment steps that really happened."""
    rollout_state: RolloutState | None
    """Where the environments stand between windows; None if every iteration starts afresh."""
    learner: Any
    graph: Any
    best: Best
    replay: Replay | None = None
    """Episodes to learn from again, where the learner does."""


class Trainer:
    """The pure functions of a run; `init` and `advance` take a leading axis of seeds."""

    def __init__(self, config: TrainConfig, env: Environment | None = None):
        self.config = config
        self.env = env or make_env(config.env, **config.env_options)
        if isinstance(config.learner, PPOConfig) and config.learner.critic == "own-state":
            self.env = LocalStates(self.env)
        self.learner = make_learner(config, self.env.spec)
        self.uses_graph = config.learner.credit == "graph"
        self.windows = config.collect == "windows"
        self.length = (self.windows and config.window) or self.env.spec.horizon
        per_iteration = self.length * config.n_envs
        self.source = make_source(
            config.graph if self.uses_graph else "self", self.env, per_iteration, config.graph_model
        )
        if config.steps < per_iteration:
            raise UsageError(
                f"steps is {config.steps}, but one iteration alone can take {per_iteration}: "
                "train for at least that long."
            )
        self.iterations_between_evaluations = -(-config.evaluation.interval // per_iteration)

    def init(self, key: PRNGKeyArray) -> TrainState:
        """One seed before its first step."""
        key, learner_key, graph_key, play_key = jax.random.split(key, 4)
        learner = self.learner.init(learner_key)
        rollout_state = self._reset_envs(play_key) if self.windows else None
        best = Best(jnp.float32(-jnp.inf), learner.params)
        graph, replay = self.source.init(graph_key, self.env), self.learner.start_replay()
        return TrainState(
            key, jnp.int32(0), jnp.int32(0), rollout_state, learner, graph, best, replay
        )

    def iterate(self, state: TrainState) -> tuple[TrainState, dict[str, Array]]:
        """One iteration of one seed: collect, credit, update."""
        key, start_key, play_key, infer_key, learn_key, update_key = jax.random.split(state.key, 6)
        rollout_state = (
            state.rollout_state if state.rollout_state is not None else self._reset_envs(start_key)
        )
        act = self.learner.behaviour(state.learner, state.step)
        rollout_state, batch = collect(
            self.env,
            act,
            rollout_state,
            play_key,
            self.length,
            self.source.needs,
            reset=self.windows,
        )
        # The graph comes from what was learned before this batch, never from the batch itself.
        graph = self.source.infer(state.graph, batch, infer_key) if self.uses_graph else None
        replay = None if state.replay is None else add(state.replay, batch, where=self._runs(state))
        learner, metrics = self.learner.learn(
            state.learner, batch if replay is None else replay, graph, learn_key
        )
        graph_state, graph_metrics = self.source.update(state.graph, batch, update_key)
        metrics = {
            **metrics,
            **graph_metrics,
            "episode_return": batch.reward.sum() / jnp.maximum((~batch.continues).sum(), 1),
        }
        if graph is not None:
            metrics["graph_density"] = density(graph, batch.valid)
        step = state.step + batch.valid.sum()
        rollout_state = rollout_state if self.windows else None
        return TrainState(
            key, state.iteration + 1, step, rollout_state, learner, graph_state, state.best, replay
        ), metrics

    def advance(
        self, state: TrainState, n_iterations: Int[Array, ""]
    ) -> tuple[TrainState, dict[str, Array], Evaluation]:
        """`n_iterations` of one seed, then an evaluation. A seed that has had its steps stands
        still.

        Returns the new state, the metrics averaged over the iterations, and the evaluation.
        """

        def one_iteration(
            _: Array, carry: tuple[TrainState, dict[str, Array]]
        ) -> tuple[TrainState, dict[str, Array]]:
            state, sums = carry
            new, metrics = self.iterate(state)
            runs = self._runs(state)
            sums = {name: total + jnp.where(runs, metrics[name], 0) for name, total in sums.items()}
            # A replay sees to this itself: it is too large to be copied in every iteration.
            kept = _where(runs, new._replace(replay=None), state._replace(replay=None))
            return kept._replace(replay=new.replay), sums

        shapes = jax.eval_shape(lambda state: self.iterate(state)[1], state)
        nothing = {name: jnp.zeros(shape.shape, shape.dtype) for name, shape in shapes.items()}
        began, runs = state.iteration, self._runs(state)
        state, sums = jax.lax.fori_loop(0, n_iterations, one_iteration, (state, nothing))
        count = jnp.maximum(state.iteration - began, 1)
        key, evaluation_key, judge_key = jax.random.split(state.key, 3)
        evaluation = self.evaluate(
            state.learner.params, evaluation_key, self.config.evaluation.episodes
        )
        mean_return = evaluation.returns.mean()
        better = Best(mean_return, state.learner.params)
        best = _where(runs & (mean_return > state.best.mean_return), better, state.best)
        state = state._replace(key=_where(runs, key, state.key), best=best)
        metrics = {name: total / count for name, total in sums.items()}
        # Losses are those before the last update; this tells whether that one went wrong.
        metrics["parameter_norm"] = optax.global_norm(state.learner.params)
        metrics |= {f"final_{name}": values.mean() for name, values in evaluation.endings.items()}
        if self.uses_graph and getattr(self.source, "learns", False):
            metrics |= self.evaluate_graph(state, judge_key)
        return state, metrics, evaluation

    def evaluate(self, params: Any, key: PRNGKeyArray, n_episodes: int) -> Evaluation:
        """Whole episodes with a fixed policy."""
        act = partial(self.learner.act, params, greedy=self.config.evaluation.greedy)
        return evaluate(self.env, act, key, self.learner.init_hidden_state(n_episodes), n_episodes)

    def evaluate_graph(self, state: TrainState, key: PRNGKeyArray) -> dict[str, Array]:
        """How right a source that learns is by now, on fresh episodes: see `graphs.comparison`."""
        start_key, play_key, infer_key = jax.random.split(key, 3)
        n_envs = min(self.config.n_envs, JUDGED)
        rollout_state = reset_envs(
            self.env, start_key, self.learner.init_hidden_state(n_envs), n_envs
        )
        act = self.learner.behaviour(state.learner, state.step)
        needs = self.source.needs | references(self.env)
        _, batch = collect(
            self.env, act, rollout_state, play_key, self.env.spec.horizon, needs, reset=False
        )
        return compare(self.env, self.source.infer(state.graph, batch, infer_key), batch)

    def check_graphs(self, state: TrainState) -> None:
        """Look at real graphs of a source or environment that a user brought: while tracing, values
        cannot be seen."""
        env = self.env.env if isinstance(self.env, LocalStates) else self.env
        if all(type(part).__module__.startswith("dgmarl.") for part in (env, self.source)):
            return

        def graphs(state: TrainState) -> Array:
            rollout_state, act = (
                self._reset_envs(state.key),
                partial(self.learner.act, state.learner.params),
            )
            _, batch = collect(
                self.env, act, rollout_state, state.key, 1, self.source.needs, reset=False
            )
            return self.source.infer(state.graph, batch, state.key)

        try:
            found = jax.jit(graphs)(jax.tree.map(lambda leaf: leaf[0], state))
        except Exception as error:
            reason = " ".join(str(error).split())[:200]
            raise UsageError(
                f"The graph source failed with {type(error).__name__}: {reason}."
            ) from error
        n_agents = self.env.spec.n_agents
        if found.dtype != bool:
            raise UsageError(
                f"The graph source gives {found.dtype}, but must give booleans: add .astype(bool) "
                "or a threshold."
            )
        check_graph(found)
        if found.shape != (expected := (1, self.config.n_envs, n_agents, n_agents)):
            raise UsageError(
                f"The graph source gives the shape {found.shape}, but must give [T, B, N, N], "
                f"here {expected}."
            )

    def _reset_envs(self, key: PRNGKeyArray) -> RolloutState:
        return reset_envs(
            self.env, key, self.learner.init_hidden_state(self.config.n_envs), self.config.n_envs
        )

    def _runs(self, state: TrainState) -> Bool[Array, ""]:
        """Whether a seed has not had its steps."""
        return state.step < self.config.steps


def make_learner(config: TrainConfig, spec: EnvSpec) -> Learner:
    """The learner of a method."""
    if isinstance(config.learner, PPOConfig):
        return PPO(config.learner, spec)
    return QLearner(config.learner, spec, config.n_envs)


def train(
    config: TrainConfig,
    recorder: Recorder | None = None,
    resume: bool = False,
    init_params: Any = None,
) -> TrainResult:
    """Train all seeds until the slowest has had its steps; the recorder keeps, writes and shows
    what comes.

    init_params: policy and critic to start from, one set for all seeds, instead of fresh ones.
    """
    trainer = Trainer(config)
    state = start_seeds(trainer, config)
    if init_params is not None:
        state = _start_from(init_params, state)
    if trainer.uses_graph:
        trainer.check_graphs(state)
    with recorder or Recorder(config) as recorder:
        state = spread(recorder.restore(state) if resume else recorder.begin(state), config.seeds)
        if not recorder.wants_more():
            return recorder.result(state)
        began = time.perf_counter()
        advance = (
            jax.jit(for_seeds(trainer.advance, config.seeds), donate_argnums=0)
            .lower(state, 1)
            .compile()
        )
        recorder.compiled(time.perf_counter() - began)
        while recorder.wants_more():
            n_iterations = trainer.iterations_between_evaluations if recorder.steps else 1
            state, metrics, evaluation = jax.block_until_ready(advance(state, n_iterations))
            recorder.record(state, metrics, evaluation)
        recorder.save(state)
    return recorder.result(state)


def start_seeds(trainer: Trainer, config: TrainConfig) -> TrainState:
    """All seeds of a run before their first step."""
    keys = jax.vmap(jax.random.key)(config.seed + jnp.arange(config.seeds))
    return jax.jit(jax.vmap(trainer.init))(keys)


def for_seeds(function: Callable[..., Any], n_seeds: int) -> Callable[..., Any]:
    """`function` of one seed's state (and of what is common to all) for all seeds side by side,
    spread over the devices.

    Seeds of one device are vmapped. A single one goes without the axis of seeds: matrix products
    with a batch axis of 1 cost a CPU 12 % of its speed."""
    n_devices = devices_for(n_seeds)

    def of_device(state: Any, *common: Any) -> Any:
        if n_seeds > n_devices:
            return jax.vmap(function, in_axes=(0, *(None for _ in common)))(state, *common)
        result = function(jax.tree.map(lambda leaf: leaf[0], state), *common)
        return jax.tree.map(lambda leaf: leaf[None], result)

    def of_all(state: Any, *common: Any) -> Any:
        seeds, same = PartitionSpec("seeds"), [PartitionSpec() for _ in common]
        mesh = _devices(n_seeds)
        return jax.shard_map(
            of_device, mesh=mesh, in_specs=(seeds, *same), out_specs=seeds, check_vma=False
        )(state, *common)

    return of_all if n_devices > 1 else of_device


def spread(tree: Any, n_seeds: int) -> Any:
    """Arrays with a leading axis of seeds, on the devices where `for_seeds` wants them."""
    return jax.device_put(tree, NamedSharding(_devices(n_seeds), PartitionSpec("seeds")))


def _devices(n_seeds: int) -> Mesh:
    return Mesh(jax.devices()[: devices_for(n_seeds)], ("seeds",))


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


def _where(condition: Array, new: Any, old: Any) -> Any:
    return jax.tree.map(lambda new, old: jnp.where(condition, new, old), new, old)
