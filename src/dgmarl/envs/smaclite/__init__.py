"""SMAClite: unit micromanagement with per-agent rewards."""

from .env import Smaclite
from .scenarios import PAPER_SCENARIOS, SCENARIOS, Group, Scenario, find_scenario, read_scenario
from .types import SmacliteConfig, State

__all__ = [
    "PAPER_SCENARIOS",
    "SCENARIOS",
    "Group",
    "Scenario",
    "Smaclite",
    "SmacliteConfig",
    "State",
    "find_scenario",
    "read_scenario",
]
