"""Tool calls in what models write: each style as models write it, and what no text may do to the reader."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.core import Message, ToolCall, ToolSpec
from harness.errors import SetupError
from harness.models import toolcalls
from harness.models.toolcalls import Parsed, parse

TOOLS = (
    ToolSpec(
        name="order",
        description="",
        parameters={
            "type": "object",
            "properties": {"code": {"type": "string"}, "count": {"type": "integer"}, "tags": {"type": "array"}},
        },
    ),
)
V3 = (
    "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>{}\n```json\n{}\n```"
    "<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
)
V31 = "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>{}<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>"

KIMI = (
    "<|tool_calls_section_begin|><|tool_call_begin|>functions.{}:0<|tool_call_argument_begin|>{}"
    "<|tool_call_end|><|tool_calls_section_end|>"
)

Calls = list[tuple[str, Any]]
RECORDED: list[tuple[str, str, Calls, str]] = [
    # style, text, calls, content
    ("hermes", '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>', [("f", {"a": 1})], ""),
    ("hermes", 'I look.\n<tool_call>{"name":"f","arguments":{}}</tool_call>', [("f", {})], "I look."),
    ("hermes", '<tool_call>{"name": "f", "arguments": {}}</tool_call>\n<tool_call>{"name": "g", "arguments": {}}'
     "</tool_call>", [("f", {}), ("g", {})], ""),
    ("hermes", '<think>\nHm.\n</think>\n\n<tool_call>\n{"name": "f", "arguments": {"a": "</tool_call>"}}\n</tool_call>',
     [("f", {"a": "</tool_call>"})], ""),
    ("hermes", '<tool_call>\n{"name": "f", "arguments": "{\\"a\\": 1}"}\n</tool_call>', [("f", {"a": 1})], ""),
    ("hermes", '<tool_call>\n{"arguments": {"a": [1, {"b": null}]}, "name": "f"}\n', [("f", {"a": [1, {"b": None}]})],
     ""),
    ("hermes", '<tool_call>\n{"name": "f", "arguments": {"a": "x\ny"}}\n</tool_call>', [("f", {"a": "x\ny"})], ""),
    ("hermes", '<tool_call>\n{"name": "f", "parameters": {"ä": "東京"}}\n</tool_call>', [("f", {"ä": "東京"})], ""),
    ("hermes", '<tool_call>\n{name: f}\n</tool_call> then', [], "<tool_call>\n{name: f}\n</tool_call> then"),
    ("hermes", '<tool_call>\n{"name": "f", "arguments": {}}\n{"name": "g", "arguments": {}}\n</tool_call>',
     [("f", {}), ("g", {})], ""),
    ("hermes", '<tool_call>{"name": "f", "arguments": <tool_call>{"name": "g", "arguments": {}}</tool_call>',
     [("g", {})], '<tool_call>{"name": "f", "arguments":'),
    ("qwen_coder", "<tool_call>\n<function=order>\n<parameter=code>\n007\n</parameter>\n</function>\n</tool_call>",
     [("order", {"code": "007"})], ""),
    ("qwen_coder", "<tool_call>\n<function=order>\n<parameter=count>\n7\n</parameter>\n</function>\n</tool_call>",
     [("order", {"count": 7})], ""),
    ("qwen_coder", 'Now.\n<function=order>\n<parameter=tags>["a", "b"]</parameter>\n</function>',
     [("order", {"tags": ["a", "b"]})], "Now."),
    ("qwen_coder", "<tool_call>\n<function=order>\n</function>\n</tool_call>", [("order", {})], ""),
    ("qwen_coder", "<tool_call><function=f><parameter=code>a\nb\n\nc</parameter></function></tool_call>",
     [("f", {"code": "a\nb\n\nc"})], ""),
    ("qwen_coder", "<tool_call>\n<function=f>\n</function>\n</tool_call>\n<tool_call>\n<function=g>\n</function>\n"
     "</tool_call>", [("f", {}), ("g", {})], ""),
    ("qwen_coder", "<think>x</think><tool_call>\n<function=f>\n<parameter=a>\n<b>&lt;</b>\n</parameter>\n</function>",
     [("f", {"a": "<b>&lt;</b>"})], ""),
    ("qwen_coder", "Now.\n<function=order>\n<parameter=code>\nab\n</parameter>\n</function>\n</tool_call>",
     [("order", {"code": "ab"})], "Now."),
    ("qwen_coder", "<tool_call>\n<function=order>\n<parameter=code>\na</function>b\n<parameter=count>\n7\n"
     "</function>\n</tool_call>", [("order", {"code": "a</function>b", "count": 7})], ""),
    ("qwen_coder", "<tool_call>\n<function=order>\n<parameter=count>\nNone\n</parameter>\n<parameter=tags>\n['a']\n"
     "</parameter>\n</tool_call>", [("order", {"count": None, "tags": ["a"]})], ""),
    ("qwen_coder", "<function=order>\n<parameter=code>\nabc", [], "<function=order>\n<parameter=code>\nabc"),
    ("llama_json", '{"name": "f", "parameters": {"a": 1}}', [("f", {"a": 1})], ""),
    ("llama_json", '<|python_tag|>{"name": "f", "parameters": {"a": 1}}', [("f", {"a": 1})], ""),
    ("llama_json", '{"name": "f", "parameters": {}}; {"name": "g", "parameters": {}}', [("f", {}), ("g", {})], ""),
    ("llama_json", '\n\n{"name": "f", "arguments": {"a": "}"}}', [("f", {"a": "}"})], ""),
    ("llama_json", '{"type": "function", "name": "f", "parameters": {"a": 1.5}}', [("f", {"a": 1.5})], ""),
    ("llama_json", '{"name": "f", "parameters": {}}\n{"name": "g", "parameters": {}}', [("f", {}), ("g", {})], ""),
    ("llama_json", 'Sure: <|python_tag|>{"name": "f", "parameters": {}}', [("f", {})], "Sure:"),
    ("llama_json", '{"answer": 42}', [], '{"answer": 42}'),
    ("llama_json", '<|python_start|>{"name": "f", "parameters": {"a": 1}}<|python_end|>', [("f", {"a": 1})], ""),
    ("llama_json", 'I call:\n{"name": "f", "parameters": {}}\nThat is all.', [("f", {})], "I call:\n\nThat is all."),
    ("pythonic", '[f(a=1, b="x")]', [("f", {"a": 1, "b": "x"})], ""),
    ("pythonic", "[f(), g(c=[1, 2])]", [("f", {}), ("g", {"c": [1, 2]})], ""),
    ("pythonic", "<|python_start|>[f(a=None)]<|python_end|>", [("f", {"a": None})], ""),
    ("pythonic", "[math.add(x=-1.5, y=True)]", [("math.add", {"x": -1.5, "y": True})], ""),
    ("pythonic", "[f(a='it\\'s ]')]", [("f", {"a": "it's ]"})], ""),
    ("pythonic", '[f(a={"b": {"c": []}})]', [("f", {"a": {"b": {"c": []}}})], ""),
    ("pythonic", "<|python_start|>[\n  f(\n    a=\'\'\'it\'s\n\'\'\',\n  ),\n]<|python_end|>",
     [("f", {"a": "it's\n"})], ""),
    ("pythonic", "[f(a=(1, 2), b=(3), c=0x10, d=1_000, e=.5, f='\\u00e9\\x41\\d')]",
     [("f", {"a": [1, 2], "b": 3, "c": 16, "d": 1000, "e": 0.5, "f": "éA\\d"})], ""),
    ("pythonic", "I call.\n[f(a=1)]", [("f", {"a": 1})], "I call."),
    ("pythonic", "[f(a=1), g(x)]", [("f", {"a": 1})], ", g(x)]"),
    ("pythonic", "[f](https://example.org) is a link", [], "[f](https://example.org) is a link"),
    ("pythonic", "[1, 2, 3]", [], "[1, 2, 3]"),
    ("pythonic", "[f(a=__import__('os').system('x'))]", [], "[f(a=__import__('os').system('x'))]"),
    ("pythonic", "[f(1)]", [], "[f(1)]"),
    ("mistral", '[TOOL_CALLS][{"name": "f", "arguments": {"a": 1}}]', [("f", {"a": 1})], ""),
    ("mistral", '[TOOL_CALLS] [{"name": "f", "arguments": {}}, {"name": "g", "arguments": {}}]',
     [("f", {}), ("g", {})], ""),
    ("mistral", '[TOOL_CALLS]f[ARGS]{"a": 1}', [("f", {"a": 1})], ""),
    ("mistral", '[TOOL_CALLS]f[ARGS]{}[TOOL_CALLS]g[ARGS]{"b": "]"}', [("f", {}), ("g", {"b": "]"})], ""),
    ("mistral", '[TOOL_CALLS]f[CALL_ID]abc123[ARGS]{"a": []}', [("f", {"a": []})], ""),
    ("mistral", 'So.[TOOL_CALLS][{"name": "f", "arguments": {"a": "é"}, "id": "9"}]', [("f", {"a": "é"})], "So."),
    ("mistral", '[TOOL_CALLS]{"name": "f", "arguments": {}}', [("f", {})], ""),
    ("mistral", '[TOOL_CALLS]f{"a": {"b": 1}}', [("f", {"a": {"b": 1}})], ""),
    ("mistral", '[THINK]x[/THINK][TOOL_CALLS]f[ARGS]{"a": 1}', [("f", {"a": 1})], ""),
    ("mistral", "[TOOL_CALLS]nothing at all", [], "[TOOL_CALLS]nothing at all"),
    ("deepseek", V3.format("f", '{"a": 1}'), [("f", {"a": 1})], ""),
    ("deepseek", V31.format("f", '{"a": 1}'), [("f", {"a": 1})], ""),
    ("deepseek", "I look.\n\n" + V3.format("f", "{}"), [("f", {})], "I look."),
    ("deepseek", "<think>x</think>" + V31.format("f", '{"a": "```"}'), [("f", {"a": "```"})], ""),
    ("deepseek", "<｜tool▁call▁begin｜>f<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁call▁begin｜>g<｜tool▁sep｜>{}",
     [("f", {}), ("g", {})], ""),
    ("deepseek", V31.format("f", '{"ü": [null]}'), [("f", {"ü": [None]})], ""),
    ("deepseek", V3.format("f", '{"a": {"b": 1}}'), [("f", {"a": {"b": 1}})], ""),
    ("deepseek", "<｜tool▁call▁begin｜>f<｜tool▁sep｜>[]<｜tool▁call▁end｜>", [],
     "<｜tool▁call▁begin｜>f<｜tool▁sep｜>[]<｜tool▁call▁end｜>"),
    ("kimi", KIMI.format("f", '{"a": 1}'), [("f", {"a": 1})], ""),
    ("kimi", "I look." + KIMI.format("f", "{}"), [("f", {})], "I look."),
    ("kimi", "<|tool_calls_section_begin|>\n<|tool_call_begin|>functions.f:0 <|tool_call_argument_begin|> {}"
     "<|tool_call_end|>\n<|tool_call_begin|>functions.g.h:1<|tool_call_argument_begin|>{}<|tool_call_end|>\n"
     "<|tool_calls_section_end|>", [("f", {}), ("g.h", {})], ""),
    ("kimi", "<|tool_call_begin|>f<|tool_call_argument_begin|>{}", [("f", {})], ""),
    ("kimi", "<think>x</think>" + KIMI.format("f", '{"ü": "<|tool_call_end|>"}'), [("f", {"ü": "<|tool_call_end|>"})],
     ""),
    ("kimi", KIMI.format("f", '{"a": {"b": [null]}}'), [("f", {"a": {"b": [None]}})], ""),
    ("kimi", "<|tool_call_begin|>functions.f:0<|tool_call_end|>", [],
     "<|tool_call_begin|>functions.f:0<|tool_call_end|>"),
    ("kimi", "<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{\"a\": ", [],
     "<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{\"a\":"),
    ("kimi", "<think>x" + KIMI.format("f", "{}"), [("f", {})], ""),
    ("kimi", "<|tool_call_section_begin|><|tool_call_begin|>functions.f:3<|tool_call_argument_begin|>{}"
     "<|tool_call_end|><|tool_call_section_end|>", [("f", {})], ""),
    ("kimi", "<|tool_call_begin|>f:12<|tool_call_argument_begin|>{}<|tool_call_begin|>functions.g:13"
     "<|tool_call_argument_begin|>{\"b\": 1}", [("f", {}), ("g", {"b": 1})], ""),
    ("kimi", KIMI.format("f", "{}") + "\n" + KIMI.format("g", "{}"), [("f", {}), ("g", {})], ""),
    ("kimi", "Now: " + KIMI.format("f", '{"a": 1}') + " Wait.", [("f", {"a": 1})], "Now:  Wait."),
    ("kimi", "<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>\"{a: 1}\"<|tool_call_end|>", [],
     "<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>\"{a: 1}\"<|tool_call_end|>"),
    ("glm", "<tool_call>order<arg_key>code</arg_key><arg_value>a</arg_value><arg_key>count</arg_key><arg_value>7"
     "</arg_value></tool_call>", [("order", {"code": "a", "count": 7})], ""),
    ("glm", "<tool_call>get_wea", [], "<tool_call>get_wea"),
    ("glm", "<tool_call>order\n<arg_key>code</arg_key>\n<arg_value>007</arg_value>\n</tool_call>",
     [("order", {"code": "007"})], ""),
    ("glm", "<tool_call>order\n<arg_key>count</arg_key>\n<arg_value>7</arg_value>\n</tool_call>",
     [("order", {"count": 7})], ""),
    ("glm", "<tool_call>f</tool_call>", [("f", {})], ""),
    ("glm", "\n<tool_call>f\n</tool_call>\n<tool_call>g\n</tool_call>", [("f", {}), ("g", {})], ""),
    ("glm", "Look.<tool_call>f<arg_key>a</arg_key><arg_value>[1, 2]</arg_value></tool_call>", [("f", {"a": [1, 2]})],
     "Look."),
    ("glm", "<think>x</think>\n<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>x\ny</arg_value>\n</tool_call>",
     [("f", {"a": "x\ny"})], ""),
    ("glm", "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>漢</arg_value>", [("f", {"a": "漢"})], ""),
    ("glm", "<tool_call>f\n<arg_key>a</arg_key>\n</tool_call>", [],
     "<tool_call>f\n<arg_key>a</arg_key>\n</tool_call>"),
    ("react", 'Thought: I look.\nAction: f\nAction Input: {"a": 1}', [("f", {"a": 1})], "Thought: I look."),
    ("react", 'Action: f\nAction Input: {}\nObservation: I imagine this.', [("f", {})], ""),
    ("react", 'Action: f\nAction Input:\n{"a": {"b": []}}', [("f", {"a": {"b": []}})], ""),
    ("react", 'Action: f \n\nAction Input: {"a": "Action: g"}', [("f", {"a": "Action: g"})], ""),
    ("react", "Thought: done.\nFinal Answer: 42", [], "Thought: done.\nFinal Answer: 42"),
    ("react", "Action: f\nAction Input: not json", [], "Action: f\nAction Input: not json"),
    ("react", "Action: f", [], "Action: f"),
    ("react", 'My Action: f\nAction Input: {"a": 1}', [], 'My Action: f\nAction Input: {"a": 1}'),
    ("react", '<think>x</think>Action: f\nAction Input: {"a": "ß"}', [("f", {"a": "ß"})], ""),
]  # fmt: skip
PROMISING = ("<tool_call>", "<function", "[f(", "[TOOL", "<｜", "<|", "Action:", "{", ", g(x)")
"""How the content of a refused example begins."""
STYLES = [style for style in toolcalls.styles() if style != toolcalls.NONE]
PIECES = (
    "<tool_call>", "</tool_call>", "<function=f>", "</function>", "<parameter=a>", "</parameter>", "<think>",
    "</think>", "[THINK]", "[/THINK]", "<|python_tag|>", "<|python_start|>", "<|python_end|>", "[TOOL_CALLS]",
    "[CALL_ID]", "[ARGS]", "<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>",
    "<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>", "<|tool_calls_section_begin|>",
    "<|tool_call_section_begin|>", "<|tool_calls_section_end|>", "functions.f:0", "<arg_key>", "</arg_key>",
    "<arg_value>", "</arg_value>", "Action: f\n", "Action Input: ", '{"name": "f", "arguments": {"a": 1}}',
    '{"name": "f", "arguments": ', '{"a": ', "[f(a=1)]", "[f(a=", "function", "```json\n", "{", "}", "[", "]", "(",
    ")", '"', "'", '"""', "\\", "\\u00", ";", ",", ":", "=", "\n", " ", "f", "\ud800", "漢", "1", ".", "-",
    "tru", "Non",
)  # fmt: skip
TEXTS = st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=5)), max_size=14).map("".join)


def read(parsed: Parsed) -> Calls:
    return [(call.name, json.loads(call.arguments, strict=False)) for call in parsed.calls]


@pytest.mark.parametrize(("style", "text", "calls", "content"), RECORDED)
def test_a_style_is_read_as_models_write_it(style: str, text: str, calls: Calls, content: str) -> None:
    parsed = parse(text, style, TOOLS)
    assert read(parsed) == calls
    assert parsed.content == content
    assert bool(parsed.refused) == content.startswith(PROMISING)
    assert parsed.reasoning == (
        "Hm." if "Hm." in text else "x" if text.lower().startswith(("<think>", "[think]")) else None
    )


def test_every_style_has_its_examples() -> None:
    for style in STYLES:
        assert sum(example[0] == style for example in RECORDED) >= 8, style


def takes_nothing_back(text: str, style: str, *, thinking: bool = False) -> None:
    """Compare what each beginning of a text shows with what the whole text says."""
    final = parse(text, style, TOOLS, thinking=thinking)
    for end in range(len(text) + 1):
        early = parse(text[:end], style, TOOLS, ended=False, thinking=thinking)
        assert final.content.startswith(early.content), (text[:end], early, final)
        assert final.calls[: len(early.calls)] == early.calls, (text[:end], early, final)
        assert (final.reasoning or "").startswith(early.reasoning or ""), (text[:end], early, final)


@pytest.mark.parametrize("style", toolcalls.styles())
@settings(max_examples=80, deadline=None)
@given(text=TEXTS, thinking=st.booleans())
def test_reading_never_raises_and_never_takes_back(style: str, text: str, thinking: bool) -> None:
    takes_nothing_back(text, style, thinking=thinking)


@pytest.mark.parametrize("style", STYLES)
@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_a_call_with_a_piece_lost_or_added_takes_nothing_back(style: str, data: st.DataObject) -> None:
    text = data.draw(st.sampled_from([example[1] for example in RECORDED if example[0] == style]))
    begin, end = sorted(data.draw(st.tuples(*[st.integers(0, len(text))] * 2)))
    added = data.draw(st.sampled_from(["", *PIECES]))
    takes_nothing_back(text[:begin] + added + text[end if data.draw(st.booleans()) else begin :], style)


@pytest.mark.parametrize(("style", "text", "calls", "content"), RECORDED)
def test_a_call_is_shown_as_soon_as_it_is_whole(style: str, text: str, calls: Calls, content: str) -> None:
    takes_nothing_back(text, style)
    followed = text + "\nSo."
    assert parse(followed, style, TOOLS, ended=False).calls == parse(followed, style, TOOLS).calls


SPOKEN = ToolSpec(
    name="say.it",
    description="",
    parameters={"type": "object", "properties": {"text": {"type": "string"}, "note": {"type": "string"}}},
)
CLOSING = ("<parameter=", "</parameter>", "</function>", "</arg_value>")
"""What a value that is written bare cannot say."""
PLAIN = st.text(st.characters(exclude_categories=["Cs"]), max_size=20).filter(
    lambda text: not any(mark in text for mark in CLOSING)
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | PLAIN,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(PLAIN, inner, max_size=3),
    max_leaves=6,
)
ARGUMENTS = st.fixed_dictionaries(
    {}, optional={"text": PLAIN, "note": PLAIN, "value": VALUES.filter(lambda value: not isinstance(value, str))}
)
"""A value of no told type is no string: written bare, `1` would be a number."""


def in_json(arguments: dict[str, Any]) -> str:
    return json.dumps(arguments, ensure_ascii=False)


def bare(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def as_qwen_coder(arguments: dict[str, Any]) -> str:
    values = "".join(f"<parameter={key}>\n{bare(value)}\n</parameter>\n" for key, value in arguments.items())
    return f"<tool_call>\n<function=say.it>\n{values}</function>\n</tool_call>\n"


def as_glm(arguments: dict[str, Any]) -> str:
    pairs = (f"<arg_key>{key}</arg_key>\n<arg_value>{bare(value)}</arg_value>\n" for key, value in arguments.items())
    return f"<tool_call>say.it\n{''.join(pairs)}</tool_call>\n"


WRITTEN: dict[str, Callable[[dict[str, Any]], str]] = {
    "hermes": lambda given: f'<tool_call>\n{{"name": "say.it", "arguments": {in_json(given)}}}\n</tool_call>\n',
    "qwen_coder": as_qwen_coder,
    "llama_json": lambda given: f'{{"name": "say.it", "parameters": {in_json(given)}}}\n',
    "pythonic": lambda given: f"[say.it({', '.join(f'{key}={value!r}' for key, value in given.items())})]\n",
    "mistral": lambda given: f"[TOOL_CALLS]say.it[ARGS]{in_json(given)}",
    "deepseek": lambda given: V3.format("say.it", in_json(given)),
    "glm": as_glm,
    "kimi": lambda given: KIMI.format("say.it", in_json(given)),
    "react": lambda given: f"Action: say.it\nAction Input: {in_json(given)}",
}
"""How each template writes a call."""


@pytest.mark.parametrize("style", STYLES)
@settings(max_examples=60, deadline=None)
@given(arguments=ARGUMENTS)
def test_what_a_template_writes_is_read_back(style: str, arguments: dict[str, Any]) -> None:
    text = WRITTEN[style](arguments)
    parsed = parse(text, style, [SPOKEN])
    assert (read(parsed), parsed.content, parsed.refused) == ([("say.it", arguments)], "", ())
    takes_nothing_back(text, style)


@pytest.mark.parametrize("style", STYLES)
@settings(max_examples=60, deadline=None)
@given(text=TEXTS)
def test_arguments_are_an_object_that_any_reader_takes(style: str, text: str) -> None:
    for call in parse(text, style, TOOLS).calls:
        assert isinstance(json.loads(call.arguments), dict)
        assert call.name.encode()


HOSTILE = (
    "<tool_call>",
    '<tool_call>{"name": "f", "arguments": {',
    '<tool_call>{"name": "f", "arguments": {"a": "',
    '<tool_call>{":"',
    "<tool_call>f<arg_key>a</arg_key><arg_value>",
    "<tool_call>f<arg_key>",
    "<function=a><parameter=b>",
    "<function=a>",
    "</function> ",
    "<|python_tag|>",
    '{"name": "f", "parameters": {}};',
    '{"name": "f", "parameters": [1, 2, {"a": "b"}, ',
    '\n{"',
    "[f(",
    "\n[f(a=[",
    "[f(a=1),",
    "[f(a='",
    "[f(a='''",
    "''",
    "f(a='\\",
    "\n[a.",
    "[[[[",
    "[TOOL_CALLS]",
    '[TOOL_CALLS][{"name": "f", "arguments": {}}, ',
    "[TOOL_CALLS]f[ARGS]",
    "<｜tool▁call▁begin｜>f",
    "<｜tool▁calls▁begin｜>",
    "<|tool_call_begin|>functions.f:0",
    "<|tool_calls_section_begin|>",
    "<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{}<|tool_call_end|>",
    "\nAction: f\nAction Input: {",
    "\nAction:\n",
    "<think>",
    "</think>",
    "{" * 50,
    '"',
    "\\",
    " ",
    "\n",
    "1",
)


def seconds(text: str, style: str) -> float:
    """Return the processor time that reading a text takes."""
    begun = time.process_time()
    parse(text, style, TOOLS)
    return time.process_time() - begun


def grows_with_its_length(begin: str, piece: str, style: str) -> bool:
    """Measure twice the text; times too short to measure count as short."""
    short, long = (seconds(begin + piece * (size // len(piece)), style) for size in (50_000, 100_000))
    return long < 3.5 * max(short, 0.02)


@pytest.mark.parametrize("style", STYLES)
def test_the_time_to_read_grows_with_the_length_and_no_faster(style: str) -> None:
    for piece in HOSTILE:
        for begin in ("", BEGINS[style]):
            assert any(grows_with_its_length(begin, piece, style) for _ in range(4)), (begin, piece)


BEGINS = {
    "hermes": '<tool_call>{"name": "f", "arguments": {"a": [',
    "qwen_coder": "<tool_call><function=f><parameter=a>",
    "llama_json": '{"name": "f", "parameters": {"a": [',
    "pythonic": "[f(a=[",
    "mistral": '[TOOL_CALLS]f[ARGS]{"a": ',
    "deepseek": '<｜tool▁call▁begin｜>f<｜tool▁sep｜>{"a": ',
    "glm": "<tool_call>f<arg_key>a</arg_key><arg_value>",
    "kimi": '<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{"a": "',
    "react": 'Action: f\nAction Input: {"a": [',
}
"""A call that is under way."""


@pytest.mark.parametrize(
    ("style", "text", "why"),
    [
        ("hermes", '<tool_call>{"name": "f", "arguments": {"a": ' + "[" * 200 + "]" * 200 + "}}", "nested deeper"),
        ("pythonic", "[f(a=" + "[" * 200 + "]" * 200 + ")]", "nested deeper"),
        ("hermes", '<tool_call>{"name": "' + "f" * 300 + '", "arguments": {}}', "longer than"),
        ("hermes", '<tool_call>{"name": "", "arguments": {}}', "no name"),
        ("hermes", '<tool_call>{"name": 1, "arguments": {}}', "no string"),
        ("hermes", '<tool_call>{"name": "f"}', "no arguments"),
        ("hermes", '<tool_call>{"name": "f", "arguments": [1]}', "no JSON object"),
        ("hermes", '<tool_call>{"name": "f", "arguments": {"a": NaN}}', "a value in its JSON is none"),
        ("hermes", '<tool_call>{"name": "f", "arguments": {"a": "\\x"}}', "escapes nothing"),
        ("hermes", '<tool_call>{"name": "f", "arguments": {"a": ', "cut off"),
        ("pythonic", "[f(a=inf)]", "no literal"),
        ("pythonic", "[f(a=1, a=2)]", "given twice"),
        ("pythonic", "[f(a={1: 2})]", "a key is no string"),
        ("qwen_coder", "<function=f><parameter=a>1</parameter><parameter=a>2</parameter></function>", "given twice"),
        ("glm", "<tool_call>f<arg_key>a</arg_key></tool_call>", "has no value"),
        ("react", "Action: f and g\n", "alone on its line"),
    ],
)  # fmt: skip
def test_a_refusal_says_why(style: str, text: str, why: str) -> None:
    parsed = parse(text, style, TOOLS)
    assert parsed.calls == ()
    assert parsed.content == text.strip()
    assert why in parsed.refused[0]


def test_a_turn_has_a_most_of_calls_and_of_refusals() -> None:
    calls = parse("[" + "f()," * 10_000 + "]", "pythonic")
    assert len(calls.calls) == 4096 and "at most 4096" in calls.refused[-1]
    assert len(parse("<tool_call>" * 10_000, "hermes").refused) == 4096


def test_bare_values_take_their_types_from_the_tool() -> None:
    schemas = {
        "text": {"type": "string"},
        "maybe": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "either": {"type": ["integer", "null"]},
        "flag": {"type": "boolean"},
        "thing": {"type": "object"},
    }
    tool = ToolSpec(name="f", description="", parameters={"type": "object", "properties": schemas})
    values = {
        "text": "null",
        "maybe": "None",
        "either": "null",
        "flag": "True",
        "thing": "{'a': [1, None]}",
        "new": "1e999",
    }
    body = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in values.items())
    (call,) = parse(f"<function=f>\n{body}</function>", "qwen_coder", [tool]).calls
    assert call.arguments == (
        '{"text": "null", "maybe": null, "either": null, "flag": true, "thing": {"a": [1, null]}, "new": 1e999}'
    )


@pytest.mark.parametrize(
    ("template", "style"),
    [
        ("{% if tools %}…<tool_call>\n{\"name\": <function-name>…", "hermes"),
        ("{% if tools %}<tool_call>\n<function=example>…", "qwen_coder"),
        ("{% if tools %}[AVAILABLE_TOOLS]…[TOOL_CALLS]", "mistral"),
        ("{% if tools %}<tool_call>{name}<arg_key>…", "glm"),
        ("{% if tools %}<｜tool▁calls▁begin｜>…", "deepseek"),
        ("{% if tools %}<|python_tag|>…", "llama_json"),
        ('{% if tools %}…{"name": function name, "parameters": …}…<|python_start|>', "llama_json"),
        ("{% if tools %}…[func_name1(params_name1=params_value1…", "pythonic"),
        ("{% if tools %}…<|python_start|>", "pythonic"),
        ("{% if tools %}<|tool_calls_section_begin|><|tool_call_begin|>…", "kimi"),
        ("{% for message in messages %}{{ message.content }}{% endfor %}", "none"),
    ],
)  # fmt: skip
def test_a_template_tells_its_style(template: str, style: str) -> None:
    assert toolcalls.detect(template, set()) == style


@pytest.mark.parametrize(
    ("style", "text", "ids"),
    [
        ("kimi", KIMI.format("f", "{}"), ["functions.f:0"]),
        ("kimi", "<|tool_call_begin|>functions.a.b:7 <|tool_call_argument_begin|>{}", ["functions.a.b:7"]),
        ("kimi", "<|tool_call_begin|>f:0<|tool_call_argument_begin|>{}", [None]),
        ("kimi", "<|tool_call_begin|>functions_f_0<|tool_call_argument_begin|>{}", [None]),
        ("mistral", "[TOOL_CALLS]f[CALL_ID]abcDEF123[ARGS]{}", ["abcDEF123"]),
        ("mistral", "[TOOL_CALLS]f[CALL_ID]abc[ARGS]{}", [None]),
        ("hermes", '<tool_call>{"name": "f", "arguments": {}, "id": "1"}</tool_call>', [None]),
    ],
)
def test_a_call_keeps_the_id_that_its_style_has_the_model_write(style: str, text: str, ids: list[str | None]) -> None:
    assert [call.id for call in parse(text, style).calls] == ids


def called(*calls: tuple[str, str]) -> list[Message]:
    """Return a turn of calls (id, name), and their results."""
    made = tuple(ToolCall(id=identity, name=name, arguments="{}") for identity, name in calls)
    results = [Message(role="tool", content=call.name, tool_call_id=call.id) for call in made]
    return [Message(role="assistant", tool_calls=made), *results]


def ids_of(history: list[Message]) -> list[tuple[str, str | None]]:
    """Return the ids of each message's calls, and the id that it answers."""
    return [(" ".join(call.id for call in message.tool_calls), message.tool_call_id) for message in history]


def test_ids_count_the_calls_of_a_conversation_and_those_that_fit_stay() -> None:
    history = [
        *called(("call_1_0", "f"), ("call_1_1", "g")),
        Message(role="user", content="Go on."),
        *called(("functions.f:2", "f")),
        *called(("functions.f:2", "f")),
        *called(("functions.other:4", "f")),
    ]
    assert ids_of(toolcalls.identified(history, "kimi")) == [
        ("functions.f:0 functions.g:1", None),
        ("", "functions.f:0"),
        ("", "functions.g:1"),
        ("", None),
        ("functions.f:2", None),
        ("", "functions.f:2"),
        ("functions.f:3", None),
        ("", "functions.f:3"),
        ("functions.f:4", None),
        ("", "functions.f:4"),
    ]
    assert ids_of(toolcalls.identified(history[:3], "mistral"))[1:] == [("", "000000000"), ("", "000000001")]
    assert toolcalls.identified(history, "hermes") == history


IDS = st.sampled_from(["functions.f:0", "functions.f:1", "functions.g:1", "call_0", "000000001", "abcDEF123", ""])
HISTORIES = st.lists(st.lists(st.tuples(IDS, st.sampled_from("fg")), max_size=3).map(lambda calls: called(*calls)))


@pytest.mark.parametrize("style", ["kimi", "mistral"])
@given(turns=HISTORIES)
def test_ids_are_unique_fit_and_stay_as_a_history_grows(style: str, turns: list[list[Message]]) -> None:
    history = [message for turn in turns for message in turn]
    named = toolcalls.identified(history, style)
    calls = [call for message in named for call in message.tool_calls]
    assert len({call.id for call in calls}) == len(calls)
    form = re.compile("[a-zA-Z0-9]{9}" if style == "mistral" else r"functions\.[fg]:[0-9]+")
    assert all(form.fullmatch(call.id) for call in calls)
    assert {message.tool_call_id for message in named if message.role == "tool"} <= {call.id for call in calls}
    assert toolcalls.identified(named, style) == named
    for end in range(len(history)):
        assert toolcalls.identified(history[:end], style) == named[:end]


def test_an_unknown_style_is_refused_with_the_nearest() -> None:
    with pytest.raises(SetupError, match="did you mean 'hermes'"):
        toolcalls.require("hermez")


def test_reasoning_is_kept_apart_however_it_began() -> None:
    assert parse("<think>a</think>b", "none") == Parsed("b", "a", (), ())
    assert parse("[THINK]a[/THINK]b", "none") == Parsed("b", "a", (), ())
    assert parse("a</think>b", "none", thinking=True) == Parsed("b", "a", (), ())
    assert parse("<think>a</think>b", "none", thinking=True) == Parsed("b", "a", (), ())
    assert parse("a</think>b", "none") == Parsed("a</think>b", None, (), ())
    assert parse("a<think>b</think>", "none") == Parsed("a<think>b</think>", None, (), ())
    assert parse("<think>a", "hermes") == Parsed("", "a", (), ())
    assert parse("a", "hermes", thinking=True) == Parsed("", "a", (), ())
    assert parse("b", "hermes") == Parsed("b", None, (), ())
    inside = '<think><tool_call>{"name": "f", "arguments": {}}</tool_call></think>b'
    assert parse(inside, "hermes").calls == () and parse(inside, "hermes").content == "b"


@pytest.mark.parametrize(
    ("prompt", "opened"),
    [
        ("<|im_start|>assistant\n<think>\n", True),
        ("[/INST][THINK]", True),
        ("<|im_start|>assistant\n<think>\n\n</think>\n\n", False),
        ("<|im_start|>assistant\n", False),
    ],
)
def test_a_prompt_tells_whether_it_ends_inside_reasoning(prompt: str, opened: bool) -> None:
    assert toolcalls.opens_thinking(prompt) is opened
