"""Unit types and their properties."""

from dataclasses import dataclass, fields
from typing import Literal

from dgmarl.config.ranges import POSITIVE, WEIGHT, Range
from dgmarl.errors import UsageError

Plane = Literal["ground", "air"]
Attribute = Literal["light", "armored", "biological", "mechanical", "structure"]

MELEE = 0.1
LIMITS = {
    "hp": POSITIVE,
    "size": Range(0, 4, above=True),
    "speed": Range(0, 8),
    "attacks": Range(1, 8),
}
"""Of numbers that may not be any number from 0 on."""


@dataclass(frozen=True)
class UnitType:
    """A unit type. Lengths are in map cells, times in seconds, speeds in cells per second."""

    hp: float
    """Initial and maximum hit points."""
    damage: float
    """Damage of one hit, before armour."""
    cooldown: float
    """Seconds between two volleys; 0: one per tick."""
    speed: float
    """Cells per second; 0: immobile."""
    attack_range: float
    """Weapon range, from rim to rim."""
    size: float
    """Diameter of its disc."""
    shield: float = 0.0
    """Shield points, lost before hit points and not protected by armour; they regenerate from ten
    seconds after the last hit."""
    energy: float = 0.0
    """Maximum energy; used by healers only."""
    starting_energy: float = 0.0
    """Initial energy."""
    armor: float = 0.0
    """Subtracted from every hit on hit points."""
    hp_regeneration: float = 0.0
    """Hit points regenerated per second."""
    attacks: int = 1
    """Hits per volley; armour applies to each."""
    scan_range: float = 5.0
    """Target search range of scripted enemies."""
    plane: Plane = "ground"
    """Units collide with others of their plane; only ground units collide with walls."""
    hits: tuple[Plane, ...] = ("ground",)
    """Planes it can hit or heal."""
    attributes: tuple[Attribute, ...] = ()
    """Attributes that damage bonuses refer to."""
    bonus: float = 0.0
    """Added to `damage` against units with the attribute `bonus_against`."""
    bonus_against: Attribute | None = None
    """The attribute that triggers the bonus."""
    healer: bool = False
    """Heals its own side instead of attacking."""
    blast_radius: float = 0.0
    """Above 0: it explodes and hits all units of the other side within this radius."""

    def __post_init__(self) -> None:
        numbers = {field.name: WEIGHT for field in fields(self) if field.type is float}
        for name, allowed in (numbers | LIMITS).items():
            value = getattr(self, name)
            if not allowed.allows(value):
                raise UsageError(f"a unit type has {name}={value}, but must have {name} {allowed}.")

    @property
    def radius(self) -> float:
        return self.size / 2

    def damage_to(self, target: "UnitType") -> float:
        """Damage of one hit on `target`, before armour."""
        return self.damage + (self.bonus if self.bonus_against in target.attributes else 0.0)


_BOTH: tuple[Plane, ...] = ("ground", "air")
_LIGHT: tuple[Attribute, ...] = ("light", "biological")
_ARMORED: tuple[Attribute, ...] = ("armored", "mechanical")

UNIT_TYPES: dict[str, UnitType] = {
    # Hit points, damage, cooldown, speed, attack range, size.
    "marine": UnitType(45, 6, 0.61, 3.15, 5, 0.75, hits=_BOTH, attributes=_LIGHT),
    "marauder": UnitType(
        *(125, 10, 1.07, 3.15, 6, 1.125),
        armor=1,
        attributes=("armored", "biological"),
        bonus=10,
        bonus_against="armored",
    ),
    "medivac": UnitType(
        *(150, 0, 0, 3.5, 4, 1.5),
        energy=200,
        starting_energy=50,
        armor=1,
        plane="air",
        attributes=_ARMORED,
        healer=True,
    ),
    "stalker": UnitType(
        *(80, 13, 1.34, 4.13, 6, 1.25),
        shield=80,
        armor=1,
        hits=_BOTH,
        attributes=_ARMORED,
        bonus=5,
        bonus_against="armored",
    ),
    "zealot": UnitType(
        *(100, 8, 0.86, 3.15, MELEE, 1), shield=50, armor=1, attacks=2, attributes=_LIGHT
    ),
    "zergling": UnitType(
        *(35, 5, 0.497, 4.13, MELEE, 0.75), hp_regeneration=0.38, attributes=_LIGHT
    ),
    "baneling": UnitType(
        *(30, 80, 1, 3.15, 0.25, 0.75),
        hp_regeneration=0.38,
        attributes=("biological",),
        blast_radius=2.2,
    ),
    "spine_crawler": UnitType(
        *(300, 25, 1.32, 0, 7, 1),
        armor=2,
        hp_regeneration=0.38,
        scan_range=10,
        attributes=("armored", "biological", "structure"),
        bonus=5,
        bonus_against="armored",
    ),
}
