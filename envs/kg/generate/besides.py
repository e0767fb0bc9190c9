"""What a generated graph says of every entity besides its schema's own relations, and no question ever asks.

As in Freebase, where the domains `common`, `base` and `user` say something of nearly everything: a listing of relations
is long, most of it leads nowhere, and which domains those are is learnt by trying. Decided here: how many of them an
entity has is drawn by lot, each number as likely, so that a split has tasks from easy to hard; which, likewise; what
one leads to is of a kind that no question asks for, and nothing leaves it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from envs.kg.generate.worlds import world
from harness.dice import Dice

NAMES = {
    "common.topic": "image article webpage alias identifier subject notice quotation summary caption license source",
    "base.catalog": "collection award event exhibit timeline ranking review survey trophy archive festival column",
    "user.page": "bookmark comment rating tag playlist note draft photo list vote question badge",
}
"""Domain and type -> what it says."""
TYPES = {f"{of}.{name}": f"{of.partition('.')[0]}.{name}" for of, names in NAMES.items() for name in names.split()}
"""Relation -> the type of what it leads to."""
TARGETS = {relation: f"m.1{place:x}" for place, relation in enumerate(TYPES)}
"""Relation -> what it leads to, from wherever."""


@lru_cache(maxsize=8)
def besides(split: str, number: int, breadth: int) -> Mapping[str, tuple[str, ...]]:
    """Return for each entity of a world up to so many relations."""
    dice = Dice("kg besides", split, number)
    names = world(split, number).names
    return {entity: tuple(dice.shuffled(list(TYPES))[: dice.between(0, breadth)]) for entity in names}
