"""Scenarios: units, initial positions and terrain, built in or from a YAML file."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil, sqrt
from pathlib import Path
from typing import Any, Literal

import numpy as np

from dgmarl.config.yaml import build, read_yaml
from dgmarl.errors import UnknownNameError, UsageError, did_you_mean

from .terrain import SIZE, TERRAINS, walkable
from .units import UNIT_TYPES, UnitType

ALLY, ENEMY = "ally", "enemy"
GAP = 0.05
MOST_UNITS = 100


@dataclass(frozen=True)
class Group:
    """Units of one side placed in a square block around a point."""

    side: Literal["ally", "enemy"]
    """Allies learn, enemies are scripted."""
    at: tuple[float, float]
    """(x, y), approximately the centre of the block."""
    units: dict[str, int]
    """Number of units per type, placed in this order."""


@dataclass(frozen=True)
class Scenario:
    """Units, positions and terrain of a battle."""

    name: str
    """The id after `smaclite/`."""
    groups: tuple[Group, ...]
    """In order of creation, which breaks ties and determines whose target updates are visible."""
    attack_point: tuple[float, float]
    """Where enemies walk while no ally is in sight."""
    terrain: str = "simple"
    """Name of a built-in terrain, or 32 lines of 32 characters, `_` walkable and `X` blocked; the
    last line is y = 0."""
    unit_types: dict[str, Any] = field(default_factory=dict)
    """Additional unit types by name, with the fields of `UnitType`."""

    def __post_init__(self) -> None:
        types = self.known_types
        for group in self.groups:
            _check_group(group, types)
        for side in (ALLY, ENEMY):
            if not self.members(side):
                raise UsageError(
                    f"the scenario {self.name} has no {side}: add a group with `side: {side}`."
                )
        if sum(len(self.members(side)) for side in (ALLY, ENEMY)) > MOST_UNITS:
            raise UsageError(
                f"the scenario {self.name} has more than {MOST_UNITS} units: remove some."
            )
        if all(types[name].healer for name in self.members(ALLY)):
            raise UsageError(
                f"the scenario {self.name} has only healers as allies, which cannot win: add a "
                "unit that attacks."
            )
        _check_places(self)

    @property
    def known_types(self) -> dict[str, UnitType]:
        """Built-in and additional unit types."""
        own = {
            name: build(UnitType, values, f"unit_types.{name}")
            for name, values in self.unit_types.items()
        }
        return {**UNIT_TYPES, **own}

    @property
    def rows(self) -> tuple[str, ...]:
        """The terrain as lines of characters."""
        return TERRAINS.get(self.terrain) or tuple(self.terrain.split())

    def members(self, side: str) -> list[str]:
        """Type names of one side's units in order of creation, which is that of agent indices."""
        return [name for group in self.groups if group.side == side for name in expanded(group)]


def expanded(group: Group) -> list[str]:
    """One type name per unit of a group."""
    return [name for name, count in group.units.items() for _ in range(count)]


def places(scenario: Scenario) -> tuple[list[str], np.ndarray]:
    """Side and initial position [units, 2] of every unit in order of creation."""
    sides = [group.side for group in scenario.groups for _ in expanded(group)]
    blocks = [_block(group, scenario.known_types) for group in scenario.groups]
    return sides, np.concatenate(blocks).astype(np.float32)


def _block(group: Group, types: Mapping[str, UnitType]) -> np.ndarray:
    """Positions of a group: a square filled row by row with gaps between units; rotated by 180° for
    enemies.

    As in the original the width ignores gaps and the height includes those of empty rows, so blocks
    are slightly off centre."""
    radii = [types[name].radius for name in expanded(group)]
    side = ceil(sqrt(len(radii)))
    rows = [radii[k * side : (k + 1) * side] for k in range(side)]
    sign = 1 if group.side == ALLY else -1
    width = max(2 * sum(row) for row in rows)
    height = 2 * sum(max(row, default=0.0) for row in rows) + (side - 1) * GAP
    x_first, y = group.at[0] - sign * width / 2, group.at[1] - sign * height / 2
    placed, row_before = [], 0.0
    for row in rows:
        thickest = max(row, default=0.0)
        x, y, before = x_first, y + sign * (row_before + thickest), 0.0
        for radius in row:
            x += sign * (before + radius)
            placed.append((x, y))
            x, before = x + sign * GAP, radius
        y, row_before = y + sign * GAP, thickest
    return np.array(placed)


def _check_group(group: Group, types: Mapping[str, UnitType]) -> None:
    if not group.units:
        raise UsageError(
            f"the group at {list(group.at)} has no units: write for example `units: {{marine: 5}}`."
        )
    for name, count in group.units.items():
        if name not in types:
            hint = did_you_mean(str(name), types)
            raise UsageError(f"{name!r} is not a unit type: write {', '.join(types)}{hint}")
        if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= MOST_UNITS:
            raise UsageError(
                f"the group at {list(group.at)} has {count!r} of {name}: choose a number from 1 "
                f"to {MOST_UNITS}."
            )


def _check_places(scenario: Scenario) -> None:
    """Require all units on the map and ground units on walkable cells."""
    if scenario.terrain not in TERRAINS and len(scenario.terrain.split()) == 1:
        hint = did_you_mean(scenario.terrain, TERRAINS)
        raise UsageError(
            f"{scenario.terrain!r} is not a terrain: write {', '.join(TERRAINS)} or {SIZE} lines "
            f"of _ and X{hint}"
        )
    free = walkable(scenario.rows)
    types = scenario.known_types
    names = [name for group in scenario.groups for name in expanded(group)]
    for name, (x, y) in zip(names, places(scenario)[1], strict=True):
        where = f"a {name} of the scenario {scenario.name} starts at ({x:.2f}, {y:.2f})"
        if not (0 <= x < SIZE and 0 <= y < SIZE):
            raise UsageError(
                f"{where}, which is off the map: move its group to coordinates from 0 to {SIZE}."
            )
        if types[name].plane == "ground" and not free[int(y), int(x)]:
            raise UsageError(f"{where}, which is blocked: move its group to a walkable place.")


def read_scenario(path: Path | str) -> Scenario:
    """A scenario from a YAML file with the fields of `Scenario`; `name` defaults to the file's."""
    path = Path(path)
    values = {"name": path.stem, **read_yaml(path)}
    try:
        return build(Scenario, values)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None


def find_scenario(text: str) -> Scenario:
    """The scenario of an id: a built-in name (case-insensitive) or the path of a YAML file."""
    if text.endswith((".yaml", ".yml")):
        return read_scenario(text)
    by_name = {name.lower(): scenario for name, scenario in SCENARIOS.items()}
    if text.lower() not in by_name:
        hint = did_you_mean(text, SCENARIOS)
        raise UnknownNameError(
            f"smaclite/{text} is not known: write smaclite/ and one of {', '.join(SCENARIOS)}, or "
            f"a .yaml file{hint}"
        )
    return by_name[text.lower()]


def _facing(
    name: str, allies: dict[str, int], enemies: dict[str, int], terrain: str = "simple"
) -> Scenario:
    """Allies on the left, enemies on the right, which attack the allies' initial position."""
    groups = (Group(ALLY, (9.0, 16.0), allies), Group(ENEMY, (23.0, 16.0), enemies))
    return Scenario(name, groups, attack_point=(9.0, 16.0), terrain=terrain)


_CORRIDOR = Scenario(
    "corridor",
    (Group(ENEMY, (27.91, 28.24), {"zergling": 24}), Group(ALLY, (19.04, 19.12), {"zealot": 6})),
    attack_point=(4.47, 4.33),
    terrain="corridor",
)
_BANE_VS_BANE = Scenario(
    "bane_vs_bane",
    (
        Group(ENEMY, (16.0, 24.0), {"baneling": 4}),
        Group(ENEMY, (16.0, 21.0), {"zergling": 20}),
        Group(ALLY, (16.0, 11.0), {"zergling": 20}),
        Group(ALLY, (16.0, 8.0), {"baneling": 4}),
    ),
    attack_point=(16.0, 8.0),
    terrain="octagon",
)

SCENARIOS: dict[str, Scenario] = {
    scenario.name: scenario
    for scenario in (
        _facing(
            "MMM",
            {"medivac": 1, "marine": 7, "marauder": 2},
            {"medivac": 1, "marine": 7, "marauder": 2},
        ),
        _facing(
            "MMM2",
            {"medivac": 1, "marine": 7, "marauder": 2},
            {"medivac": 1, "marine": 8, "marauder": 3},
        ),
        _CORRIDOR,
        _BANE_VS_BANE,
        _facing("25m_vs_30m", {"marine": 25}, {"marine": 30}),
        _facing("3s5z_vs_3s6z", {"stalker": 3, "zealot": 5}, {"stalker": 3, "zealot": 6}),
        _facing("10m_vs_11m", {"marine": 10}, {"marine": 11}),
        _facing("27m_vs_30m", {"marine": 27}, {"marine": 30}),
        _facing("5m_vs_6m", {"marine": 5}, {"marine": 6}),
        _facing("2s3z", {"stalker": 2, "zealot": 3}, {"stalker": 2, "zealot": 3}),
        _facing("3s5z", {"stalker": 3, "zealot": 5}, {"stalker": 3, "zealot": 5}),
        _facing("3s_vs_5z", {"stalker": 3}, {"zealot": 5}, terrain="all_green"),
    )
}
PAPER_SCENARIOS = tuple(SCENARIOS)[:6]
