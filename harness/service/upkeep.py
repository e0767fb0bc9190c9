"""What a controller does by itself: end what nobody asks for, give up what is lost, agree with its workers."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import msgspec

from harness.service.dispatch import Registered
from harness.service.http import Broken, Unreachable
from harness.service.protocol import OPENING, Index

if TYPE_CHECKING:
    from harness.service.controller import Controller

CALL_SECONDS = 10.0


async def sweep_for_ever(controller: Controller) -> None:
    """Sweep at the interval that the settings name. What this process was late by counts against nobody."""
    while True:
        due = time.monotonic() + controller.settings.sweep
        await asyncio.sleep(controller.settings.sweep)
        excuse(controller, time.monotonic() - due)
        sweep(controller)


def excuse(controller: Controller, late: float) -> None:
    """Take so many seconds out of every silence: a controller that did not run has heard nobody."""
    now = time.monotonic()
    for each in controller.dispatch.workers.values():
        each.seen = min(now, each.seen + late)
    for session in controller.sessions.values():
        session.used = min(now, session.used + late)


def sweep(controller: Controller) -> None:
    """End what nobody asks for, give up what is lost, forget what is old."""
    now, settings = time.monotonic(), controller.settings
    for session in list(controller.sessions.values()):
        if not session.turns.busy and not session.stopped and now - session.used > settings.idle:
            controller.metrics.failed("idle")
            session.stopped = "cancelled"
            controller.calls.later(controller.end(session))
    for worker in controller.dispatch.sweep():
        controller.lose(tuple(worker.sessions))
    for session in list(controller.finished.values()):
        if now - session.used <= settings.finished:
            break
        controller.forget(session)


async def reconcile_for_ever(controller: Controller) -> None:
    """Reconcile at the interval that the settings name."""
    while True:
        await asyncio.sleep(controller.settings.reconcile)
        await reconcile(controller)


async def reconcile(controller: Controller) -> dict[str, int]:
    """Agree with every live worker on what sessions there are; return how many were dropped here and ended there."""
    dispatch = controller.dispatch
    counts = [await _agree(controller, worker) for worker in [*dispatch.workers.values()] if dispatch.live(worker)]
    return {"dropped": sum(dropped for dropped, _ in counts), "cancelled": sum(ended for _, ended in counts)}


async def _agree(controller: Controller, worker: Registered) -> tuple[int, int]:
    begun = time.monotonic()
    before = {each for each in worker.sessions if _settled(controller, each, begun)}
    try:
        reply = await controller.calls.ask(worker, "GET", "get_sessions", b"", CALL_SECONDS)
        there = {int(each) for each in msgspec.json.decode(reply.body, type=dict[str, Index])}
    except (Unreachable, Broken, TimeoutError, msgspec.MsgspecError, ValueError):
        return 0, 0
    missing = {each for each in before - there if _settled(controller, each, begun)}
    controller.lose(missing)
    strangers = there - worker.sessions - controller.sessions.keys()
    await asyncio.gather(*(controller.calls.cancel(worker, each) for each in strangers))
    return len(missing), len(strangers)


def _settled(controller: Controller, session_id: int, since: float) -> bool:
    """Whether a session has begun and nothing has happened to it since."""
    session = controller.sessions.get(session_id)
    return session is not None and session.turns.turn > OPENING and not session.turns.busy and session.used < since
