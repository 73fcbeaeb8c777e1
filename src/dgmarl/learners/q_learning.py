"""Q-learning for teams: IQL, VDN, QMIX and QPLEX.

One learner. The four differ in how the values of single agents become what is learned (`mixer`);
IQL may learn from each agent's own reward, the others learn the value of the team's. Double
Q-learning on whole replayed episodes, 1-step or TD(lambda) targets. The defaults are EPyMARL's; the
tuned numbers of EPyMARL for foraging and those of pymarl2 for SMAClite are presets in
`dgmarl.config.presets`."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from dgmarl.credit.gae import discounted_sums
from dgmarl.credit.standardise import (
    RunningStatistics,
    initial_statistics,
    merge,
    standardise,
    statistics_of,
)
from dgmarl.device import unroll
from dgmarl.envs.base import EnvSpec, Observation
from dgmarl.errors import UsageError
from dgmarl.learners.base import batched_index, require
from dgmarl.learners.replay import Episodes, Precision, Replay, empty_replay, sample
from dgmarl.nets.actor_critic import UNAVAILABLE, Policy
from dgmarl.nets.mixers import Mixer, MixerKind
from dgmarl.rollout import Act, random_actions

NO_ACTION = -1
"""What was done before the first step; its one-hot is all zeros."""


@dataclass(frozen=True)
class QConfig:
    """Numbers of the learner; the defaults are EPyMARL's."""

    mixer: MixerKind = "none"
    """How agents' values become what is learned: not at all (IQL), summed (VDN), or mixed by the
    state (QMIX, QPLEX)."""
    credit: Literal["local", "global"] = "local"
    """Whose rewards an agent learns from: its own (IQL only), or everybody's sum."""
    network: Literal["fc", "gru"] = "fc"
    """The middle of an agent's network: a hidden layer, or a recurrent one."""
    hidden: int = 64
    """Width of the agents' hidden layers."""
    share_parameters: bool = True
    """One network for all agents (which are told who they are), or one set of parameters per
    agent."""
    last_action: bool = False
    """Whether an agent also sees what it did one step ago."""
    learning_rate: float = 5e-4
    """Step size of Adam."""
    max_grad_norm: float = 10.0
    """Largest norm of a gradient, agents and mixer together."""
    loss_weight: float = 1.0
    """Factor of the mean squared error; pymarl2: 0.5. With Adam it matters to the gradient clip
    only."""
    gamma: float = 0.99
    """Discount factor."""
    lambda_: float = 0.0
    """Mix of n-step returns in a target; 0: 1-step."""
    batch_size: int = 32
    """Episodes per gradient step."""
    buffer_size: int = 5000
    """Episodes kept for replay."""
    buffer_precision: Precision = "float32"
    """How observations and states are kept: float16 halves the memory and is exact for whole
    numbers up to 2048."""
    episodes_per_update: int = 1
    """New episodes per gradient step; with more environments than that, an iteration takes several
    steps."""
    target_update: float = 200.0
    """Above 1: copy the parameters to the target network that often; else: move it by this share at
    every step."""
    target_unit: Literal["updates", "episodes"] = "updates"
    """What a `target_update` above 1 counts: gradient steps, or episodes played."""
    epsilon_start: float = 1.0
    """Chance of a random action at the beginning."""
    epsilon_end: float = 0.05
    """Chance of a random action in the end."""
    epsilon_steps: int = 50_000
    """Environment steps from the one to the other, along a line."""
    evaluation_epsilon: float = 0.0
    """Chance of a random action in evaluations (unless `evaluation.greedy`) and in replays."""
    standardise_reward: bool = True
    """Scale rewards by running statistics of the sampled batches: per agent (local), of the sum
    (global)."""
    standardise_padding: bool = True
    """Count the zeros after an episode's end, up to the longest of its batch, as in the original;
    False: real steps only."""
    mixer_embedding: int = 32
    """Width of QMIX's mixing layer."""
    mixer_hidden: int = 64
    """Width of the networks that make a mixer's weights from the state."""
    mixer_heads: int = 4
    """Heads of QPLEX."""

    def __post_init__(self) -> None:
        """Refuse numbers that cannot be meant."""
        if self.mixer != "none" and self.credit == "local":
            raise UsageError(
                f"learner.credit is local, but {self.mixer} learns one value for the team, which "
                "no single agent's reward adds up to: leave credit global, or use the method iql "
                "for local rewards."
            )
        for name in ("gamma", "lambda_", "epsilon_start", "epsilon_end", "evaluation_epsilon"):
            require(
                0 <= getattr(self, name) <= 1, name, getattr(self, name), "a number from 0 to 1"
            )
        whole = (
            "hidden",
            "batch_size",
            "episodes_per_update",
            "mixer_embedding",
            "mixer_hidden",
            "mixer_heads",
        )
        for name in whole:
            require(getattr(self, name) >= 1, name, getattr(self, name), "at least 1")
        for name in (
            "learning_rate",
            "max_grad_norm",
            "loss_weight",
            "target_update",
            "epsilon_steps",
        ):
            require(getattr(self, name) > 0, name, getattr(self, name), "above 0")
        allowed = f"at least learner.batch_size, which is {self.batch_size}"
        require(self.buffer_size >= self.batch_size, "buffer_size", self.buffer_size, allowed)


class QState(NamedTuple):
    """All that learning changes, but for the replay, which is kept beside it."""

    params: Any
    """`agent` and `mixer`."""
    target: Any
    """The same a while ago: what the targets are made with."""
    optimiser: Any
    statistics: RunningStatistics
    updates: Int[Array, ""]
    """Gradient steps so far."""
    copied_at: Int[Array, ""]
    """When the target was last copied, in `target_unit`s."""

    def with_params(self, params: dict[str, Any]) -> "QState":
        """The same learner with another network, the target included."""
        return self._replace(params=params, target=jax.tree.map(jnp.copy, params))


class QHiddenState(NamedTuple):
    """What an agent carries from step to step."""

    hidden: Float[Array, "*B N h"]
    action: Int[Array, "*B N"]
    """The one before."""


Networks = tuple[Any, Any]
"""Parameters of the online and of the target network."""


class QLearner:
    """The learner: `init`, `behaviour`, `act`, `learn`."""

    def __init__(self, config: QConfig, spec: EnvSpec, n_envs: int):
        self.config, self.spec = config, spec
        seen = spec.obs_size + spec.n_actions * config.last_action
        self.agent = Policy(
            replace(spec, obs_size=seen),
            config.hidden,
            config.network == "gru",
            config.share_parameters,
        )
        self.mixer = Mixer(
            spec, config.mixer, config.mixer_embedding, config.mixer_hidden, config.mixer_heads
        )
        self.optimiser = optax.chain(
            optax.clip_by_global_norm(config.max_grad_norm), optax.adam(config.learning_rate)
        )
        self.n_updates = n_envs // config.episodes_per_update
        self._per_agent = (spec.n_agents,) if config.credit == "local" else ()

    def init(self, key: PRNGKeyArray) -> QState:
        """Fresh parameters, the target the same."""
        agent_key, mixer_key = jax.random.split(key)
        params = {"agent": self.agent.init(agent_key), "mixer": self.mixer.init(mixer_key)}
        statistics = initial_statistics(self._per_agent)
        optimiser = self.optimiser.init(ravel_pytree(params)[0])
        return QState(params, params, optimiser, statistics, jnp.int32(0), jnp.int32(0))

    def start_replay(self) -> Replay:
        """A replay without episodes."""
        n_rewards = self.spec.n_agents if self.config.credit == "local" else 1
        with_state = self.mixer.sees_state and not self.spec.state_is_obs
        return empty_replay(
            self.spec, self.config.buffer_size, n_rewards, with_state, self.config.buffer_precision
        )

    def init_hidden_state(self, *batch: int) -> QHiddenState:
        """What an agent knows of the past at the start of an episode: nothing."""
        return QHiddenState(
            self.agent.init_hidden_state(*batch), jnp.full((*batch, self.spec.n_agents), NO_ACTION)
        )

    def epsilon(self, step: Int[Array, ""]) -> Float[Array, ""]:
        """Chance of a random action after so many environment steps."""
        config = self.config
        return config.epsilon_start + (config.epsilon_end - config.epsilon_start) * jnp.minimum(
            step / config.epsilon_steps, 1
        )

    def behaviour(self, state: QState, step: Int[Array, ""]) -> Act:
        """How to play while learning."""
        return partial(self.act, state.params, epsilon=self.epsilon(step))

    def act(
        self,
        params: dict[str, Any],
        key: PRNGKeyArray,
        observation: Observation,
        hidden_state: QHiddenState,
        is_first: Bool[Array, "B"],
        greedy: bool = False,
        epsilon: Float[Array, ""] | None = None,
    ) -> tuple[Array, Array, QHiddenState]:
        """The best actions of B environments, with a chance of epsilon for random ones: by default
        that of evaluations."""
        before = jnp.where(is_first[:, None], NO_ACTION, hidden_state.action)
        hidden, values = self.agent.outputs(
            params["agent"],
            hidden_state.hidden,
            self._seen(observation.agents_view, before)[None],
            is_first[None],
        )
        action = _best_actions(values[0], observation.action_mask)
        if not greedy:
            chance_key, random_key = jax.random.split(key)
            chance = jax.random.uniform(chance_key, action.shape)
            explores = chance < (self.config.evaluation_epsilon if epsilon is None else epsilon)
            action = jnp.where(explores, random_actions(random_key, observation), action)
        return action, jnp.zeros(action.shape), QHiddenState(hidden, action)

    def learn(
        self, state: QState, replay: Replay, graph: Bool[Array, "T B N N"] | None, key: PRNGKeyArray
    ) -> tuple[QState, dict[str, Array]]:
        """As many gradient steps as the new episodes ask for, each on a batch of its own; none
        before there are enough.

        graph: not looked at; these methods decompose a value, not the credit.
        """
        batches = sample(replay, key, self.n_updates, self.config.batch_size)
        new, metrics = self.updates(state, batches, replay.added)
        enough = replay.added >= self.config.batch_size
        new, metrics = jax.tree.map(
            lambda new, old: jnp.where(enough, new, old), (new, metrics), (state, _zeros(metrics))
        )
        return new, {name: values.mean() for name, values in metrics.items()}

    def updates(
        self, state: QState, batches: Episodes, episodes_played: Int[Array, ""]
    ) -> tuple[QState, dict[str, Array]]:
        """A gradient step on each of U batches, `[U, T, B, ...]`; the target network follows each.
        Metrics are `[U]`.

        On the way, parameters are one vector: a few operations per step instead of a few per layer.
        """
        reward, statistics = self.standardised_reward(state.statistics, batches)
        (params, as_tree), (target, _) = ravel_pytree(state.params), ravel_pytree(state.target)
        start = state._replace(params=params, target=target, statistics=statistics)
        new, metrics = jax.lax.scan(
            partial(self._update, as_tree, episodes_played), start, (batches, reward)
        )
        return new._replace(params=as_tree(new.params), target=as_tree(new.target)), metrics

    def _update(
        self,
        as_tree: Callable[[Array], Any],
        episodes_played: Int[Array, ""],
        state: QState,
        batch: tuple[Episodes, Array],
    ) -> tuple[QState, dict[str, Array]]:
        """One gradient step, with the parameters of `state` as vectors."""

        def loss(params: Array) -> tuple[Array, dict[str, Array]]:
            return self.loss((as_tree(params), as_tree(state.target)), *batch)

        gradient, metrics = jax.grad(loss, has_aux=True)(state.params)
        change, optimiser = self.optimiser.update(gradient, state.optimiser, state.params)
        params: Any = optax.apply_updates(state.params, change)
        updates = state.updates + 1
        clock = updates if self.config.target_unit == "updates" else episodes_played
        target, copied_at = self.followed(state, params, clock)
        return QState(params, target, optimiser, state.statistics, updates, copied_at), metrics

    def standardised_reward(
        self, statistics: RunningStatistics, batches: Episodes
    ) -> tuple[Float[Array, "U T B K"], RunningStatistics]:
        """The rewards that values are learned from, each batch by the statistics up to it, and the
        statistics after all.

        What a batch adds to the statistics does not depend on those before: one pass for all of
        them."""
        if not self.config.standardise_reward:
            return batches.reward, statistics
        length = (
            batches.length.max(axis=-1, keepdims=True)
            if self.config.standardise_padding
            else batches.length
        )
        counted = jax.vmap(self._before)(jnp.broadcast_to(length, batches.length.shape))
        of_batches = jax.vmap(partial(statistics_of, shape=self._per_agent))(
            batches.reward, counted
        )

        def add(
            so_far: RunningStatistics, of_batch: RunningStatistics
        ) -> tuple[RunningStatistics, RunningStatistics]:
            merged = merge(so_far, of_batch)
            return merged, merged

        statistics, after_each = jax.lax.scan(add, statistics, of_batches, unroll=unroll())
        return jax.vmap(standardise)(after_each, batches.reward), statistics

    def loss(
        self, networks: Networks, episodes: Episodes, reward: Float[Array, "T B K"]
    ) -> tuple[Float[Array, ""], dict[str, Array]]:
        """Mean over real steps (and agents, for IQL) of (Q - y)^2, with y from `targets`."""
        values, old_values = (self.values(params, episodes) for params in networks)
        action, best = (
            episodes.action.astype(jnp.int32),
            _best_actions(values, episodes.action_mask)[1:],
        )
        now, then, state = values[:-1], old_values[1:], self._states(episodes)
        action_mask, online, target = (
            episodes.action_mask,
            *(params["mixer"] for params in networks),
        )
        predicted = self.mixer(
            online, batched_index(now, action), _highest(now, action_mask[:-1]), action, state[:-1]
        )
        following = self.mixer(
            target, batched_index(then, best), _highest(then, action_mask[1:]), best, state[1:]
        )
        y = jax.lax.stop_gradient(self.targets(reward, following, episodes))
        mask = jnp.broadcast_to(self._before(episodes.length)[..., None], predicted.shape)
        mean = partial(jnp.mean, where=mask)
        error = predicted - y
        value_loss = mean(error**2)
        metrics = {
            "value_loss": value_loss,
            "value": mean(predicted),
            "target": mean(y),
            "td_error": mean(jnp.abs(error)),
        }
        return self.config.loss_weight * value_loss, metrics

    def values(self, params: dict[str, Any], episodes: Episodes) -> Float[Array, "T+1 B N A"]:
        """Q of every action at every view, the final one included, in one pass from the start of
        the episodes."""
        n_episodes = episodes.length.shape[0]
        first = jnp.full((1, n_episodes, self.spec.n_agents), NO_ACTION)
        before = jnp.concatenate([first, episodes.action])
        is_first = jnp.broadcast_to(
            jnp.arange(len(before))[:, None] == 0, (len(before), n_episodes)
        )
        seen = self._seen(episodes.agents_view.astype(jnp.float32), before)
        return self.agent.outputs(
            params["agent"], self.agent.init_hidden_state(n_episodes), seen, is_first
        )[1]

    def targets(
        self, reward: Float[Array, "T B K"], following: Float[Array, "T B K"], episodes: Episodes
    ) -> Float[Array, "T B K"]:
        """What Q is to become, with x_{t+1} the target network's value of the best actions at the
        view after step t:

            y_t = r_t + gamma (1 - terminal_t) ((1 - lambda) x_{t+1} + lambda y_{t+1}),   y = x after the last step

        Nothing after the end of an episode reaches back into it.
        """
        gamma, lambda_ = self.config.gamma, self.config.lambda_
        last = jnp.arange(len(reward))[:, None] == episodes.length - 1
        terminal = last & episodes.terminated
        following = gamma * jnp.where(terminal[..., None], 0, following)
        if lambda_ == 0:
            return reward + following
        one_step = reward + jnp.where(last[..., None], 1, 1 - lambda_) * following
        return discounted_sums(one_step, ~last, gamma * lambda_)

    def followed(
        self, state: QState, params: Any, clock: Int[Array, ""]
    ) -> tuple[Any, Int[Array, ""]]:
        """The target network after a step, and when it was last copied."""
        share = self.config.target_update
        if share <= 1:
            target: Any = optax.incremental_update(params, state.target, share)
            return target, state.copied_at
        due = clock - state.copied_at >= share
        target = jax.tree.map(lambda new, old: jnp.where(due, new, old), params, state.target)
        return target, jnp.where(due, clock, state.copied_at)

    def _states(self, episodes: Episodes) -> Float[Array, "T+1 B D"]:
        """What the mixer sees of each view; nothing, if it does not look."""
        agents_view = episodes.agents_view.reshape(*episodes.agents_view.shape[:2], -1)
        if not self.mixer.sees_state:
            return jnp.zeros((*agents_view.shape[:2], 0))
        return (agents_view if episodes.state is None else episodes.state).astype(jnp.float32)

    def _seen(
        self, agents_view: Float[Array, "*B N O"], before: Int[Array, "*B N"]
    ) -> Float[Array, "*B N O"]:
        if not self.config.last_action:
            return agents_view
        return jnp.concatenate([agents_view, jax.nn.one_hot(before, self.spec.n_actions)], axis=-1)

    def _before(self, length: Int[Array, "B"]) -> Bool[Array, "T B"]:
        return jnp.arange(self.spec.horizon)[:, None] < length


def _best_actions(
    values: Float[Array, "*B A"], action_mask: Bool[Array, "*B A"]
) -> Int[Array, "*B"]:
    return jnp.where(action_mask, values, UNAVAILABLE).argmax(axis=-1)


def _highest(values: Float[Array, "*B A"], action_mask: Bool[Array, "*B A"]) -> Float[Array, "*B"]:
    return jnp.where(action_mask, values, UNAVAILABLE).max(axis=-1)


def _zeros(tree: Any) -> Any:
    return jax.tree.map(jnp.zeros_like, tree)
