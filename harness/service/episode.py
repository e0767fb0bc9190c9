"""One session as a worker plays it: the same bounds, endings and grades as `rollout`, an answer at a time.

The agent is somewhere else, so what `rollout` does in one loop is cut at the agent's turns. An episode that has ended
has given everything back before its last answer is sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextlib import suppress
from typing import TypeVar

import msgspec

from harness.core import Ending, Env, Json, Message, Observation, Score, Session, Task
from harness.errors import EnvError, GraderError, HarnessError, RolloutError, boundary
from harness.models.redact import redact
from harness.rollout import CLOSE_SECONDS, GRADE_SECONDS, OPEN_SECONDS, STEP_SECONDS, healthy
from harness.service.protocol import EMPTY_LIST, EMPTY_OBJECT, RUNNING, Out, encode, encode_message, encode_tools

Result = TypeVar("Result")
PLAIN_PARTS = frozenset({"charged_to", "agentrl_status"})
"""Parts of a score that are words of a fixed few."""


class Cancelled(Exception):  # noqa: N818 - asked for, not a failure
    """The session was cancelled while it was busy."""


class Episode:
    """One session of an environment. `start`, then `step` until an answer says `finish`; `cancel` at any time."""

    def __init__(self, env: Env, task: Task) -> None:
        self._env = env
        self._task = task
        self._tools = encode_tools(task.tools)
        self._session: Session | None = None
        self._turns = 0
        self._acted = False
        self._scope: asyncio.Timeout | None = None
        self._cancelled = False
        self._closed = asyncio.Event()

    async def start(self) -> Out:
        """Open the session and return the opening."""
        try:
            with boundary(EnvError, "making the session"):
                session = self._env.session(self._task)
            await self._bounded(session.__aenter__(), OPEN_SECONDS, EnvError, "opening the session")
            self._session = session
            observation = await self._bounded(session.start(), STEP_SECONDS, EnvError, "starting the session")
            messages = self._take(observation)
        except (HarnessError, Cancelled) as error:
            return await self._fail(error)
        return await self._answer(observation, messages)

    async def step(self, message: Message) -> Out:
        """Play one turn of the agent's."""
        self._acted = True
        try:
            if self._session is None or self._cancelled:
                raise Cancelled
            observation = await self._bounded(self._session.step(message), STEP_SECONDS, EnvError, "a step")
            messages = self._take(observation)
        except (HarnessError, Cancelled) as error:
            return await self._fail(error)
        self._turns += 1
        return await self._answer(observation, messages)

    async def finish(self) -> Out:
        """End the session because its client's own limit is reached, graded as it stands."""
        if self._session is None or self._cancelled:
            return await self._fail(Cancelled())
        return await self._finish(Ending.TURN_LIMIT, EMPTY_LIST)

    async def cancel(self) -> None:
        """End the session wherever it is, and return when it has given everything back."""
        self._cancelled = True
        if self._scope is None:
            await self._close()
            return
        with suppress(RuntimeError):  # it is just being left
            self._scope.reschedule(asyncio.get_running_loop().time())
        await self._closed.wait()

    async def _bounded(
        self, awaitable: Awaitable[Result], seconds: float, kind: type[RolloutError], what: str
    ) -> Result:
        """Await with a deadline, which `cancel` brings forward; what goes wrong becomes `kind`."""
        try:
            with boundary(kind, what):
                async with asyncio.timeout(seconds) as self._scope:
                    if self._cancelled:
                        self._scope.reschedule(asyncio.get_running_loop().time())
                    return await awaitable
        except HarnessError as error:
            if self._cancelled:
                raise Cancelled from error
            raise error if isinstance(error, kind) else kind(f"{what}: {error}") from error
        finally:
            self._scope = None

    def _take(self, observation: Observation) -> msgspec.Raw:
        """Return an observation's messages as the wire has them, and keep its tools. EnvError where JSON cannot."""
        with boundary(EnvError, "an observation"):
            if observation.tools is not None:
                self._tools = encode_tools(observation.tools)
            return msgspec.Raw(encode([encode_message(message) for message in observation.messages]))

    async def _answer(self, observation: Observation, messages: msgspec.Raw) -> Out:
        most = self._env.turn_limit
        ending = observation.ending or Ending.COMPLETED if observation.done else None
        if ending is None and most is not None and self._turns >= most:
            ending = Ending.TURN_LIMIT
        if ending is None:
            return Out(messages, self._tools, RUNNING, finish=False, reward=0.0, metric=EMPTY_OBJECT)
        return await self._finish(ending, messages)

    async def _finish(self, ending: Ending, messages: msgspec.Raw) -> Out:
        """Grade what the agent brought about, and close."""
        score = Score(value=None)
        if ending.by_agent and self._session is not None:
            try:
                score = await self._bounded(self._session.score(), GRADE_SECONDS, GraderError, "grading")
                if score.value is not None and not 0 <= score.value <= 1:
                    raise GraderError(f"grading: the score {score.value} is not in [0, 1]")
            except (GraderError, Cancelled) as error:
                return await self._fail(error, messages)
        elif not ending.by_agent:
            score = await self._charged(ending)
        await self._close()
        return self._last(ending, messages, score)

    async def _fail(self, error: Exception, messages: msgspec.Raw = EMPTY_LIST) -> Out:
        """End an episode that went wrong, or was cancelled."""
        ending = Ending.CANCELLED
        if not isinstance(error, Cancelled):
            ending = Ending.GRADER_ERROR if isinstance(error, GraderError) else Ending.ENV_ERROR
        score = await self._charged(ending)
        await self._close()
        return self._last(ending, messages, score, error)

    async def _charged(self, ending: Ending) -> Score:
        """Charge breakage to the agent where the back-end is well, as `rollout` does."""
        if ending is not Ending.CANCELLED and self._acted and await healthy(self._env):
            return Score(value=0.0, parts={"charged_to": "agent"})
        return Score(value=None)

    def _last(self, ending: Ending, messages: msgspec.Raw, score: Score, failure: Exception | None = None) -> Out:
        told: dict[str, Json] = {"score": score.value, "ending": ending, "parts": shown(score)}
        if failure is not None and not isinstance(failure, Cancelled):
            where = failure.boundary if isinstance(failure, RolloutError) else EnvError.boundary
            told["failure"] = {"boundary": where, "message": redact(str(failure))[:2000]}
        return Out(
            messages,
            self._tools,
            ending.agentrl_status,
            finish=True,
            reward=score.value or 0.0,
            metric=msgspec.Raw(encode(told)),
        )

    async def _close(self) -> None:
        """Give everything back, once; what goes wrong here costs nothing else."""
        session, self._session = self._session, None
        if session is not None:
            with suppress(Exception):
                async with asyncio.timeout(CLOSE_SECONDS):
                    await session.__aexit__(None, None, None)
        self._closed.set()


def shown(score: Score) -> dict[str, Json]:
    """Return the parts of a score that may leave the worker: a grader's own words can quote the gold answer."""
    return {
        key: value for key, value in score.parts.items() if key in PLAIN_PARTS or isinstance(value, (bool, int, float))
    }
