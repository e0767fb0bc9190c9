"""The controller: sessions, each with one worker, from a client's start to its last answer.

Decided here: what becomes of a session when its worker is lost, slow or wrong, when nobody asks for it any more, or
when the controller and a worker do not agree on what there is. Whatever happens, a turn is played at most once.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import OrderedDict
from collections.abc import Iterable
from contextlib import suppress
from functools import partial

import msgspec

from harness.service.access import worker_allowed
from harness.service.adopt import adopt, reopen
from harness.service.calls import Calls, text_of
from harness.service.dispatch import RETRY_AFTER, Dispatch, Registered
from harness.service.http import Broken, Reply, Slow, Unreachable
from harness.service.metrics import Metrics
from harness.service.protocol import (
    CUSTOM,
    OPENING,
    Answer,
    Heartbeat,
    Index,
    Interact,
    Refused,
    StartSample,
    WorkerInteract,
    WorkerStart,
    answer_of,
    cancelled_answer,
    check_messages,
    encode,
)
from harness.service.session import Session
from harness.service.settings import ControllerSettings
from harness.service.upkeep import reconcile_for_ever, sweep_for_ever

MOST_STARTS = 5
"""Workers that are tried for one start."""
DESCRIBE_SECONDS = 60.0
HEALTHY = b'{"healthy":true}'
GONE = Refused(
    404, "there is no such session: it has ended, nobody asked for it for too long, or the controller was restarted"
)
UNHEARD = Refused(404, "there is no such session, or its worker has not registered since the controller started", 1)
CLOSED = Refused(503, "the controller ends; another one may go on with the session", 1)
FINISHED = Refused(400, "the session has finished")
CANCELLED = Refused(400, "the session has been cancelled, by its client or because nobody asked for it for too long")
LOST = Refused(502, "the worker of this session is lost: the session is over")


class Controller:
    """The state of a controller; what clients and workers ask of it, and what it does by itself."""

    def __init__(self, settings: ControllerSettings) -> None:
        self.settings = settings
        self.dispatch = Dispatch(settings)
        self.sessions: dict[int, Session] = {}
        self.finished: OrderedDict[int, Session] = OrderedDict()
        self.metrics = Metrics(self)
        self.requests: dict[str, Session] = {}
        """By the name that a client has given its start."""
        self.placed: set[str] = set()
        """Hosts that workers were placed on from here, which may register besides those that the settings allow."""
        self._allowed = worker_allowed(settings.access, self.placed)
        self.calls = Calls(settings.access.worker_token)

    def open(self) -> None:
        """Begin to look after sessions and workers."""
        self.calls.later(sweep_for_ever(self))
        self.calls.later(reconcile_for_ever(self))

    async def close(self) -> None:
        """End what is under way here; sessions at workers end when the workers do, or by their own timers."""
        for session in self.sessions.values():
            session.stop("closed")
        await self.calls.close()

    # What workers ask

    def hear(self, beat: Heartbeat) -> None:
        """Take a heartbeat. Refused where the worker's address is not allowed."""
        if beat.address.startswith("grpc:"):
            raise Refused(400, "workers are reached over HTTP here, not gRPC: start yours with an address of http://")
        if not self._allowed(beat.address):
            raise Refused(403, "a worker's address must be this machine's own, or its host be allowed (--allow-worker)")
        heard = self.dispatch.hear(beat)
        self.lose(heard.lost)
        if heard.new is not None:
            adopt(self, heard.new, beat.sessions)

    def notice(self, session_id: int) -> None:
        """Take a worker's word that a session has been cancelled."""
        if (session := self.sessions.get(session_id)) is not None:
            session.stop("cancelled")
            self._end(session, CANCELLED)

    # What clients ask

    async def start_sample(self, asked: StartSample, request_id: str | None) -> tuple[int, bytes]:
        """Begin a session; return its id and its opening. The same request id again gets the same session."""
        if request_id is not None and (known := self.requests.get(request_id)) is not None:
            body = await known.turns.play(OPENING, partial(reopen, self, known, asked))
            return known.id, body
        if asked.index == CUSTOM and not self.settings.custom_tasks:
            raise Refused(403, "custom tasks are not allowed here")
        if len(self.sessions) >= self.settings.sessions:
            raise Refused(429, f"there are {self.settings.sessions} sessions already", RETRY_AFTER)
        session = Session(_new_id(), asked, request_id)
        self.sessions[session.id] = session
        if request_id is not None:
            self.requests[request_id] = session
        try:
            body = await session.turns.play(OPENING, partial(self._start, session, asked))
        except BaseException:
            self.forget(session)
            raise
        return session.id, body

    async def interact(self, session_id: int, asked: Interact, turn: int | None) -> bytes:
        """Play one turn of a session; return its answer."""
        session = self._find(session_id)
        check_messages(asked.messages)
        if session.turns.turn >= self.settings.turns:
            raise Refused(400, f"the session has had its {self.settings.turns} turns")
        return await session.turns.play(turn, partial(self._interact, session, asked.messages))

    async def finish(self, session_id: int, turn: int | None) -> bytes:
        """End a session of a worker of ours, graded as it stands; one that has ended tells its last answer again."""
        session = self._find(session_id)
        await session.turns.settled()
        if session.turns.over is not None and session.turns.answer is not None and turn in (None, session.turns.turn):
            return session.turns.answer
        if session.worker is None or not session.worker.instance:
            raise Refused(404, "the worker of this session grades it at its end only")
        return await session.turns.play(turn, partial(self._interact, session, []))

    async def renew(self, session_id: int) -> None:
        """Keep a session whose agent thinks, here and at a worker of ours."""
        session = self._find(session_id)
        session.used = time.monotonic()
        if session.worker is not None and session.worker.instance:
            self.calls.later(self.calls.renew(session.worker, session_id))

    async def healthy(self, name: str) -> bool:
        """Ask a live worker of ours whether its environment is well."""
        for worker in self.dispatch.of(name):
            if worker.instance and self.dispatch.live(worker):
                with suppress(Unreachable, Broken, TimeoutError):
                    reply = await self.calls.ask(worker, "GET", "healthy", b"", DESCRIBE_SECONDS)
                    return reply.status == 200 and reply.body == HEALTHY
        return False

    async def cancel(self, session_id: int) -> None:
        """End a session, at its worker too."""
        session = self._find(session_id)
        if session.turns.over is None:
            await self.end(session)

    async def cancel_all(self, name: str | None, *, force: bool) -> int:
        """End every session of a task, or of all; return how many there were."""
        chosen = [session for session in self.sessions.values() if name is None or session.name == name]
        if name is None and not force and len({session.name for session in chosen}) > 1:
            raise Refused(403, "there are sessions of several tasks: name one, or say force=true")
        await asyncio.gather(*(self.end(session) for session in chosen))
        return len(chosen)

    async def describe(self, name: str) -> bytes:
        """Return what a worker of ours says that it serves. Refused (404) where none of the task's is ours."""
        workers = [worker for worker in self.dispatch.of(name) if worker.instance and self.dispatch.live(worker)]
        if not workers:
            raise Refused(404, f"no worker of '{name}' can describe what it serves")
        try:
            reply = await self.calls.ask(workers[0], "GET", "describe", b"", DESCRIBE_SECONDS)
        except (Unreachable, Broken, TimeoutError) as error:
            raise Refused(502, f"the worker of '{name}' does not answer: {error or type(error).__name__}") from error
        if reply.status != 200:
            raise Refused(502, f"the worker of '{name}' does not describe what it serves: {text_of(reply)}")
        return reply.body

    def indices(self, name: str) -> list[Index]:
        """Return the indices of a task, of all its workers, in order."""
        workers = self.dispatch.of(name)
        if not workers:
            raise Refused(400, f"no workers available for '{name}'")
        return list(dict.fromkeys(index for worker in workers for index in worker.indices))

    # How a session goes

    async def _start(self, session: Session, asked: StartSample) -> bytes:
        """Begin a session at whichever worker takes it."""
        clock, why = time.monotonic(), ""
        for _ in range(MOST_STARTS):
            session.worker = await self.dispatch.acquire(asked.name, asked.index, session.id)
            try:
                reply = await self.begin(session, session.worker, asked)
            except Refused:
                self.dispatch.release(session.worker, session.id)
                raise
            if isinstance(reply, str):
                why = reply
                self.dispatch.release(session.worker, session.id)
                continue
            return self.opened(session, reply, clock)
        self.metrics.failed("start")
        raise Refused(502, f"no worker of '{asked.name}' began the session: {why}", RETRY_AFTER)

    def opened(self, session: Session, reply: Reply, since: float) -> bytes:
        """Take a worker's opening of a session; return it as the client hears it."""
        answer = self._read(reply, session)
        session.used = time.monotonic()
        self.metrics.started(session.name, session.used - since)
        if answer.finish:
            self._end(session, FINISHED)
        return encode(answer)

    async def begin(self, session: Session, worker: Registered, asked: StartSample) -> Reply | str:
        """Ask one worker to begin a session; return its answer, or why another is to be asked."""
        if session.stopped:
            raise Refused(400, f"the session was {session.stopped} before it began")
        request_id = (worker.instance and session.request_id) or msgspec.UNSET
        body = encode(WorkerStart(asked.index, session.id, asked.custom_task, request_id))
        seconds = self.settings.start
        try:
            reply = await session.guarded(self.calls.ask(worker, "POST", "start_sample", body, seconds), seconds)
        except Unreachable as error:
            self.dispatch.suspect(worker)
            return str(error)
        except (Broken, TimeoutError) as error:
            if session.closed:
                raise CLOSED.again() from error
            # It may have begun there. Nothing of it has been played, so it is ended there, and begun as another one.
            self.calls.later(self.calls.cancel(worker, session.id))
            self._renumber(session)
            if session.cancelled:
                raise Refused(400, "the session was cancelled") from error
            if isinstance(error, TimeoutError) and not session.stopped:
                raise Refused(504, f"the worker did not begin the session within {seconds:g} s") from error
            session.stopped = ""
            return str(error) or "the worker is lost"
        if reply.status == 406:
            self.dispatch.rest(worker)
            return text_of(reply)
        if reply.status != 200:
            raise Refused(reply.status if 400 <= reply.status < 500 else 502, f"the worker refuses: {text_of(reply)}")
        return reply

    def _renumber(self, session: Session) -> None:
        """Give a session that has not begun another number, so that what becomes of the first one is not its matter."""
        if session.worker is not None:
            self.dispatch.release(session.worker, session.id)
        self.sessions.pop(session.id, None)
        session.id = _new_id()
        self.sessions[session.id] = session

    async def _interact(self, session: Session, messages: list[msgspec.Raw]) -> bytes:
        """Play one turn at the session's worker."""
        clock = session.used = time.monotonic()
        try:
            reply = await self._turn(session, messages)
        except (Unreachable, Broken, TimeoutError) as error:
            return self._given_up(session, error)
        if reply.status != 200:
            raise self._refusal(session, reply)
        answer = self._read(reply, session)
        session.used = time.monotonic()
        self.metrics.interacted(session.name, session.used - clock)
        if answer.finish:
            self._end(session, CANCELLED if session.cancelled else FINISHED)
        return encode(answer)

    async def _turn(self, session: Session, messages: list[msgspec.Raw]) -> Reply:
        """Send a turn; once more where the connection broke and the worker, being ours, knows what it has played."""
        worker = session.worker
        if worker is None or session.stopped:
            raise Unreachable("the session is over")
        body = encode(WorkerInteract(session.id, messages, session.turns.turn))
        seconds = self.settings.interact
        try:
            return await session.guarded(self._ask(worker, body, seconds), seconds)
        except Broken:
            if not worker.instance or session.stopped:
                raise
            return await session.guarded(self._ask(worker, body, seconds), seconds)

    async def _ask(self, worker: Registered, body: bytes, seconds: float) -> Reply:
        """Ask until there is a connection: that none comes in time says nothing, and heartbeats say who lives."""
        while True:
            with suppress(Slow):
                return await self.calls.ask(worker, "POST", "interact", body, seconds)

    def _given_up(self, session: Session, error: Exception) -> bytes:
        """End a session whose worker did not answer; return the answer if the client asked for that."""
        if session.closed:
            raise CLOSED.again() from error
        if session.cancelled:
            self._end(session, CANCELLED)
            return encode(cancelled_answer())
        late = isinstance(error, TimeoutError) and not session.stopped
        if not session.stopped:  # one that was given up has been counted
            self.metrics.failed("timeout" if late else "lost")
        if late and session.worker is not None:
            self.calls.later(self.calls.cancel(session.worker, session.id))
        text = f"the worker gave no answer within {self.settings.interact:g} s: the session is over"
        refusal = Refused(504, text) if late else LOST
        self._end(session, refusal)
        raise refusal.again() from error

    def _refusal(self, session: Session, reply: Reply) -> Refused:
        """Return what the client hears where the worker carries a turn not out."""
        why = text_of(reply)
        if 400 <= reply.status < 500 and "no such session" not in why.lower():
            return Refused(400, f"the worker refuses: {why}")
        self.metrics.failed("worker")
        if session.worker is not None and reply.status >= 500:
            self.calls.later(self.calls.cancel(session.worker, session.id))
        refusal = Refused(502, f"the worker failed, and the session is over: {why}")
        self._end(session, refusal)
        return refusal

    def _read(self, reply: Reply, session: Session) -> Answer:
        try:
            return answer_of(reply.body)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            self.metrics.failed("worker")
            refusal = Refused(502, f"the worker's answer is not understood: {error}")
            self._end(session, refusal)
            raise refusal from error

    # How a session ends

    def _find(self, session_id: int) -> Session:
        session = self.sessions.get(session_id) or self.finished.get(session_id)
        if session is None:
            raise UNHEARD.again() if self.dispatch.young else GONE.again()
        return session

    def _end(self, session: Session, refusal: Refused) -> None:
        """Count a session as ended; its last answer is kept for a while, and anything else is told `refusal`."""
        if session.turns.over is not None:
            return
        session.turns.over = refusal
        session.used = time.monotonic()
        self.sessions.pop(session.id, None)
        if session.worker is not None:
            self.dispatch.release(session.worker, session.id)
        self.keep(session)

    def keep(self, session: Session) -> None:
        """Keep the last answer of a session that has ended."""
        self.finished[session.id] = session
        while len(self.finished) > self.settings.kept:
            self.forget(next(iter(self.finished.values())))

    def forget(self, session: Session) -> None:
        """Know nothing of a session any more."""
        session.turns.over = session.turns.over or GONE
        self.sessions.pop(session.id, None)
        self.finished.pop(session.id, None)
        if session.request_id is not None:
            self.requests.pop(session.request_id, None)

    async def end(self, session: Session) -> None:
        """End a session at its worker, then here."""
        session.stopped = session.stopped or "cancelled"
        if session.worker is not None:
            await self.calls.cancel(session.worker, session.id)
        session.stop("cancelled")
        self._end(session, CANCELLED)

    def lose(self, lost: Iterable[int]) -> None:
        """Give up sessions whose worker is gone."""
        for session in [self.sessions[each] for each in lost if each in self.sessions]:
            session.stop("lost")
            if session.turns.turn > OPENING:  # one that has not begun yet begins elsewhere
                self.metrics.failed("lost")
                self._end(session, LOST)


def _new_id() -> int:
    """Return a session's number: an integer, as agentrl-eval wants it, and one that nobody can guess."""
    return secrets.randbelow(2**53 - 1) + 1
