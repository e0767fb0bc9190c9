"""Gold play in other words: what is named in a task is renamed, the same way throughout one play.

A small world has few nouns, and a small model learns them by heart; in a world of other nouns it is then lost. Play in
which names change from task to task can only be learnt by looking up what things are called *there*. Decided here:
words are renamed that somebody said in a tool call's arguments in some play, that few plays have, and that no
instructions or tools mention. What they become is a word of some play or, more often, put together from pieces of such
words: names must be unlike any that are known, or they are learnt by heart again. The play stays right: it is the same
task, told in other words.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence

import msgspec

from harness.core import Message, Trajectory
from harness.dice import Dice

WORD = re.compile(r"[A-Za-z]{3,}")
LONGEST = 10
"""Letters of a word that another may become."""
USUAL = 0.12
"""A word that more than this share of the plays has is grammar, not a name."""
PUT_TOGETHER = 0.75
"""Of the new names, those that are no word of any play."""
PIECES = (2, 4)
"""Pieces of such a name, fewest and most,"""
PIECE = (1, 4)
"""and letters of a piece."""


def renamed(plays: Sequence[Trajectory], share: float, seed: int) -> list[Trajectory]:
    """Return the plays with this share of them in other words; tasks and their digests are as before."""
    names, words = replaceable(plays), sorted({word for play in plays for word in _words(play) if len(word) <= LONGEST})
    found = []
    for number, play in enumerate(plays):
        dice = Dice("renaming", seed, number)
        found.append(_Renaming(names, words, dice).play(play) if dice.chance(share) and words else play)
    return found


def replaceable(plays: Sequence[Trajectory]) -> frozenset[str]:
    """Return the words that are names of things, in lower case."""
    found: set[str] = set()
    for env in sorted({play.env for play in plays}):
        own = [play for play in plays if play.env == env]
        count = Counter(word for play in own for word in set(_words(play)))
        said = {word for play in own for text in _said(play) for word in _split(text)}
        kept = {word for play in own for text in _instructions(play) for word in _split(text)}
        found |= {word for word in said - kept if count[word] <= USUAL * len(own)}
    return frozenset(found)


class _Renaming:
    """The new names of one play."""

    def __init__(self, names: Collection[str], words: Sequence[str], dice: Dice) -> None:
        self._names = names
        self._words = words
        self._dice = dice
        self._new: dict[str, str] = {}

    def play(self, play: Trajectory) -> Trajectory:
        """Return a play in other words."""
        turns = tuple(
            msgspec.structs.replace(
                turn,
                reply=msgspec.structs.replace(turn.reply, message=self._message(turn.reply.message)),
                messages=tuple(self._message(message) for message in turn.messages),
            )
            for turn in play.turns
        )
        opening = tuple(each if each.role == "system" else self._message(each) for each in play.opening)
        return msgspec.structs.replace(play, opening=opening, turns=turns)

    def _message(self, message: Message) -> Message:
        calls = tuple(
            msgspec.structs.replace(call, arguments=self._text(call.arguments)) for call in message.tool_calls
        )
        return msgspec.structs.replace(message, content=self._text(message.content), tool_calls=calls)

    def _text(self, text: str) -> str:
        return WORD.sub(lambda match: self._word(match[0]), text)

    def _word(self, word: str) -> str:
        plain = word.lower()
        if plain not in self._names:
            return word
        if plain not in self._new:
            taken = self._new.values()
            self._new[plain] = next(
                name for name in iter(self._drawn, None) if WORD.fullmatch(name) and name not in taken
            )
        new = self._new[plain]
        return new.upper() if word.isupper() else new.capitalize() if word[0].isupper() else new

    def _drawn(self) -> str:
        if not self._dice.chance(PUT_TOGETHER):
            return self._dice.pick(self._words)
        return "".join(self._piece() for _ in range(self._dice.between(*PIECES)))

    def _fits(self, name: str) -> bool:
        return WORD.fullmatch(name) is not None and name not in self._new.values()

    def _piece(self) -> str:
        word, length = self._dice.pick(self._words), self._dice.between(*PIECE)
        start = self._dice.between(0, max(0, len(word) - length))
        return word[start : start + length]


def _split(text: str) -> Iterator[str]:
    return (match[0].lower() for match in WORD.finditer(text))


def _words(play: Trajectory) -> Iterator[str]:
    """Yield the words of all that was said in a play, in lower case."""
    return (word for message in play.history for text in _texts(message) for word in _split(text))


def _texts(message: Message) -> Iterator[str]:
    yield message.content
    yield from (call.arguments for call in message.tool_calls)


def _said(play: Trajectory) -> Iterator[str]:
    return (call.arguments for turn in play.turns for call in turn.reply.message.tool_calls)


def _instructions(play: Trajectory) -> Iterator[str]:
    yield from (message.content for message in play.opening if message.role == "system")
    for tool in play.tools:
        yield f"{tool.name} {tool.description} {msgspec.json.encode(tool.parameters).decode()}"
