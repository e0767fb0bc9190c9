"""Calls with marks of their own in a frame, as DeepSeek and Kimi write them. Only a call's opening mark is required."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from harness.models.toolcalls.call import Call
from harness.models.toolcalls.cursor import Cursor


class Frame(NamedTuple):
    """The marks."""

    openings: Sequence[str]
    call_opening: str
    call_closing: str
    closings: Sequence[str]


def read_frame(cursor: Cursor, frame: Frame, read_call: Callable[[Cursor], Call]) -> Iterator[Call]:
    """Yield the calls of a frame; `read_call` reads what stands between a call's marks."""
    if any(cursor.take(mark) for mark in frame.openings):
        cursor.space()
    cursor.need(frame.call_opening, f"no '{frame.call_opening}' follows")
    yield read_call(cursor)
    while _closed(cursor, frame.call_closing) and cursor.take(frame.call_opening):
        yield read_call(cursor)
    any(cursor.take(mark) for mark in frame.closings)


def _closed(cursor: Cursor, closing: str) -> bool:
    """Move over the end of a call, where it has one."""
    cursor.space()
    closed = cursor.take(closing)
    cursor.space()
    return closed
