"""What the styles have in common: a call, its name, and what a module must have to be a style."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from harness.core import ToolSpec
from harness.models.toolcalls.cursor import Cursor, Wrong

NAME = re.compile(r"[\w.:/-]*+")
"""A name where nothing but its characters tells where it ends."""
LONGEST_NAME = 256
LONE_SURROGATE = re.compile("[\ud800-\udfff]")
"""What no file can hold."""
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


class Call(NamedTuple):
    """One call."""

    name: str
    arguments: str
    """A JSON object: as the model wrote it where the style writes JSON, made from its values elsewhere."""
    id: str | None = None
    """The model's own, where the style has it write one and it is of the style's form."""


class Style(Protocol):
    """A module of this package that reads one way of writing calls."""

    OPENING: re.Pattern[str]
    """Where calls may begin: one of the marks, or a character at the beginning of a line."""
    MARKS: Sequence[str]
    """Texts that `OPENING` begins with; at the end of an unfinished text their beginnings are held back."""

    def read(self, cursor: Cursor, tools: Sequence[ToolSpec]) -> Iterator[Call]:
        """Yield the calls that begin at the cursor, each as soon as it is sure, and move behind them.

        Raises:
            Unfinished: the text does not yet say whether a call follows.
            Wrong: none follows; the cursor stands where that was seen.
        """
        ...


def opening(*marks: str) -> re.Pattern[str]:
    """Return the pattern of any of some marks."""
    return re.compile("|".join(map(re.escape, marks)))


def made(name: str, arguments: str, identity: str | None = None) -> Call:
    """Return a call. Wrong where its name cannot be one."""
    if not name:
        raise Wrong("it has no name")
    if len(name) > LONGEST_NAME:
        raise Wrong(f"its name is longer than {LONGEST_NAME} characters")
    return Call(LONE_SURROGATE.sub(REPLACEMENT, name), LONE_SURROGATE.sub(REPLACEMENT, arguments), identity)
