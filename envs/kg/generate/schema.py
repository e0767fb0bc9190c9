"""What a schema is: the types, relations and attributes of one split's graphs, with the words for them.

A split has one file, `schemas/SPLIT.toml`, and shares no relation, no name and no sentence with another.
"""

from __future__ import annotations

import tomllib
from functools import cached_property
from pathlib import Path
from typing import Literal

import msgspec

from harness.core import Value

FOLDER = Path(__file__).parent / "schemas"
SPLITS = ("test", "validation", "train")


class Type(Value, frozen=True, kw_only=True):
    """A kind of entity."""

    name: str
    one: str
    many: str
    who: Literal["who", "that"] = "that"
    """The pronoun a clause on it begins with."""
    count: int
    """How many there are in a graph."""
    names: tuple[str, ...]
    """How one is named: "{given} {family}" takes a word of each list."""


class Link(Value, frozen=True, kw_only=True, rename={"source": "from", "target": "to"}):
    """A pair of relations, one in each direction."""

    source: str
    target: str
    there: str
    back: str
    each: tuple[int, int]
    """Least and most targets of one source; exactly one where `one` is given."""
    one: str = ""
    many: str
    of: str
    """What is said of the sources, with a hole for the target."""


class Attribute(Value, frozen=True, kw_only=True):
    """A whole number or a date that every entity of a type has."""

    on: str
    name: str
    kind: Literal["number", "date"] = "number"
    low: int
    high: int
    """Bounds, before `step` is multiplied in; of a date, the years."""
    step: int = 1
    most: str
    """What is said of the one that ranks first; `least`, of the last."""
    least: str


class Wording(Value, frozen=True, kw_only=True):
    """The sentences that questions are made of; `generate/talk.py` says what fills the holes."""

    any: str
    top: str
    groups: str
    shared: str
    shared_says: str
    hop_one: tuple[str, ...]
    hop: tuple[str, ...]
    intersection: tuple[str, ...]
    count: tuple[str, ...]
    superlative: tuple[str, ...]
    ties: str


class Relation(Value, frozen=True, kw_only=True):
    """A way from one type to another, in one direction."""

    name: str
    inverse: str
    source: str
    target: str
    says: str
    """What is said of several targets, with a hole for the source: "were written by {}"."""
    says_one: str = ""
    """The same of a single target; only where every source has exactly one."""


class Schema(Value, frozen=True, kw_only=True, dict=True):
    """Everything that the graphs of one split have in common."""

    types: tuple[Type, ...]
    links: tuple[Link, ...]
    attributes: tuple[Attribute, ...]
    words: dict[str, tuple[str, ...]]
    wording: Wording

    @cached_property
    def relations(self) -> tuple[Relation, ...]:
        """Both directions of every link, one after the other."""
        return tuple(relation for link in self.links for relation in _directions(link))

    @cached_property
    def type_of(self) -> dict[str, Type]:
        """Types by name."""
        return {each.name: each for each in self.types}

    @cached_property
    def relation_of(self) -> dict[str, Relation]:
        """Relations by name."""
        return {each.name: each for each in self.relations}

    @cached_property
    def leaving(self) -> dict[str, tuple[Relation, ...]]:
        """The relations that leave each type."""
        return {each.name: tuple(r for r in self.relations if r.source == each.name) for each in self.types}

    @cached_property
    def arriving(self) -> dict[str, tuple[Relation, ...]]:
        """The relations that lead to each type."""
        return {each.name: tuple(r for r in self.relations if r.target == each.name) for each in self.types}

    @cached_property
    def attributes_of(self) -> dict[str, tuple[Attribute, ...]]:
        """The attributes of each type."""
        return {each.name: tuple(a for a in self.attributes if a.on == each.name) for each in self.types}


def _directions(link: Link) -> tuple[Relation, Relation]:
    there, back = f"{link.source}.{link.there}", f"{link.target}.{link.back}"
    return (
        Relation(name=there, inverse=back, source=link.source, target=link.target, says=link.many, says_one=link.one),
        Relation(name=back, inverse=there, source=link.target, target=link.source, says=link.of),
    )


def _load(split: str) -> Schema:
    table = tomllib.loads((FOLDER / f"{split}.toml").read_text(encoding="utf-8"))
    # An attribute goes by its type's name too, as relations do.
    table["attributes"] = [{**each, "name": f"{each['on']}.{each['name']}"} for each in table["attributes"]]
    return msgspec.convert(table, Schema)


SCHEMAS = {split: _load(split) for split in SPLITS}
