"""Dependence graphs learned from data with reverse models (the paper's section on reverse world
models).

If j's action can be told better from what became of i than from j's own state alone, then j
influences i:

    A[j, i] = 1   iff   H(q_psi(a^j | z^i, z'^i, z^j)) / H(q_phi(a^j | z^j))  <  c

H is the entropy of a model's guess, z an agent's encoded state, z' the next one. The encoder is
trained to tell an agent's own action from z and z' (q_varphi), so that z keeps what one's own
actions change. Four networks, shared by all agents; in each iteration the graph is inferred first,
and the models learn from the batch afterwards."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from dgmarl.config.parts import GraphModelConfig
from dgmarl.envs.base import Environment
from dgmarl.errors import UsageError
from dgmarl.graphs.reach import add_self_loops
from dgmarl.nets.actor_critic import UNAVAILABLE
from dgmarl.nets.reverse_models import REVERSE, PairModel, Perceptron
from dgmarl.rollout import Batch

FLOATS_AT_ONCE = 2**24
"""How many numbers of one hidden layer of the pair model are held at a time: 64 MiB, per seed."""


class Examples(NamedTuple):
    """What the models learn from; R steps."""

    now: Float[Array, "R N L"]
    next: Float[Array, "R N L"]
    action: Int[Array, "R N"]
    action_mask: Bool[Array, "R N A"]
    valid: Bool[Array, "R"]


class LearnedState(NamedTuple):
    """All that learning changes."""

    params: dict[str, Any]
    """`pair` (q_psi), `predictor` (q_phi); with an encoder `encoder`, `reverse` (q_varphi)."""
    opt_state: dict[str, Any]


class Guesses(NamedTuple):
    """How well the pair model tells actions; [R, source, target]."""

    loss: Float[Array, "R N K"]
    entropy: Float[Array, "R N K"]


class LearnedSource:
    """Graphs from reverse models that learn beside the policy: `--graph learned`."""

    learns = True

    def __init__(self, config: GraphModelConfig, env: Environment, threshold: Any):
        """threshold: that of the configuration, or an array where it varies between runs."""
        self.config, self.threshold = config, threshold
        self.needs = frozenset({"local"}) if config.sees == "local_state" else frozenset[str]()
        if self.needs and not env.offers("local_state"):
            raise UsageError(
                f"{env.spec.name} offers no local_state: define it, or leave graph_model.sees = "
                "observation."
            )
        self.encoder = Perceptron((config.encoding, config.encoding), config.encoding)
        self.reverse = self.predictor = Perceptron(REVERSE, env.spec.n_actions)
        self.pair = PairModel(env.spec.n_actions, config.multi_head)
        self.optimiser = optax.flatten(optax.adam(config.learning_rate))

    def init(self, key: PRNGKeyArray, env: Environment) -> LearnedState:
        spec, size = env.spec, self._state_size(env)
        example = Examples(
            now=jnp.zeros((1, spec.n_agents, size)),
            next=jnp.zeros((1, spec.n_agents, size)),
            action=jnp.zeros((1, spec.n_agents), jnp.int32),
            action_mask=jnp.ones((1, spec.n_agents, spec.n_actions), bool),
            valid=jnp.zeros(1, bool),
        )
        params = self._init_params(key, example)
        groups = self._groups(params).items()
        return LearnedState(params, {name: self.optimiser.init(part) for name, part in groups})

    def infer(
        self, graph_state: LearnedState, batch: Batch, key: PRNGKeyArray
    ) -> Bool[Array, "T B N N"]:
        """An edge where the entropy ratio is below the threshold."""
        return add_self_loops(self.ratios(graph_state.params, batch) < self.threshold)

    def ratios(self, params: dict[str, Any], batch: Batch) -> Float[Array, "T B N N"]:
        """The entropy of the pair model's guess of j's action as a share of the action predictor's,
        at [j, i].

        The diagonal has no meaning: self-loops are always on. An agent with a single available
        action has a ratio of 1, that is no edge at a threshold below 1.
        """
        examples = self.examples(batch)
        z = self._encode(params, examples.now)
        guessed = self.predictor.apply(params["predictor"], z)
        alone = _entropy(self._logits(guessed, examples.action_mask))
        if z.shape[-2] == 1:
            return jnp.zeros((*batch.reward.shape, 1))
        others, place = _others(z.shape[-2])
        after = self._encode(params, examples.next)
        entropy = self._guesses(params["pair"], z, after, examples, others).entropy
        ratio = jnp.take_along_axis(entropy / (alone[..., None] + 1e-8), place[None], axis=-1)
        ratio = jnp.where(examples.action_mask.sum(axis=-1)[..., None] > 1, ratio, 1)
        return ratio.reshape(*batch.reward.shape, -1)

    def update(
        self, graph_state: LearnedState, batch: Batch, key: PRNGKeyArray
    ) -> tuple[LearnedState, dict[str, Array]]:
        """Gradient steps of all models on the newest batch."""
        examples = self.examples(batch)

        def step(carry: tuple[dict, dict], key: PRNGKeyArray) -> tuple[Any, dict[str, Array]]:
            _, pair_key = jax.random.split(key)
            return self._step(*carry, examples, pair_key)

        start = (graph_state.params, graph_state.opt_state)
        keys = jax.random.split(key, self.config.gradient_steps)
        (params, opt_state), metrics = jax.lax.scan(step, start, keys)
        metrics = {f"graph_{name}": values.mean() for name, values in metrics.items()}
        return LearnedState(params, opt_state), metrics

    def examples(self, batch: Batch) -> Examples:
        """The steps of a batch as rows."""
        views = (batch.observation.agents_view, batch.next_observation.agents_view)
        now, after = batch.extras["local"] if self.needs else views
        arrays = Examples(now, after, batch.action, batch.observation.action_mask, batch.valid)
        return jax.tree.map(lambda leaf: leaf.reshape(batch.valid.size, *leaf.shape[2:]), arrays)

    def _step(
        self,
        params: dict[str, Any],
        opt_state: dict[str, Any],
        examples: Examples,
        key: PRNGKeyArray,
    ) -> tuple[tuple[dict[str, Any], dict[str, Any]], dict[str, Array]]:
        """One update of the encoder with q_varphi, then, with it, one of q_psi and q_phi."""
        metrics: dict[str, Array] = {}
        for name, loss in (("encoding", self._encoding_loss), ("guessing", self._guessing_loss)):
            groups = self._groups(params)
            if name in groups:
                gradient, found = jax.grad(loss, has_aux=True)(groups[name], params, examples, key)
                updates, new_state = self.optimiser.update(gradient, opt_state[name], groups[name])
                updated: Any = optax.apply_updates(groups[name], updates)
                params, opt_state = {**params, **updated}, {**opt_state, name: new_state}
                metrics.update(found)
        return (params, opt_state), metrics

    def _encoding_loss(
        self, group: dict[str, Any], params: Any, examples: Examples, key: PRNGKeyArray
    ) -> tuple[Array, dict]:
        """Cross entropy of an agent's own action, guessed from its state and the next one."""
        both = [self._encode(group, part) for part in (examples.now, examples.next)]
        logits = self._logits(
            self.reverse.apply(group["reverse"], jnp.concatenate(both, axis=-1)),
            examples.action_mask,
        )
        loss = _mean(_cross_entropy(logits, examples.action), examples.valid)
        return loss, {"encoder_loss": loss}

    def _guessing_loss(
        self, group: dict[str, Any], params: Any, examples: Examples, key: PRNGKeyArray
    ) -> tuple[Array, dict]:
        """Cross entropy of q_psi over pairs, the pair of an agent with itself included, and of
        q_phi over agents.

        The encoding stands still here. The paper's code also trains q_phi on the observation after
        the last step of an episode that was cut off; a batch holds no action there."""
        z, after = jax.lax.stop_gradient(
            [self._encode(params, part) for part in (examples.now, examples.next)]
        )
        n_agents = examples.action.shape[-1]
        chosen, off_diagonal = None, ~jnp.eye(n_agents, dtype=bool)
        if self.config.pair_fraction < 1:
            n_chosen = max(1, round(self.config.pair_fraction * n_agents))
            shift = jax.random.choice(key, n_agents, (n_chosen,), replace=False)
            chosen = (jnp.arange(n_agents)[:, None] + shift) % n_agents
            off_diagonal = jnp.broadcast_to(shift > 0, chosen.shape)
        guesses = self._guesses(group["pair"], z, after, examples, chosen)
        logits = self._logits(self.predictor.apply(group["predictor"], z), examples.action_mask)
        pair_loss = _mean(guesses.loss, examples.valid)
        alone_loss = _mean(_cross_entropy(logits, examples.action), examples.valid)
        alone = _entropy(logits)
        others = examples.valid[:, None, None] & off_diagonal
        ratio = guesses.entropy / (alone[..., None] + 1e-8)
        metrics = {
            "pair_loss": pair_loss,
            "predictor_loss": alone_loss,
            "pair_entropy": _mean(guesses.entropy, others),
            "predictor_entropy": _mean(alone, examples.valid),
            "ratio": _mean(ratio, others),
        }
        return pair_loss + alone_loss, metrics

    def _guesses(
        self,
        params: Any,
        z: Array,
        after: Array,
        examples: Examples,
        chosen: Int[Array, "N K"] | None = None,
    ) -> Guesses:
        """The pair model on all steps, some at a time where the pairs of all would not fit."""
        target = [z, after]
        if self.config.condition_on_action:
            target.append(jax.nn.one_hot(examples.action, examples.action_mask.shape[-1]))

        def some(rows: tuple[Array, Array, Array, Array]) -> Guesses:
            source, target, action, action_mask = rows
            logits = self._logits(
                self.pair.apply(params, source, target, chosen), action_mask[..., None, :]
            )
            return Guesses(_cross_entropy(logits, action[..., None]), _entropy(logits))

        n_agents = z.shape[-2]
        n_pairs = n_agents * (n_agents if chosen is None else chosen.shape[-1])
        rows = (z, jnp.concatenate(target, axis=-1), examples.action, examples.action_mask)
        return in_chunks(some, rows, max(1, FLOATS_AT_ONCE // (REVERSE[0] * n_pairs)))

    def _encode(
        self, params: dict[str, Any], states: Float[Array, "R N L"]
    ) -> Float[Array, "R N d"]:
        return self.encoder.apply(params["encoder"], states) if self.config.encoder else states  # pyright: ignore[reportReturnType]

    def _logits(self, logits: Any, action_mask: Bool[Array, "..."]) -> Float[Array, "... A"]:
        return jnp.where(action_mask, logits, UNAVAILABLE)

    def _groups(self, params: dict[str, Any]) -> dict[str, Any]:
        """The parameters of each optimiser."""
        groups = {"encoding": ("encoder", "reverse"), "guessing": ("pair", "predictor")}
        return {
            group: {name: params[name] for name in names}
            for group, names in groups.items()
            if names[0] in params
        }

    def _init_params(self, key: PRNGKeyArray, examples: Examples) -> dict[str, Any]:
        encoder_key, reverse_key, predictor_key, pair_key = jax.random.split(key, 4)
        state, params = examples.now[:1], {}
        if self.config.encoder:
            params["encoder"] = self.encoder.init(encoder_key, state)
            state = self._encode(params, state)
            both = jnp.concatenate([state, state], axis=-1)
            params["reverse"] = self.reverse.init(reverse_key, both)
        params["predictor"] = self.predictor.init(predictor_key, state)
        action = jnp.zeros_like(examples.action_mask[:1], jnp.float32)
        target = [state, state, action] if self.config.condition_on_action else [state, state]
        params["pair"] = self.pair.init(pair_key, state, jnp.concatenate(target, axis=-1))
        return params

    def _state_size(self, env: Environment) -> int:
        if not self.needs:
            return env.spec.obs_size
        own = jax.eval_shape(lambda key: env.local_state(env.reset(key)[0]), jax.random.key(0))
        return own.shape[-1]


def _others(n_agents: int) -> tuple[Int[Array, "N K"], Int[Array, "N N"]]:
    """For each agent the others, and the place of each among them (anything on the diagonal)."""
    rows, columns = jnp.arange(n_agents)[:, None], jnp.arange(n_agents)
    others = columns[: n_agents - 1] + (columns[: n_agents - 1] >= rows)
    return others, jnp.clip(columns - (columns > rows), 0, n_agents - 2)


def in_chunks(function: Callable[[Any], Any], rows: Any, chunk: int) -> Any:
    """function(rows), `chunk` rows at a time; gradients recompute each chunk."""
    if jax.tree.leaves(rows)[0].shape[0] <= chunk:
        return function(rows)

    def one_row(row: Any) -> Any:
        result = function(jax.tree.map(lambda leaf: leaf[None], row))
        return jax.tree.map(lambda leaf: leaf[0], result)

    return jax.lax.map(jax.checkpoint(one_row), rows, batch_size=chunk)


def _cross_entropy(logits: Float[Array, "*B A"], action: Int[Array, "*B"]) -> Float[Array, "*B"]:
    log_probs = jax.nn.log_softmax(logits)
    return -jnp.sum(log_probs, axis=-1, where=action[..., None] == jnp.arange(logits.shape[-1]))


def _entropy(logits: Float[Array, "*B A"]) -> Float[Array, "*B"]:
    """In nats."""
    log_probs = jax.nn.log_softmax(logits)
    return -jnp.sum(jnp.exp(log_probs) * log_probs, axis=-1)


def _mean(values: Float[Array, "R ..."], mask: Bool[Array, "R ..."]) -> Float[Array, ""]:
    """Over valid rows, and over all that belongs to a row."""
    mask = jnp.broadcast_to(
        mask.reshape(*mask.shape, *(1,) * (values.ndim - mask.ndim)), values.shape
    )
    return jnp.sum(values, where=mask) / jnp.maximum(mask.sum(), 1)
