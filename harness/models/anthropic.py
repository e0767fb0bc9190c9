"""Claude models through Anthropic's own API; needs the extra `anthropic`.

Sampling: temperature and top_p go out as they are; max_output_tokens as `max_tokens`, which the API demands, so that
None means `DEFAULT_OUTPUT_TOKENS` beyond the thinking budget; thinking_tokens is the budget of extended thinking;
reasoning_effort is adaptive thinking with that effort; parallel_tool_calls=False allows one call a turn; there is no
seed; `extra` is laid over the body.

A reply with thinking keeps all its blocks in `Message.opaque`, and they go back verbatim, in their order and with their
signatures, as long as the message still says what they say. An agent that rewrote the message sends what it wrote.

Marks for the prompt cache: the end of the system prompt (which covers the tools before it) and the ends of the last two
user turns, so that each turn reads what the one before wrote.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from harness.config import ModelOptions
from harness.core import Json, Message, Reply, SamplingParams, ToolCall, ToolSpec, Usage
from harness.models import prices, wire
from harness.models.faults import Fault, Kind, classify
from harness.models.openai import NO_KEY, connection_text
from harness.models.remote import RemoteModel

if TYPE_CHECKING:
    import anthropic

URL = "https://api.anthropic.com"
KEY = "ANTHROPIC_API_KEY"
DEFAULT_OUTPUT_TOKENS = 8192
SMALLEST_BUDGET = 1024
"""Thinking tokens below which the API refuses."""
CACHE_MARK = {"type": "ephemeral"}
FINISHES: dict[str, wire.Finish] = {
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refused",
}
THINKING = frozenset({"thinking", "redacted_thinking"})


def make(provider: str, name: str, options: ModelOptions) -> RemoteModel:
    """Make the Claude model `name`."""
    return RemoteModel(f"{provider}/{name}", MessagesService(name, options), options)


class MessagesService:
    """`remote.Service` over the messages API."""

    def __init__(self, name: str, options: ModelOptions) -> None:
        self.url = (options.base_url or URL).rstrip("/")
        self.key_variable = options.api_key_env or (None if options.base_url else KEY)
        self.needs_key = self.key_variable is not None
        self._name = name
        self._options = options
        self._price = None if options.base_url else prices.price_of(f"anthropic/{name}")
        self._client: anthropic.AsyncAnthropic | None = None

    def encode(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        params: SamplingParams,
        seed: int,
        refused: frozenset[str],
    ) -> dict[str, Json]:
        """Return the request's body, without the settings that the model refuses."""
        body = {
            "model": self._name,
            **encode_messages(messages, mark=self._options.cache),
            "max_tokens": params.max_output_tokens or DEFAULT_OUTPUT_TOKENS + (params.thinking_tokens or 0),
            "temperature": params.temperature,
            "top_p": params.top_p,
            **_encode_thinking(params),
        }
        if tools:
            body["tools"] = encode_tools(tools)
            if self._options.cache and "system" not in body:
                body["tools"][-1]["cache_control"] = CACHE_MARK
            if params.parallel_tool_calls is not None:
                body["tool_choice"] = {"type": "auto", "disable_parallel_tool_use": not params.parallel_tool_calls}
        kept = {key: value for key, value in body.items() if value is not None and key not in refused}
        return kept | dict(params.extra)

    async def ask(self, body: dict[str, Json]) -> Reply:
        """Make one request, once. Fault for anything but a readable answer."""
        answer = wire.read_json(await self._request("POST", "/v1/messages", body))
        reply, cache_writes = decode_reply(answer)
        usage = msgspec.structs.replace(reply.usage, cost_usd=prices.cost(self._price, reply.usage, cache_writes))
        return msgspec.structs.replace(reply, usage=usage)

    async def model_names(self) -> list[str]:
        """Return the models there are. Fault where the provider does not say."""
        rows = wire.mapping(wire.read_json(await self._request("GET", "/v1/models?limit=1000", None))).get("data")
        names = (wire.mapping(row).get("id") for row in (rows if isinstance(rows, list) else []))
        return [name for name in names if isinstance(name, str)]

    async def close(self) -> None:
        """Close the client."""
        if self._client is not None:
            await self._client.close()
            self._client = None

    async def _request(self, method: str, path: str, body: dict[str, Json] | None) -> bytes:
        import anthropic
        import httpx2

        client = self._connected()
        try:
            if method == "GET":
                response = await client.get(path, cast_to=httpx2.Response)
            else:
                response = await client.post(path, cast_to=httpx2.Response, body=body)
        except anthropic.APIStatusError as error:
            raise classify(error.status_code, error.response.headers, error.response.content) from error
        except (anthropic.AnthropicError, httpx2.HTTPError) as error:
            raise Fault(Kind.NETWORK, connection_text(error, self.url)) from error
        content: bytes = response.content
        return content

    def _connected(self) -> anthropic.AsyncAnthropic:
        """Return the client, made when it is first needed: importing the SDK takes over a second."""
        if self._client is None:
            import anthropic

            from harness.models.transport import make_client

            self._client = anthropic.AsyncAnthropic(
                api_key=os.environ.get(self.key_variable or "", "") or NO_KEY,
                base_url=self.url,
                max_retries=0,
                timeout=self._options.request_seconds,
                http_client=make_client(self.url, self._options.request_seconds),
            )
        return self._client


def _encode_thinking(params: SamplingParams) -> dict[str, Json]:
    fields: dict[str, Json] = {}
    if params.thinking_tokens is not None:
        fields["thinking"] = {"type": "enabled", "budget_tokens": max(SMALLEST_BUDGET, params.thinking_tokens)}
    elif params.reasoning_effort is not None:
        fields["thinking"] = {"type": "adaptive"}
    if params.reasoning_effort is not None:
        effort = "low" if params.reasoning_effort == "minimal" else params.reasoning_effort
        fields["output_config"] = {"effort": effort}
    return fields


def encode_tools(tools: Sequence[ToolSpec]) -> list[dict[str, Json]]:
    """Return tools as the messages API has them."""
    return [
        {"name": tool.name, "description": tool.description, "input_schema": {"type": "object", **tool.parameters}}
        for tool in tools
    ]


def encode_messages(messages: Sequence[Message], *, mark: bool) -> dict[str, Json]:
    """Return the fields `messages` and, where there is one, `system`.

    System messages after the opening become user text, for the API has one system prompt; neighbours of one role become
    one turn, with tool results before any text, as the API demands.
    """
    history = wire.answered(messages)
    opening = next((at for at, message in enumerate(history) if message.role != "system"), len(history))
    system = [_text_block(message.content) for message in history[:opening]]
    turns: list[dict[str, Any]] = []
    for message in history[opening:]:
        role = "assistant" if message.role == "assistant" else "user"
        if not turns and role == "assistant":
            turns.append({"role": "user", "content": [_text_block("")]})
        if not turns or turns[-1]["role"] != role:
            turns.append({"role": role, "content": []})
        turns[-1]["content"].extend(_encode_blocks(message))
    user_turns = [turn for turn in turns if turn["role"] == "user"]
    for turn in user_turns:
        turn["content"].sort(key=lambda block: block["type"] != "tool_result")
    if mark:
        for block in [blocks[-1] for blocks in (system, *(turn["content"] for turn in user_turns[-2:])) if blocks]:
            block["cache_control"] = CACHE_MARK
    return {"messages": turns, **({"system": system} if system else {})}


def _encode_blocks(message: Message) -> list[dict[str, Any]]:
    if message.role == "tool":
        content = message.content or wire.NO_RESULT
        return [{"type": "tool_result", "tool_use_id": _call_id(message.tool_call_id or ""), "content": content}]
    if message.role != "assistant":
        return [_text_block(message.content)]
    kept = (message.opaque or {}).get("blocks")
    blocks = [block for block in kept if isinstance(block, dict)] if isinstance(kept, list) else []
    if blocks and _says(blocks) == (message.content, message.tool_calls):
        return [dict(block) for block in blocks]
    calls = [
        {
            "type": "tool_use",
            "id": _call_id(call.id),
            "name": wire.tool_name(call.name),
            "input": wire.arguments_object(call.arguments),
        }
        for call in message.tool_calls
    ]
    # White space at the end of an assistant's text is refused, and so is text of white space alone.
    text = [] if calls and not message.content.strip() else [_text_block(message.content.rstrip())]
    return [*text, *calls]


def _text_block(text: str) -> dict[str, Json]:
    return {"type": "text", "text": text if text.strip() else wire.NO_TEXT}


def _call_id(identity: str) -> str:
    return re.sub(r"[^a-zA-Z0-9_-]", "_", identity) or "_"


def _says(blocks: Sequence[Json]) -> tuple[str, tuple[ToolCall, ...]]:
    """Return the text and the calls in a reply's blocks."""
    texts: list[str] = []
    calls: list[ToolCall] = []
    for position, item in enumerate(blocks):
        block = wire.mapping(item)
        if block.get("type") == "text":
            texts.append(wire.text_of(block.get("text")))
        elif block.get("type") == "tool_use":
            arguments = msgspec.json.encode(block.get("input", {})).decode()
            identity = wire.as_key(block.get("id")) or f"call_{position}"
            calls.append(ToolCall(id=identity, name=wire.as_key(block.get("name")), arguments=arguments))
    return "".join(texts), tuple(calls)


def decode_reply(answer: Json) -> tuple[Reply, int]:
    """Read a reply, and the input tokens that it wrote to the cache. Fault where it is none."""
    blocks = answer.get("content") if isinstance(answer, dict) else None
    if not isinstance(blocks, list):
        raise Fault(
            Kind.GARBLED, f"the answer has no content: {msgspec.json.encode(answer)[:200].decode('utf-8', 'replace')}"
        )
    content, calls = _says(blocks)
    thoughts = [wire.mapping(block) for block in blocks if wire.as_key(wire.mapping(block).get("type")) in THINKING]
    reply = Reply(
        message=Message(
            role="assistant",
            content=content,
            tool_calls=calls,
            reasoning="".join(wire.text_of(block.get("thinking")) for block in thoughts) or None,
            opaque={"blocks": blocks} if thoughts else None,
        ),
        finish=FINISHES.get(wire.as_key(answer.get("stop_reason")), "stop"),
    )
    usage, cache_writes = _decode_usage(wire.mapping(answer.get("usage")))
    return msgspec.structs.replace(wire.bounded(reply), usage=usage), cache_writes


def _decode_usage(usage: dict[str, Json]) -> tuple[Usage, int]:
    """Read token counts: the API counts cached input apart, `core.Usage` within the input."""
    cached, written = (
        wire.count(usage.get("cache_read_input_tokens")),
        wire.count(usage.get("cache_creation_input_tokens")),
    )
    result = Usage(
        input_tokens=wire.count(usage.get("input_tokens")) + cached + written,
        output_tokens=wire.count(usage.get("output_tokens")),
        cached_tokens=cached,
        reasoning_tokens=wire.count(wire.mapping(usage.get("output_tokens_details")).get("thinking_tokens")),
        calls=1,
    )
    return result, written
