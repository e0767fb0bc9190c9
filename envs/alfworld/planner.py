"""Finds commands that win a game, by search in the engine's own states.

What can meet the goal is enumerated (which things, which receptacles), the cheapest-looking choices are played out one
after the other on plays of their own, and the shortest play that wins is the plan. A play fetches, slices, cleans,
heats, cools, places and switches on as the chosen goal asks. Nothing is assumed of commands but what they do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from heapq import nsmallest
from itertools import islice

from envs.alfworld.engine.facts import Atom, Binding, Fact
from envs.alfworld.engine.game import CHANGING, KNIVES, PROCESSES, Game, Play

MOST_CHOICES = 5000
"""Ways to meet the goal that are looked at."""
PLAYED = 12
"""Of them, those that are played out."""
NOWHERE = 100
MAKES = {becomes: (action, tools) for action, (_, tools, becomes, _) in PROCESSES.items()}
"""State of a thing -> the action that brings it about, and the receptacles that do it."""


class Stuck(Exception):  # noqa: N818 - one choice fails, the next is tried
    """What is wanted next cannot be done."""


def plan(game: Game) -> tuple[str, ...] | None:
    """Return commands that win the game from its start, or None where none were found."""
    start = Play(game)
    if start.won:
        return ()
    fixed = tuple(atom for atom in game.problem.goal if atom.predicate not in CHANGING)
    changing = tuple(atom for atom in game.problem.goal if atom.predicate in CHANGING)
    choices = islice(start.facts.solve(fixed, {}), MOST_CHOICES)
    best: list[str] | None = None
    for choice in nsmallest(PLAYED, choices, key=lambda choice: _estimate(start, changing, choice)):
        attempt = Attempt(game)
        try:
            attempt.reach([_grounded(atom, choice) for atom in changing])
        except Stuck:
            continue
        if attempt.play.won and (best is None or len(attempt.commands) < len(best)):
            best = attempt.commands
    return None if best is None else tuple(best)


def _grounded(atom: Atom, choice: Binding) -> Fact:
    return (atom.predicate, *(choice.get(term, term) for term in atom.terms))


def _estimate(start: Play, changing: tuple[Atom, ...], choice: Binding) -> int:
    """Return roughly how many commands a choice takes: two a fact not yet true, one more for each closed receptacle.

    A thing that lies nowhere costs more than any detour.
    """
    wanted = [fact for fact in (_grounded(atom, choice) for atom in changing) if fact not in start.facts]
    closed = 0
    for fact in wanted:
        if fact[0] in ("inreceptacle", "holds"):
            thing = fact[1] if fact[0] == "inreceptacle" else fact[2]
            found = start.where(thing)
            closed += 0 if found or start.held == thing else NOWHERE
            where = [*found, *([fact[2]] if fact[0] == "inreceptacle" else [])]
            closed += sum(not start.reachable(receptacle) for receptacle in where)
    return 2 * len(wanted) + closed


class Attempt:
    """One play towards one choice."""

    def __init__(self, game: Game) -> None:
        self.play = Play(game)
        self.commands: list[str] = []

    def reach(self, wanted: list[Fact]) -> None:
        """Make the facts true: things are changed and placed one by one, then one is held, then lamps are lit."""
        states = {(fact[0], fact[1]) for fact in wanted if fact[0] in MAKES or fact[0] == "issliced"}
        placed = {fact[1]: fact[2] for fact in wanted if fact[0] == "inreceptacle"}
        lit = [fact[1] for fact in wanted if fact[0] == "istoggled"]
        held = [fact[2] for fact in wanted if fact[0] == "holds"]
        for thing in sorted(placed.keys() - set(lit)):
            self._change({state for state, changed in states if changed == thing}, thing)
            if ("inreceptacle", thing, placed[thing]) not in self.play.facts and not self.play.won:
                self._fetch(thing)
                self.open(placed[thing])
                self._do("putobject", {"?o": thing, "?r": placed[thing]})
        for thing in held:
            self._change({state for state, changed in states if changed == thing}, thing)
            self._fetch(thing)
        for lamp in lit:
            self._go(self._receptacle_of(lamp))
            if ("istoggled", lamp) not in self.play.facts:
                self._do("toggleobject", {"?o": lamp})

    def _change(self, states: set[str], thing: str) -> None:
        for state in sorted(states, key=lambda state: state != "issliced"):
            if (state, thing) in self.play.facts or self.play.won:
                continue
            if state == "issliced":
                self._slice(thing)
                continue
            action, tools = MAKES[state]
            self._fetch(thing)
            self._go(self._nearest(self._among(tools)))
            self._do(action, {"?o": thing})

    def _slice(self, thing: str) -> None:
        """Take a knife to the thing, slice it there, and lay the knife down."""
        game = self.play.game
        knives = sorted(each for each, kind in game.kind_of.items() if kind in KNIVES and self.play.where(each))
        if not knives:
            raise Stuck
        knife = self.play.held if self.play.held in knives else knives[0]
        self._fetch(str(knife))
        self.open(self._receptacle_of(thing))
        self._do("sliceobject", {"?co": thing})
        self._lay_down()

    def _fetch(self, thing: str) -> None:
        """Come to hold a thing."""
        if self.play.held == thing:
            return
        if self.play.held is not None:
            self._lay_down()
        receptacle = self._receptacle_of(thing)
        self.open(receptacle)
        self._do("pickupobject", {"?o": thing, "?r": receptacle})

    def _lay_down(self) -> None:
        """Put what is held wherever it may lie, here if it can be."""
        thing = str(self.play.held)
        kinds = self.play.game.kind_of
        receptacle = self._nearest(
            lambda receptacle: ("cancontain", kinds.get(receptacle, ""), kinds.get(thing, "")) in self.play.facts
        )
        self.open(receptacle)
        self._do("putobject", {"?o": thing, "?r": receptacle})

    def _receptacle_of(self, thing: str) -> str:
        found = self.play.where(thing)
        if not found:
            raise Stuck
        return min(found, key=lambda receptacle: (not self.play.reachable(receptacle), receptacle))

    def _nearest(self, suits: Callable[[str], bool]) -> str:
        """Return a receptacle that suits: here, or elsewhere; one that need not be opened before one that must."""
        places = self.play.game.place_of
        found = [receptacle for receptacle in places if suits(receptacle)]
        if not found:
            raise Stuck
        return min(found, key=lambda each: (places[each] != self.play.place, not self.play.reachable(each), each))

    def _among(self, kinds: tuple[str, ...]) -> Callable[[str], bool]:
        return lambda receptacle: self.play.game.kind_of.get(receptacle, "") in kinds

    def open(self, receptacle: str) -> None:
        """Go to a receptacle and open it, as far as that is not done yet; Stuck where it cannot be."""
        self._go(receptacle)
        if not self.play.reachable(receptacle):
            self._do("openobject", {"?r": receptacle})

    def _go(self, receptacle: str) -> None:
        if self.play.game.place_of.get(receptacle) != self.play.place:
            self._do("gotolocation", {"?r": receptacle})

    def _do(self, action: str, bound: Mapping[str, str]) -> None:
        """Give the command that does an action to these things."""
        text = next(self._commands(action, bound), None)
        if text is None:
            raise Stuck
        self.give(text)

    def give(self, text: str) -> None:
        """Give a command."""
        self.play.step(text)
        self.commands.append(text)

    def _commands(self, action: str, bound: Mapping[str, str]) -> Iterator[str]:
        for text, command in self.play.offered().items():
            if command.action == action and bound.items() <= command.bound.items():
                yield text
