"""The values and protocols that everything else speaks of. No I/O, no clock, no network.

Values are frozen msgspec structs: their JSON is the wire form and the run log's form, and reading a log validates it.
Protocols are what an author of an environment, an agent or a model writes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any, Literal, Protocol, Self, runtime_checkable

import msgspec

Json = Any
"""Whatever JSON can say: None, bool, int, float, str, list, dict with str keys."""


class Value(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base of every value: frozen, by keyword, default fields left out of the JSON.

    A subclass says `frozen=True, kw_only=True` again: type checkers read it there, and `kw_only` is not inherited.
    """


class ToolCall(Value, frozen=True, kw_only=True):
    """One call that a model wrote."""

    id: str
    name: str
    arguments: str
    """The raw text the model wrote; normally a JSON object, but never trusted to be one."""


class ToolSpec(Value, frozen=True, kw_only=True):
    """A tool offered to the agent."""

    name: str
    description: str
    parameters: Mapping[str, Json]
    """JSON Schema of the arguments."""


class Message(Value, frozen=True, kw_only=True):
    """One message, in the roles of OpenAI's chat completions."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    reasoning: str | None = None
    """Reasoning text that the provider returned beside the answer; never shown to an environment."""
    opaque: Mapping[str, Json] | None = None
    """What the provider wants back verbatim on the next turn (signed thinking blocks, for one)."""


class Task(Value, frozen=True, kw_only=True):
    """One task. Immutable and content-hashed; `data` is read by its own environment only."""

    id: str
    env: str
    split: str
    group: str
    """The kind of task inside the environment (DB's question type, BFCL's category): what tables break down by."""
    instruction: str
    """What is asked, as one text: for listings, agents outside the chat form, and duplicate search."""
    tools: tuple[ToolSpec, ...]
    data: Mapping[str, Json]
    """Everything the environment needs, gold answer included. Agents never see it."""
    digest: str
    """SHA-256 of env and data: equal tasks have equal digests in whatever split they turn up."""


class PublicTask(Value, frozen=True, kw_only=True):
    """What an agent may know of a task before the first observation."""

    id: str
    env: str
    split: str
    instruction: str
    tools: tuple[ToolSpec, ...]


class Ending(StrEnum):
    """How an attempt ended. Each is fixed as the agent's doing or not."""

    COMPLETED = "completed"
    TURN_LIMIT = "turn_limit"
    TOKEN_LIMIT = "token_limit"  # noqa: S105 - not a password
    CONTEXT_LIMIT = "context_limit"
    TIME_LIMIT = "time_limit"
    INVALID_ACTION = "invalid_action"
    VALIDATION_FAILED = "validation_failed"
    REFUSED = "refused"
    MODEL_ERROR = "model_error"
    ENV_ERROR = "env_error"
    GRADER_ERROR = "grader_error"
    CANCELLED = "cancelled"

    @property
    def by_agent(self) -> bool:
        """Whether the agent brought this ending about, so that it is scored."""
        return self not in NOT_BY_AGENT

    @property
    def agentrl_status(self) -> str:
        """The status of the AgentRL protocol that says the same; "unknown" where it has none."""
        return AGENTRL_STATUS.get(self, "unknown")


NOT_BY_AGENT = frozenset({Ending.MODEL_ERROR, Ending.ENV_ERROR, Ending.GRADER_ERROR, Ending.CANCELLED})
AGENTRL_STATUS = {
    Ending.COMPLETED: "completed",
    Ending.TURN_LIMIT: "task limit reached",
    Ending.CONTEXT_LIMIT: "agent context limit",
    Ending.VALIDATION_FAILED: "agent validation failed",
    Ending.INVALID_ACTION: "agent invalid action",
    Ending.ENV_ERROR: "task error",
    Ending.GRADER_ERROR: "task error",
    Ending.CANCELLED: "cancelled",
}


class Observation(Value, frozen=True, kw_only=True):
    """What the environment says next."""

    messages: tuple[Message, ...] = ()
    done: bool = False
    ending: Ending | None = None
    """How the environment ended the episode; set exactly when `done`."""
    tools: tuple[ToolSpec, ...] | None = None
    """The tools from now on; None leaves them as they are."""


class Score(Value, frozen=True, kw_only=True):
    """The grade of one attempt."""

    value: float | None
    """Reward in [0, 1]; 1 is a success. None means *not scored*, which is not zero."""
    parts: Mapping[str, Json] = msgspec.field(default_factory=dict)
    """Whatever explains the value: F1, the failed check, the status as upstream would name it."""


class Usage(Value, frozen=True, kw_only=True):
    """What one or many model calls cost."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    """Of the input tokens, those read from the provider's cache."""
    reasoning_tokens: int = 0
    """Of the output tokens, those spent on reasoning."""
    cost_usd: float | None = None
    """None is "unknown", never zero."""
    calls: int = 0
    retries: int = 0
    seconds: float = 0.0
    """Time of the calls themselves, in seconds."""
    waited_seconds: float = 0.0
    """Time spent waiting for a free connection, a rate limit or a retry: not charged to the agent."""

    def __add__(self, other: Usage) -> Usage:
        """Sum two usages; the cost is known only where both are, or where one made no call."""
        costs = [usage.cost_usd for usage in (self, other) if usage.calls]
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
            cost_usd=None if not costs or None in costs else sum(cost for cost in costs if cost is not None),
            calls=self.calls + other.calls,
            retries=self.retries + other.retries,
            seconds=self.seconds + other.seconds,
            waited_seconds=self.waited_seconds + other.waited_seconds,
        )


class Tokens(Value, frozen=True, kw_only=True):
    """Exactly what was sampled in one turn; all but `prompt_ids` aligned position by position.

    Example: prompt_ids=(1, 5, 9), sampled_ids=(7, 2), logprobs=(-0.1, -1.3), versions=(4, 4), mask=(True, True).
    """

    prompt_ids: tuple[int, ...]  # [P]
    sampled_ids: tuple[int, ...]  # [T]
    logprobs: tuple[float, ...]  # [T] natural log, under the sampling temperature
    versions: tuple[int, ...]  # [T] weight version that sampled each token
    mask: tuple[bool, ...]  # [T] False where a token was forced, not sampled
    mixed_kv: tuple[bool, ...] = ()  # [T] new weights over an older cache; empty is nowhere
    engine: str
    temperature: float


class Reply(Value, frozen=True, kw_only=True):
    """One answer of a model or agent."""

    message: Message
    usage: Usage = Usage()
    finish: Literal["stop", "tool_calls", "length", "refused"] = "stop"
    tokens: Tokens | None = None
    """Evaluations ignore it, training requires it."""


class SamplingParams(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a model samples; part of the fingerprint. None leaves a setting to the provider."""

    temperature: float | None = None
    top_p: float | None = None
    max_output_tokens: Annotated[int, msgspec.Meta(ge=1)] | None = None
    reasoning_effort: str | None = None
    """For models that take one: minimal, low, medium, high."""
    thinking_tokens: int | None = None
    """Budget of extended thinking, for models that take one."""
    parallel_tool_calls: bool | None = None
    extra: Mapping[str, Json] = msgspec.field(default_factory=dict)
    """Further fields of the request body, as the provider names them."""


Count = Annotated[int, msgspec.Meta(ge=1, le=1_000_000_000)]
Natural = Annotated[int, msgspec.Meta(ge=0, le=1_000_000_000)]
Seconds = Annotated[float, msgspec.Meta(gt=0)]


class Limits(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The bounds of one attempt; part of the fingerprint. None is no bound."""

    turns: Count | None = None
    """Replies of the agent; None takes the environment's own."""
    tokens: Count | None = None
    """Input plus output tokens, summed over the calls."""
    seconds: Seconds | None = 3600.0
    """The agent's and the environment's time; waiting for the provider is not charged."""


class Turn(Value, frozen=True, kw_only=True):
    """One reply and what the environment answered."""

    reply: Reply
    messages: tuple[Message, ...] = ()
    tools: tuple[ToolSpec, ...] | None = None
    """Set where the environment changed the tools."""
    env_seconds: float = 0.0


class Failure(Value, frozen=True, kw_only=True):
    """What went wrong, where it was not the agent's play."""

    boundary: str
    message: str
    detail: str = ""
    """The traceback's last lines."""


class Trajectory(Value, frozen=True, kw_only=True):
    """One attempt, whole: the only thing that evaluation, leaderboards and training pass around."""

    entry: str
    """The board entry that asked for it; with task id and epoch it is the attempt's key."""
    task_id: str
    epoch: int
    attempt: int
    """0, then one more for each time an unscored attempt was played again."""
    env: str
    split: str
    group: str
    digest: str
    """The task's digest."""
    agent: str
    model: str
    fingerprint: str
    seed: int
    opening: tuple[Message, ...]
    tools: tuple[ToolSpec, ...]
    turns: tuple[Turn, ...]
    ending: Ending
    score: Score
    failure: Failure | None = None
    usage: Usage = Usage()
    started: str = ""
    """UTC, ISO 8601."""
    seconds: float = 0.0

    @property
    def key(self) -> AttemptKey:
        """What this attempt is an attempt at."""
        return AttemptKey(self.entry, self.task_id, self.epoch)

    @property
    def history(self) -> list[Message]:
        """Every message of the episode, in order."""
        messages = list(self.opening)
        for turn in self.turns:
            messages.append(turn.reply.message)
            messages.extend(turn.messages)
        return messages


class AttemptKey(msgspec.Struct, frozen=True, order=True):
    """What one attempt is an attempt at."""

    entry: str
    task_id: str
    epoch: int


class Aggregate(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How scores of parts make the score of a whole, as data: a tree of means.

    Example: Aggregate(name="live", how="weighted", parts=(Aggregate(name="simple"), Aggregate(name="multiple"))).
    """

    name: str
    """At a leaf, the task group it stands for."""
    how: Literal["mean", "weighted"] = "mean"
    """`mean` weighs parts alike, `weighted` by their number of tasks."""
    parts: tuple[Aggregate, ...] = ()


class BoardEntry(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One environment of a board, under the board's rules."""

    name: str
    env: str
    split: str
    rules: Literal["fixed", "upstream"] = "fixed"
    settings: Mapping[str, Json] = msgspec.field(default_factory=dict)
    """Settings of the environment that the board pins (its back-end, for one)."""
    turns: int | None = None
    epochs: int = 1
    """How often each task is played."""
    sampling: SamplingParams = SamplingParams()
    tasks: int | None = None
    """How many tasks the published board has, where it is a fact."""
    aggregate: Aggregate | None = None
    """How task groups make the entry's score; None is the plain mean over tasks."""


class Board(Value, frozen=True, kw_only=True):
    """What a leaderboard measures."""

    name: str
    title: str
    entries: tuple[BoardEntry, ...]
    published: str | None = None
    """Name of the table of published scores; None where nothing published is comparable."""
    note: str = ""


class EnvOptions(Value, frozen=True, kw_only=True):
    """What the hub tells an environment when it is made."""

    rules: Literal["fixed", "upstream"] = "fixed"
    """`upstream` keeps the published scorer's known bugs."""
    prompts: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Texts that replace those of the environment's prompts.toml."""
    data: Path | None = None
    """Folder of fetched data sets; None is the user's cache."""
    settings: Mapping[str, Json] = msgspec.field(default_factory=dict)
    """The environment's own settings; it refuses those it does not know."""


Policy = Callable[[Sequence[Message]], Message]
"""A way to play one task: the history so far to the next assistant message."""


class Session(Protocol):
    """One episode. Opened, stepped, scored, closed; used once, nothing to reset."""

    async def __aenter__(self) -> Self:
        """Take what the episode needs (a database schema, a sandbox)."""
        ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give all of it back, whatever happened."""
        ...

    async def start(self) -> Observation:
        """Return the opening messages; `tools` here replaces the task's where it is set."""
        ...

    async def step(self, message: Message) -> Observation:
        """Take one assistant message, however malformed, and answer by the environment's rules. Never raises for it."""
        ...

    async def score(self) -> Score:
        """Grade the episode as it stands. Called at most once, after the last step."""
        ...


class Env(Protocol):
    """An environment: what an author writes. Made by `make(options: EnvOptions) -> Env` in `envs/NAME/env.py`."""

    name: str
    turn_limit: int | None
    """Replies an agent may give in one episode, kept by the rollout; None where the session keeps its own rule."""
    max_sessions: int | None
    """Sessions that may be open at once; None is no bound."""

    def splits(self) -> Mapping[str, str]:
        """Return each split's name with one line that says what it is and whether it needs fetched data."""
        ...

    def tasks(self, split: str) -> Iterator[Task]:
        """Yield the tasks of a split, in a fixed order. `train` may be endless. SetupError where data is missing."""
        ...

    def session(self, task: Task) -> Session:
        """Return one episode of a task, not yet opened."""
        ...

    def demonstrate(self, task: Task) -> Policy:
        """Return gold play, which the rollout hands to the oracle alone."""
        ...

    def protocol(self, split: str) -> Mapping[str, Json]:
        """Return everything that a score on this split depends on: prompts, tools, rules, versions, data digests.

        Called after `open`, so that back-end versions are known.
        """
        ...

    async def open(self) -> None:
        """Start what sessions share (a database server, worker processes). SetupError with the remedy if it cannot."""
        ...

    async def close(self) -> None:
        """End all that `open` started."""
        ...

    async def healthy(self) -> bool:
        """Check the back-end independently of any session: decides whose doing a failure was."""
        ...


class Conversation(Protocol):
    """One episode's talk with a model: what prefix reuse, sticky replicas and cancellation hold on to."""

    async def generate(self, messages: Sequence[Message], tools: Sequence[ToolSpec], params: SamplingParams) -> Reply:
        """Answer the whole history so far. ModelError after all retries, OutOfContext where it does not fit."""
        ...

    async def close(self) -> None:
        """Release what was held for the episode."""
        ...


class Model(Protocol):
    """A model, behind an API or local."""

    name: str

    def open(self, episode: str, seed: int) -> Conversation:
        """Begin an episode's conversation. `episode` names it uniquely in this run."""
        ...

    def protocol(self) -> Mapping[str, Json]:
        """Return what a score depends on beyond model name and sampling: tool-call parser, chat template."""
        ...

    async def check(self, params: SamplingParams, *, tools: bool) -> None:
        """Make one small call before the first task. SetupError with the flag that mends what it finds."""
        ...

    async def close(self) -> None:
        """End connections and processes."""
        ...


class UpdatableModel(Model, Protocol):
    """A model whose weights can be replaced while it serves."""

    async def update(self, weights: Json, version: int) -> None:
        """Serve `weights` as `version` from the next decode step on."""
        ...


class Seat(msgspec.Struct, frozen=True, kw_only=True):
    """What the rollout hands an agent at the start of one attempt."""

    task: PublicTask
    conversation: Conversation | None
    """The model to talk to; None for an agent that needs none."""
    params: SamplingParams
    seed: int
    demonstration: Policy | None = None
    """Gold play, for a privileged agent only."""


class Player(Protocol):
    """An agent at play in one attempt; holds all of its state."""

    async def act(self, history: Sequence[Message], tools: Sequence[ToolSpec]) -> Reply:
        """Answer the history so far, which only grows, with one assistant message."""
        ...

    async def close(self) -> None:
        """End what the attempt started (a process, a connection)."""
        ...


@runtime_checkable
class Agent(Protocol):
    """A way to drive a model, or any outside agent. Made by `make(argument, settings)` in `agents/NAME.py`."""

    name: str
    needs_model: bool
    needs_tool_calling: bool
    """Whether the model must support native tool calls."""
    privileged: bool
    """Whether it is handed gold play; a privileged run is never ranked."""

    def protocol(self) -> Mapping[str, Json]:
        """Return everything that a score depends on: texts it adds, parser, settings."""
        ...

    def start(self, seat: Seat) -> Player:
        """Sit down to one attempt."""
        ...

    async def close(self) -> None:
        """End what all attempts shared."""
        ...


def canonical_json(value: Json) -> bytes:
    """Encode with sorted keys: equal values give equal bytes."""
    return msgspec.json.encode(value, order="sorted")


def digest(value: Json) -> str:
    """Return the SHA-256 of a value's canonical JSON, as hex."""
    return hashlib.sha256(canonical_json(value)).hexdigest()


def seed_of(*parts: object) -> int:
    """Derive a seed in [0, 2**31) from anything printable; stable across processes and versions."""
    text = "\x1f".join(str(part) for part in parts)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") >> 1


def make_task(
    task_id: str,
    *,
    env: str,
    split: str,
    group: str,
    instruction: str,
    tools: tuple[ToolSpec, ...],
    data: Mapping[str, Json],
) -> Task:
    """Make a task with its digest."""
    return Task(
        id=task_id,
        env=env,
        split=split,
        group=group,
        instruction=instruction,
        tools=tools,
        data=data,
        digest=digest({"env": env, "data": data}),
    )


def public(task: Task) -> PublicTask:
    """Return what an agent may know of a task."""
    return PublicTask(id=task.id, env=task.env, split=task.split, instruction=task.instruction, tools=task.tools)
