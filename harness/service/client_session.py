"""One episode at a controller, whoever's it is: the `Session` of `client.RemoteEnv`.

A foreign session has no grade before its end: an attempt that our side ends (a limit, a refusal) has the reward that
the controller told last. One that is not over when it is closed is cancelled, even where its number is not known yet.
"""

from __future__ import annotations

import asyncio
import contextlib
from types import TracebackType
from typing import TYPE_CHECKING, Self

from harness.core import Ending, Json, Message, Observation, Score, ToolSpec
from harness.errors import EnvError, GraderError, LostError, SandboxError
from harness.service.client_answers import ENDINGS, Answer, Garbled, Verdict, news, read_verdict, tools_after
from harness.service.client_http import CANCEL_SECONDS, MissingError

if TYPE_CHECKING:
    from harness.service.client import RemoteEnv


class RemoteSession:
    """One episode at a controller."""

    def __init__(self, env: RemoteEnv, index: int | str, tools: tuple[ToolSpec, ...]) -> None:
        self.env = env
        self.index = index
        self.idle_since = 0.0
        """When the controller last answered, on the loop's clock; infinite while it is asked."""
        self._number: int | None = None
        self._turn = 0
        self._over = False
        self._last: Answer | None = None
        self._told: list[Message] = []
        """The history as agent and environment know it."""
        self._tools = tools

    async def __aenter__(self) -> Self:
        """Begin the session, waiting for room. One that begins after nobody waits any more is cancelled."""
        starting = asyncio.create_task(self.env.line.start(self.env.task, self.index))
        try:
            self._number, opening = await asyncio.shield(starting)
        except asyncio.CancelledError:
            late = asyncio.create_task(self._forsake(starting))
            self.env.stragglers.add(late)
            late.add_done_callback(self.env.stragglers.discard)
            raise
        self._last, self._over = opening, opening.finish
        self.env.live.add(self)
        return self

    async def _forsake(self, starting: asyncio.Task[tuple[int, Answer]]) -> None:
        with contextlib.suppress(LostError):
            async with asyncio.timeout(CANCEL_SECONDS):
                number, answer = await starting
            if not answer.finish:
                await self.env.line.cancel(number)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Cancel the session where it is not over. A controller that is gone has none to cancel."""
        await self.end()

    async def end(self) -> None:
        """Cancel the session where it is not over."""
        self.env.live.discard(self)
        if self._number is None or self._over:
            return
        self._over = True
        with contextlib.suppress(LostError):
            await self.env.line.cancel(self._number)

    async def renew(self) -> None:
        """Tell the controller that the session is still wanted."""
        if self._number is not None and not self._over:
            await self.env.line.renew(self._number)

    async def start(self) -> Observation:
        """Return the opening messages and the tools, which came with the session's beginning."""
        if self._last is None:
            raise EnvError("the session is not open")
        return self._observe(self._last)

    async def step(self, message: Message) -> Observation:
        """Hand in one turn and return what is new."""
        self._told.append(message)
        answer = await self._interact(message)
        return self._observe(answer)

    async def _interact(self, message: Message) -> Answer:
        if self._number is None:
            raise EnvError("the session is not open")
        turn, self._turn = self._turn, self._turn + 1
        self.idle_since = float("inf")
        try:
            answer = self._last = await self.env.line.interact(self._number, turn, message)
        except MissingError:
            self._over = True
            raise
        finally:
            self.idle_since = asyncio.get_running_loop().time()
        self._over = answer.finish
        return answer

    def _observe(self, answer: Answer) -> Observation:
        try:
            messages = news(answer.messages, self._told)
        except Garbled as error:
            raise LostError(str(error)) from error
        self._told += messages
        self.idle_since = asyncio.get_running_loop().time()
        tools = tools_after(answer, self._tools)
        self._tools = self._tools if tools is None else tools
        ending = self._ending_of(answer) if answer.finish else None
        return Observation(messages=messages, done=answer.finish, ending=ending, tools=tools)

    def _ending_of(self, answer: Answer) -> Ending:
        """Return how the episode ended. EnvError where the environment failed, LostError where its service did."""
        if self.env.described is None:
            if answer.status in ENDINGS:
                return ENDINGS[answer.status]
            raise LostError(f"the controller ended the session with the status '{answer.status}'")
        return self._verdict(answer)

    def _verdict(self, answer: Answer) -> Ending:
        verdict = _read(answer)
        ending = verdict.ending or Ending.COMPLETED
        if ending is Ending.GRADER_ERROR:
            return Ending.COMPLETED  # the play was well; that it has no grade is told when the grade is asked for
        if ending.by_agent:
            return ending
        why = verdict.failure or f"the session ended as '{ending}'"
        if verdict.score.value is None or ending is not Ending.ENV_ERROR:
            raise LostError(why)
        raise SandboxError(why) if verdict.boundary == SandboxError.boundary else EnvError(why)

    async def score(self) -> Score:
        """Return the grade that came with the end; where our side ended the play, ask for it."""
        last = self._last
        if last is None or self._number is None:
            raise GraderError("the session is not open")
        if self.env.described is None:
            return self._foreign_score(last)
        if not last.finish:
            last = await self.env.line.finish(self._number, self._turn)
            self._over = True
        verdict = _read(last)
        if verdict.ending is Ending.GRADER_ERROR:
            raise LostError(verdict.failure) if verdict.score.value is None else GraderError(verdict.failure)
        return verdict.score

    def _foreign_score(self, last: Answer) -> Score:
        if not 0 <= last.reward <= 1:
            raise LostError(f"the controller told a reward of {last.reward:g}, which is not between 0 and 1")
        parts: dict[str, Json] = {"status": last.status}
        if last.metrics:
            parts["metrics"] = dict(last.metrics)
        return Score(value=last.reward, parts=parts)


def _read(answer: Answer) -> Verdict:
    try:
        return read_verdict(answer)
    except Garbled as error:
        raise LostError(f"the worker's verdict is not understood: {error}") from error
