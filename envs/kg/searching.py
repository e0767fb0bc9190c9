"""Gold calls as somebody makes them who does not know the graph's vocabulary.

Gold play knows which relation a question means. Here relations that are listed are followed by lot until one leads to
things of the kind that is asked for, as the reply says; only then it goes on. Decided here: a relation that leads to
the right kind, but to others of it, is never tried, since nothing would tell; attributes are known; and a plan stays as
short as it must to end in time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from random import Random

from envs.kg.data import LISTING, Action, TaskData
from envs.kg.generate.besides import besides
from envs.kg.generate.questions import RANKED
from envs.kg.generate.worlds import World, world


def searching(data: TaskData, random: Random, most: int, breadth: int = 0) -> tuple[Action, ...]:
    """Return gold calls with vain ones before them, at most so many in all; those of a published task as they are.

    `breadth` is how many relations besides its schema's own an entity has at most.
    """
    if data.world is None:
        return data.actions
    more = besides(*data.world, breadth)
    return tuple(_Search(data, world(*data.world), more, random, most - len(data.actions)).calls())


def quoted(data: TaskData) -> dict[str, str]:
    """Return for the tool that takes a superlative the words of the question that say which; {} where none is asked."""
    if data.world is None:
        return {}
    attributes = {each.name: each for each in world(*data.world).schema.attributes}
    ranked = [(name, attributes[arguments[1]]) for name, arguments in data.actions if name in RANKED]
    return {name: attribute.most if name == "argmax" else attribute.least for name, attribute in ranked}


class _Search:
    """Follows the gold calls, and knows what each variable holds."""

    def __init__(
        self, data: TaskData, found: World, more: Mapping[str, Iterable[str]], random: Random, spare: int
    ) -> None:
        self._data = data
        self._world = found
        self._more = more
        self._random = random
        self._spare = spare
        self._sets: list[frozenset[str]] = []
        """Of the gold variables."""
        self._names: dict[str, str] = {}
        """Gold variable -> the same in this play."""
        self._made = 0

    def calls(self) -> Iterator[Action]:
        """Yield the calls."""
        for name, arguments in self._data.actions:
            if name == "get_neighbors":
                yield from self._vain(*arguments)
            yield name, tuple(self._names.get(each, each) for each in arguments)
            if name not in LISTING:
                self._names[f"#{len(self._sets)}"] = f"#{self._made}"
                self._made += 1
                self._sets.append(self._result(name, arguments))

    def _vain(self, source: str, gold: str) -> Iterator[Action]:
        """Yield calls along relations that lead to something else, as many as come before the right one by lot."""
        schema, members = self._world.schema, self._held(source)
        right = schema.relation_of[gold]
        others = [
            each.name
            for each in schema.leaving[right.source]
            if each.target != right.target and self._world.reached(members, each.name)
        ]
        order = [gold, *others, *sorted({each for member in members for each in self._more[member]})]
        self._random.shuffle(order)
        for relation in order[: min(order.index(gold), self._spare)]:
            self._spare -= 1
            self._made += 1
            yield "get_neighbors", (self._names.get(source, source), relation)

    def _held(self, name: str) -> frozenset[str]:
        return self._sets[int(name[1:])] if name.startswith("#") else frozenset([name])

    def _result(self, name: str, arguments: Sequence[str]) -> frozenset[str]:
        members = self._held(arguments[0])
        match name:
            case "get_neighbors":
                return self._world.reached(members, arguments[1])
            case "intersection":
                return members & self._held(arguments[1])
            case "argmax" | "argmin":
                return self._world.extreme(members, arguments[1], name == "argmax")
        return members
