"""Graphs from the attention of an action-value critic: the relevance weights of partial reward
decoupling (arXiv 2112.12740) as dependence graphs, `--graph attention`.

    A[j, i] = 1   iff   (N - 1) w_ij > threshold

w_ij is the attention of agent i's critic Q_i on agent j (nets/action_values), a softmax over the
others; uniform attention is 1 / (N - 1). The critic is trained alongside the policy on the agents'
own, unscaled rewards. Attention shows which teammates help to predict a return, not whose action
reaches whose next state: an edge may be influence over many steps, or informative observations."""

from jaxtyping import Array, Bool, PRNGKeyArray

from dgmarl.config.schema import TrainConfig
from dgmarl.envs.base import Environment
from dgmarl.graphs.reach import add_self_loops
from dgmarl.nets.action_values import AttentionValue
from dgmarl.nets.regression import Fitted, Regression
from dgmarl.rollout import Batch

THRESHOLD = 0.5
"""Default threshold: half of uniform attention."""
MAX_GRAD_NORM = 10.0


class AttentionSource:
    """An edge where attention exceeds a threshold: `--graph attention[:C]`."""

    learns = True
    needs: frozenset[str] = frozenset()

    def __init__(self, config: TrainConfig, env: Environment, threshold: float = THRESHOLD):
        self.threshold, model = threshold, config.graph_model
        self.critic = AttentionValue(env.spec, model.encoding)
        self.regression = Regression(
            self.critic.values,
            config.learner.gamma,
            config.learner.lambda_,
            model.learning_rate,
            MAX_GRAD_NORM,
            model.gradient_steps,
        )

    def init(self, key: PRNGKeyArray, env: Environment) -> Fitted:
        return self.regression.init(self.critic.init(key))

    def infer(self, graph_state: Fitted, batch: Batch, key: PRNGKeyArray) -> Bool[Array, "T B N N"]:
        return add_self_loops(self.critic.relevance(graph_state.params, batch) > self.threshold)

    def update(
        self, graph_state: Fitted, batch: Batch, key: PRNGKeyArray
    ) -> tuple[Fitted, dict[str, Array]]:
        inputs = self.critic.inputs(batch)
        fitted, loss = self.regression.update(graph_state, inputs, batch, batch.reward, key)
        return fitted, {"graph_action_value_loss": loss}
