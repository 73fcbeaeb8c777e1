"""Dependence graphs learned from data with reverse models (the paper's section on reverse world
models).

If j's action can be told better from what became of i than from j's own state alone, then j
influences i:

    A[j, i] = 1   iff   H(q_psi(a^j | z^i, z'^i, z^j)) / H(q_phi(a^j | z^j))  <  c            row j = source, column i = target

H is the entropy of a model's guess, z an agent's encoded state, z' the next one. The encoder is
trained to tell an agent's own action from z and z' (q_varphi), so that z keeps what one's own
actions change. Four networks, shared by all agents; in each iteration the graph is inferred first,
and the models learn from the batch afterwards."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from dgmarl.envs.base import Environment
from dgmarl.errors import UsageError
from dgmarl.graphs.reach import add_self_loops
from dgmarl.nets.actor_critic import UNAVAILABLE
from dgmarl.nets.reverse_models import REVERSE, PairModel, Perceptron
from dgmarl.rollout import Batch

FLOATS_AT_ONCE = 2**24
"""How many numbers of one hidden layer of the pair model are held at a time: 64 MiB, per seed."""


@dataclass(frozen=True)
class GraphModelConfig:
    """Numbers of the learned graph; the defaults are those of the paper's foraging runs."""

    threshold: float = 0.9
    """c: an edge needs an entropy ratio below it; 0: self-loops only."""
    keep: float = 1.0
    """Share of the pairs that may have an edge, rounded up to whole pairs: where more are below the
    threshold, those with the least ratios."""
    keep_of: Literal["state", "agent"] = "state"
    """Among which pairs: those of one state, or those of one source agent in all states of a
    batch."""
    sees: Literal["observation", "local_state"] = "observation"
    """What the models take for an agent's state. Observations show other agents too, which makes
    denser graphs."""
    encoder: bool = True
    """Learn an encoding of that state, instead of using it as it is."""
    encoding: int = 64
    """Size of the encoding."""
    multi_head: bool = False
    """One last layer per source agent in the pair model."""
    learning_rate: float = 5e-4
    """Step size of Adam for all models."""
    gradient_steps: int = 1
    """Updates per iteration."""
    pair_fraction: float = 1.0
    """Share of the pairs that each update looks at, drawn anew."""
    replay: int = 1
    """How many recent batches the models learn from; the newest comes first, the others at
    random."""
    mask_unavailable: bool = False
    """Leave actions that an agent cannot take out of the guesses."""
    condition_on_action: bool = False
    """Tell the pair model the target's own action too, as in the paper's objective (its code does
    not)."""
    warm_up: int = 0
    """Iterations before the first edge between different agents."""
    transpose: bool = False
    """Swap source and target, as the paper's code does by mistake."""

    def __post_init__(self) -> None:
        """Refuse numbers that cannot be meant."""
        for name in ("encoding", "gradient_steps", "replay"):
            self._require(getattr(self, name) >= 1, name, "at least 1")
        self._require(self.threshold >= 0, "threshold", "0 or more")
        self._require(0 < self.keep <= 1, "keep", "above 0 and at most 1")
        self._require(self.warm_up >= 0, "warm_up", "0 or more")
        self._require(0 < self.pair_fraction <= 1, "pair_fraction", "above 0 and at most 1")
        self._require(self.learning_rate > 0, "learning_rate", "above 0")

    def _require(self, holds: bool, name: str, allowed: str) -> None:
        if not holds:
            raise UsageError(
                f"graph_model.{name} is {getattr(self, name):g}, but must be {allowed}."
            )


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
    """`pair` (q_psi), `predictor` (q_phi), and, with an encoder, `encoder` and `reverse`
    (q_varphi)."""
    optimiser: dict[str, Any]
    recent: Examples | None
    """The last batches, a ring [replay, R, ...]; None if only the newest is used."""
    n_updates: Int[Array, ""]


class Guesses(NamedTuple):
    """How well the pair model tells actions; [R, source, target]."""

    loss: Float[Array, "R N K"]
    entropy: Float[Array, "R N K"]


class LearnedSource:
    """Graphs from reverse models that learn beside the policy: `--graph learned`."""

    learns = True

    def __init__(self, config: GraphModelConfig, env: Environment, rows: int):
        """rows: steps per batch, over all environments."""
        self.config, self.rows = config, rows
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
        """Fresh models."""
        spec, size = env.spec, self._state_size(env)
        examples = Examples(
            now=jnp.zeros((self.rows, spec.n_agents, size)),
            next=jnp.zeros((self.rows, spec.n_agents, size)),
            action=jnp.zeros((self.rows, spec.n_agents), jnp.int32),
            action_mask=jnp.ones((self.rows, spec.n_agents, spec.n_actions), bool),
            valid=jnp.zeros(self.rows, bool),
        )
        params = self._init_params(key, examples)
        optimiser = {name: self.optimiser.init(part) for name, part in self._groups(params).items()}
        ring = None
        if self.config.replay > 1:
            ring = jax.tree.map(lambda leaf: jnp.stack([leaf] * self.config.replay), examples)
        return LearnedState(params, optimiser, ring, jnp.int32(0))

    def infer(
        self, graph_state: LearnedState, batch: Batch, key: PRNGKeyArray
    ) -> Bool[Array, "T B N N"]:
        """An edge where the entropy ratio is below the threshold."""
        ratio = self.ratios(graph_state.params, batch)
        edges = (ratio < self.config.threshold) & (graph_state.n_updates >= self.config.warm_up)
        if self.config.keep < 1:
            edges &= ratio <= self._highest_kept(ratio, batch.valid)
        return add_self_loops(edges)

    def _highest_kept(
        self, ratio: Float[Array, "T B N N"], valid: Bool[Array, "T B"]
    ) -> Float[Array, "..."]:
        """The ratio below which the share `keep` of the pairs lies: a threshold for each state, or
        for each source agent."""
        is_pair = valid[..., None, None] & ~jnp.eye(ratio.shape[-1], dtype=bool)
        among = (-2, -1) if self.config.keep_of == "state" else (0, 1, 3)
        return jnp.nanquantile(
            jnp.where(is_pair, ratio, jnp.nan),
            self.config.keep,
            axis=among,
            keepdims=True,
            method="lower",
        )

    def ratios(self, params: dict[str, Any], batch: Batch) -> Float[Array, "T B N N"]:
        """The entropy of the pair model's guess of j's action as a share of the action predictor's,
        at [j, i].

        The diagonal means nothing: self-loops are on anyway. An agent with a single action to take
        has a ratio of 1 where the models know that (`mask_unavailable`): there is nothing to tell.
        """
        examples = self.examples(batch)
        z = self._encode(params, examples.now)
        alone = _entropy(
            self._logits(self.predictor.apply(params["predictor"], z), examples.action_mask)
        )
        if z.shape[-2] == 1:
            return jnp.zeros((*batch.reward.shape, 1))
        others, place = _others(z.shape[-2])
        entropy = self._guesses(
            params["pair"], z, self._encode(params, examples.next), examples, others
        ).entropy
        ratio = jnp.take_along_axis(entropy / (alone[..., None] + 1e-8), place[None], axis=-1)
        if self.config.mask_unavailable:
            ratio = jnp.where(examples.action_mask.sum(axis=-1)[..., None] > 1, ratio, 1)
        ratio = ratio.reshape(*batch.reward.shape, -1)
        return jnp.swapaxes(ratio, -1, -2) if self.config.transpose else ratio

    def update(
        self, graph_state: LearnedState, batch: Batch, key: PRNGKeyArray
    ) -> tuple[LearnedState, dict[str, Array]]:
        """Gradient steps of all models on the newest batch, or on recent ones."""
        newest, count, config = self.examples(batch), graph_state.n_updates, self.config
        recent = graph_state.recent
        if recent is not None:
            recent = jax.tree.map(
                lambda ring, new: ring.at[count % config.replay].set(new), recent, newest
            )

        def step(
            carry: tuple[dict, dict], inputs: tuple[Array, PRNGKeyArray]
        ) -> tuple[tuple[dict, dict], dict[str, Array]]:
            number, key = inputs
            draw_key, pair_key = jax.random.split(key)
            examples = newest
            if recent is not None:
                drawn = jax.random.randint(draw_key, (), 0, jnp.minimum(count + 1, config.replay))
                examples = jax.tree.map(
                    lambda ring: ring[jnp.where(number == 0, count % config.replay, drawn)], recent
                )
            return self._step(*carry, examples, pair_key)

        inputs = (jnp.arange(config.gradient_steps), jax.random.split(key, config.gradient_steps))
        (params, optimiser), metrics = jax.lax.scan(
            step, (graph_state.params, graph_state.optimiser), inputs
        )
        metrics = {f"graph_{name}": values.mean() for name, values in metrics.items()}
        return LearnedState(params, optimiser, recent, count + 1), metrics

    def examples(self, batch: Batch) -> Examples:
        """The steps of a batch as rows."""
        now, after = (
            batch.extras["local"]
            if self.needs
            else (batch.observation.agents_view, batch.next_observation.agents_view)
        )
        arrays = Examples(now, after, batch.action, batch.observation.action_mask, batch.valid)
        return jax.tree.map(lambda leaf: leaf.reshape(batch.valid.size, *leaf.shape[2:]), arrays)

    def _step(
        self,
        params: dict[str, Any],
        optimiser: dict[str, Any],
        examples: Examples,
        key: PRNGKeyArray,
    ) -> tuple[tuple[dict[str, Any], dict[str, Any]], dict[str, Array]]:
        """One update of the encoder with q_varphi, then, with the new encoding, one of q_psi and
        q_phi."""
        metrics: dict[str, Array] = {}
        for name, loss in (("encoding", self._encoding_loss), ("guessing", self._guessing_loss)):
            groups = self._groups(params)
            if name in groups:
                gradient, found = jax.grad(loss, has_aux=True)(groups[name], params, examples, key)
                change, moments = self.optimiser.update(gradient, optimiser[name], groups[name])
                params = {**params, **optax.apply_updates(groups[name], change)}  # pyright: ignore[reportGeneralTypeIssues]
                optimiser = {**optimiser, name: moments}
                metrics.update(found)
        return (params, optimiser), metrics

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
        pair_loss, alone_loss = (
            _mean(part, examples.valid)
            for part in (guesses.loss, _cross_entropy(logits, examples.action))
        )
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
        at_once = max(
            1,
            FLOATS_AT_ONCE
            // (REVERSE[0] * n_agents * (n_agents if chosen is None else chosen.shape[-1])),
        )
        return in_chunks(
            some,
            (z, jnp.concatenate(target, axis=-1), examples.action, examples.action_mask),
            at_once,
        )

    def _encode(
        self, params: dict[str, Any], states: Float[Array, "R N L"]
    ) -> Float[Array, "R N d"]:
        return self.encoder.apply(params["encoder"], states) if self.config.encoder else states  # pyright: ignore[reportReturnType]

    def _logits(self, logits: Any, action_mask: Bool[Array, "..."]) -> Float[Array, "... A"]:
        return (
            jnp.where(action_mask, logits, UNAVAILABLE) if self.config.mask_unavailable else logits
        )

    def _groups(self, params: dict[str, Any]) -> dict[str, Any]:
        """The parameters of each optimiser."""
        groups = {"encoding": ("encoder", "reverse"), "guessing": ("pair", "predictor")}
        return {
            group: {name: params[name] for name in names}
            for group, names in groups.items()
            if names[0] in params
        }

    def _init_params(self, key: PRNGKeyArray, examples: Examples) -> dict[str, Any]:
        keys = dict(
            zip(("encoder", "reverse", "predictor", "pair"), jax.random.split(key, 4), strict=True)
        )
        state, params = examples.now[:1], {}
        if self.config.encoder:
            params["encoder"] = self.encoder.init(keys["encoder"], state)
            state = self._encode(params, state)
            params["reverse"] = self.reverse.init(
                keys["reverse"], jnp.concatenate([state, state], axis=-1)
            )
        params["predictor"] = self.predictor.init(keys["predictor"], state)
        action = jnp.zeros_like(examples.action_mask[:1], jnp.float32)
        target = [state, state, action] if self.config.condition_on_action else [state, state]
        params["pair"] = self.pair.init(keys["pair"], state, jnp.concatenate(target, axis=-1))
        return params

    def _state_size(self, env: Environment) -> int:
        if not self.needs:
            return env.spec.obs_size
        return jax.eval_shape(
            lambda key: env.local_state(env.reset(key)[0]), jax.random.key(0)
        ).shape[-1]


def _others(n_agents: int) -> tuple[Int[Array, "N K"], Int[Array, "N N"]]:
    """For each agent all the others, and where among them each one stands (on the diagonal:
    anywhere)."""
    rows, columns = jnp.arange(n_agents)[:, None], jnp.arange(n_agents)
    others = columns[: n_agents - 1] + (columns[: n_agents - 1] >= rows)
    return others, jnp.clip(columns - (columns > rows), 0, n_agents - 2)


def in_chunks(function: Callable[[Any], Any], rows: Any, at_once: int) -> Any:
    """function(rows), computed `at_once` rows at a time; gradients compute each chunk anew instead
    of keeping it."""
    n_rows = jax.tree.leaves(rows)[0].shape[0]
    if n_rows <= at_once:
        return function(rows)
    n_chunks = -(-n_rows // at_once)
    padding = n_chunks * at_once - n_rows

    def cut(leaf: Array) -> Array:
        padded = jnp.pad(leaf, [(0, padding)] + [(0, 0)] * (leaf.ndim - 1))
        return padded.reshape(n_chunks, at_once, *leaf.shape[1:])

    chunks = jax.lax.map(jax.checkpoint(function), jax.tree.map(cut, rows))
    return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:])[:n_rows], chunks)


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
