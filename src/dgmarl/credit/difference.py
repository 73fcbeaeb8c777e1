"""Difference rewards: each agent is credited with its action's effect on the team reward."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from dgmarl.config.schema import TrainConfig
from dgmarl.config.varying import Varying
from dgmarl.credit.base import Credit, Values
from dgmarl.credit.local import LocalRule
from dgmarl.credit.standardise import RunningStatistics
from dgmarl.envs.base import Environment
from dgmarl.errors import UsageError
from dgmarl.graphs.interventional import counterfactual_rewards
from dgmarl.graphs.sources import Graphs
from dgmarl.nets.reward_model import RewardModel
from dgmarl.rollout import Batch


class DifferenceState(NamedTuple):
    """Reward statistics and, if it is learned, the reward model."""

    statistics: RunningStatistics | None
    params: Any = None
    opt_state: Any = None


class _Differences(LocalRule):
    """Local credit for the rewards computed by the difference rule."""

    def paid(self, batch: Batch) -> Float[Array, "T B N"]:
        return batch.extras["differences"]


class DifferenceRule:
    """Adv[t, j] = GAE of the difference rewards

        D_j = R(s, a) - sum over b of pi_j(b | s) R(s, (b, a_-j)),    R = sum_i r^i

    (Dr.Reinforce, arXiv 2012.11258). R comes from the simulator, stepped with the same key; with
    `credit.reward_model` = learned all terms come from a network R(s, a) trained on the batches so
    far. The critic predicts discounted sums of D_j.

    Limits: the mean of D_j over the agent's own action is 0 in every state, so its true value is 0
    and later terms add only noise. The rule credits actions that pay in the same step, as in
    Star-Spread, and not those that prepare a reward: in foraging, walking to food is not credited.
    The simulator takes N A more steps per step."""

    def __init__(self, config: TrainConfig, env: Environment, varying: Varying):
        self.env, self.local = env, _Differences(config, env, varying)
        self.learned = config.credit.reward_model == "learned"
        self.needs = frozenset({"probs"} | (set() if self.learned else {"states", "keys"}))
        if not self.learned and (reason := env.no_interventions()):
            raise UsageError(
                f"{env.spec.name} cannot simulate the rewards of other actions ({reason}): set "
                "credit.reward_model to learned."
            )
        spec, learner = env.spec, config.learner
        self.model = RewardModel(learner.hidden, spec.n_agents, spec.n_actions)
        self.optimiser = optax.flatten(optax.adam(learner.learning_rate))
        self.gradient_steps = learner.epochs

    def init(self, key: PRNGKeyArray, env: Environment) -> DifferenceState:
        statistics = self.local.init(key, env)
        if not self.learned:
            return DifferenceState(statistics)
        spec = env.spec
        example = (jnp.zeros((1, spec.state_size)), jnp.zeros((1, spec.n_agents), jnp.int32))
        params = self.model.init(key, *example)
        return DifferenceState(statistics, params, self.optimiser.init(params))

    def assign(
        self,
        credit_state: DifferenceState,
        batch: Batch,
        values: Values | None,
        graph: Graphs | None,
    ) -> Credit:
        """GAE of the difference rewards, from a model that was not trained on this batch."""
        batch = self._with_differences(credit_state, batch)
        return self.local.assign(credit_state.statistics, batch, values, graph)

    def update(
        self, credit_state: DifferenceState, batch: Batch, key: PRNGKeyArray
    ) -> tuple[DifferenceState, dict[str, Array]]:
        """Merge the batch into the statistics, and train the model on it."""
        paid = self._with_differences(credit_state, batch)
        statistics, _ = self.local.update(credit_state.statistics, paid)
        if not self.learned:
            return DifferenceState(statistics), {}

        def step(carry: tuple[Any, Any], _: None) -> tuple[tuple[Any, Any], Array]:
            params, opt_state = carry
            loss, gradient = jax.value_and_grad(self._loss)(params, batch)
            updates, opt_state = self.optimiser.update(gradient, opt_state, params)
            return (optax.apply_updates(params, updates), opt_state), loss

        start = (credit_state.params, credit_state.opt_state)
        (params, opt_state), losses = jax.lax.scan(step, start, length=self.gradient_steps)
        return DifferenceState(statistics, params, opt_state), {"reward_model_loss": losses[0]}

    def _with_differences(self, credit_state: DifferenceState, batch: Batch) -> Batch:
        team, alternatives = self._rewards(credit_state, batch)
        expected = jnp.sum(batch.extras["probs"] * alternatives, axis=-1)
        differences = jnp.where(batch.valid[..., None], team[..., None] - expected, 0)
        return batch._replace(extras={**batch.extras, "differences": differences})

    def _rewards(
        self, credit_state: DifferenceState, batch: Batch
    ) -> tuple[Float[Array, "T B"], Float[Array, "T B N A"]]:
        """The team reward of each step, and the one for each action of each agent."""
        if not self.learned:
            return batch.reward.sum(axis=-1), counterfactual_rewards(self.env, batch)
        params, inputs = credit_state.params, (batch.observation.global_state, batch.action)

        def one_step(inputs: tuple[Array, Array]) -> Any:
            return self.model.apply(params, *inputs, method="alternatives")

        # One step at a time: there are N A rows for each state.
        return self._predicted(params, batch), jax.lax.map(one_step, inputs)

    def _predicted(self, params: Any, batch: Batch) -> Any:
        return self.model.apply(params, batch.observation.global_state, batch.action)

    def _loss(self, params: Any, batch: Batch) -> Float[Array, ""]:
        error = (batch.reward.sum(axis=-1) - self._predicted(params, batch)) ** 2
        return jnp.sum(error, where=batch.valid) / jnp.maximum(batch.valid.sum(), 1)
