"""Chat as token ids, exactly: what was sampled is never turned into text and back.

The first prompt is rendered by the model's own chat template. After that only what is new is appended: the end of the
assistant's turn as the template writes it, and the new messages. Both are found by rendering the history with and
without them; where the longer text does not begin with the shorter one, the template rewrites history (Qwen3 drops
old reasoning, for one), and the dialogue *forks*: it is rendered anew, and the fork is counted. Nothing else ever
changes an id that was there.

Text of messages may say what the template's own marks say. It must not act as them, so a mark inside a message is
broken by a zero-width space before it is rendered. Ids of calls are shown to the template as its style has them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol

from harness.core import Json, Message, ToolSpec
from harness.errors import ModelError
from harness.models import toolcalls, wire

BREAK = "\u200b"
"""A zero-width space."""


class Tokenizer(Protocol):
    """The part of a Hugging Face tokenizer that is used."""

    all_special_tokens: list[str]
    chat_template: Any

    def apply_chat_template(self, conversation: Any, **options: Any) -> Any:
        """Render messages."""
        ...

    def encode(self, text: str, **options: Any) -> list[int]:
        """Return the ids of a text."""
        ...

    def decode(self, ids: Sequence[int], **options: Any) -> str:
        """Return the text of ids."""
        ...

    def convert_ids_to_tokens(self, ids: int) -> str | list[str]:
        """Return the token of an id."""
        ...

    def get_added_vocab(self) -> dict[str, int]:
        """Return the tokens that were added to the vocabulary, marks among them."""
        ...


class Renderer:
    """A tokenizer and its chat template. SetupError for a style of tool calls that there is not."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        stop_ids: Iterable[int],
        settings: Mapping[str, Json] = MappingProxyType({}),
        style: str | None = None,
    ) -> None:
        self.tokenizer = tokenizer
        self.stop_ids = tuple(stop_ids)
        self.style = style or toolcalls.detect(str(tokenizer.chat_template), set(tokenizer.get_added_vocab()))
        """How tool calls are written; the template tells it where nobody else does."""
        toolcalls.require(self.style)
        self._stops = {str(tokenizer.convert_ids_to_tokens(each)) for each in self.stop_ids}
        self._settings = dict(settings)
        marks = sorted({*tokenizer.get_added_vocab(), *tokenizer.all_special_tokens}, key=len, reverse=True)
        self._marks = re.compile("|".join(map(re.escape, marks))) if marks else None

    def text(self, messages: Sequence[Message], tools: Sequence[ToolSpec], *, open_turn: bool) -> str:
        """Render a history; `open_turn` ends it where the assistant is to write. ModelError where that fails."""
        try:
            return str(
                self.tokenizer.apply_chat_template(
                    [self._encoded(message) for message in toolcalls.identified(messages, self.style)],
                    tools=wire.encode_tools(tools) or None,
                    add_generation_prompt=open_turn,
                    tokenize=False,
                    **self._settings,
                )
            )
        except Exception as error:  # a template is a program of the model's author
            raise ModelError(f"the chat template cannot render this history: {error}") from error

    def ids(self, text: str) -> list[int]:
        """Return the ids of rendered text; marks in it are marks."""
        return self.tokenizer.encode(text, add_special_tokens=False)

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of a sampled turn, without the token that ended it."""
        ended = ids and ids[-1] in self.stop_ids
        return self.tokenizer.decode(ids[:-1] if ended else ids, skip_special_tokens=False)

    def end_of_turn(self, body: str) -> str | None:
        """Return what the template writes from the token that ends a turn on; None where the turn ends with none."""
        place = max((body.rfind(stop) for stop in self._stops), default=-1)
        return body[place:] if place >= 0 else None

    def stop_in(self, end: str) -> str:
        """Return the token that an end of turn begins with."""
        return max((stop for stop in self._stops if end.startswith(stop)), key=len)

    def without_stop(self, end: str, last: int) -> str:
        """Return an end of turn without its first token, where that was sampled."""
        token = str(self.tokenizer.convert_ids_to_tokens(last))
        return end.removeprefix(token)

    def _encoded(self, message: Message) -> dict[str, Any]:
        encoded: dict[str, Any] = {"role": message.role, "content": self._inert(message.content)}
        if message.role == "tool":
            encoded["tool_call_id"] = self._inert(message.tool_call_id or "")
        if message.reasoning:
            encoded["reasoning_content"] = self._inert(message.reasoning)
        if message.tool_calls:
            encoded["tool_calls"] = [
                {
                    "id": self._inert(call.id),
                    "type": "function",
                    "function": {
                        "name": self._inert(call.name),
                        "arguments": self._inert_value(wire.arguments_object(call.arguments)),
                    },
                }
                for call in message.tool_calls
            ]
        return encoded

    def _inert(self, text: str) -> str:
        return self._marks.sub(lambda found: found[0][:1] + BREAK + found[0][1:], text) if self._marks else text

    def _inert_value(self, value: Json) -> Any:
        return json.loads(self._inert(json.dumps(value, ensure_ascii=False)))


class Dialogue:
    """One episode's chat as token ids."""

    def __init__(self, renderer: Renderer) -> None:
        self._renderer = renderer
        self._messages: list[Message] = []
        """The history whose tokens are in `ids`."""
        self._tools: tuple[ToolSpec, ...] = ()
        self._text = ""
        """The template's rendering of that history, the open turn last."""
        self._sampled: list[int] | None = None
        """Ids of the turn that was sampled since."""
        self.ids: list[int] = []  # [P] prompt of the turn under way
        self.forks = 0
        """How often history was rewritten."""

    def prompt(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> tuple[int, ...]:
        """Return the ids that the assistant's next turn follows. ModelError where the template fails.

        A history that does not go on from the last one, by an agent that rewrites it or by other tools, is a fork.
        """
        messages = wire.answered(messages)
        text = self._renderer.text(messages, tools, open_turn=True)
        grown = None if self._sampled is None else self._grown(messages, tuple(tools), text)
        if grown is None:
            self.forks += bool(self.ids)
            self.ids = self._renderer.ids(text)
        else:
            self.ids = grown
        self._messages, self._tools, self._text, self._sampled = messages, tuple(tools), text, None
        return tuple(self.ids)

    def sampled(self, ids: Sequence[int]) -> None:
        """Take in what was sampled after `prompt`."""
        self._sampled = list(ids)

    def demonstrated(self, message: Message) -> tuple[int, ...]:
        """Return the ids of the turn that the template writes for a message after `prompt`, as if it were sampled.

        ModelError where the template writes no such turn.
        """
        closed = self._renderer.text([*self._messages, message], self._tools, open_turn=False)
        body = closed.removeprefix(self._text)
        end = self._renderer.end_of_turn(body) if len(body) < len(closed) else None
        if end is None:
            raise ModelError("the chat template does not write an assistant's turn after what it wrote before it")
        return tuple(self._renderer.ids(body.removesuffix(end) + self._renderer.stop_in(end)))

    def _grown(self, messages: list[Message], tools: tuple[ToolSpec, ...], text: str) -> list[int] | None:
        """Return the ids with the sampled turn and what is new behind them; None where history was rewritten."""
        known = len(self._messages)
        said = messages[known] if len(messages) > known else None
        if said is None or said.role != "assistant" or tools != self._tools or messages[:known] != self._messages:
            return None
        closed = self._renderer.text(messages[: known + 1], tools, open_turn=False)
        if not (closed.startswith(self._text) and text.startswith(closed)):
            return None
        end = self._renderer.end_of_turn(closed[len(self._text) :])
        if end is None:
            return None
        sampled = self._sampled or []
        if sampled and sampled[-1] in self._renderer.stop_ids:
            end = self._renderer.without_stop(end, sampled[-1])
        return self.ids + sampled + self._renderer.ids(end + text[len(closed) :])
