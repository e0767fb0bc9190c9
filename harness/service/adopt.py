"""Sessions that outlive their controller: a worker of ours tells of those it has, and another controller goes on.

Decided here: they are taken over when a worker registers, under the numbers that their clients know. The last answer of
each is with its worker, which repeats it where the client had not heard it, so no turn is played twice. A client that
asks again for a start whose answer it had not heard gets that session; a start that was still under way is begun anew.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from harness.service.dispatch import RETRY_AFTER, Registered
from harness.service.once import Once
from harness.service.protocol import OPENING, Held, Refused, StartSample
from harness.service.session import Session

if TYPE_CHECKING:
    from harness.service.controller import Controller


def adopt(controller: Controller, worker: Registered, held: Iterable[Held]) -> None:
    """Go on with the sessions of a worker that has just registered."""
    for each in held:
        if len(controller.sessions) >= controller.settings.sessions:
            return
        if each.session_id in controller.sessions or each.session_id in controller.finished:
            continue
        again = each.request_id and each.request_id in controller.requests  # elsewhere, before this worker registered
        if each.turn == OPENING or again:
            controller.calls.later(controller.calls.cancel(worker, each.session_id))
            continue
        session = Session(each.session_id, StartSample(worker.name, each.index), each.request_id or None)
        session.worker, session.turns = worker, Once(each.turn)
        if session.request_id is not None:
            controller.requests[session.request_id] = session
        if each.finished:
            controller.keep(session)
        else:
            controller.sessions[session.id] = session
            worker.sessions.add(session.id)


async def reopen(controller: Controller, session: Session, asked: StartSample) -> bytes:
    """Return the opening of a session that was taken over, as its worker repeats it."""
    if session.worker is None:
        raise Refused(404, "the session's opening is not known")
    clock = time.monotonic()
    reply = await controller.begin(session, session.worker, asked)
    if isinstance(reply, str):
        controller.dispatch.release(session.worker, session.id)
        controller.forget(session)
        raise Refused(502, f"the worker that began the session does not repeat its opening: {reply}", RETRY_AFTER)
    return controller.opened(session, reply, clock)
