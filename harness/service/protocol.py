"""The AgentRL protocol as values: what controller, worker and client send one another.

Two dialects are in use. A client hears the flat `Answer`; a worker says `Out`, bare for a start and as `env_out` for an
interaction, with `metric` where the answer has `metrics`. `answer_of` reads either, whoever wrote it.

Ours beyond AgentRL's: `turn` and `request-id` make a repeated request safe, and a finished answer's metrics say how
the episode ended in our own words. Whoever does not know them passes over them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec

from harness.core import Ending, Json, Message, Natural, ToolCall, ToolSpec
from harness.errors import HarnessError
from harness.models import wire
from harness.models.faults import Fault

API = "/api"
SESSION_HEADER = "session_id"
TURN_HEADER = "turn"
REQUEST_HEADER = "request-id"
OPENING = -1
"""The turn that a start is; the first interaction is turn 0."""
CUSTOM = -1
"""The index that stands for a task in the request itself."""
MOST_MESSAGES = 256
"""Of one interaction."""
RUNNING = "running"
CANCELLED = Ending.CANCELLED.agentrl_status
HEARTBEAT_SECONDS = 8.0

Index = int | str
SessionId = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
RequestId = Annotated[str, msgspec.Meta(max_length=200)]
EMPTY_LIST, EMPTY_OBJECT = msgspec.Raw(b"[]"), msgspec.Raw(b"{}")


class Refused(HarnessError):  # noqa: N818 - an answer to a client, not a failure of ours
    """A request that is not carried out: its HTTP status, one sentence, and when to come again."""

    def __init__(self, status: int, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after

    def again(self) -> Refused:
        """Return the same refusal, to be raised once more."""
        return Refused(self.status, str(self), self.retry_after)


class StartSample(msgspec.Struct, frozen=True):
    """What a client sends to begin a session."""

    name: Name
    index: Index
    custom_task: dict[str, Json] | None = None


class Interact(msgspec.Struct, frozen=True):
    """What a client sends for one turn; the messages go on to the worker as they are."""

    messages: Annotated[list[msgspec.Raw], msgspec.Meta(min_length=1, max_length=MOST_MESSAGES)]


class WorkerStart(msgspec.Struct, frozen=True):
    """What a controller sends to begin a session."""

    index: Index
    session_id: SessionId
    custom_task: dict[str, Json] | None = None
    request_id: RequestId | msgspec.UnsetType = msgspec.UNSET
    """Ours: the client's name for this start."""


class WorkerInteract(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a controller sends for one turn."""

    session_id: SessionId
    messages: list[msgspec.Raw]
    turn: int | None = None


class SessionOnly(msgspec.Struct, frozen=True):
    """A request that names a session and nothing else."""

    session_id: SessionId


class Held(msgspec.Struct, frozen=True, array_like=True):
    """Ours: a session as its worker tells of it."""

    session_id: SessionId
    index: Index
    turn: Annotated[int, msgspec.Meta(ge=OPENING)]
    """The next one to play."""
    finished: bool
    """Whether it has ended, and only its last answer may be asked for."""
    request_id: RequestId


class Heartbeat(msgspec.Struct, frozen=True):
    """A worker's sign of life; all that a controller knows of it."""

    name: Name
    address: Annotated[str, msgspec.Meta(min_length=1, max_length=2000)]
    concurrency: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]
    indices: Annotated[list[Index], msgspec.Meta(max_length=1_000_000)] = []
    instance: Annotated[str, msgspec.Meta(max_length=100)] = ""
    """Ours: another one at the same address is another process, and knows none of the sessions."""
    leaving: bool = False
    """Ours: the worker ends now."""
    restarts: Natural = 0
    """Ours: how many of its processes have been replaced after a crash."""
    sessions: Annotated[list[Held], msgspec.Meta(max_length=100_000)] = []
    """Ours: what it holds, for a controller that does not know of it."""


class Out(msgspec.Struct, frozen=True):
    """What a worker says of its environment after one turn."""

    messages: msgspec.Raw
    tools: msgspec.Raw
    status: str
    finish: bool
    reward: float
    metric: msgspec.Raw = EMPTY_OBJECT


class Answer(msgspec.Struct, frozen=True):
    """What a client hears after one turn."""

    messages: msgspec.Raw
    tools: msgspec.Raw
    finish: bool
    reward: float
    status: str
    metrics: msgspec.Raw


class _Said(msgspec.Struct, frozen=True):
    """An answer in whichever dialect."""

    env_out: _Said | None = None
    messages: msgspec.Raw = EMPTY_LIST
    tools: msgspec.Raw = EMPTY_LIST
    status: str | None = None
    finish: bool | None = None
    reward: float | None = None
    metric: msgspec.Raw = EMPTY_OBJECT
    metrics: msgspec.Raw = EMPTY_OBJECT


_said = msgspec.json.Decoder(_Said).decode
encode = msgspec.json.Encoder().encode


def answer_of(body: bytes) -> Answer:
    """Read a worker's answer in either dialect. ValueError where it is none."""
    said = _said(body)
    said = said.env_out or said
    if said.status is None and said.finish is None:
        raise ValueError("the answer says neither 'status' nor 'finish'")
    status = said.status or ("unknown" if said.finish else RUNNING)
    return Answer(
        messages=_or(said.messages, EMPTY_LIST),
        tools=_or(said.tools, EMPTY_LIST),
        finish=status != RUNNING if said.finish is None else said.finish,
        reward=said.reward or 0.0,
        status=status,
        metrics=_or(said.metric if said.metrics is EMPTY_OBJECT else said.metrics, EMPTY_OBJECT),
    )


def _or(raw: msgspec.Raw, empty: msgspec.Raw) -> msgspec.Raw:
    return empty if bytes(raw) == b"null" else raw


def cancelled_answer() -> Answer:
    """Return what an interaction under way hears when its session is cancelled."""
    metrics = msgspec.Raw(encode({"score": None, "ending": Ending.CANCELLED}))
    return Answer(messages=EMPTY_LIST, tools=EMPTY_LIST, finish=True, reward=0.0, status=CANCELLED, metrics=metrics)


def read(decoder: msgspec.json.Decoder[Any], body: bytes) -> Any:
    """Decode a request. Refused (400) where it is none; half a surrogate pair in a text becomes U+FFFD."""
    try:
        return decoder.decode(body)
    except (msgspec.ValidationError, RecursionError) as error:
        raise Refused(400, f"the request is not understood: {error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    try:
        return decoder.decode(encode(wire.read_json(body)))
    except (Fault, msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise Refused(400, f"the request is not JSON: {error}"[:500]) from error


class _Role(msgspec.Struct, frozen=True):
    role: str


_role = msgspec.json.Decoder(_Role).decode


def check_messages(messages: Sequence[msgspec.Raw]) -> None:
    """Refuse messages that no assistant can have written."""
    for message in messages:
        try:
            role = _role(message).role
        except msgspec.MsgspecError as error:
            raise Refused(400, f"a message is not understood: {error}") from error
        if role != "assistant":
            raise Refused(400, f"messages of an agent have the role 'assistant', not '{role[:40]}'")


def read_turn(messages: Sequence[msgspec.Raw]) -> Message:
    """Return the agent's turn: several messages are one, contents joined and calls in order."""
    check_messages(messages)
    if not messages:
        raise Refused(400, "an interaction needs at least one message")
    try:
        said = [_read_message(wire.read_json(raw)) for raw in messages]
    except Fault as error:
        raise Refused(400, f"a message is not understood: {error}") from error
    if len(said) == 1:
        return said[0]
    return Message(
        role="assistant",
        content="\n".join(message.content for message in said if message.content),
        tool_calls=tuple(call for message in said for call in message.tool_calls),
    )


class _Function(msgspec.Struct, frozen=True):
    name: str
    arguments: str


class _Call(msgspec.Struct, frozen=True):
    id: str
    function: _Function


class _Plain(msgspec.Struct, frozen=True):
    content: str | None = None
    tool_calls: list[_Call] | None = None


def _read_message(body: Json) -> Message:
    """Read an assistant message: as it is where it has the protocol's form, mended like a provider's where not."""
    try:
        plain = msgspec.convert(body, _Plain)
    except msgspec.ValidationError:
        return wire.decode_reply({"choices": [{"message": body}]}).message
    calls = plain.tool_calls or ()
    return Message(
        role="assistant",
        content=plain.content or "",
        tool_calls=tuple(
            ToolCall(id=call.id, name=call.function.name, arguments=call.function.arguments) for call in calls
        ),
    )


def told_settings(settings: Mapping[str, Json]) -> dict[str, Json]:
    """Return the settings of an environment that anybody may know: an address may hold a password."""
    return {name: value for name, value in settings.items() if not (isinstance(value, str) and "://" in value)}


def encode_message(message: Message) -> dict[str, Json]:
    """Return a message of an environment as the wire has it, calls of a worked example included."""
    shown: dict[str, Json] = {"role": message.role, "content": message.content}
    if message.tool_call_id is not None:
        shown["tool_call_id"] = message.tool_call_id
    if message.tool_calls:
        shown["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.tool_calls
        ]
    return shown


def encode_tools(tools: Sequence[ToolSpec]) -> msgspec.Raw:
    """Return tools as the wire has them."""
    return msgspec.Raw(encode(wire.encode_tools(tools)))


class TaskLine(msgspec.Struct, frozen=True):
    """What may be known of a task: nothing of its answer."""

    index: Index
    id: str
    group: str
    instruction: str
    digest: str
    tools: int
    """Which of the description's tool sets."""


class Description(msgspec.Struct, frozen=True):
    """Ours: what a worker serves, so that a run through it is logged like a local one."""

    name: str
    env: str
    split: str
    turn_limit: int | None
    rules: str
    settings: Mapping[str, Json]
    protocol: Mapping[str, Json]
    tasks: Sequence[TaskLine]
    tool_sets: Sequence[msgspec.Raw]
    """Each list of tools that some task begins with."""


def base_url(address: str) -> str:
    """Return the address of an API, which a person may give with or without `/api`: `http://host:5020/api`."""
    trimmed = address.rstrip("/")
    return trimmed if trimmed.endswith(API) else trimmed + API
