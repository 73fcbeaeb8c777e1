"""A trained run: its curves, its policy, and episodes of the policy."""

from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from dgmarl.config.ranges import check_number
from dgmarl.config.schema import TrainConfig
from dgmarl.credit.graph_gae import credited_rewards
from dgmarl.envs.base import Environment, Observation
from dgmarl.errors import RunError, UsageError
from dgmarl.optional import optional
from dgmarl.rollout import Batch, HiddenState, Recording
from dgmarl.runs import playing
from dgmarl.runs.callbacks import TrainResult
from dgmarl.runs.export import export_policy
from dgmarl.runs.reading import History, read_history, read_timing
from dgmarl.runs.replays import MOST_BYTES, Replay
from dgmarl.seeds import of_seed
from dgmarl.training import Trainer, TrainState

Which = Literal["last", "best"]


class Episode(NamedTuple):
    """One recorded episode of T steps and N agents."""

    actions: Int[np.ndarray, "T N"]
    rewards: Float[np.ndarray, "T N"]
    graph: Bool[np.ndarray, "T N N"] | None
    """Dependence graphs, row = source, column = target; None without graph credit."""
    terminated: bool
    """The task ended; otherwise the episode was truncated at the horizon."""


class Run:
    """A trained run, and the policy of one of its seeds.

    >>> run = dgmarl.train("star-spread/5", "ippo-dg", seeds=3, steps=1e5)
    >>> run.returns.mean(axis=-1)  # [seeds, evaluations]
    >>> run.evaluate(100).mean()
    >>> state, observation = run.env.reset(jax.random.key(0))
    >>> run.policy.act(observation)  # [agents]
    """

    def __init__(
        self,
        trainer: Trainer,
        state: TrainState,
        index: int = 0,
        which: Which = "last",
        folder: Path | None = None,
        result: TrainResult | None = None,
    ):
        """index: index of the seed whose policy is used. result: the curves; None: read from the
        folder when needed."""
        self.trainer, self.state, self.index = trainer, state, index
        self.which: Which = which
        self.folder, self._result = folder, result
        self._policies = state.best.params if which == "best" else state.learner.params
        self.params: dict[str, Any]
        self.graph: Any
        """State of the graph source."""
        self.params, self.graph = of_seed((self._policies, state.graph_state), index)

    def __repr__(self) -> str:
        config = self.config
        return f"Run({config.env!r}, {config.method!r}, seeds={config.seeds}, steps={config.steps})"

    @property
    def config(self) -> TrainConfig:
        """The resolved configuration."""
        return self.trainer.config

    @property
    def env(self) -> Environment:
        """The environment."""
        return self.trainer.env

    @property
    def steps(self) -> Int[np.ndarray, "S K"]:
        """Environment steps of each seed at each evaluation."""
        return self._curves.steps

    @property
    def returns(self) -> Float[np.ndarray, "S K E"]:
        """Team return of every evaluation episode."""
        return self._curves.returns

    @property
    def metrics(self) -> dict[str, Float[np.ndarray, "S K"]]:
        """Other metrics, averaged over the iterations before each evaluation."""
        return self._curves.metrics

    @property
    def timing(self) -> dict[str, Any]:
        """Compile and training seconds, steps per second, device and versions."""
        if self._result:
            return self._result.timing
        return read_timing(self.folder) if self.folder else {}

    @property
    def interrupted(self) -> bool:
        """Whether the run was stopped before its last step."""
        return bool(self.steps[:, -1].min() < self.config.steps)

    @cached_property
    def _curves(self) -> TrainResult | History:
        if self._result:
            return self._result
        assert self.folder is not None
        return read_history(self.folder, self.config.all_seeds, self.config.steps)

    def frame(self) -> Any:
        """The curves as a pandas DataFrame, with one row per seed and evaluation."""
        pandas = optional("pandas", "frames")
        evaluations = np.arange(self.steps.shape[1])
        seed, evaluation = np.meshgrid(self.config.all_seeds, evaluations, indexing="ij")
        columns = {"seed": seed, "evaluation": evaluation, "step": self.steps}
        columns |= {"return_mean": self.returns.mean(-1), "return_std": self.returns.std(-1)}
        columns |= self.metrics
        return pandas.DataFrame({name: values.ravel() for name, values in columns.items()})

    @cached_property
    def policy(self) -> "Policy":
        """The policy of the chosen seed; it keeps its hidden state between calls."""
        return Policy(self)

    def init_hidden_state(self, n_envs: int) -> HiddenState:
        """The policy's hidden state at the start of an episode."""
        return self.trainer.learner.init_hidden_state(n_envs)

    def act(
        self, key: Array, observation: Observation, hidden_state: HiddenState, is_first: Array
    ) -> tuple[Array, HiddenState]:
        """Actions [B, N] for the observations of B environments and the new hidden state; sampled,
        unless `evaluation.greedy`. An observation without the axis B gives actions [N], with the
        hidden state of one environment, `init_hidden_state(1)`. A pure function; see also `policy`.
        """
        n_envs = jnp.size(is_first)
        if observation.agents_view.ndim == 2 and n_envs == 1:
            batch = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], observation)
            action, hidden_state = self.act(key, batch, hidden_state, jnp.reshape(is_first, (1,)))
            return action[0], hidden_state
        views = observation.agents_view.shape
        spec = self.env.spec
        if views != (n_envs, spec.n_agents, spec.obs_size):
            raise UsageError(
                f"observation.agents_view has the shape {views}, but {self.config.env} needs "
                f"({n_envs}, {spec.n_agents}, {spec.obs_size}), with is_first for {n_envs} "
                "environments: use jax.vmap(env.reset) for several, or is_first of one value."
            )
        greedy = self.config.evaluation.greedy
        action, _, hidden_state = self.trainer.learner.act(
            self.params, key, observation, hidden_state, is_first, greedy
        )
        return action, hidden_state

    def evaluate(self, n_episodes: int = 100, seed: int = 0) -> Float[np.ndarray, "S E"]:
        """Team returns of new episodes for every seed of the run."""
        check_number("episodes", n_episodes, "n_episodes")
        check_number("seed", seed)
        keys = jax.random.split(jax.random.key(seed), self.config.seeds)
        play = jax.jit(jax.vmap(lambda params, key: self.trainer.evaluate(params, key, n_episodes)))
        returns = np.asarray(play(self._policies, keys).returns)
        if not np.isfinite(returns).all():
            raise RunError(
                f"The environment {self.config.env} gave a return that is NaN or infinite: check "
                "its rewards."
            )
        return returns

    def record(self, n_episodes: int = 3, seed: int = 0) -> list[Episode]:
        """Whole episodes of the policy, with the graphs that training would have used."""
        check_number("episodes", n_episodes, "n_episodes")
        found = jax.tree.map(np.asarray, self.recording(jax.random.key(seed), n_episodes))
        return [
            Episode(
                found.action[k, :length],
                found.reward[k, :length],
                None if found.graph is None else found.graph[k, :length],
                bool(found.terminated[k]),
            )
            for k, length in enumerate(found.length)
        ]

    def graphs(self, n_episodes: int = 3, seed: int = 0) -> list[Bool[np.ndarray, "T N N"]]:
        """The dependence graphs of recorded episodes; row = source, column = target."""
        self._require_graph()
        found = [episode.graph for episode in self.record(n_episodes, seed)]
        return [graph for graph in found if graph is not None]

    def credits(self, graph: Bool[np.ndarray, "T N N"]) -> Float[np.ndarray, "T N T N"]:
        """Weights of rewards in training, in an episode with these graphs: [t, j, t', i] is the
        weight of agent i's reward at t' in the advantage of j's action at t."""
        self._require_graph()
        options = playing.credit_options(self.config)
        if options is None:
            raise UsageError(
                f"The weights of {self.config.method} with these options do not follow from the "
                "graph alone: credits needs graph credit without a measured reward graph."
            )
        steps, agents = (jnp.arange(n) for n in graph.shape[:2])
        ends = jnp.zeros(len(graph), bool).at[-1].set(True)

        def weights(t: Array, agent: Array) -> Array:
            return credited_rewards(jnp.asarray(graph), ends, t, agent, **options)

        of_step = jax.vmap(weights, in_axes=(None, 0))
        return np.asarray(jax.jit(jax.vmap(of_step, in_axes=(0, None)))(steps, agents))

    def _require_graph(self) -> None:
        if not self.trainer.uses_graph:
            raise UsageError(f"{self.config.method} was trained without dependence graphs.")

    def recording(
        self,
        key: Array,
        n_episodes: int,
        needs: frozenset[str] = frozenset(),
        infer: Callable[[Batch], Any] | None = None,
    ) -> Recording:
        """Whole episodes of the chosen seed as JAX arrays; see `playing.record`."""
        return playing.record(self.trainer, self.params, self.graph, key, n_episodes, needs, infer)

    def replay(
        self, key: Array, n_episodes: int, policy: str = "last", most_bytes: int = MOST_BYTES
    ) -> Replay:
        """A replay for pages: pictures, rewards, graphs and credit weights."""
        recording = self.recording(key, n_episodes)
        return playing.replay_of(self.config, self.env, recording, policy, most_bytes)

    def export(self, path: Path | str, *, greedy: bool = True) -> list[Path]:
        """Write the policy for use without dgmarl, as FILE.stablehlo or FILE.py; see
        `runs.export.export_policy`. greedy: greedy rather than sampled actions (.stablehlo; the
        NumPy policy offers both)."""
        learner, spec = self.trainer.learner, self.env.spec
        return export_policy(learner, self.params, spec, Path(path), greedy)


class Policy:
    """Acts in one or several parallel environments and keeps its hidden state and random key."""

    def __init__(self, run: Run, seed: int = 0):
        self.run, self._key = run, jax.random.key(seed)
        self._act = jax.jit(run.act)
        self._hidden_state: HiddenState = None
        self._n_envs = 0

    def reset(self) -> None:
        """Begin new episodes with the next call of `act`, in any number of environments."""
        self._n_envs = 0

    def act(
        self,
        observation: Observation | Float[np.ndarray, "*B N O"],
        is_first: Bool[np.ndarray, "B"] | None = None,
    ) -> Int[np.ndarray, "*B N"]:
        """Actions for an observation of one environment or of B environments: an `Observation`, or
        `agents_view` alone if all actions are allowed.

        is_first: where a new episode has begun since the last call; `reset` means everywhere."""
        given = _as_observation(observation, self.run.env)
        views = given.agents_view.shape
        if len(views) == 2:
            return self.act(jax.tree.map(lambda leaf: leaf[None], given), is_first)[0]
        if not self._n_envs:
            self._n_envs, is_first = views[0], np.ones(views[0], bool)
            self._hidden_state = self.run.init_hidden_state(views[0])
        if views[0] != self._n_envs:
            raise UsageError(
                f"The policy has acted for {self._n_envs} environments and is given {views[0]}: "
                "call reset() where new episodes begin."
            )
        first = np.broadcast_to(False if is_first is None else is_first, (self._n_envs,))
        self._key, key = jax.random.split(self._key)
        action, self._hidden_state = self._act(key, given, self._hidden_state, first)
        return np.asarray(action)


def _as_observation(observation: Any, env: Environment) -> Observation:
    """An `Observation` of JAX arrays; `agents_view` alone is completed with placeholders."""
    if isinstance(observation, Observation):
        return jax.tree.map(jnp.asarray, observation)
    views, spec = jnp.asarray(observation, jnp.float32), env.spec
    lead = views.shape[:-2]
    return Observation(
        views,
        jnp.zeros((*lead, spec.state_size)),
        jnp.ones((*lead, spec.n_agents, spec.n_actions), bool),
        jnp.ones((*lead, spec.n_agents), bool),
    )
