"""Generated graphs: a split's schema, filled with named entities, facts and values by seed.

Decided here: that no two entities of a graph share a name, and that a few entities are hubs.
"""

from __future__ import annotations

import datetime
import re
from collections import defaultdict
from dataclasses import dataclass, field
from functools import lru_cache

from envs.kg.generate.schema import SCHEMAS, Attribute, Link, Schema, Type
from harness.dice import Dice

FIRST_ID = 4096


@dataclass
class World:
    """A filled graph."""

    schema: Schema
    names: dict[str, str] = field(default_factory=dict)
    of_type: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    leads: dict[tuple[str, str], list[str]] = field(default_factory=lambda: defaultdict(list))
    """(entity, relation) -> the entities it leads to."""
    values: dict[tuple[str, str], int | datetime.date] = field(default_factory=dict)
    """(entity, attribute) -> its value."""

    def reached(self, members: frozenset[str], relation: str) -> frozenset[str]:
        """Return what a relation leads to from any of the members."""
        return frozenset(each for member in members for each in self.leads.get((member, relation), ()))

    def extreme(self, members: frozenset[str], attribute: str, most: bool) -> frozenset[str]:
        """Return the members that rank first by an attribute, or, without `most`, last."""
        ranks = {member: _rank(self.values[member, attribute]) for member in members}
        best = (max if most else min)(ranks.values())
        return frozenset(member for member, place in ranks.items() if place == best)


@lru_cache(maxsize=8)
def world(split: str, number: int) -> World:
    """Fill the schema of a split; each number gives another graph."""
    dice = Dice("kg world", split, number)
    made = World(SCHEMAS[split])
    used: set[str] = set()
    for kind in made.schema.types:
        for _ in range(kind.count):
            entity = f"m.0{len(made.names) + FIRST_ID:x}"
            made.names[entity] = _new_name(kind, made.schema.words, used, dice)
            made.of_type[kind.name].append(entity)
    for link in made.schema.links:
        _connect(made, link, dice)
    for attribute in made.schema.attributes:
        for entity in made.of_type[attribute.on]:
            made.values[entity, attribute.name] = _value(attribute, dice)
    return made


def _new_name(kind: Type, words: dict[str, tuple[str, ...]], used: set[str], dice: Dice) -> str:
    while True:
        name = re.sub(r"\{(\w+)\}", lambda hole: dice.pick(words[hole[1]]), dice.pick(kind.names))
        if name not in used:
            used.add(name)
            return name


def _connect(made: World, link: Link, dice: Dice) -> None:
    there, back = f"{link.source}.{link.there}", f"{link.target}.{link.back}"
    targets = made.of_type[link.target]
    # Which are the hubs differs from relation to relation.
    turn = dice.between(0, len(targets) - 1)
    for entity in made.of_type[link.source]:
        low, high = link.each
        for _ in range(dice.between(low, high)):
            # Squared: a few entities are hubs, as in any real graph.
            target = targets[(turn + int(dice.unit() ** 2 * len(targets))) % len(targets)]
            if target not in made.leads[entity, there]:
                made.leads[entity, there].append(target)
                made.leads[target, back].append(entity)


def _value(attribute: Attribute, dice: Dice) -> int | datetime.date:
    number = dice.between(attribute.low, attribute.high)
    if attribute.kind == "number":
        return number * attribute.step
    return datetime.date(number, dice.between(1, 12), dice.between(1, 28))


def _rank(value: int | datetime.date) -> int:
    return value if isinstance(value, int) else value.toordinal()
