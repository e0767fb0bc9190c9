"""Reads tool calls out of what a model wrote: one style a file, one function for all.

Decided here: reading never raises and never guesses beyond a style's grammar; what looked like a call and is none stays
in the content and is named in `refused`. A text that is still being written (`ended=False`) never shows content, a call
or reasoning that more text could take back: all reading goes through `Cursor`, which answers no question whose answer
could change. Reading moves forward only, so its time grows with the length of the text and no faster.

Reasoning is what stands between `<think>` and `</think>` where nothing else was said yet. Many templates write the
opening mark themselves, as the end of the prompt. The text does not show that, and a closing mark may come at any time:
so the caller says it (`thinking`, which `opens_thinking` tells of a prompt), and where it does not, a closing mark that
was never opened is content.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from harness.core import ToolSpec
from harness.errors import SetupError, nearest
from harness.models.toolcalls import (
    deepseek,
    glm,
    hermes,
    kimi,
    llama_json,
    mistral,
    pythonic,
    qwen_coder,
    react,
)
from harness.models.toolcalls.call import LONE_SURROGATE, REPLACEMENT, Call, Style, opening
from harness.models.toolcalls.cursor import Cursor, Unfinished, Wrong
from harness.models.toolcalls.identity import identified

__all__ = ["NONE", "Call", "Parsed", "detect", "identified", "opens_thinking", "parse", "require", "styles"]

GRAMMARS: Mapping[str, Style] = {
    "hermes": hermes,
    "qwen_coder": qwen_coder,
    "llama_json": llama_json,
    "pythonic": pythonic,
    "mistral": mistral,
    "deepseek": deepseek,
    "glm": glm,
    "kimi": kimi,
    "react": react,
}
NONE = "none"
"""The style of a model that writes no tool calls."""
TELLING = (
    ("<function=", "qwen_coder"),
    ("<arg_key>", "glm"),
    ("tool▁call", "deepseek"),
    ("<|tool_call_begin|>", "kimi"),
    ("[TOOL_CALLS]", "mistral"),
    ("<tool_call>", "hermes"),
    ("[func_name1(", "pythonic"),
    ('{"name": function name', "llama_json"),
    ("<|python_start|>", "pythonic"),
    ("<|python_tag|>", "llama_json"),
    ("Action Input", "react"),
)
"""What in a chat template tells the style, the most telling first. Llama 4's own template asks for JSON."""
THINK, THOUGHT = ("<think>", "[THINK]"), ("</think>", "[/THINK]")
"""How reasoning is opened and closed; the second of each is Mistral's."""
BREAKING_OFF: Mapping[str, Sequence[str]] = {"kimi": kimi.FRAME.openings}
"""Style -> marks that end reasoning which the model did not close."""
MOST = 4096
"""Calls and refusals of one turn together; what follows them is content."""
SHOWN = 60
"""Characters of what was refused."""


class Parsed(NamedTuple):
    """What a text says."""

    content: str
    reasoning: str | None
    calls: tuple[Call, ...]
    refused: tuple[str, ...]
    """Why each piece that looked like a call was not taken, one sentence each."""


def styles() -> list[str]:
    """Return the styles there are."""
    return [*GRAMMARS, NONE]


def require(style: str) -> None:
    """Refuse an unknown style. SetupError with the nearest names."""
    if style not in styles():
        raise SetupError(f"no tool-call style '{style}'{nearest(style, styles())}")


def detect(template: str, added_tokens: Collection[str]) -> str:
    """Return the style that a chat template tells the model to write; `none` where it says nothing of tools."""
    if "tools" not in template:
        return NONE
    text = template + ("[TOOL_CALLS]" if "[TOOL_CALLS]" in added_tokens else "")
    return next((style for mark, style in TELLING if mark in text), NONE)


def opens_thinking(prompt: str) -> bool:
    """Return whether a rendered prompt ends inside reasoning, so that the model's answer begins there."""
    return prompt.rstrip().endswith(THINK)


def parse(
    text: str, style: str, tools: Sequence[ToolSpec] = (), *, ended: bool = True, thinking: bool = False
) -> Parsed:
    """Read one turn.

    Args:
        text: what the model wrote, without the token that ended it.
        style: one of `styles()`.
        tools: those offered; styles that write values as bare text take their types from them.
        ended: whether the turn is over; while it is not, only what can no longer change is returned.
        thinking: whether the prompt ended inside reasoning.
    """
    text = LONE_SURROGATE.sub(REPLACEMENT, text)
    reasoning, rest = _split_reasoning(text, BREAKING_OFF.get(style, ()), ended=ended, thinking=thinking)
    if style == NONE:
        return Parsed(rest.strip(), reasoning, (), ())
    content, calls, refused = _read_calls(rest, GRAMMARS[style], tools, ended=ended)
    return Parsed(content.strip(), reasoning, tuple(calls), tuple(refused))


def _read_calls(
    text: str, grammar: Style, tools: Sequence[ToolSpec], *, ended: bool
) -> tuple[str, list[Call], list[str]]:
    """Return the content, the calls, and why others were refused."""
    cursor = Cursor(text, ended=ended)
    content: list[str] = []
    calls: list[Call] = []
    refused: list[str] = []
    read = 0  # the text before it is content or calls
    while len(calls) + len(refused) < MOST and (found := grammar.OPENING.search(text, cursor.place)):
        content.append(text[read : found.start()])
        read = cursor.place = found.start()
        try:
            for call in grammar.read(cursor, tools):
                if len(calls) + len(refused) == MOST:
                    raise Wrong(f"a turn has at most {MOST} calls")
                calls.append(call)
                read = cursor.place
            read = cursor.place
        except Unfinished:
            return "".join(content), calls, refused
        except Wrong as wrong:
            if wrong.why is not None:
                refused.append(f"'{_shown(text[read : read + 2 * SHOWN])}' is no call: {wrong.why}")
            cursor.place = max(cursor.place, found.end())
    content.append(_settled(text[read:], grammar.MARKS, ended=ended))
    return "".join(content), calls, refused


def _split_reasoning(text: str, breaking_off: Sequence[str], *, ended: bool, thinking: bool) -> tuple[str | None, str]:
    """Return the reasoning, if there is any, and what follows it; a mark that breaks it off is part of that."""
    begun = text.lstrip()
    if not ended and any(mark.startswith(begun) for mark in THINK):
        return "" if thinking else None, ""
    opened = next((mark for mark in THINK if begun.startswith(mark)), None)
    if opened is None and not thinking:
        return None, text
    inside = begun.removeprefix(opened or "")
    closed = opening(*THOUGHT, *breaking_off).search(inside)
    if closed is None:
        return _settled(inside, (*THOUGHT, *breaking_off), ended=ended).strip(), ""
    return inside[: closed.start()].strip(), inside[closed.end() if closed[0] in THOUGHT else closed.start() :]


def _settled(text: str, marks: Sequence[str], *, ended: bool) -> str:
    """Return a text without an end that more text could make a mark of."""
    if ended:
        return text
    held = max((size for mark in marks for size in range(1, len(mark)) if text.endswith(mark[:size])), default=0)
    return text[: len(text) - held]


def _shown(text: str) -> str:
    """Return the beginning of a text on one line."""
    line = re.sub(r"\s+", " ", text).strip()
    return line if len(line) <= SHOWN else f"{line[:SHOWN]}…"
