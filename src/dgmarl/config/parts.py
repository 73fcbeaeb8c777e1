"""The parts of a run's configuration. Frozen, one docstring per field, ranges validated; no JAX."""

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
RewardModelKind = Literal["simulator", "learned"]
Precision = Literal["float32", "float16"]
NETWORKS = {"network": ("fc", "gru"), "critic_network": ("fc",)}
"""Fields of learners that name a network, and the package's own networks for them."""


def check_networks(learner: Any) -> None:
    """Refuse names that are neither the package's own nor code."""
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
    """Environment steps between two evaluations, rounded up to whole iterations."""
    episodes: int = 100
    """Episodes per evaluation."""
    greedy: bool = False
    """Take the most likely action instead of sampling. The metric `sampled_return` then has the
    mean return of as many episodes with sampled actions."""

    def __post_init__(self) -> None:
        check_fields(self, "evaluation")


@dataclass(frozen=True)
class PPOConfig:
    """IPPO and MAPPO. The defaults are those of the paper's foraging runs."""

    critic: CriticKind = "agent"
    """What the critic sees: own observation or own local state (IPPO); the global state with an
    agent id, or with one head per agent (MAPPO)."""
    network: str = "fc"
    """Network of the actor: fc, gru (recurrent), or a Flax module, file.py:Class or
    module:Class."""
    critic_network: str = "fc"
    """Network of the critic: fc, or a Flax module, file.py:Class or module:Class."""
    hidden: int = 128
    """Width of every hidden layer."""
    share_parameters: bool = True
    """One network for all agents, with an agent id as input, or one set of parameters per agent."""
    learning_rate: float = 5e-4
    """Adam's learning rate, for actor and critic."""
    anneal_lr: bool = False
    """Let the learning rate fall linearly, to 0 after `steps`."""
    max_grad_norm: float = 10.0
    """Gradient clipping by global norm, for actor and critic separately."""
    epochs: int = 4
    """Passes over each batch."""
    minibatches: int = 1
    """Minibatches per epoch, split by environment; 1: full batches."""
    clip_eps: float = 0.2
    """Clipping range of the probability ratio."""
    entropy_coef: float = 0.001
    """Weight of the entropy bonus."""
    gamma: float = 0.99
    """Discount factor."""
    lambda_: float = 0.95
    """Lambda of GAE."""
    normalise_advantage: bool = False
    """Normalise the advantages of a batch to mean 0 and standard deviation 1."""
    mask_dead: bool = False
    """Leave dead agents out of the losses; False: as in the paper's runs."""

    def __post_init__(self) -> None:
        check_fields(self, "learner")
        check_networks(self)


@dataclass(frozen=True)
class QConfig:
    """IQL, VDN, QMIX and QPLEX. The defaults are EPyMARL's."""

    mixer: MixerKind = "none"
    """How agents' values become the learned value: none (IQL), sum (VDN), QMIX or QPLEX."""
    network: str = "fc"
    """Network of an agent: fc, gru (recurrent), or a Flax module, file.py:Class or module:Class."""
    hidden: int = 64
    """Width of the agents' hidden layers."""
    share_parameters: bool = True
    """One network for all agents, with an agent id as input, or one set of parameters per agent."""
    last_action: bool = False
    """Add the agent's previous action to its observation."""
    learning_rate: float = 5e-4
    """Adam's learning rate."""
    max_grad_norm: float = 10.0
    """Gradient clipping by global norm, agents and mixer together."""
    loss_weight: float = 1.0
    """Factor of the mean squared error; pymarl2: 0.5. With Adam it only affects clipping."""
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
    """Polyak averaging of the target network at every gradient step; 0: copy it instead."""
    target_update_interval: int = 200
    """Interval between copies to the target network, if tau is 0."""
    target_update_unit: Literal["updates", "episodes"] = "updates"
    """What `target_update_interval` counts: gradient steps or episodes."""
    epsilon_start: float = 1.0
    """Exploration rate at the start."""
    epsilon_end: float = 0.05
    """Exploration rate at the end of the schedule."""
    epsilon_steps: int = 50_000
    """Environment steps of the linear schedule."""
    evaluation_epsilon: float = 0.0
    """Exploration rate in evaluations (unless `evaluation.greedy`) and in replays."""
    standardise_padding: bool = False
    """Reward statistics include the zeros after an episode's end, as in EPyMARL."""
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
    """none; scale: divide by the running root mean square over all agents, never shifted;
    standardise: the paper's, which subtracts a mean and uses other statistics for each rule."""

    def __post_init__(self) -> None:
        check_fields(self, "credit")


@dataclass(frozen=True)
class GraphCreditConfig(CreditConfig):
    """Credit along paths of the dependence graph (Algorithm 1)."""

    unreached_weight: float = 0.0
    """Weight of agents that have not been reached; the paper's runs: 1 - lambda = 0.05."""
    others: OthersWeight = "sum"
    """Mean over the other agents reached so far, or their sum; the paper's runs: sum."""
    cross_weight: float = 1.0
    """Weight of other agents' rewards; 1: the paper's."""
    advantage_form: AdvantageForm = "td"
    """Credit for others: TD errors from the meeting time on (Algorithm 1), or returns from then on
    minus the target's value."""
    reward_graph: RewardGraphKind = "none"
    """Whose action moves whose reward at once. none: what the graph source gives, if anything;
    self: only the agent's own; measured: interventions in the simulator; oracle: what the
    environment knows."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.reward_graph in ("measured", "oracle") and self.advantage_form == "return":
            raise UsageError(
                f"credit.reward_graph is {self.reward_graph}, whose credit can stop again, but "
                "credit.advantage_form return counts whole returns: set credit.advantage_form to "
                "td."
            )
        if self.others == "mean" and self.advantage_form == "return":
            raise UsageError(
                "credit.others is mean, but credit.advantage_form return adds up whole returns: "
                "set credit.others to sum."
            )


@dataclass(frozen=True)
class CriticCreditConfig(CreditConfig):
    """Credit by an action-value critic of the rule's own (GPAE)."""

    critic_epochs: int = 4
    """Passes of that critic over each batch."""


@dataclass(frozen=True)
class COMACreditConfig(CriticCreditConfig):
    """Counterfactual credit: the advantage is all the critic's, which must keep up with the policy;
    the original updates it once per time step."""

    critic_epochs: int = 40
    """Passes of that critic over each batch."""


@dataclass(frozen=True)
class PRDCreditConfig(CriticCreditConfig):
    """Partial reward decoupling: credit by the attention of an action-value critic."""

    relevance: Literal["soft", "hard"] = "soft"
    """Weight of another agent's reward; soft: its attention relative to equal attention; hard: 1
    where that is above the threshold, else 0."""
    threshold: float = 0.5
    """For hard relevance, relative to equal attention. 0: team credit; N - 1 or more: local."""


@dataclass(frozen=True)
class KHopCreditConfig(CreditConfig):
    """Credit for agents that are near in the graph of the step."""

    hops: int = 1
    """Longest path, in edges, to an agent that counts."""


@dataclass(frozen=True)
class DifferenceCreditConfig(CreditConfig):
    """Difference rewards."""

    reward_model: RewardModelKind = "simulator"
    """Where the team reward of other actions comes from: the simulator (exact), or a model learned
    from the batches, for environments that cannot be asked."""


@dataclass(frozen=True)
class GraphModelConfig:
    """Reverse models of `--graph learned`. The defaults are those of the paper's foraging runs. The
    critic of `--graph attention` has their width (encoding), learning rate and gradient steps."""

    threshold: float = 0.9
    """c: an edge needs an entropy ratio below it; 0: self-loops only."""
    sees: Literal["observation", "local_state"] = "observation"
    """What the models take as an agent's state. Observations include other agents, which makes
    denser graphs."""
    encoder: bool = True
    """Learn an encoding of that state instead of using it as it is."""
    encoding: int = 64
    """Size of the encoding."""
    multi_head: bool = False
    """One output layer per source agent in the pair model."""
    learning_rate: float = 5e-4
    """Adam's learning rate for all models."""
    gradient_steps: int = 1
    """Updates per iteration."""
    pair_fraction: float = 1.0
    """Fraction of the agent pairs that each update uses, drawn anew."""
    condition_on_action: bool = False
    """Condition the pair model on the target's own action, as in the paper's objective (its code
    does not)."""

    def __post_init__(self) -> None:
        check_fields(self, "graph_model")
