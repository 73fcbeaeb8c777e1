"""Team credit (global reward): every agent is credited with the sum of all rewards."""

from jaxtyping import Array, Float

from dgmarl.credit.base import team_sum
from dgmarl.credit.local import LocalRule
from dgmarl.rollout import Batch


class TeamRule(LocalRule):
    """Adv[t, j] = GAE of sum_i r^i with agent j's value."""

    per_agent = False

    def paid(self, batch: Batch) -> Float[Array, "T B 1"]:
        return team_sum(batch.reward)
