"""Mistral: `[TOOL_CALLS]` and what its tokenizer's version writes behind it.

Up to v7 that is `[{"name": …, "arguments": {…}}, …]`; from v11 on each call has a mark of its own, `NAME[ARGS]{…}`, in
v11 with `[CALL_ID]` and an id before `[ARGS]`. `NAME{…}` is what is left where the inner marks were not decoded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from harness.core import ToolSpec
from harness.models.toolcalls.call import NAME, Call, made, opening
from harness.models.toolcalls.cursor import Cursor
from harness.models.toolcalls.identity import fits_mistral
from harness.models.toolcalls.json_text import read_call, read_object

MARKS: Sequence[str] = ("[TOOL_CALLS]",)
OPENING = opening(*MARKS)
IDENTIFIER = re.compile(r"[\w-]*+")


def read(cursor: Cursor, tools: Sequence[ToolSpec]) -> Iterator[Call]:
    """Read a list of calls, or one call."""
    cursor.take(MARKS[0])
    cursor.space()
    if cursor.character() == "{":
        yield read_call(cursor)
    elif cursor.take("["):
        cursor.space()
        yield read_call(cursor)
        cursor.space()
        while not cursor.take("]"):
            cursor.need(",", "a comma is missing between calls")
            cursor.space()
            yield read_call(cursor)
            cursor.space()
    else:
        yield _read_named(cursor)


def _read_named(cursor: Cursor) -> Call:
    name = cursor.run(NAME)
    cursor.space()
    identity = cursor.run(IDENTIFIER) if cursor.take("[CALL_ID]") else ""
    cursor.take("[ARGS]")
    cursor.space()
    return made(name, read_object(cursor), identity if fits_mistral(identity, name) else None)
