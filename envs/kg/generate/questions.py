"""One question about a generated graph: its shape, its words, its answer and its gold calls.

Decided here: how difficulty makes a shape, and what is fair. A named entity never turns up in any set on the way; no
set is empty, above a bound or half of its type; and every call matters: an intersection is smaller than both of its
sides, a superlative leaves some out, a count is two or more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from envs.kg.data import Kind, TaskData
from envs.kg.generate.schema import Attribute, Relation
from envs.kg.generate.talk import Phrase, Talk
from envs.kg.generate.worlds import World
from harness.dice import Dice, Item

MOST_HOPS = 4
RANKED = ("argmax", "argmin")


class UnfairError(Exception):
    """A draft that breaks a rule of fairness."""


@dataclass(frozen=True)
class Shape:
    """What a question is made of."""

    kind: Kind
    hops: int
    """Relations followed from the first entity, one to four."""
    branch: int
    """Relations followed from a second entity, whose set is intersected with the first's; 0 where there is none."""
    tail: int
    """How many of `hops` come after the intersection or the superlative."""
    least: int
    """Members at least of a set that is counted or ranked."""
    most: int
    """Members at most of any set."""


@dataclass(frozen=True)
class Group:
    """A set on the way to the answer."""

    type: str
    members: frozenset[str]
    handle: str
    """What stands for it in a call: an entity or a variable."""
    phrase: Phrase | str
    arrived: Relation | None = None


def shape(kind: Kind, level: float, dice: Dice) -> Shape:
    """Draw a shape. From level 0 to 1: one hop to four, oftener a second entity and a last hop, larger sets."""
    hops = min(MOST_HOPS, 1 + int(3 * level + dice.unit()))
    crossed = kind == "intersection" or (kind != "hop" and dice.unit() < 0.6 * level - 0.1)
    longer = dice.unit() < 0.6 * level
    last = dice.unit() < 0.6 * level
    # Gold play of five hops, an intersection and a superlative takes fourteen of the fifteen turns.
    branch = (2 if longer and hops < MOST_HOPS else 1) if crossed else 0
    tail = int(last and hops > 1 and kind not in ("hop", "count"))
    least = 2 if branch else 2 + int(3 * level)
    return Shape(kind, hops, branch, tail, least, most=12 + int(48 * level))


def make(found: World, where: tuple[str, int], plan: Shape, start: str, dice: Dice) -> TaskData | None:
    """Draft one question that starts at an entity of type `start`; None where the draft is not fair."""
    try:
        return _Draft(found, plan, dice).task(where, start)
    except UnfairError:
        return None


class _Draft:
    """One question in the making."""

    def __init__(self, found: World, plan: Shape, dice: Dice) -> None:
        self._world, self._plan, self._dice = found, plan, dice
        self._talk = Talk(found.schema, dice)
        self._topics: list[str] = []
        self._passed: set[str] = set()
        self._calls: list[tuple[str, tuple[str, ...]]] = []
        self._made = 0

    def task(self, where: tuple[str, int], start: str) -> TaskData:
        """Follow the plan."""
        plan = self._plan
        group = self._topic(start, self._dice.pick(self._world.of_type[start]))
        for _ in range(plan.hops - plan.tail):
            group = self._wander(group)
        if plan.kind == "intersection" and not plan.tail:
            question, group = self._asked_both(group)
        else:
            group = self._both(group, self._crossing(group)) if plan.branch else group
            question, group = self._asked(group)
        if self._passed & set(self._topics):
            raise UnfairError
        answer = {str(len(group.members))} if plan.kind == "count" else group.members
        return TaskData(
            question=question[0].upper() + question[1:],
            kind=plan.kind,
            world=where,
            entities={self._world.names[topic]: topic for topic in self._topics},
            actions=tuple(self._calls),
            answer=tuple(sorted(answer)),
        )

    def _asked(self, group: Group) -> tuple[str, Group]:
        """Ask the question of a set: count it, rank it, or take its members, perhaps a hop further on."""
        if self._plan.kind == "count":
            self._need(len(group.members) >= self._plan.least)
            self._call("count", group.handle)
            return self._talk.ask_count(_described(group)), group
        if self._plan.kind in RANKED:
            attribute, top = self._ranked(group)
            most = self._plan.kind == "argmax"
            if not self._plan.tail:
                tied = len(top.members) > 1
                return self._talk.ask_top(_described(group), attribute, most, tied), top
            self._need(len(top.members) == 1)
            group = top
        if self._plan.tail:
            group = self._wander(group)
        return self._talk.ask(_described(group)), group

    def _asked_both(self, group: Group) -> tuple[str, Group]:
        other = self._crossing(group)
        brief = self._plan.hops == 1
        question = self._talk.ask_shared(_described(group), _described(other), brief)
        return question, self._both(group, other)

    def _topic(self, kind: str, entity: str) -> Group:
        self._need(entity not in self._topics)
        self._topics.append(entity)
        return Group(kind, frozenset([entity]), entity, self._world.names[entity])

    def _wander(self, group: Group) -> Group:
        """Follow a relation, but not back the way that the set was come by."""
        came = group.arrived.inverse if group.arrived else ""
        return self._follow(group, self._one_of([r for r in self._world.schema.leaving[group.type] if r.name != came]))

    def _follow(self, group: Group, relation: Relation) -> Group:
        reached = self._world.reached(group.members, relation.name)
        whole = len(self._world.of_type[relation.target])
        self._need(0 < len(reached) <= min(self._plan.most, whole // 2))
        self._call("get_relations", group.handle)
        handle = self._variable("get_neighbors", group.handle, relation.name)
        return self._passing(
            Group(relation.target, reached, handle, self._talk.reached(relation, group.phrase), relation)
        )

    def _crossing(self, group: Group) -> Group:
        """Reach some of a set's members from another entity."""
        entity, path = self._one_of(sorted(group.members)), list[Relation]()
        avoided = {group.arrived.name} if group.arrived else set()
        for _ in range(self._plan.branch):
            kind = path[0].source if path else group.type
            ways = [r for r in self._world.schema.arriving[kind] if r.name not in avoided]
            path.insert(0, self._one_of(ways))
            avoided = {path[0].inverse}
            entity = self._one_of(self._world.leads.get((entity, path[0].inverse), []))
        other = self._topic(path[0].source, entity)
        for relation in path:
            other = self._follow(other, relation)
        return other

    def _both(self, group: Group, other: Group) -> Group:
        members = group.members & other.members
        self._need(0 < len(members) < min(len(group.members), len(other.members)))
        handle = self._variable("intersection", group.handle, other.handle)
        phrase = self._talk.shared(_described(group), _described(other))
        return self._passing(Group(group.type, members, handle, phrase))

    def _ranked(self, group: Group) -> tuple[Attribute, Group]:
        self._need(len(group.members) >= self._plan.least)
        attribute = self._one_of(self._world.schema.attributes_of[group.type])
        most = self._plan.kind == "argmax"
        members = self._world.extreme(group.members, attribute.name, most)
        self._need(len(members) < len(group.members))
        self._call("get_attributes", group.handle)
        handle = self._variable(self._plan.kind, group.handle, attribute.name)
        phrase = self._talk.top(_described(group), attribute, most)
        return attribute, self._passing(Group(group.type, members, handle, phrase))

    def _variable(self, name: str, *arguments: str) -> str:
        self._call(name, *arguments)
        self._made += 1
        return f"#{self._made - 1}"

    def _call(self, name: str, *arguments: str) -> None:
        self._calls.append((name, arguments))

    def _passing(self, group: Group) -> Group:
        self._passed |= group.members
        return group

    def _one_of(self, items: Sequence[Item]) -> Item:
        self._need(bool(items))
        return self._dice.pick(items)

    @staticmethod
    def _need(fair: bool) -> None:
        if not fair:
            raise UnfairError


def _described(group: Group) -> Phrase:
    if isinstance(group.phrase, str):
        raise UnfairError
    return group.phrase
