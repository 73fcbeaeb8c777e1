"""Dependence graphs learned from data with reverse models (the paper's section on reverse world
models).

If i's transition predicts j's action better than j's own state alone does, then j influences i:

    A[j, i] = 1   iff   H(q_psi(a^j | z^i, z'^i, z^j)) / H(q_phi(a^j | z^j))  <  c

H is the entropy of a model's prediction, z an agent's encoded state, z' the next one. The encoder
is trained to predict an agent's own action from z and z' (q_varphi), so that z keeps what the
agent's actions change. The four networks are shared by all agents. In each iteration the graph is
inferred first, and the models are trained on the batch afterwards."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from dgmarl.blocks import Places, as_rows, map_of, sum_of
from dgmarl.config.parts import GraphModelConfig
from dgmarl.device import launch_bound
from dgmarl.envs.base import Environment, local_size
from dgmarl.errors import UsageError
from dgmarl.graphs.reach import add_self_loops
from dgmarl.nets.actor_critic import UNAVAILABLE
from dgmarl.nets.reverse_models import REVERSE, PairModel, Perceptron
from dgmarl.rollout import Batch

FLOATS_AT_ONCE = 2**24
"""Most activations of a hidden layer of the pair model in memory at a time: 64 MiB per seed."""
FLOATS_IN_CACHE = 2**18
"""The same on a CPU, where arithmetic waits for memory if they do not stay in the cache."""


class Examples(NamedTuple):
    """Training examples of the models: R steps, in blocks [C, ...]."""

    states: Float[Array, "S N L"]
    """The agents' states: the first R rows are those before the steps, the last R those after
    them. In a single block of a rollout without resets these overlap, and every state is encoded
    once."""
    action: Int[Array, "R N"]
    action_mask: Bool[Array, "R N A"]
    weight: Float[Array, "R"]
    """1 / number of steps in all blocks; 0 for padding. A sum over all rows is a mean."""
    choice_weight: Float[Array, "R N"]
    """The same for the steps and agents with several available actions."""


class LearnedState(NamedTuple):
    """Parameters and optimiser states."""

    params: dict[str, Any]
    """`pair` (q_psi), `predictor` (q_phi); with an encoder `encoder`, `reverse` (q_varphi)."""
    opt_state: dict[str, Any]


class Predictions(NamedTuple):
    """Cross entropy and entropy of the pair model's predictions; [R, source, target]."""

    loss: Float[Array, "R N K"]
    entropy: Float[Array, "R N K"]


class LearnedSource:
    """Graphs from reverse models trained alongside the policy: `--graph learned`."""

    learns = True

    def __init__(self, config: GraphModelConfig, env: Environment, threshold: Any):
        """threshold: the configuration's, or an array if it differs between batched runs."""
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
        encoder_key, reverse_key, predictor_key, pair_key = jax.random.split(key, 4)
        n_agents, params = env.spec.n_agents, {}
        state_size = local_size(env) if self.needs else env.spec.obs_size
        state = jnp.zeros((1, n_agents, state_size))
        if self.config.encoder:
            params["encoder"] = self.encoder.init(encoder_key, state)
            state = self._apply_encoder(params, state)
            both = jnp.concatenate([state, state], axis=-1)
            params["reverse"] = self.reverse.init(reverse_key, both)
        params["predictor"] = self.predictor.init(predictor_key, state)
        action = jnp.zeros((1, n_agents, env.spec.n_actions))
        target = [state, state, action] if self.config.condition_on_action else [state, state]
        params["pair"] = self.pair.init(pair_key, state, jnp.concatenate(target, axis=-1))
        groups = self._groups(params).items()
        return LearnedState(params, {name: self.optimiser.init(part) for name, part in groups})

    def infer(
        self, graph_state: LearnedState, batch: Batch, key: PRNGKeyArray
    ) -> Bool[Array, "T B N N"]:
        """An edge where the entropy ratio is below the threshold."""
        return add_self_loops(self.ratios(graph_state.params, batch) < self.threshold)

    def ratios(self, params: dict[str, Any], batch: Batch) -> Float[Array, "T B N N"]:
        """Entry [j, i]: entropy of the pair model's prediction of j's action divided by that of the
        action predictor.

        The diagonal has no meaning: self-loops are always set. An agent with a single available
        action has a ratio of 1, hence no edge for a threshold below 1."""
        n_agents = batch.reward.shape[-1]
        if n_agents == 1:
            return jnp.zeros((*batch.reward.shape, 1))
        others, position = _others(n_agents)

        def of_block(examples: Examples) -> Float[Array, "R N N"]:
            z, after = self._encode(params, examples)
            logits = self.predictor.apply(params["predictor"], z)
            alone = _entropy(_masked(logits, examples.action_mask))
            entropy = self._predict_pairs(params["pair"], z, after, examples, others).entropy
            return jnp.take_along_axis(_ratio(entropy, alone, examples), position[None], axis=-1)

        places = self._places(batch, n_agents - 1)
        found = map_of(of_block, self.examples(batch, places), places.n_used)
        return places.put_back(found[:, None], batch.valid, 1.0)

    def update(
        self, graph_state: LearnedState, batch: Batch, key: PRNGKeyArray
    ) -> tuple[LearnedState, dict[str, Array]]:
        """Gradient steps of all models on the newest batch."""
        places = self._places(batch, self._n_chosen(batch.reward.shape[-1]))
        examples = self.examples(batch, places)

        def step(carry: tuple[dict, dict], key: PRNGKeyArray) -> tuple[Any, dict[str, Array]]:
            return self._step(*carry, examples, places.n_used, key)

        start = (graph_state.params, graph_state.opt_state)
        keys = jax.random.split(key, self.config.gradient_steps)
        (params, opt_state), metrics = jax.lax.scan(step, start, keys)
        metrics = {f"graph_{name}": values.mean() for name, values in metrics.items()}
        return LearnedState(params, opt_state), metrics

    def _places(self, batch: Batch, n_targets: int) -> Places:
        """Blocks of steps whose pairs, `n_targets` per agent, fit in memory."""
        at_once = FLOATS_AT_ONCE if launch_bound() else FLOATS_IN_CACHE
        n_pairs = batch.reward.shape[-1] * n_targets
        return as_rows(batch.valid, max(1, at_once // (REVERSE[0] * n_pairs)))

    def examples(self, batch: Batch, places: Places) -> Examples:
        if self.needs:
            states = jnp.concatenate(batch.extras["local"])
        elif batch.last_observation is None:
            views = (batch.observation.agents_view, batch.next_observation.agents_view)
            states = jnp.concatenate(views)
        else:
            states = batch.all_observations().agents_view
        n_steps, n_envs = batch.valid.shape
        states = states.reshape(-1, *states.shape[2:])[None]
        if len(places.step) > 1:
            before = (places.step * n_envs + places.env)[:, 0]
            after = before + states.shape[1] - n_steps * n_envs
            states = states[0, jnp.concatenate([before, after], axis=1)]
        mask = batch.observation.action_mask
        weight = _weights(batch.valid)
        choice_weight = _weights(batch.valid[..., None] & (mask.sum(axis=-1) > 1))
        taken = places.take((batch.action, mask, weight, choice_weight))
        action, mask, weight, choice_weight = jax.tree.map(lambda leaf: leaf[:, 0], taken)
        present = places.present[:, 0]
        weight = jnp.where(present, weight, 0)
        choice_weight = jnp.where(present[..., None], choice_weight, 0)
        return Examples(states, action, mask, weight, choice_weight)

    def _step(
        self,
        params: dict[str, Any],
        opt_state: dict[str, Any],
        blocks: Examples,
        n_used: Int[Array, ""],
        key: PRNGKeyArray,
    ) -> tuple[tuple[dict[str, Any], dict[str, Any]], dict[str, Array]]:
        """One update of the encoder with q_varphi, then, with it, one of q_psi and q_phi."""
        metrics: dict[str, Array] = {}
        for name, loss in (("encoding", self._encoding_loss), ("guessing", self._prediction_loss)):
            groups = self._groups(params)
            if name in groups:
                given = (groups[name], params)
                of_block = partial(jax.grad(loss, has_aux=True), *given, key=key)
                gradient, found = sum_of(of_block, blocks, n_used)
                updates, new_state = self.optimiser.update(gradient, opt_state[name], groups[name])
                updated: Any = optax.apply_updates(groups[name], updates)
                params, opt_state = {**params, **updated}, {**opt_state, name: new_state}
                metrics.update(found)
        return (params, opt_state), metrics

    def _encoding_loss(
        self, group: dict[str, Any], params: Any, examples: Examples, key: PRNGKeyArray
    ) -> tuple[Array, dict]:
        """Cross entropy of q_varphi: an agent's own action from its state and the next one."""
        both = self._encode(group, examples)
        logits = self.reverse.apply(group["reverse"], jnp.concatenate(both, axis=-1))
        logits = _masked(logits, examples.action_mask)
        loss = _mean(_cross_entropy(logits, examples.action), examples.weight)
        return loss, {"encoder_loss": loss}

    def _prediction_loss(
        self, group: dict[str, Any], params: Any, examples: Examples, key: PRNGKeyArray
    ) -> tuple[Array, dict]:
        """Cross entropy of q_psi over pairs, including an agent with itself, and of q_phi over
        agents.

        No gradient flows into the encoder. The paper's code also trains q_phi on the observation
        after the last step of a truncated episode, for which a batch has no action."""
        z, after = jax.lax.stop_gradient(self._encode(params, examples))
        n_agents = examples.action.shape[-1]
        chosen, off_diagonal = None, ~jnp.eye(n_agents, dtype=bool)
        if self.config.pair_fraction < 1:
            n_chosen = self._n_chosen(n_agents)
            shift = jax.random.choice(key, n_agents, (n_chosen,), replace=False)
            chosen = (jnp.arange(n_agents)[:, None] + shift) % n_agents
            off_diagonal = jnp.broadcast_to(shift > 0, chosen.shape)
        pairs = self._predict_pairs(group["pair"], z, after, examples, chosen)
        logits = _masked(self.predictor.apply(group["predictor"], z), examples.action_mask)
        pair_loss = _mean(pairs.loss, examples.weight)
        alone_loss = _mean(_cross_entropy(logits, examples.action), examples.weight)
        alone = _entropy(logits)

        def of_others(values: Float[Array, "R N K"]) -> Float[Array, "R N"]:
            total = jnp.sum(values, axis=-1, where=off_diagonal)
            return total / jnp.maximum(off_diagonal.sum(axis=-1), 1)

        ratio = of_others(_ratio(pairs.entropy, alone, examples))
        metrics = {
            "pair_loss": pair_loss,
            "predictor_loss": alone_loss,
            "pair_entropy": _mean(of_others(pairs.entropy), examples.weight),
            "predictor_entropy": _mean(alone, examples.weight),
            "ratio": _mean(ratio, examples.choice_weight),
        }
        return pair_loss + alone_loss, metrics

    def _n_chosen(self, n_agents: int) -> int:
        """Targets per agent in one update."""
        return max(1, round(self.config.pair_fraction * n_agents))

    def _predict_pairs(
        self,
        params: Any,
        z: Array,
        after: Array,
        examples: Examples,
        chosen: Int[Array, "N K"] | None = None,
    ) -> Predictions:
        """Apply the pair model to the chosen targets of each agent, by default all of them."""
        target = [z, after]
        if self.config.condition_on_action:
            target.append(jax.nn.one_hot(examples.action, examples.action_mask.shape[-1]))

        logits = self.pair.apply(params, z, jnp.concatenate(target, axis=-1), chosen)
        logits = _masked(logits, examples.action_mask[..., None, :])
        return Predictions(_cross_entropy(logits, examples.action[..., None]), _entropy(logits))

    def _encode(
        self, params: dict[str, Any], examples: Examples
    ) -> tuple[Float[Array, "R N d"], Float[Array, "R N d"]]:
        """The encoded states before and after each step."""
        z, n_steps = self._apply_encoder(params, examples.states), len(examples.action)
        return z[:n_steps], z[-n_steps:]

    def _apply_encoder(
        self, params: dict[str, Any], states: Float[Array, "S N L"]
    ) -> Float[Array, "S N d"]:
        return self.encoder.apply(params["encoder"], states) if self.config.encoder else states  # pyright: ignore[reportReturnType]

    def _groups(self, params: dict[str, Any]) -> dict[str, Any]:
        groups = {"encoding": ("encoder", "reverse"), "guessing": ("pair", "predictor")}
        return {
            group: {name: params[name] for name in names}
            for group, names in groups.items()
            if names[0] in params
        }


def _masked(logits: Any, action_mask: Bool[Array, "..."]) -> Float[Array, "... A"]:
    return jnp.where(action_mask, logits, UNAVAILABLE)


def _others(n_agents: int) -> tuple[Int[Array, "N K"], Int[Array, "N N"]]:
    """For each agent the others, and the position of each among them (arbitrary for itself)."""
    rows, columns = jnp.arange(n_agents)[:, None], jnp.arange(n_agents)
    others = columns[: n_agents - 1] + (columns[: n_agents - 1] >= rows)
    return others, jnp.clip(columns - (columns > rows), 0, n_agents - 2)


def _cross_entropy(logits: Float[Array, "*B A"], action: Int[Array, "*B"]) -> Float[Array, "*B"]:
    log_probs = jax.nn.log_softmax(logits)
    return -jnp.sum(log_probs, axis=-1, where=action[..., None] == jnp.arange(logits.shape[-1]))


def _entropy(logits: Float[Array, "*B A"]) -> Float[Array, "*B"]:
    """Entropy in nats."""
    log_probs = jax.nn.log_softmax(logits)
    return -jnp.sum(jnp.exp(log_probs) * log_probs, axis=-1)


def _ratio(
    entropy: Float[Array, "R N K"], alone: Float[Array, "R N"], examples: Examples
) -> Float[Array, "R N K"]:
    """Entropy of the pair model's predictions divided by that of the action predictor's; 1 for
    agents with a single available action."""
    return jnp.where(_has_choice(examples)[..., None], entropy / (alone[..., None] + 1e-8), 1)


def _has_choice(examples: Examples) -> Bool[Array, "R N"]:
    """Whether several actions are available."""
    return examples.action_mask.sum(axis=-1) > 1


def _weights(mask: Bool[Array, "..."]) -> Float[Array, "..."]:
    """1 / number of set entries where the mask is set, else 0."""
    return mask / jnp.maximum(mask.sum(), 1)


def _mean(values: Float[Array, "..."], weight: Float[Array, "*R"]) -> Float[Array, ""]:
    """Weighted sum over rows of the mean over the other axes. What padding has is left out, even if
    it is not a number."""
    rows = values.mean(axis=tuple(range(weight.ndim, values.ndim)))
    return jnp.sum(weight * rows, where=weight > 0)
