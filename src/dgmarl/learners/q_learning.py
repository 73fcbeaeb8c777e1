"""Multi-agent Q-learning: IQL, VDN, QMIX and QPLEX.

The four differ in how the agents' values are mixed (`learner.mixer`). Rewards come from the credit
rule: each agent's own for IQL, the team's for the others. Double Q-learning on replayed whole
episodes, with 1-step or TD(lambda) targets. The defaults are EPyMARL's; EPyMARL's tuned values for
foraging and pymarl2's for SMAClite are presets.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from dgmarl.arrays import anywhere
from dgmarl.config.parts import QConfig
from dgmarl.config.schema import TrainConfig
from dgmarl.config.varying import Varying
from dgmarl.credit.base import Credit, scaled
from dgmarl.credit.gae import discounted_sums
from dgmarl.credit.standardise import RunningStatistics, initial_statistics, merge, statistics_of
from dgmarl.device import launch_bound, unroll
from dgmarl.envs.base import Environment, Observation
from dgmarl.learners.base import batched_index, where_active
from dgmarl.learners.replay import (
    Episodes,
    Replay,
    Sequences,
    Slots,
    add,
    empty_replay,
    in_slots,
    one_per_row,
    pack,
    sample,
)
from dgmarl.nets.actor_critic import UNAVAILABLE
from dgmarl.nets.custom import make_policy
from dgmarl.nets.mixers import Mixer
from dgmarl.rollout import Act, Batch, random_actions

NO_ACTION = -1
"""The previous action at the first step; its one-hot is all zeros."""
LONG_HORIZON = 100
"""Horizon from which accelerators pack replayed episodes: shorter updates are bound by kernel
launches, and the packed update is a second program to compile."""


class QState(NamedTuple):
    """Parameters, optimiser state, counters and replay buffer."""

    params: Any
    """`agent` and `mixer`."""
    target: Any
    """Parameters of the target network."""
    opt_state: Any
    statistics: RunningStatistics
    """Of the sampled rewards."""
    updates: Int[Array, ""]
    """Gradient steps so far."""
    target_updated: Int[Array, ""]
    """When the target was last updated, in `target_update_unit`s."""
    replay: Replay

    def with_params(self, params: dict[str, Any]) -> "QState":
        """The state with other parameters, also of the target network."""
        return self._replace(params=params, target=jax.tree.map(jnp.copy, params))


class QHiddenState(NamedTuple):
    """The network's hidden state and the previous action."""

    hidden: Float[Array, "*B N h"]
    action: Int[Array, "*B N"]


Networks = tuple[Any, Any]
"""Parameters of the online and of the target network."""


class QLearner:
    """The learner of IQL, VDN, QMIX and QPLEX."""

    needs: frozenset[str] = frozenset()
    has_replay = True

    def __init__(self, config: TrainConfig, env: Environment, varying: Varying):
        self.config: QConfig = config.learner
        self.spec, self.scaling = env.spec, config.credit.reward_scaling
        spec, own = env.spec, self.config
        seen = replace(spec, obs_size=spec.obs_size + spec.n_actions * own.last_action)
        self.agent = make_policy(seen, own)
        sizes = (own.mixer_embedding, own.mixer_hidden, own.mixer_heads)
        self.mixer = Mixer(spec, own.mixer, *sizes)
        clip = optax.clip_by_global_norm(own.max_grad_norm)
        self.optimiser = optax.chain(clip, optax.adam(varying.learning_rate))
        self.epsilon = optax.linear_schedule(own.epsilon_start, own.epsilon_end, own.epsilon_steps)
        self.n_updates = config.n_envs // own.episodes_per_update
        self.n_rewards = spec.n_agents if own.mixer == "none" else 1
        per_agent = self.scaling == "standardise" and own.mixer == "none"
        self._statistics_shape = (spec.n_agents,) if per_agent else ()

    def init(self, key: PRNGKeyArray) -> QState:
        """Initial parameters, the same for the target network, and an empty replay buffer."""
        agent_key, mixer_key = jax.random.split(key)
        params = {"agent": self.agent.init(agent_key), "mixer": self.mixer.init(mixer_key)}
        with_state = self.mixer.sees_state and not self.spec.state_is_obs
        precision = self.config.buffer_precision
        replay = empty_replay(
            self.spec, self.config.buffer_size, self.n_rewards, with_state, precision
        )
        statistics = initial_statistics(self._statistics_shape)
        opt_state = self.optimiser.init(ravel_pytree(params)[0])
        counts = (jnp.int32(0), jnp.int32(0))
        return QState(params, params, opt_state, statistics, *counts, replay)

    def init_hidden_state(self, *batch: int) -> QHiddenState:
        no_action = jnp.full((*batch, self.spec.n_agents), NO_ACTION)
        return QHiddenState(self.agent.init_hidden_state(*batch), no_action)

    def behaviour(self, state: QState, step: Int[Array, ""]) -> Act:
        """Behaviour policy: epsilon-greedy with a linear schedule."""
        return partial(self.act, state.params, epsilon=jnp.asarray(self.epsilon(step)))

    def values(self, state: QState, batch: Batch) -> None:
        """None: without a critic the credit rule only gives rewards."""

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
        """Epsilon-greedy actions in B environments; by default with `evaluation_epsilon`."""
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
            chance = self.config.evaluation_epsilon if epsilon is None else epsilon
            explores = jax.random.uniform(chance_key, action.shape) < chance
            action = jnp.where(explores, random_actions(random_key, observation), action)
        return action, jnp.zeros(action.shape), QHiddenState(hidden, action)

    def update(
        self,
        state: QState,
        batch: Batch,
        credit: Credit,
        key: PRNGKeyArray,
        active: Bool[Array, ""],
    ) -> tuple[QState, dict[str, Array]]:
        """Store the new episodes, then take gradient steps, each on a newly sampled batch; none
        before the buffer holds a batch."""
        # `add` applies the mask: the replay buffer is too large to be copied in every iteration.
        reward = jnp.broadcast_to(credit.reward, (*credit.reward.shape[:2], self.n_rewards))
        replay = add(state.replay, batch, reward, where=active)
        chosen = sample(replay, key, self.n_updates, self.config.batch_size)
        old = state._replace(replay=None)  # pyright: ignore[reportArgumentType]
        new, metrics = self.updates(old, replay.episodes, chosen, replay.added)
        enough = replay.added >= self.config.batch_size
        new = where_active(active & enough, new, old)
        metrics = where_active(enough, metrics, jax.tree.map(jnp.zeros_like, metrics))
        return new._replace(replay=replay), {name: rows.mean() for name, rows in metrics.items()}

    def updates(
        self,
        state: QState,
        stored: Episodes,
        chosen: Int[Array, "U B"],
        episodes_played: Int[Array, ""],
    ) -> tuple[QState, dict[str, Array]]:
        """A gradient step and a target update on each of U batches of stored episodes. Metrics are
        `[U]`.

        If the episodes of every batch fit into half as many rows, one after the other, the networks
        compute less padding. Inside the loop parameters are one vector: a few operations per step
        instead of a few per layer."""
        horizon, n_episodes = self.spec.horizon, chosen.shape[1]
        length = stored.length[chosen]
        stored_reward = jnp.swapaxes(stored.reward[chosen], 1, 2)
        reward, statistics = self.scaled_reward(state.statistics, stored_reward, length)
        (params, as_tree), (target, _) = ravel_pytree(state.params), ravel_pytree(state.target)
        start = state._replace(params=params, target=target, statistics=statistics)

        def update(state: QState, batch: tuple[Array, Array, Slots]) -> Any:
            return self._update(as_tree, episodes_played, state, in_slots(stored, *batch))

        def train(slots: Slots) -> Any:
            return jax.lax.scan(update, start, (chosen, reward, slots))

        alone = one_per_row(n_episodes, horizon)
        alone = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (len(chosen), *leaf.shape)), alone)
        if launch_bound() and horizon < LONG_HORIZON:
            new, metrics = train(alone)
        else:
            packed, fits = jax.vmap(partial(pack, n_rows=(n_episodes + 1) // 2, horizon=horizon))(
                length
            )
            new, metrics = jax.lax.cond(
                anywhere(~fits), lambda: train(alone), lambda: train(packed)
            )
        return new._replace(params=as_tree(new.params), target=as_tree(new.target)), metrics

    def _update(
        self,
        as_tree: Callable[[Array], Any],
        episodes_played: Int[Array, ""],
        state: QState,
        batch: Sequences,
    ) -> tuple[QState, dict[str, Array]]:
        """One gradient step, with the parameters of `state` as vectors."""

        def loss(params: Array) -> tuple[Array, dict[str, Array]]:
            return self.loss((as_tree(params), as_tree(state.target)), batch)

        gradient, metrics = jax.grad(loss, has_aux=True)(state.params)
        updates, opt_state = self.optimiser.update(gradient, state.opt_state, state.params)
        params: Any = optax.apply_updates(state.params, updates)
        state = state._replace(opt_state=opt_state, updates=state.updates + 1)
        return self.update_target(state, params, episodes_played), metrics

    def scaled_reward(
        self,
        statistics: RunningStatistics,
        reward: Float[Array, "U T B K"],
        length: Int[Array, "U B"],
    ) -> tuple[Float[Array, "U T B K"], RunningStatistics]:
        """The rewards of each batch, scaled by the statistics up to and including it, and the
        statistics after all batches.

        The statistics of single batches are independent, so they are computed in one pass."""
        if self.scaling == "none":
            return reward, statistics
        if self.config.standardise_padding:
            length = jnp.broadcast_to(length.max(axis=-1, keepdims=True), length.shape)
        measure = jax.vmap(partial(statistics_of, shape=self._statistics_shape))
        steps = jnp.arange(reward.shape[1])[:, None]
        of_batches = measure(reward, steps < length[:, None])

        def add(
            so_far: RunningStatistics, of_batch: RunningStatistics
        ) -> tuple[RunningStatistics, RunningStatistics]:
            merged = merge(so_far, of_batch)
            return merged, merged

        statistics, after_each = jax.lax.scan(add, statistics, of_batches, unroll=unroll())
        return jax.vmap(partial(scaled, self.scaling))(after_each, reward), statistics

    def loss(
        self, networks: Networks, batch: Sequences
    ) -> tuple[Float[Array, ""], dict[str, Array]]:
        """Mean over valid steps (and agents, for IQL) of (Q - y)^2, with y from `targets`."""
        values, old_values = (self.action_values(params, batch) for params in networks)
        action_mask, state = batch.action_mask, self._states(batch)
        action = batch.action[:-1].astype(jnp.int32)
        best = _best_actions(values, action_mask)[1:]
        now, then = values[:-1], old_values[1:]
        online, target = (params["mixer"] for params in networks)
        predicted = self.mixer(
            online, batched_index(now, action), _highest(now, action_mask[:-1]), action, state[:-1]
        )
        following = self.mixer(
            target, batched_index(then, best), _highest(then, action_mask[1:]), best, state[1:]
        )
        y = jax.lax.stop_gradient(self.targets(following, batch))
        mask = jnp.broadcast_to(batch.valid[:-1, :, None], predicted.shape)
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

    def action_values(self, params: dict[str, Any], batch: Sequences) -> Float[Array, "P R N A"]:
        """Q of every action at every observation, including final ones."""
        before = jnp.concatenate([batch.action[:1], batch.action[:-1]])
        before = jnp.where(batch.is_first[..., None], NO_ACTION, before)
        seen = self._seen(batch.agents_view.astype(jnp.float32), before)
        hidden = self.agent.init_hidden_state(batch.is_first.shape[1])
        return self.agent.outputs(params["agent"], hidden, seen, batch.is_first)[1]

    def targets(self, following: Float[Array, "T R K"], batch: Sequences) -> Float[Array, "T R K"]:
        """TD(lambda) targets, with x_{t+1} the target network's value of the best actions at the
        observation after step t, and y = x after the last step:

            y_t = r_t + gamma (1 - terminal_t) ((1 - lambda) x_{t+1} + lambda y_{t+1})

        Steps after the end of an episode do not affect it.
        """
        gamma, lambda_ = self.config.gamma, self.config.lambda_
        reward, last, terminal = (leaf[:-1] for leaf in (batch.reward, batch.last, batch.terminal))
        following = gamma * jnp.where(terminal[..., None], 0, following)
        if lambda_ == 0:
            return reward + following
        one_step = reward + jnp.where(last[..., None], 1, 1 - lambda_) * following
        return discounted_sums(one_step, ~last, gamma * lambda_)

    def update_target(self, state: QState, params: Any, episodes: Int[Array, ""]) -> QState:
        """The state with new parameters, and the target network moved by tau or, at every interval,
        replaced by a copy."""
        config = self.config
        if config.tau > 0:
            moved: Any = optax.incremental_update(params, state.target, config.tau)
            return state._replace(params=params, target=moved)
        clock = state.updates if config.target_update_unit == "updates" else episodes
        due = clock - state.target_updated >= config.target_update_interval
        target = where_active(due, params, state.target)
        updated = jnp.where(due, clock, state.target_updated)
        return state._replace(params=params, target=target, target_updated=updated)

    def _states(self, batch: Sequences) -> Float[Array, "P R D"]:
        """The state input of the mixer at each observation; size 0 if it uses none."""
        agents_view = batch.agents_view.reshape(*batch.agents_view.shape[:2], -1)
        if not self.mixer.sees_state:
            return jnp.zeros((*agents_view.shape[:2], 0))
        return (agents_view if batch.state is None else batch.state).astype(jnp.float32)

    def _seen(
        self, agents_view: Float[Array, "*B N O"], before: Int[Array, "*B N"]
    ) -> Float[Array, "*B N O"]:
        if not self.config.last_action:
            return agents_view
        return jnp.concatenate([agents_view, jax.nn.one_hot(before, self.spec.n_actions)], axis=-1)


def _best_actions(
    values: Float[Array, "*B A"], action_mask: Bool[Array, "*B A"]
) -> Int[Array, "*B"]:
    return jnp.where(action_mask, values, UNAVAILABLE).argmax(axis=-1)


def _highest(values: Float[Array, "*B A"], action_mask: Bool[Array, "*B A"]) -> Float[Array, "*B"]:
    return jnp.where(action_mask, values, UNAVAILABLE).max(axis=-1)
