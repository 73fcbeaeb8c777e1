"""A scenario as static arrays: one row per unit, allies first, and tables over pairs of units."""

from dataclasses import dataclass

import numpy as np

from .scenarios import ALLY, Scenario, expanded, places
from .terrain import Walls, terrain_tables
from .types import FIRST_TARGET, KILL_REWARD, REWARD_SCALE, WIN_REWARD


@dataclass(frozen=True, eq=False)
class Roster:
    """The static part of a scenario. The `U` units are `N` allies followed by the enemies."""

    name: str
    n_allies: int
    n_enemies: int
    type_names: tuple[str, ...]
    """[U]"""
    creation: np.ndarray
    """[U] position in the order of creation, over both sides."""
    position: np.ndarray
    """[U, 2] initial positions."""
    attack_point: np.ndarray
    """[2] in double precision, like `speed`; see `precise`."""
    is_ally: np.ndarray
    is_healer: np.ndarray
    is_air: np.ndarray
    radius: np.ndarray
    speed: np.ndarray
    max_hp: np.ndarray
    max_shield: np.ndarray
    max_energy: np.ndarray
    starting_energy: np.ndarray
    max_cooldown: np.ndarray
    hp_regeneration: np.ndarray
    armor: np.ndarray
    attacks: np.ndarray
    scan_range: np.ndarray
    blast_radius: np.ndarray
    damage: np.ndarray
    """[U, U] damage of one hit, row = attacker."""
    can_hit: np.ndarray
    """[U, U] whether the row can hit or heal units in the column's plane."""
    reach: np.ndarray
    """[U, U] weapon range of the row against the column, centre to centre."""
    one_hot: np.ndarray
    """[U, types] unit types; no columns if each side has a single type."""
    walkable: np.ndarray
    """[y, x] cells."""
    walls: Walls
    walls_near_cells: np.ndarray

    @property
    def n_units(self) -> int:
        return self.n_allies + self.n_enemies

    @property
    def largest_radius(self) -> float:
        """Largest radius of all units; the original adds it to its search radii."""
        return float(self.radius.max())

    @property
    def n_targets(self) -> int:
        """One per enemy, or more if healers need them to address every ally they can heal."""
        heals = self.is_healer[: self.n_allies]
        last_patient = int(np.flatnonzero(~heals)[-1]) + 1 if heals.any() else 0
        return max(self.n_enemies, last_patient)

    @property
    def n_actions(self) -> int:
        """No-op, stop, four moves, targets."""
        return FIRST_TARGET + self.n_targets

    @property
    def allies_have_shields(self) -> bool:
        return bool(self.max_shield[: self.n_allies].any())

    @property
    def enemies_have_shields(self) -> bool:
        return bool(self.max_shield[self.n_allies :].any())

    @property
    def max_reward(self) -> float:
        """Raw reward of killing every enemy once."""
        enemies = slice(self.n_allies, None)
        return float(
            KILL_REWARD * self.n_enemies
            + WIN_REWARD
            + (self.max_hp[enemies] + self.max_shield[enemies]).sum()
        )

    @property
    def reward_scale(self) -> float:
        """Factor applied to raw rewards."""
        return REWARD_SCALE / self.max_reward


def make_roster(scenario: Scenario) -> Roster:
    """Build the arrays of a scenario."""
    names = [name for group in scenario.groups for name in expanded(group)]
    sides, position = places(scenario)
    allies = np.array([side == ALLY for side in sides])
    creation = np.concatenate([np.flatnonzero(allies), np.flatnonzero(~allies)])
    names = [names[k] for k in creation]
    types = [scenario.known_types[name] for name in names]
    radius = np.array([kind.radius for kind in types])
    attack_range = np.array([kind.attack_range for kind in types])
    ground_reach = max(
        (kind.speed + kind.radius for kind in types if kind.plane == "ground"), default=0.0
    )
    free, edges, near = terrain_tables(scenario.rows, ground_reach)
    return Roster(
        name=scenario.name,
        n_allies=int(allies.sum()),
        n_enemies=int((~allies).sum()),
        type_names=tuple(names),
        creation=creation.astype(np.int32),
        position=position[creation],
        attack_point=np.array(scenario.attack_point),
        speed=np.array([kind.speed for kind in types]),
        is_ally=allies[creation],
        is_healer=np.array([kind.healer for kind in types]),
        is_air=np.array([kind.plane == "air" for kind in types]),
        attacks=np.array([kind.attacks for kind in types], np.int32),
        damage=np.array([[one.damage_to(other) for other in types] for one in types], np.float32),
        can_hit=np.array([[other.plane in one.hits for other in types] for one in types]),
        reach=(attack_range[:, None] + radius + radius[:, None]).astype(np.float32),
        one_hot=_one_hot(names, int(allies.sum())),
        walkable=free,
        walls=edges,
        walls_near_cells=near,
        radius=radius.astype(np.float32),
        **{
            name: np.array([getattr(kind, field) for kind in types], np.float32)
            for name, field in _FIELDS.items()
        },
    )


_FIELDS = {
    "max_hp": "hp",
    "max_shield": "shield",
    "max_energy": "energy",
    "starting_energy": "starting_energy",
    "max_cooldown": "cooldown",
    "hp_regeneration": "hp_regeneration",
    "armor": "armor",
    "scan_range": "scan_range",
    "blast_radius": "blast_radius",
}


def _one_hot(names: list[str], n_allies: int) -> np.ndarray:
    """One-hot unit types in alphabetical order; empty if each side has a single type."""
    if len(set(names[:n_allies])) == 1 and len(set(names[n_allies:])) == 1:
        return np.zeros((len(names), 0), np.float32)
    kinds = sorted(set(names))
    return (np.array(names)[:, None] == np.array(kinds)).astype(np.float32)
