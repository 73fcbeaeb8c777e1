"""Values that may differ between runs batched into one program."""

from typing import Any, NamedTuple

from dgmarl.config.schema import TrainConfig


class Varying(NamedTuple):
    """Python numbers for a single run, hence compile-time constants; arrays with a leading axis of
    runs for batched runs."""

    learning_rate: Any
    entropy_coef: Any
    unreached_weight: Any
    cross_weight: Any
    mean_of_others: Any
    """Average other agents' TD errors over the agents reached so far instead of summing them."""
    threshold: Any
    """Threshold of the learned graph."""
    team_reward: Any = False
    """Every agent receives the sum of all rewards; for batched runs of different rules."""
    graph: Any = 0
    """Index into the graph sources of all batched runs."""

    @classmethod
    def of(cls, config: TrainConfig) -> "Varying":
        """The values of one run."""
        return cls(
            learning_rate=getattr(config.learner, "learning_rate", 0.0),
            entropy_coef=getattr(config.learner, "entropy_coef", 0.0),
            unreached_weight=getattr(config.credit, "unreached_weight", 0.0),
            cross_weight=getattr(config.credit, "cross_weight", 0.0),
            mean_of_others=getattr(config.credit, "others", "sum") == "mean",
            threshold=config.graph_model.threshold,
        )
