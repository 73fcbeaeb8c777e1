"""A picture of the battle."""

from .roster import Roster
from .types import SmacliteConfig, State


def draw(roster: Roster, config: SmacliteConfig, state: State, graph: object = None) -> str:
    """x"""
    return "<svg></svg>"
