"""One agent plays one session: the single loop that evaluations and training share.

`rollout` never raises for one attempt: whatever goes wrong becomes an `Ending` and a `Failure` in the trajectory. Only
cancellation passes through, after the session and the player are closed.

Whose doing an ending is decides whether it is scored (docs/protocol.md). A failure of the environment or the grader
after the agent's first action counts as the agent's, 0, unless the back-end's own health check fails too: breaking
things earns no free retry. A service that is lost (`LostError`) is never the agent's doing.
"""

from __future__ import annotations

import asyncio
import time
import traceback
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import TypeVar

import msgspec

from harness.core import (
    Agent,
    Conversation,
    Ending,
    Env,
    Failure,
    Limits,
    Message,
    Model,
    Observation,
    Player,
    Reply,
    SamplingParams,
    Score,
    Seat,
    Session,
    Task,
    ToolCall,
    ToolSpec,
    Trajectory,
    Turn,
    Usage,
    public,
)
from harness.errors import (
    AgentError,
    EnvError,
    GraderError,
    HarnessError,
    LostError,
    ModelError,
    OutOfContext,
    RolloutError,
    SetupError,
    boundary,
)
from harness.models.redact import redact

OPEN_SECONDS = 120.0
STEP_SECONDS = 300.0
GRADE_SECONDS = 300.0
CLOSE_SECONDS = 30.0
CALL_SECONDS = 7200.0
"""Bounds of single awaits, far above what any of them takes when it works."""
MOST_TURNS = 1000
"""Where neither the limits nor the environment bound the turns."""
MOST_CHARACTERS = 2_000_000
"""Of one reply, text and arguments together; what is beyond is cut."""

Result = TypeVar("Result")


class _MeteredConversation:
    """The conversation an agent gets: sums the usage, and takes provider time off the attempt's clock."""

    def __init__(self, inner: Conversation, deadline: asyncio.Timeout) -> None:
        self.inner = inner
        self.deadline = deadline
        self.usage = Usage()

    async def generate(self, messages: Sequence[Message], tools: Sequence[ToolSpec], params: SamplingParams) -> Reply:
        """Pass the call on. During it the model's own deadlines hold; only its busy time is charged afterwards."""
        when = self.deadline.when()
        if when is not None and when <= asyncio.get_running_loop().time():
            await asyncio.sleep(0)  # time is up: let the deadline strike before it is put off
        self.deadline.reschedule(None)
        reply = await _bounded(self.inner.generate(messages, tools, params), CALL_SECONDS, ModelError, "the model")
        self.deadline.reschedule(None if when is None else when + reply.usage.waited_seconds)
        self.usage += reply.usage
        return reply

    async def close(self) -> None:
        """Leave closing to the rollout, which owns the conversation."""


async def rollout(
    env: Env,
    agent: Agent,
    task: Task,
    *,
    model: Model | None = None,
    params: SamplingParams = SamplingParams(),
    limits: Limits = Limits(),
    entry: str = "",
    epoch: int = 0,
    attempt: int = 0,
    seed: int = 0,
    fingerprint: str = "",
) -> Trajectory:
    """Play one task once and grade it. `env` is open.

    Args:
        env: the environment of the task.
        agent: who plays; needs `model` if it says so.
        task: the task.
        model: the model that the agent talks to.
        params: how the model samples.
        limits: bounds of this attempt.
        entry: the board entry, for the attempt's key and the episode's name.
        epoch: which repetition of the task.
        attempt: how many unscored attempts at the same key went before.
        seed: of everything random in this attempt.
        fingerprint: of the protocol, carried into the record.
    """
    play = _Play(env, task)
    started, clock = datetime.now(UTC).isoformat(timespec="milliseconds"), time.monotonic()
    try:
        try:
            await play.open_session()
            async with asyncio.timeout(limits.seconds) as deadline:
                play.open_player(agent, model, params, f"{entry}/{task.id}/{epoch}#{attempt}", seed, deadline)
                play.ending = await play.run(limits)
        except (HarnessError, TimeoutError) as error:
            play.fail(error)
        await play.grade()
    finally:
        await play.close()
    return Trajectory(
        entry=entry or env.name,
        task_id=task.id,
        epoch=epoch,
        attempt=attempt,
        env=env.name,
        split=task.split,
        group=task.group,
        digest=task.digest,
        agent=agent.name,
        model=model.name if model else agent.name,
        fingerprint=fingerprint,
        seed=seed,
        opening=play.opening,
        tools=play.opening_tools,
        turns=tuple(play.turns),
        ending=play.ending,
        score=play.score,
        failure=play.failure,
        usage=play.usage,
        started=started,
        seconds=round(time.monotonic() - clock, 4),
    )


class _Play:
    """The state of one attempt while it is played."""

    def __init__(self, env: Env, task: Task) -> None:
        self.env = env
        self.task = task
        self.session: Session | None = None
        self.player: Player | None = None
        self.conversation: _MeteredConversation | None = None
        self.opening: tuple[Message, ...] = ()
        self.opening_tools = task.tools
        self.turns: list[Turn] = []
        self.acted = False
        self.lost = False
        self.ending = Ending.CANCELLED
        self.score = Score(value=None)
        self.failure: Failure | None = None

    async def open_session(self) -> None:
        """Open the session: the environment's time, not the agent's."""
        with boundary(EnvError, "making the session"):
            session = self.env.session(self.task)
        await _bounded(session.__aenter__(), OPEN_SECONDS, EnvError, "opening the session")
        self.session = session

    def open_player(
        self,
        agent: Agent,
        model: Model | None,
        params: SamplingParams,
        episode: str,
        seed: int,
        deadline: asyncio.Timeout,
    ) -> None:
        """Seat the agent, with a conversation if it needs a model and gold play if it is privileged."""
        if agent.needs_model:
            if model is None:
                raise SetupError(f"agent '{agent.name}' needs a model")
            with boundary(ModelError, "opening the conversation"):
                self.conversation = _MeteredConversation(model.open(episode, seed), deadline)
        gold = None
        if agent.privileged:
            with boundary(EnvError, "making the demonstration"):
                gold = self.env.demonstrate(self.task)
        seat = Seat(
            task=public(self.task), conversation=self.conversation, params=params, seed=seed, demonstration=gold
        )
        with boundary(AgentError, "seating the agent"):
            self.player = agent.start(seat)

    async def run(self, limits: Limits) -> Ending:
        """Play until the environment is done or a limit is reached, and say which."""
        assert self.session is not None and self.player is not None  # noqa: S101 - opened above
        observation = await _bounded(self.session.start(), STEP_SECONDS, EnvError, "starting the session")
        self.opening = observation.messages
        tools = self.opening_tools = self.task.tools if observation.tools is None else observation.tools
        history = list(observation.messages)
        most = limits.turns or self.env.turn_limit or MOST_TURNS
        while not observation.done:
            if len(self.turns) >= most:
                return Ending.TURN_LIMIT
            with boundary(AgentError, "the agent"):
                reply = _bounded_reply(await self.player.act(tuple(history), tools))
            self.acted = True
            observation = Observation()
            seconds = 0.0
            try:
                if reply.finish == "refused" and not reply.message.tool_calls:
                    return Ending.REFUSED
                clock = time.monotonic()
                observation = await _bounded(self.session.step(reply.message), STEP_SECONDS, EnvError, "a step")
                seconds = time.monotonic() - clock
            finally:
                # The reply is recorded even where the step fails or time runs out in it.
                self.turns.append(
                    Turn(
                        reply=reply,
                        messages=observation.messages,
                        tools=observation.tools,
                        env_seconds=round(seconds, 6),
                    )
                )
            history += [reply.message, *observation.messages]
            tools = tools if observation.tools is None else observation.tools
            used = self.usage
            if not observation.done and limits.tokens and used.input_tokens + used.output_tokens >= limits.tokens:
                return Ending.TOKEN_LIMIT
        return observation.ending or Ending.COMPLETED

    @property
    def usage(self) -> Usage:
        """What the attempt cost: metered where there is a model, else what the agent says."""
        if self.conversation is not None:
            return self.conversation.usage
        return sum((turn.reply.usage for turn in self.turns), Usage())

    def fail(self, error: Exception) -> None:
        """Record an error as an ending. AgentError is the agent's doing and is graded like any invalid action."""
        if isinstance(error, TimeoutError):
            self.ending = Ending.TIME_LIMIT
            return
        if isinstance(error, OutOfContext):
            self.ending = Ending.CONTEXT_LIMIT
            return
        endings: dict[type[Exception], Ending] = {
            AgentError: Ending.INVALID_ACTION,
            EnvError: Ending.ENV_ERROR,
            GraderError: Ending.GRADER_ERROR,
        }
        self.lost = isinstance(error, LostError) or isinstance(error.__cause__, LostError)
        self.ending = next((end for kind, end in endings.items() if isinstance(error, kind)), Ending.MODEL_ERROR)
        name = error.boundary if isinstance(error, RolloutError) else "setup"
        detail = "".join(traceback.format_exception(error))[-4000:]
        self.failure = Failure(boundary=name, message=redact(str(error))[:2000], detail=redact(detail))

    async def grade(self) -> None:
        """Score what the agent brought about; charge breakage to the agent where the back-end is well."""
        if self.ending.by_agent and self.session is not None:
            try:
                self.score = await _bounded(self.session.score(), GRADE_SECONDS, GraderError, "grading")
                if self.score.value is not None and not 0 <= self.score.value <= 1:
                    raise GraderError(f"grading: the score {self.score.value} is not in [0, 1]")
            except GraderError as error:
                self.score = Score(value=None)
                self.fail(error)
        broken = self.ending in {Ending.ENV_ERROR, Ending.GRADER_ERROR}
        if broken and self.acted and not self.lost and await healthy(self.env):
            self.score = Score(value=0.0, parts={"charged_to": "agent"})

    async def close(self) -> None:
        """Close all that was opened, newest first; a failure here is recorded and costs nothing else."""
        closings: list[Callable[[], Awaitable[object]]] = []
        if self.player is not None:
            closings.append(self.player.close)
        if self.conversation is not None:
            closings.append(self.conversation.inner.close)
        if (session := self.session) is not None:
            closings.append(lambda: session.__aexit__(None, None, None))
        for closing in closings:
            try:
                async with asyncio.timeout(CLOSE_SECONDS):
                    await closing()
            except Exception as error:
                text = redact(f"closing: {type(error).__name__}: {error}")[:2000]
                self.failure = self.failure or Failure(boundary="close", message=text)


async def _bounded(awaitable: Awaitable[Result], seconds: float, kind: type[RolloutError], what: str) -> Result:
    """Await with a deadline; whatever goes wrong, the deadline included, becomes `kind` or one of its subclasses."""
    try:
        with boundary(kind, what):
            # Not wait_for: before Python 3.12 it may swallow a cancellation that comes with the result.
            async with asyncio.timeout(seconds):
                return await awaitable
    except HarnessError as error:
        if isinstance(error, (kind, OutOfContext)):
            raise
        raise kind(f"{what}: {error}") from error


async def healthy(env: Env, seconds: float = STEP_SECONDS) -> bool:
    """Ask an environment whether its back-end works; one that raises or takes longer does not."""
    try:
        async with asyncio.timeout(seconds):
            return await env.healthy()
    except Exception:
        return False


def _bounded_reply(reply: Reply) -> Reply:
    """Make a reply fit for the log: no lone surrogates, no more than `MOST_CHARACTERS`."""
    message = reply.message
    texts = [message.content, message.reasoning or "", *(call.arguments + call.name for call in message.tool_calls)]
    size = sum(map(len, texts))
    if size <= MOST_CHARACTERS and all(_encodable(text) for text in (*texts, *(c.id for c in message.tool_calls))):
        return reply
    room = MOST_CHARACTERS

    def take(text: str) -> str:
        nonlocal room
        kept = text[:room].encode("utf-8", "replace").decode()
        room -= len(kept)
        return kept

    cut = msgspec.structs.replace(
        message,
        content=take(message.content),
        reasoning=None if message.reasoning is None else take(message.reasoning),
        tool_calls=tuple(
            ToolCall(id=take(call.id), name=take(call.name), arguments=take(call.arguments))
            for call in message.tool_calls
            if room > 0
        ),
    )
    return msgspec.structs.replace(reply, message=cut, finish="length" if size > MOST_CHARACTERS else reply.finish)


def _encodable(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
