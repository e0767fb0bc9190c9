"""Ids of calls as a style's chat template takes them.

Kimi's template writes ids into the text. The model learned `functions.NAME:N`, where N counts the calls of the whole
conversation from 0, and soon calls no more where a history says otherwise. Mistral's templates refuse an id that is not
of nine letters and digits. Others take any. So the ids of a history are mended where they do not fit: those that fit
stay, those that do not, or that are there a second time, are made anew, and the results follow their calls. What an id
becomes depends on what stands before it alone, so it stays the same as the history grows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from harness.core import Message, ToolCall

NUMBER = re.compile(r"[0-9]+")
NINE = re.compile(r"[a-zA-Z0-9]{9}")


class Form(NamedTuple):
    """How a style's ids look."""

    fits: Callable[[str, str], bool]
    """Whether an id may stand for a call of a name."""
    made: Callable[[str, int], str]
    """The id of a name's call with that number in its conversation."""


def fits_kimi(identity: str, name: str) -> bool:
    """Whether an id is `functions.NAME:N`."""
    begin = f"functions.{name}:"
    return identity.startswith(begin) and NUMBER.fullmatch(identity, len(begin)) is not None


def fits_mistral(identity: str, name: str) -> bool:
    """Whether an id is of nine letters and digits."""
    return NINE.fullmatch(identity) is not None


FORMS: Mapping[str, Form] = MappingProxyType(
    {
        "kimi": Form(fits_kimi, lambda name, number: f"functions.{name}:{number}"),
        "mistral": Form(fits_mistral, lambda _, number: f"{number:09d}"),
    }
)


def identified(messages: Sequence[Message], style: str) -> list[Message]:
    """Return a history whose ids fit a style."""
    form = FORMS.get(style)
    if form is None:
        return list(messages)
    taken: set[str] = set()
    now: dict[str | None, str] = {}  # what the latest call of an id is called now
    result = []
    for message in messages:
        calls = tuple(_named(call, form, taken) for call in message.tool_calls)
        now |= {call.id: named.id for call, named in zip(message.tool_calls, calls, strict=True)}
        answered = now.get(message.tool_call_id, message.tool_call_id)
        result.append(msgspec.structs.replace(message, tool_calls=calls, tool_call_id=answered))
    return result


def _named(call: ToolCall, form: Form, taken: set[str]) -> ToolCall:
    """Return a call under an id that fits and is not taken, and take it."""
    identity, number = call.id, len(taken)
    while identity in taken or not form.fits(identity, call.name):
        identity, number = form.made(call.name, number), number + 1
    taken.add(identity)
    return msgspec.structs.replace(call, id=identity)
