"""DeepSeek: `<｜tool▁call▁begin｜>`, a name and its JSON, framed by `<｜tool▁calls▁begin｜>`.

V3 and R1 write `function<｜tool▁sep｜>NAME` and fenced JSON, V3.1 `NAME<｜tool▁sep｜>` and the JSON.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from harness.core import ToolSpec
from harness.models.toolcalls.call import NAME, Call, made, opening
from harness.models.toolcalls.cursor import Cursor
from harness.models.toolcalls.frame import Frame, read_frame
from harness.models.toolcalls.json_text import read_object

FRAME = Frame(["<｜tool▁calls▁begin｜>"], "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", ["<｜tool▁calls▁end｜>"])
MARKS: Sequence[str] = (*FRAME.openings, FRAME.call_opening)
OPENING = opening(*MARKS)
SEPARATOR = "<｜tool▁sep｜>"
FENCE, FENCE_END = "```json", "```"


def read(cursor: Cursor, tools: Sequence[ToolSpec]) -> Iterator[Call]:
    """Read the calls of a frame."""
    return read_frame(cursor, FRAME, _read_call)


def _read_call(cursor: Cursor) -> Call:
    cursor.space()
    name = cursor.run(NAME)
    cursor.need(SEPARATOR, f"no '{SEPARATOR}' follows its name")
    cursor.space()
    if cursor.character() not in ("{", "`"):  # what came first was the kind of tool
        name = cursor.run(NAME)
        cursor.space()
    fenced = cursor.take(FENCE)
    cursor.space()
    arguments = read_object(cursor)
    if fenced:
        cursor.space()
        cursor.take(FENCE_END)
    return made(name, arguments)
