"""What may differ between runs that are batched into one program."""

from typing import Any, NamedTuple

from dgmarl.config.schema import TrainConfig


class Varying(NamedTuple):
    """A pytree of numbers. Of a single run they are Python numbers, hence compile-time constants;
    of batched runs they are arrays with a leading axis of runs."""

    learning_rate: Any
    entropy_coef: Any
    unreached_weight: Any
    cross_weight: Any
    mean_of_others: Any
    """Others' TD errors are averaged over the agents reached so far, not summed."""
    threshold: Any
    """Of the learned graph."""
    team_reward: Any = False
    """Everybody is paid the sum of all rewards (read by batched runs of different rules)."""
    graph: Any = 0
    """Index into the graph sources of all batched runs."""

    @classmethod
    def of(cls, config: TrainConfig) -> "Varying":
        """The numbers of one run."""
        return cls(
            learning_rate=getattr(config.learner, "learning_rate", 0.0),
            entropy_coef=getattr(config.learner, "entropy_coef", 0.0),
            unreached_weight=getattr(config.credit, "unreached_weight", 0.0),
            cross_weight=getattr(config.credit, "cross_weight", 0.0),
            mean_of_others=getattr(config.credit, "others", "sum") == "mean",
            threshold=config.graph_model.threshold,
        )
