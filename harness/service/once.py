"""The turns of one session: one at a time, and each played once however often it is asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from harness.service.protocol import OPENING, Refused

Result = TypeVar("Result")


class Once(Generic[Result]):
    """Keeps the last answer, so that a client whose connection broke can ask for it again."""

    def __init__(self, turn: int = OPENING) -> None:
        self.turn = turn
        """The next one to play."""
        self.answer: Result | None = None
        """None where the last one was given elsewhere: whoever gave it is asked for it again."""
        self.over: Refused | None = None
        """Set when the session has ended: its last answer can be asked for, anything else is told this."""
        self._pending: asyncio.Future[Result] | None = None

    @property
    def busy(self) -> bool:
        """Whether a turn is being played."""
        return self._pending is not None

    async def settled(self) -> None:
        """Wait until no turn is being played."""
        while self._pending is not None:
            await asyncio.wait([self._pending])

    async def play(self, turn: int | None, act: Callable[[], Awaitable[Result]]) -> Result:
        """Play a turn, or wait for it, or repeat its answer. Refused where it is not the session's turn.

        `turn` None is the next one; then nothing is known of repetition, and a second request at once is refused.
        """
        if self._pending is not None:
            if turn == self.turn:
                return await asyncio.shield(self._pending)
            raise Refused(400, "the session is busy with another request")
        if turn is not None and OPENING <= turn == self.turn - 1:
            if self.answer is not None:
                return self.answer
            self.turn = turn
        if self.over is not None:
            raise self.over.again()
        if turn is not None and turn != self.turn:
            raise Refused(409, f"the session's next turn is {self.turn}, not {turn}")
        pending = self._pending = asyncio.get_running_loop().create_future()
        try:
            answer = await act()
        except BaseException as error:
            self._pending = None
            pending.set_exception(error if isinstance(error, Exception) else Refused(502, "the turn was cancelled"))
            pending.exception()  # whether or not anybody waits for it, it has been told
            raise
        self.answer, self._pending, self.turn = answer, None, self.turn + 1
        pending.set_result(answer)
        return answer
