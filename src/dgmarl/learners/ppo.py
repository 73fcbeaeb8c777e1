"""Proximal policy optimisation for teams: IPPO and MAPPO, with local, global or dependence-graph
credit.

One learner. IPPO and MAPPO differ in what the critic sees (`critic`), the three kinds of credit in
which rewards an advantage is made of (`credit`). The defaults are the paper's; where its text and
its code differ, the code's numbers are used (full batches, separate optimisers, no value
coefficient, no gamma^t factor)."""

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from dgmarl.credit.cross_weight import (
    CrossMoments,
    best_cross_weight,
    initial_moments,
    updated_moments,
)
from dgmarl.credit.gae import gae
from dgmarl.credit.graph_gae import Form, graph_gae, soft_graph_gae
from dgmarl.credit.standardise import (
    RunningStatistics,
    initial_statistics,
    standardise,
    update_statistics,
)
from dgmarl.device import unroll
from dgmarl.envs.base import EnvSpec, Observation
from dgmarl.learners.base import batched_index, require
from dgmarl.nets.actor_critic import CriticKind, Policy, Value
from dgmarl.rollout import Act, Batch, HiddenState

Credit = Literal["local", "global", "graph"]


@dataclass(frozen=True)
class PPOConfig:
    """Numbers of the learner; the defaults are those of the paper's foraging runs."""

    credit: Credit = "graph"
    """Whose rewards an agent is credited with: its own, everybody's, or those its actions can
    reach."""
    critic: CriticKind = "agent"
    """What the critic sees: own observation or only own local state (IPPO), state and agent
    (MAPPO), or the state with one head per agent (MAPPO)."""
    network: Literal["fc", "gru"] = "fc"
    """The middle of the policy: a hidden layer, or a recurrent one."""
    hidden: int = 128
    """Width of every hidden layer."""
    share_parameters: bool = True
    """One network for all agents (which are told who they are), or one set of parameters per
    agent."""
    learning_rate: float = 5e-4
    """Step size of Adam, for policy and critic."""
    max_grad_norm: float = 10.0
    """Largest norm of a gradient, policy and critic separately."""
    epochs: int = 4
    """Passes over each batch."""
    minibatches: int = 1
    """Parts a batch is cut into (by environment) in each pass; 1: full batches, as in the paper."""
    clip: float = 0.2
    """How far the probability ratio may move from 1."""
    entropy: float = 0.001
    """Weight of the entropy bonus."""
    gamma: float = 0.99
    """Discount factor."""
    lambda_: float = 0.95
    """Decay of GAE; also the weight of a reached agent in weighted graph credit."""
    standardise_reward: bool = False
    """Scale rewards by running statistics: per agent (local), of the sum (global), over all agents
    (graph)."""
    normalise_advantage: bool = False
    """Shift and scale the advantages of a batch to mean 0 and deviation 1."""
    weighted: bool = True
    """Unreached agents keep the weight 1 - lambda in graph credit (the paper's runs), instead of
    0."""
    cross_weight: float = 1.0
    """Weight of other agents' rewards in graph credit; 1: the paper's."""
    adapt_cross_weight: bool = False
    """Multiply that weight by one from 0.2 to 1 that makes the gradient's direction surest
    (`credit.cross_weight`)."""
    fade: float = 1.0
    """What others' rewards keep of their weight with each step that passes; 1: all of it (the
    paper's). Plain weights only."""
    edge_strength: float = 1.0
    """Strength of an edge between two agents, multiplied along a path; 1: whoever is reached counts
    in full (the paper's)."""
    form: Form = "td"
    """Credit for others: TD errors from the meeting time on (Algorithm 1), or returns from then on
    less the target's value."""
    mask_dead: bool = False
    """Leave dead agents out of the losses; False: the paper's runs."""

    def __post_init__(self) -> None:
        """Refuse numbers that cannot be meant."""
        for name, low, high in (
            ("gamma", 0, 1),
            ("lambda_", 0, 1),
            ("clip", 0, 1),
            ("cross_weight", 0, 1),
            ("edge_strength", 0, 1),
        ):
            require(
                low <= getattr(self, name) <= high,
                name,
                getattr(self, name),
                f"a number from {low} to {high}",
            )
        for name in ("hidden", "epochs", "minibatches"):
            require(getattr(self, name) >= 1, name, getattr(self, name), "at least 1")
        for name in ("learning_rate", "max_grad_norm"):
            require(getattr(self, name) > 0, name, getattr(self, name), "above 0")
        require(self.entropy >= 0, "entropy", self.entropy, "0 or more")
        require(self.fade == 1 or not self.weighted, "fade", self.fade, "1 with weighted = on")
        require(
            self.edge_strength == 1 or self.form == "td",
            "edge_strength",
            self.edge_strength,
            "1 with form = return",
        )


class PPOState(NamedTuple):
    """All that learning changes."""

    params: dict[str, Any]
    """`actor` and `critic`."""
    optimiser: dict[str, Any]
    statistics: RunningStatistics
    cross: CrossMoments | None = None
    """What the weight of other agents' rewards is chosen by."""

    def with_params(self, params: dict[str, Any]) -> "PPOState":
        """The same learner with another policy and critic."""
        return self._replace(params=params)


class Samples(NamedTuple):
    """What the epochs go over, computed once per batch; `[T, B, ...]`."""

    observation: Observation
    action: Array
    log_prob: Array
    is_first: Array
    advantage: Float[Array, "T B N"]
    target: Float[Array, "T B N"]
    mask: Bool[Array, "T B N"]
    parts: Float[Array, "T B 2 N"]
    """Credit from an agent's own rewards, and from those of others, before weights and scaling."""


class PPO:
    """The learner: `init`, `act`, `learn`."""

    def __init__(self, config: PPOConfig, spec: EnvSpec):
        self.config = config
        self.policy = Policy(spec, config.hidden, config.network == "gru", config.share_parameters)
        self.value = Value(spec, config.hidden, config.critic, config.share_parameters)
        # Flattened to one vector: a few operations per update instead of a few per layer.
        rule = optax.chain(
            optax.clip_by_global_norm(config.max_grad_norm), optax.adam(config.learning_rate)
        )
        self.optimiser = optax.flatten(rule)
        self.team_reward: bool | Bool[Array, ""] = config.credit == "global"
        self._per_agent = (spec.n_agents,) if config.credit == "local" else ()

    def init(self, key: PRNGKeyArray) -> PPOState:
        """Fresh parameters, optimisers and reward statistics."""
        actor_key, critic_key = jax.random.split(key)
        params = {"actor": self.policy.init(actor_key), "critic": self.value.init(critic_key)}
        optimiser = {name: self.optimiser.init(part) for name, part in params.items()}
        cross = initial_moments() if self.config.adapt_cross_weight else None
        return PPOState(params, optimiser, initial_statistics(self._per_agent), cross)

    def start_replay(self) -> None:
        """None: it learns from each batch once, when it is fresh."""

    def init_hidden_state(self, *batch: int) -> HiddenState:
        """The policy's memory at the start of an episode."""
        return self.policy.init_hidden_state(*batch)

    def behaviour(self, state: PPOState, step: Int[Array, ""]) -> Act:
        """How to play while learning: as ever."""
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
        """Actions of B environments, sampled or the most likely, with their log probabilities and
        the memory after."""
        hidden_state, log_probs = self.policy.log_probs(
            params["actor"],
            hidden_state,
            jax.tree.map(lambda leaf: leaf[None], observation),
            is_first[None],
        )
        choices = jnp.where(observation.action_mask, log_probs[0], -jnp.inf)
        action = choices.argmax(axis=-1) if greedy else jax.random.categorical(key, choices)
        return action, batched_index(log_probs[0], action), hidden_state

    def learn(
        self, state: PPOState, batch: Batch, graph: Bool[Array, "T B N N"] | None, key: PRNGKeyArray
    ) -> tuple[PPOState, dict[str, Array]]:
        """One iteration of updates on one batch."""
        reward, statistics = self.standardised_reward(state.statistics, batch)
        weight = self.config.cross_weight * (
            1.0 if state.cross is None else best_cross_weight(state.cross)
        )
        samples = self.samples(state.params["critic"], batch, reward, graph, weight)
        cross = state.cross and updated_moments(
            state.cross, self._gradients_of_parts(state.params["actor"], batch, samples)
        )

        def update(
            carry: tuple[dict, dict], part: tuple[HiddenState, Samples] | None
        ) -> tuple[tuple[dict, dict], dict[str, Array]]:
            params, optimiser = carry
            gradient, metrics = jax.grad(self.loss, has_aux=True)(
                params, *(part or (batch.hidden_state, samples))
            )
            for name in params:
                change, moments = self.optimiser.update(
                    gradient[name], optimiser[name], params[name]
                )
                params = {**params, name: optax.apply_updates(params[name], change)}
                optimiser = {**optimiser, name: moments}
            return (params, optimiser), metrics

        parts = (
            None
            if self.config.minibatches == 1
            else self._minibatches(key, batch.hidden_state, samples)
        )
        n_updates = self.config.epochs * self.config.minibatches
        start = (state.params, state.optimiser)
        (params, optimiser), metrics = jax.lax.scan(
            update, start, parts, length=n_updates, unroll=unroll()
        )
        metrics = {name: values.mean() for name, values in metrics.items()}
        metrics["advantage_std"] = jnp.std(samples.advantage, where=samples.mask)
        if state.cross is not None:
            metrics["cross_weight"] = jnp.asarray(weight)
        return PPOState(params, optimiser, statistics, cross), metrics

    def standardised_reward(
        self, statistics: RunningStatistics, batch: Batch
    ) -> tuple[Float[Array, "T B N"], RunningStatistics]:
        """The rewards that credit is made of. Global credit gives everybody the sum."""
        reward = jnp.where(self.team_reward, batch.reward.sum(axis=-1, keepdims=True), batch.reward)
        if not self.config.standardise_reward:
            return reward, statistics
        seen = reward[..., :1] if self.config.credit == "global" else reward
        statistics = update_statistics(statistics, seen, batch.valid)
        return standardise(statistics, reward), statistics

    def samples(
        self,
        critic: Any,
        batch: Batch,
        reward: Float[Array, "T B N"],
        graph: Bool[Array, "T B N N"] | None,
        cross_weight: float | Float[Array, ""] = 1.0,
    ) -> Samples:
        """Advantages and critic targets, once per batch, before any update (specification of
        Algorithm 1 and GAE)."""
        config = self.config
        value, next_value = self.values(critic, batch)
        own = gae(
            reward,
            value,
            next_value,
            batch.bootstrap,
            batch.continues,
            config.gamma,
            config.lambda_,
        )
        cross = jnp.zeros_like(own)
        if config.credit == "graph":
            assert graph is not None
            cross = self._cross_credit(batch, reward, value, next_value, graph, own)
        advantage = own + cross_weight * cross
        mask = jnp.broadcast_to(batch.valid[..., None], advantage.shape)
        if config.mask_dead:
            mask &= batch.observation.alive
        if config.normalise_advantage:
            mean, count = jnp.mean(advantage, where=mask), mask.sum()
            variance = jnp.sum((advantage - mean) ** 2, where=mask) / jnp.maximum(count - 1, 1)
            advantage = (advantage - mean) / (jnp.sqrt(variance) + 1e-8)
        parts = jnp.stack([own, cross], axis=-2)
        return Samples(
            batch.observation,
            batch.action,
            batch.log_prob,
            batch.is_first,
            advantage,
            own + value,
            mask,
            parts,
        )

    def _cross_credit(
        self, batch: Batch, reward: Array, value: Array, next_value: Array, graph: Array, own: Array
    ) -> Array:
        """What the rewards of others add to each advantage; with `fade`, a TD error has the weight
        (gamma lambda fade)^lag."""
        config = self.config
        steps = (reward, value, next_value)
        masks = (batch.bootstrap, batch.continues, config.gamma, config.lambda_ * config.fade)
        if config.fade < 1:
            own = gae(*steps, *masks)
        if config.edge_strength < 1:
            return (
                soft_graph_gae(
                    *steps,
                    jnp.where(graph, config.edge_strength, 0),
                    *masks,
                    weighted=config.weighted,
                )
                - own
            )
        baseline = (
            jnp.broadcast_to(value[..., None, :], graph.shape) if config.form == "return" else None
        )
        options = {
            "weighted": config.weighted,
            "form": config.form,
            "pair_baseline": baseline,
            "own": own,
        }
        return graph_gae(*steps, graph, *masks, **options) - own

    def values(
        self, critic: Any, batch: Batch
    ) -> tuple[Float[Array, "T B N"], Float[Array, "T B N"]]:
        """V of every view and of its successor; in one pass where the successors are the views
        themselves."""
        if batch.last_observation is None:
            return self.value(critic, batch.observation), self.value(critic, batch.next_observation)
        observations = jax.tree.map(
            lambda observations, last: jnp.concatenate([observations, last[None]]),
            batch.observation,
            batch.last_observation,
        )
        values = self.value(critic, observations)
        return values[:-1], values[1:]

    def loss(
        self, params: dict[str, Any], hidden_state: HiddenState, samples: Samples
    ) -> tuple[Float[Array, ""], dict[str, Array]]:
        """Policy and critic loss together: they share no parameter, so one gradient serves both
        optimisers."""
        config = self.config
        _, log_probs = self.policy.log_probs(
            params["actor"], hidden_state, samples.observation, samples.is_first
        )
        log_ratio = batched_index(log_probs, samples.action) - samples.log_prob
        ratio = jnp.exp(log_ratio)
        clipped = jnp.clip(ratio, 1 - config.clip, 1 + config.clip)
        surrogate = jnp.minimum(ratio * samples.advantage, clipped * samples.advantage)
        entropy = -(jnp.exp(log_probs) * log_probs).sum(axis=-1)
        error = samples.target - self.value(params["critic"], samples.observation)

        def mean(x: Float[Array, "T B N"]) -> Float[Array, ""]:
            return jnp.sum(x, where=samples.mask) / jnp.maximum(samples.mask.sum(), 1)

        policy_loss = -mean(surrogate + config.entropy * entropy)
        value_loss = mean(error**2)
        metrics = {
            "policy_loss": policy_loss,
            "value_loss": value_loss,
            "entropy": mean(entropy),
            "clipped": mean((jnp.abs(ratio - 1) > config.clip).astype(jnp.float32)),
            "kl": mean(ratio - 1 - log_ratio),
        }
        return policy_loss + value_loss, metrics

    def _gradients_of_parts(
        self, actor: Any, batch: Batch, samples: Samples
    ) -> Float[Array, "2 2 P"]:
        """Policy gradients from own rewards and from those of others, for each half of the
        environments."""
        middle = samples.mask.shape[1] // 2

        def of_half(half: slice) -> Float[Array, "2 P"]:
            part, hidden_state = (
                jax.tree.map(lambda leaf: leaf[:, half], samples),
                batch.hidden_state[half],
            )

            def log_probs(actor: Any) -> Float[Array, "T B N"]:
                return batched_index(
                    self.policy.log_probs(actor, hidden_state, part.observation, part.is_first)[1],
                    part.action,
                )

            gradient = jax.vjp(log_probs, actor)[1]
            weights = jnp.moveaxis(part.parts, -2, 0) * part.mask / jnp.maximum(part.mask.sum(), 1)
            return jax.vmap(lambda weight: ravel_pytree(gradient(weight))[0])(weights)

        return jnp.stack([of_half(slice(0, middle)), of_half(slice(middle, 2 * middle))])

    def _minibatches(
        self, key: PRNGKeyArray, hidden_state: HiddenState, samples: Samples
    ) -> tuple[HiddenState, Samples]:
        """The environments of the batch dealt out anew in each epoch: [updates, T, B / minibatches,
        ...]."""
        n_envs, parts = samples.mask.shape[1], self.config.minibatches
        orders = jax.vmap(lambda key: jax.random.permutation(key, n_envs))(
            jax.random.split(key, self.config.epochs)
        )
        chosen = orders.reshape(self.config.epochs * parts, n_envs // parts)
        return hidden_state[chosen], jax.tree.map(
            lambda leaf: jnp.moveaxis(leaf[:, chosen], 1, 0), samples
        )
