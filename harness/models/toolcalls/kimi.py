"""Kimi K2: `<|tool_call_begin|>functions.NAME:0<|tool_call_argument_begin|>{…}<|tool_call_end|>`, in a section.

What stands before the arguments is the call's id, which holds its name. A section may begin inside reasoning, which it
then ends: K2-Thinking often forgets to close it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from harness.core import ToolSpec
from harness.models.toolcalls.call import NAME, Call, made, opening
from harness.models.toolcalls.cursor import Cursor
from harness.models.toolcalls.frame import Frame, read_frame
from harness.models.toolcalls.identity import fits_kimi
from harness.models.toolcalls.json_text import read_object

FRAME = Frame(
    ["<|tool_calls_section_begin|>", "<|tool_call_section_begin|>"],
    "<|tool_call_begin|>",
    "<|tool_call_end|>",
    ["<|tool_calls_section_end|>", "<|tool_call_section_end|>"],
)
"""The second form of a section's marks is what models write out where they miss the mark's own token."""
MARKS: Sequence[str] = (*FRAME.openings, FRAME.call_opening)
OPENING = opening(*MARKS)
ARGUMENTS = "<|tool_call_argument_begin|>"
NUMBERED = re.compile(r":[0-9]++\Z")


def read(cursor: Cursor, tools: Sequence[ToolSpec]) -> Iterator[Call]:
    """Read the calls of a section."""
    return read_frame(cursor, FRAME, _read_call)


def _read_call(cursor: Cursor) -> Call:
    cursor.space()
    identity = cursor.run(NAME)
    cursor.space()
    cursor.need(ARGUMENTS, f"no '{ARGUMENTS}' follows its name")
    cursor.space()
    name = NUMBERED.sub("", identity.removeprefix("functions."))
    return made(name, read_object(cursor), identity if fits_kimi(identity, name) else None)
