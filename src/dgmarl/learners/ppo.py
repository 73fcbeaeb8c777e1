"""Multi-agent proximal policy optimisation: IPPO and MAPPO.

The two differ in the critic's input (`learner.critic`). Advantages and critic targets come from a
credit rule; this module does not read rewards or graphs. Where the paper's text and code differ,
this module follows the code: full batches, separate optimisers, no value coefficient, no gamma^t
factor.
"""

from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from dgmarl.blocks import as_columns, as_rows, leaves_out_padding, sum_of
from dgmarl.config.parts import PPOConfig
from dgmarl.config.schema import TrainConfig
from dgmarl.config.varying import Varying
from dgmarl.credit.base import Credit, Values
from dgmarl.device import over_envs, unroll
from dgmarl.envs.base import Environment, EnvSpec, Observation, local_size
from dgmarl.errors import UsageError
from dgmarl.learners.base import batched_index, where_active
from dgmarl.nets.custom import make_policy, make_value
from dgmarl.nets.regression import shuffled
from dgmarl.rollout import Act, Batch, HiddenState


class PPOState(NamedTuple):
    """Parameters and optimiser states."""

    params: dict[str, Any]
    """`actor` and `critic`."""
    opt_state: dict[str, Any]
    """`actor` and `critic`; with `anneal_lr` also `steps`, environment steps trained on."""

    def with_params(self, params: dict[str, Any]) -> "PPOState":
        return self._replace(params=params)


class Minibatch(NamedTuple):
    """Inputs of one gradient step; `[T, B, ...]`."""

    observation: Observation
    action: Int[Array, "T B N"]
    log_prob: Float[Array, "T B N"]
    is_first: Bool[Array, "T B"]
    advantage: Float[Array, "T B N"]
    target: Float[Array, "T B N"]
    mask: Bool[Array, "T B N"]
    """Steps and agents that count in the losses."""


class Blocks(NamedTuple):
    """A minibatch in blocks (`dgmarl.blocks`)."""

    hidden_state: HiddenState
    """At the start of every block."""
    parts: Minibatch
    """With a leading axis of blocks."""
    n_used: Int[Array, ""] | int
    """The first blocks, which contain steps."""


class PPO:
    """The learner of IPPO and MAPPO."""

    def __init__(self, config: TrainConfig, env: Environment, varying: Varying):
        self.config: PPOConfig = config.learner
        self.entropy_coef, self.total_steps = varying.entropy_coef, config.steps
        spec, own_state = env.spec, self.config.critic == "own-state"
        self.needs = frozenset({"local"} if own_state else ())
        self.policy = make_policy(spec, self.config)
        self.value = make_value(_local_spec(env) if own_state else spec, self.config)
        # On one flat vector: a few operations per update instead of a few per layer.
        clip = optax.clip_by_global_norm(self.config.max_grad_norm)
        self.optimiser = optax.flatten(optax.chain(clip, optax.adam(varying.learning_rate)))

    def init(self, key: PRNGKeyArray) -> PPOState:
        actor_key, critic_key = jax.random.split(key)
        params = {"actor": self.policy.init(actor_key), "critic": self.value.init(critic_key)}
        opt_state: dict[str, Any] = {
            name: self.optimiser.init(part) for name, part in params.items()
        }
        if self.config.anneal_lr:
            opt_state["steps"] = jnp.int32(0)
        return PPOState(params, opt_state)

    def init_hidden_state(self, *batch: int) -> HiddenState:
        return self.policy.init_hidden_state(*batch)

    def behaviour(self, state: PPOState, step: Int[Array, ""]) -> Act:
        """Behaviour policy; the same as the evaluation policy."""
        return partial(self.act, state.params)

    def act(
        self,
        params: dict[str, Any],
        key: PRNGKeyArray,
        observation: Observation,
        hidden_state: HiddenState,
        is_first: Bool[Array, "B"],
        greedy: bool = False,
    ) -> tuple[Array, Array, HiddenState]:
        one_step = jax.tree.map(lambda leaf: leaf[None], observation)
        hidden_state, log_probs = self.policy.log_probs(
            params["actor"], hidden_state, one_step, is_first[None]
        )
        choices = jnp.where(observation.action_mask, log_probs[0], -jnp.inf)
        action = choices.argmax(axis=-1) if greedy else jax.random.categorical(key, choices)
        return action, batched_index(log_probs[0], action), hidden_state

    def probs(self, state: PPOState, batch: Batch) -> Float[Array, "T B N A"]:
        """The policy's probabilities at every step; exactly 0 for unavailable actions."""
        steps = (batch.hidden_state, batch.observation, batch.is_first)
        _, log_probs = self.policy.log_probs(state.params["actor"], *steps)
        return jnp.where(batch.observation.action_mask, jnp.exp(log_probs), 0)

    def values(self, state: PPOState, batch: Batch) -> Values:
        """V of every observation and of its successor, in one pass if the batch has no resets."""
        critic = state.params["critic"]
        if self.needs:
            now, after = (_with_local(batch.observation, part) for part in batch.extras["local"])
            return Values(self.value(critic, now), self.value(critic, after))
        if batch.last_observation is None:
            observations = (batch.observation, batch.next_observation)
            return Values(*(self.value(critic, part) for part in observations))
        values = self.value(critic, batch.all_observations())
        return Values(values[:-1], values[1:])

    def update(
        self,
        state: PPOState,
        batch: Batch,
        credit: Credit,
        key: PRNGKeyArray,
        active: Bool[Array, ""],
    ) -> tuple[PPOState, dict[str, Array]]:
        """Epochs of clipped policy-gradient and value-regression steps on one batch."""
        whole, opt_state = self.full_batch(batch, credit), dict(state.opt_state)
        rate: Any = 1.0
        if self.config.anneal_lr:
            rate = jnp.maximum(1 - opt_state["steps"] / self.total_steps, 0)
            opt_state["steps"] += batch.valid.sum()

        blocks = self._in_blocks(batch, whole)

        def step(
            state: PPOState, part: tuple[HiddenState, Minibatch] | None
        ) -> tuple[PPOState, dict[str, Array]]:
            gradient, metrics = self.gradient(state.params, _one_block(*part) if part else blocks)
            params, opt_state = dict(state.params), dict(state.opt_state)
            for name in params:
                updates, opt_state[name] = self.optimiser.update(
                    gradient[name], opt_state[name], params[name]
                )
                updates = jax.tree.map(lambda update: rate * update, updates)
                params[name] = optax.apply_updates(params[name], updates)
            return PPOState(params, opt_state), metrics

        single = self.config.minibatches == 1
        parts = None if single else self._minibatches(key, batch.hidden_state, whole)
        n_updates = self.config.epochs * self.config.minibatches
        start = PPOState(state.params, opt_state)
        new, metrics = jax.lax.scan(step, start, parts, length=n_updates, unroll=unroll())
        metrics = {name: values.mean() for name, values in metrics.items()}
        metrics["advantage_std"] = jnp.std(whole.advantage, where=whole.mask)
        return where_active(active, new, state), metrics

    def full_batch(self, batch: Batch, credit: Credit) -> Minibatch:
        """The whole batch with its credit, masks applied and advantages normalised."""
        advantage, target = credit.advantage, credit.target
        assert advantage is not None
        assert target is not None
        mask = jnp.broadcast_to(batch.valid[..., None], advantage.shape)
        if self.config.mask_dead:
            mask &= batch.observation.alive
        if self.config.normalise_advantage:
            mean, count = jnp.mean(advantage, where=mask), mask.sum()
            squares = jnp.sum((advantage - mean) ** 2, where=mask)
            variance = squares / jnp.maximum(count - 1, 1)
            advantage = (advantage - mean) / (jnp.sqrt(variance) + 1e-8)
        observation = batch.observation
        if self.needs:
            observation = _with_local(observation, batch.extras["local"][0])
        played = (batch.action, batch.log_prob, batch.is_first)
        return Minibatch(observation, *played, advantage, target, mask)

    def gradient(
        self, params: dict[str, Any], blocks: Blocks
    ) -> tuple[dict[str, Any], dict[str, Array]]:
        """The gradient of the loss, and metrics."""
        scale = 1 / jnp.maximum(blocks.parts.mask.sum(), 1)

        def of_block(part: Minibatch) -> Any:
            return jax.grad(self.loss, has_aux=True)(params, blocks.hidden_state, part, scale)

        return sum_of(of_block, blocks.parts, blocks.n_used)

    def loss(
        self,
        params: dict[str, Any],
        hidden_state: HiddenState,
        part: Minibatch,
        scale: Float[Array, ""],
    ) -> tuple[Float[Array, ""], dict[str, Array]]:
        """Sum of policy and critic loss, which share no parameters, and metrics. scale: 1 / number
        of steps and agents that count in all blocks."""
        clip_eps = self.config.clip_eps
        _, log_probs = self.policy.log_probs(
            params["actor"], hidden_state, part.observation, part.is_first
        )
        log_ratio = batched_index(log_probs, part.action) - part.log_prob
        ratio = jnp.exp(log_ratio)
        clipped = jnp.clip(ratio, 1 - clip_eps, 1 + clip_eps)
        surrogate = jnp.minimum(ratio * part.advantage, clipped * part.advantage)
        entropy = -(jnp.exp(log_probs) * log_probs).sum(axis=-1)
        error = part.target - self.value(params["critic"], part.observation)

        def mean(x: Float[Array, "T B N"]) -> Float[Array, ""]:
            return jnp.sum(x, where=part.mask) * scale

        policy_loss = -mean(surrogate + self.entropy_coef * entropy)
        value_loss = mean(error**2)
        metrics = {
            "policy_loss": policy_loss,
            "value_loss": value_loss,
            "entropy": mean(entropy),
            "clipped": mean((jnp.abs(ratio - 1) > clip_eps).astype(jnp.float32)),
            "kl": mean(ratio - 1 - log_ratio),
        }
        return policy_loss + value_loss, metrics

    def _in_blocks(self, batch: Batch, whole: Minibatch) -> Blocks:
        """The whole batch, without most of its padding where that saves time."""
        recurrent = self.policy.hidden_state_size > 0
        if not leaves_out_padding(batch, recurrent):
            return _one_block(batch.hidden_state, whole)
        places = (as_columns if recurrent else as_rows)(batch.valid)
        parts = places.take(whole)
        parts = parts._replace(mask=parts.mask & places.present[..., None])
        hidden_state = self.init_hidden_state(places.step.shape[2])
        return Blocks(hidden_state, parts, places.n_used)

    def _minibatches(
        self, key: PRNGKeyArray, hidden_state: HiddenState, whole: Minibatch
    ) -> tuple[HiddenState, Minibatch]:
        """Environments shuffled in each epoch: [updates, T, B / minibatches, ...]."""
        n_envs = whole.mask.shape[1]
        chosen = shuffled(key, n_envs, self.config.epochs, self.config.minibatches)
        split = jax.tree.map(lambda leaf: jnp.moveaxis(leaf[:, chosen], 1, 0), whole)
        return over_envs(hidden_state[chosen], 1), over_envs(split, 2)


def _one_block(hidden_state: HiddenState, part: Minibatch) -> Blocks:
    return Blocks(hidden_state, jax.tree.map(lambda leaf: leaf[None], part), 1)


def _with_local(observation: Observation, local: Float[Array, "*B N L"]) -> Observation:
    """The observation with the agents' local states as its global state."""
    return observation._replace(global_state=local.reshape(*local.shape[:-2], -1))


def _local_spec(env: Environment) -> EnvSpec:
    """The spec with the sizes of `_with_local`, for a critic of local states."""
    if not env.offers("local_state"):
        raise UsageError(
            f"learner.critic is own-state, but {env.spec.name} has no local_state: define it, or "
            "choose another critic."
        )
    return replace(env.spec, state_size=env.spec.n_agents * local_size(env))
