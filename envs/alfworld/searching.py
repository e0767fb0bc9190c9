"""A plan as somebody plays it who does not know where things are.

The planner knows, so whoever learns from its play alone has never seen a place that what is sought is not at, and does
not know how to go on from there. Here other places are looked into first, in an order by lot, until the one is reached
that the plan goes to. Decided here: a place that holds another thing of the kind sought is not looked into, since
nobody would leave it lying; and a plan stays as short as it must to end in time.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from random import Random

from envs.alfworld.engine.game import Game, Play
from envs.alfworld.planner import Attempt, Stuck

SOUGHT = ("pickupobject", "toggleobject")
"""What one goes somewhere to find."""


def searching(game: Game, plan: Sequence[str], random: Random, most: int) -> tuple[str, ...]:
    """Return commands that win a game as its plan does, and look for what they need; at most so many."""
    wanted = _wanted(game, plan)
    search = _Search(Attempt(game), random, spare=most - len(plan))
    for text, thing in zip(plan, wanted, strict=True):
        command = search.attempt.play.offered().get(text)
        if command is not None:
            if thing:
                search.before(command.bound["?r"], thing)
            search.known.add(command.bound.get("?r", ""))
            search.attempt.give(text)
        # What the plan would open may have been opened in the search.
    return tuple(search.attempt.commands) if search.attempt.play.won else tuple(plan)


def _wanted(game: Game, plan: Sequence[str]) -> list[str]:
    """Return for each command the thing that it goes somewhere to find, or ""."""
    play, steps = Play(game), []
    for text in plan:
        steps.append(play.offered()[text])
        play.step(text)
    found = []
    for number, step in enumerate(steps):
        then = next((each for each in steps[number + 1 :] if each.action != "openobject"), None)
        sought = step.action == "gotolocation" and then is not None and then.action in SOUGHT
        found.append(then.bound["?o"] if sought and then is not None else "")
    return found


class _Search:
    """A play, and the places that were looked into."""

    def __init__(self, attempt: Attempt, random: Random, spare: int) -> None:
        self.attempt = attempt
        self.known: set[str] = set()
        self._random = random
        self._spare = spare

    def before(self, target: str, thing: str) -> None:
        """Look into unknown places by lot, until it would be the target's turn."""
        play = self.attempt.play
        kinds = play.game.kind_of
        others = [
            place
            for place in play.game.place_of
            if place != target and not any(kinds.get(each) == kinds.get(thing) for each in play.contents(place))
        ]
        order = [target, *(place for place in others if place not in self.known)]
        self._random.shuffle(order)
        if target in self.known:
            return
        for place in order[: order.index(target)]:
            self._look(place)

    def _look(self, place: str) -> None:
        needed = 1 if self.attempt.play.reachable(place) else 2
        if self._spare < needed:
            return
        self._spare -= needed
        self.known.add(place)
        with suppress(Stuck):  # what cannot be opened is only looked at
            self.attempt.open(place)
