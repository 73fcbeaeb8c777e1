"""Level-based foraging (LBF), version 3, and the paper's winner-take-all variant."""

from .env import LevelBasedForaging
from .ids import PAPER_IDS, id_of, parse
from .types import LBFConfig, State

__all__ = ["PAPER_IDS", "LBFConfig", "LevelBasedForaging", "State", "id_of", "parse"]
