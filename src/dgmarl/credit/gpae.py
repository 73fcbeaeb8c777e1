"""Per-agent advantages over several steps (GPAE): GAE with values given the others' actions.

    V_i(s, a^-i) = sum_b pi_i(b) Q_i(s, (b, a^-i))
    delta_i      = r + gamma V_i(s', a'^-i) - V_i(s, a^-i),     r the team reward
    Adv[t, i]    = sum over t' >= t of (gamma lambda)^(t' - t) delta_i

V_i is the counterfactual critic with agent i's own slot replaced by its probabilities, and is
itself regressed to TD(lambda) targets; lambda = 0 gives a one-step form of COMA. Source: Kim et
al., arXiv 2603.02654; here on-policy, hence without importance ratios, and with V_i linear in the
probabilities, like the expectation.

`ippo-gpae`: V_i sees agent i's observation and the others' actions; `mappo-gpae`: the global state
and the others' actions.

Limits: the sum is not conditioned on the others' later actions, so it keeps their noise, as team
credit does. At a time-out and at the end of a rollout the successor's actions are not recorded;
there the learner's state value replaces V_i."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from dgmarl.credit.base import Values
from dgmarl.credit.coma import COMARule
from dgmarl.credit.gae import gae
from dgmarl.nets.regression import recorded_successor
from dgmarl.rollout import Batch


class GPAERule(COMARule):
    """Adv[t, i] = GAE of the team reward with V_i(s, a^-i)."""

    def own_slot(self, batch: Batch) -> Float[Array, "T B N A"]:
        """The agent's probabilities, so that the critic's value is V_i."""
        return batch.extras["probs"]

    def advantage(
        self, params: Any, batch: Batch, reward: Float[Array, "T B N"], values: Values
    ) -> Float[Array, "T B N"]:
        """GAE with V_i, or with the learner's value where the successor is not recorded."""
        now = self.values(params, self.inputs(batch))
        recorded = recorded_successor(batch)[..., None]
        following = jnp.where(recorded, jnp.roll(now, -1, axis=0), values.next)
        masks = (batch.bootstrap, batch.continues)
        return gae(reward, now, following, *masks, self.gamma, self.lambda_)
