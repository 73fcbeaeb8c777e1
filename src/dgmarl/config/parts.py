"""Parts of a run's configuration: frozen dataclasses with validated ranges. No JAX."""

from dataclasses import dataclass
from typing import Any, Literal

from dgmarl.config.ranges import check_fields
from dgmarl.errors import UsageError, did_you_mean
from dgmarl.trust import is_code

CriticKind = Literal["agent", "own-state", "central", "central-heads"]
MixerKind = Literal["none", "vdn", "qmix", "qplex"]
RewardScaling = Literal["none", "scale", "standardise"]
AdvantageForm = Literal["td", "return"]
OthersWeight = Literal["mean", "sum"]
RewardGraphKind = Literal["none", "self", "measured", "oracle"]
Precision = Literal["float32", "float16"]
NETWORKS = {"network": ("fc", "gru"), "critic_network": ("fc",)}
"""Learner fields that name a network, and the built-in networks of each."""


def check_networks(learner: Any) -> None:
    """Raise UsageError for a network that is neither built in nor a class in a file or module."""
    for field, own in NETWORKS.items():
        name = getattr(learner, field, "fc")
        if name not in own and not is_code(name):
            raise UsageError(
                f"learner.{field} is {name!r}, but must be {', '.join(own)}, file.py:Class or "
                f"module:Class{did_you_mean(name, own)}"
            )


@dataclass(frozen=True)
class EvaluationConfig:
    """Evaluation: raw team return of whole episodes, the same measure for every credit rule."""

    interval: int = 50_000
    """Environment steps between two evaluations, rounded up to whole iterations. Whole episodes
    count as if they lasted to the horizon: evaluations are more frequent where they end early."""
    episodes: int = 100
    """Episodes per evaluation."""
    greedy: bool = False
    """Take the most likely action instead of sampling. The metric `sampled_return` then holds the
    mean return of as many episodes with sampled actions."""

    def __post_init__(self) -> None:
        check_fields(self, "evaluation")


@dataclass(frozen=True)
class PPOConfig:
    """IPPO and MAPPO. The defaults are those of the paper's foraging runs."""

    critic: CriticKind = "agent"
    """Critic's input. IPPO: own observation (agent) or own local state (own-state); MAPPO: global
    state with an agent id (central) or with one output head per agent (central-heads)."""
    network: str = "fc"
    """Actor network: fc, gru (recurrent), or a Flax module as file.py:Class or module:Class."""
    critic_network: str = "fc"
    """Critic network: fc, or a Flax module as file.py:Class or module:Class."""
    hidden: int = 128
    """Width of every hidden layer."""
    share_parameters: bool = True
    """Share one network among all agents, with an agent id as input, instead of one per agent."""
    learning_rate: float = 5e-4
    """Adam's learning rate, for actor and critic."""
    anneal_lr: bool = False
    """Anneal the learning rate linearly to 0 over `steps`."""
    max_grad_norm: float = 10.0
    """Gradient clipping by global norm, for actor and critic separately."""
    epochs: int = 4
    """Passes over each batch."""
    minibatches: int = 1
    """Minibatches per epoch, split by environment; 1: full batch."""
    clip_eps: float = 0.2
    """Clipping range of the probability ratio."""
    entropy_coef: float = 0.001
    """Weight of the entropy bonus."""
    gamma: float = 0.99
    """Discount factor."""
    lambda_: float = 0.95
    """Lambda of GAE."""
    normalise_advantage: bool = False
    """Normalise the advantages of each batch to mean 0 and standard deviation 1."""
    mask_dead: bool = False
    """Exclude dead agents from the losses; the paper's runs include them."""

    def __post_init__(self) -> None:
        check_fields(self, "learner")
        check_networks(self)


@dataclass(frozen=True)
class QConfig:
    """IQL, VDN, QMIX and QPLEX. The defaults are EPyMARL's."""

    mixer: MixerKind = "none"
    """Mixer of the agents' values: none (IQL), vdn (sum), qmix or qplex."""
    network: str = "fc"
    """Agent network: fc, gru (recurrent), or a Flax module as file.py:Class or module:Class."""
    hidden: int = 64
    """Width of the agents' hidden layers."""
    share_parameters: bool = True
    """Share one network among all agents, with an agent id as input, instead of one per agent."""
    last_action: bool = False
    """Add the agent's previous action to its observation."""
    learning_rate: float = 5e-4
    """Adam's learning rate."""
    max_grad_norm: float = 10.0
    """Gradient clipping by global norm, agents and mixer together."""
    loss_weight: float = 1.0
    """Weight of the mean squared error (pymarl2: 0.5); with Adam it only affects clipping."""
    gamma: float = 0.99
    """Discount factor."""
    lambda_: float = 0.0
    """Lambda of the TD(lambda) targets; 0: 1-step targets."""
    batch_size: int = 32
    """Episodes per gradient step."""
    buffer_size: int = 5000
    """Episodes in the replay buffer."""
    buffer_precision: Precision = "float32"
    """Precision of stored observations and states; float16 is exact for integers up to 2048."""
    episodes_per_update: int = 1
    """New episodes per gradient step; an iteration takes n_envs / episodes_per_update steps."""
    tau: float = 0.0
    """Polyak coefficient of the target network per gradient step; 0: periodic copies instead."""
    target_update_interval: int = 200
    """Interval between copies to the target network if `tau` is 0."""
    target_update_unit: Literal["updates", "episodes"] = "updates"
    """Unit of `target_update_interval`: gradient steps or episodes."""
    epsilon_start: float = 1.0
    """Exploration rate at the start."""
    epsilon_end: float = 0.05
    """Exploration rate at the end of the schedule."""
    epsilon_steps: int = 50_000
    """Environment steps of the linear schedule."""
    evaluation_epsilon: float = 0.0
    """Exploration rate in evaluations (unless `evaluation.greedy`) and in replays."""
    standardise_padding: bool = False
    """Include the zeros after an episode's end in reward statistics, as EPyMARL does."""
    mixer_embedding: int = 32
    """Width of QMIX's mixing layer."""
    mixer_hidden: int = 64
    """Width of the mixers' hypernetworks."""
    mixer_heads: int = 4
    """Attention heads of QPLEX."""

    def __post_init__(self) -> None:
        check_fields(self, "learner")
        check_networks(self)
        if self.buffer_size < self.batch_size:
            raise UsageError(
                f"learner.buffer_size is {self.buffer_size}, but must be at least "
                f"learner.batch_size, which is {self.batch_size}."
            )


@dataclass(frozen=True)
class CreditConfig:
    """Local and team credit."""

    reward_scaling: RewardScaling = "none"
    """scale: divide by the running root mean square over all agents, without a shift;
    standardise: subtract the running mean and divide by the running standard deviation, with
    statistics that differ between rules, as in the paper."""

    def __post_init__(self) -> None:
        check_fields(self, "credit")


@dataclass(frozen=True)
class GraphCreditConfig(CreditConfig):
    """Credit along paths of the dependence graph (Algorithm 1)."""

    unreached_weight: float = 0.0
    """Weight of agents not reached yet; the paper's runs use 1 - lambda = 0.05."""
    others: OthersWeight = "sum"
    """Average or sum over the other agents reached so far; the paper's runs use the sum."""
    cross_weight: float = 1.0
    """Weight of other agents' rewards; the paper's runs use 1."""
    advantage_form: AdvantageForm = "td"
    """Credit for other agents' rewards. td: TD errors from the meeting time on (Algorithm 1);
    return: return from the meeting time on minus the target's value."""
    reward_graph: RewardGraphKind = "none"
    """Whose action affects whose reward in the same step. none: that of the graph source, if it
    gives one; self: only the agent's own; measured: by interventions in the simulator; oracle:
    that of the environment."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.reward_graph in ("measured", "oracle") and self.advantage_form == "return":
            raise UsageError(
                f"credit.reward_graph is {self.reward_graph}, with which credit may stop after it "
                "has started, but credit.advantage_form return credits whole returns: set "
                "credit.advantage_form to td."
            )
        if self.others == "mean" and self.advantage_form == "return":
            raise UsageError(
                "credit.others is mean, but credit.advantage_form return sums whole returns: "
                "set credit.others to sum."
            )


@dataclass(frozen=True)
class CriticCreditConfig(CreditConfig):
    """Credit computed by an action-value critic (GPAE)."""

    critic_epochs: int = 4
    """Passes of the rule's critic over each batch."""


@dataclass(frozen=True)
class COMACreditConfig(CriticCreditConfig):
    """Counterfactual credit (COMA). The advantage comes from the critic alone, so the critic must
    track the policy; the original implementation updates it once per time step."""

    critic_epochs: int = 40
    """Passes of the rule's critic over each batch."""


@dataclass(frozen=True)
class PRDCreditConfig(CriticCreditConfig):
    """Partial reward decoupling: credit by the attention of an action-value critic."""

    relevance: Literal["soft", "hard"] = "soft"
    """Weight of another agent's reward. soft: attention relative to uniform attention; hard: 1
    where that is above `threshold`, else 0."""
    threshold: float = 0.5
    """Threshold of hard relevance, in units of uniform attention; 0: team credit, N - 1: local."""


@dataclass(frozen=True)
class KHopCreditConfig(CreditConfig):
    """Credit from the agents within `hops` in the graph of the step."""

    hops: int = 1
    """Maximum path length, in edges."""


@dataclass(frozen=True)
class DifferenceCreditConfig(CreditConfig):
    """Difference rewards."""

    reward_model: Literal["simulator", "learned"] = "simulator"
    """Source of the team reward under other actions: the simulator (exact), or a model learned
    from the batches, for environments that cannot be simulated again from a state."""


@dataclass(frozen=True)
class GraphModelConfig:
    """Reverse models of `--graph learned`; the defaults are those of the paper's foraging runs. The
    critic of `--graph attention` uses their encoding (width), learning rate and gradient steps."""

    threshold: float = 0.9
    """Threshold c: an entropy ratio below it is an edge; 0: self-loops only."""
    sees: Literal["observation", "local_state"] = "observation"
    """Input of the models. Observations include other agents, which gives denser graphs."""
    encoder: bool = True
    """Learn an encoding of the input instead of using it directly."""
    encoding: int = 64
    """Size of the encoding."""
    multi_head: bool = False
    """One output layer per source agent in the pair model."""
    learning_rate: float = 5e-4
    """Adam's learning rate for all models."""
    gradient_steps: int = 1
    """Gradient steps per iteration."""
    pair_fraction: float = 1.0
    """Fraction of the agent pairs that each gradient step uses, drawn at random."""
    condition_on_action: bool = False
    """Condition the pair model on the target's own action, as in the paper's objective, but not in
    its code."""

    def __post_init__(self) -> None:
        check_fields(self, "graph_model")
