"""A plan as somebody plays it who does not know where things are.

The planner knows, so whoever learns from its play alone has never seen a place that what is sought is not at, and does
not know how to go on from there. Here other places are looked into first, in an order by lot, until the one is reached
that the plan goes to. Decided here: a place that holds another thing of the kind sought is not looked into, since
nobody would leave it lying; and a plan stays as short as it must to end in time.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from envs.alfworld.engine.facts import Binding
from envs.alfworld.engine.game import Game, Play

SOUGHT = ("pickupobject", "toggleobject")
"""What one goes somewhere to find."""


def searching(game: Game, plan: Sequence[str], random: Random, most: int) -> tuple[str, ...]:
    """Return commands that win a game as its plan does, and look for what they need; at most so many."""
    wanted = _wanted(game, plan)
    search = _Search(Play(game), random, spare=most - len(plan))
    for text, thing in zip(plan, wanted, strict=True):
        command = search.play.offered().get(text)
        if command is not None:
            if thing:
                search.before(command.bound["?r"], thing)
            search.do(text)
        # What the plan would open may have been opened in the search.
    return tuple(search.commands) if search.play.won else tuple(plan)


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

    def __init__(self, play: Play, random: Random, spare: int) -> None:
        self.play = play
        self.commands: list[str] = []
        self._random = random
        self._spare = spare
        self._known: set[str] = set()

    def before(self, target: str, thing: str) -> None:
        """Look into unknown places by lot, until it would be the target's turn."""
        kinds = self.play.game.kind_of
        others = [
            place
            for place in self.play.game.place_of
            if place != target and not any(kinds.get(each) == kinds.get(thing) for each in self.play.contents(place))
        ]
        order = [target, *(place for place in others if place not in self._known)]
        self._random.shuffle(order)
        if target in self._known:
            return
        for place in order[: order.index(target)]:
            self._look(place)

    def _look(self, place: str) -> None:
        needed = [("gotolocation", {"?r": place})]
        if not self.play.reachable(place):
            needed.append(("openobject", {"?r": place}))
        if self._spare < len(needed):
            return
        self._spare -= len(needed)
        for action, bound in needed:
            for text in self._texts(action, bound):
                self.do(text)

    def _texts(self, action: str, bound: Binding) -> list[str]:
        offered = self.play.offered().items()
        return [text for text, each in offered if each.action == action and bound.items() <= each.bound.items()][:1]

    def do(self, text: str) -> None:
        """Give a command."""
        command = self.play.offered()[text]
        self._known.add(command.bound.get("?r", ""))
        self.play.step(text)
        self.commands.append(text)
