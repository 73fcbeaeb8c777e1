"""Star-Spread: leaves move to landmarks, the hub is rewarded for coverage; the graph is a star."""

from dgmarl.envs.star_spread.env import StarSpread, StarSpreadConfig, StarSpreadState

__all__ = ["StarSpread", "StarSpreadConfig", "StarSpreadState"]
