"""A worker behind HTTP, in the form of `agentrl-worker`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from harness.core import Json
from harness.service.access import Guard
from harness.service.protocol import (
    API,
    MOST_MESSAGES,
    SESSION_HEADER,
    Refused,
    SessionId,
    SessionOnly,
    WorkerStart,
    read,
)
from harness.service.web import Endpoint, answer, application, decoder, read_body
from harness.service.worker import Worker


class _Turn(msgspec.Struct, frozen=True):
    """An interaction as it comes in."""

    session_id: SessionId
    messages: Annotated[list[msgspec.Raw], msgspec.Meta(max_length=MOST_MESSAGES)]
    turn: int | None = None


class _Results(msgspec.Struct, frozen=True):
    results: list[dict[str, Json]]


_start, _turn, _session, _results = (decoder(kind) for kind in (WorkerStart, _Turn, SessionOnly, _Results))


def app(worker: Worker, host: str) -> ASGIApp:
    """Return the HTTP application of a worker that listens on `host`."""
    most = worker.settings.access.request_bytes

    async def said(request: Request, kind: msgspec.json.Decoder[Any]) -> Any:
        return read(kind, await read_body(request, most))

    async def start_sample(request: Request) -> Response:
        asked: WorkerStart = await said(request, _start)
        body = await worker.start_sample(asked)
        return Response(body, headers={SESSION_HEADER: str(asked.session_id)}, media_type="application/json")

    async def interact(request: Request) -> Response:
        asked: _Turn = await said(request, _turn)
        body = await worker.interact(asked.session_id, asked.messages, asked.turn)
        content = b'{"session_id":%d,"env_out":%b}' % (asked.session_id, body)
        return Response(content, media_type="application/json")

    async def cancel(request: Request) -> Response:
        asked: SessionOnly = await said(request, _session)
        await worker.cancel(asked.session_id)
        return answer(asked)

    async def renew(request: Request) -> Response:
        asked: SessionOnly = await said(request, _session)
        worker.renew(asked.session_id)
        return answer(asked)

    async def healthy() -> Json:
        return {"healthy": await worker.host.healthy()}

    async def cancel_all(_: Request) -> Response:
        return answer({"cancelled": await worker.cancel_all()})

    async def sample_status(request: Request) -> Response:
        asked: SessionOnly = await said(request, _session)
        if (session := worker.sessions.get(asked.session_id)) is None:
            raise Refused(400, "no such session")
        busy = session.turns.busy
        status = {"waiting_for_env": busy, "waiting_for_agent": not busy}
        return answer({"session_id": asked.session_id, "index": session.index, "status": status})

    async def calculate_overall(request: Request) -> Response:
        asked: _Results = await said(request, _results)
        statuses = Counter(str(result.get("status")) for result in asked.results)
        return answer({"total": len(asked.results), "status": statuses})

    async def get_indices() -> Json:
        return worker.catalogue.indices

    async def get_sessions() -> Json:
        return {str(session_id): session.index for session_id, session in worker.sessions.items()}

    async def worker_status() -> Json:
        return {"concurrency": worker.concurrency, "current": len(worker.sessions)}

    endpoints: dict[str, tuple[str, Endpoint]] = {
        "interact": ("POST", interact),
        "start_sample": ("POST", start_sample),
        "cancel": ("POST", cancel),
        "renew": ("POST", renew),
        "healthy": ("GET", _shown(healthy)),
        "cancel_with_notice": ("POST", cancel),
        "cancel_all": ("POST", cancel_all),
        "cancel_all_with_notice": ("POST", cancel_all),
        "sample_status": ("POST", sample_status),
        "calculate_overall": ("POST", calculate_overall),
        "get_indices": ("GET", _shown(get_indices)),
        "get_sessions": ("GET", _shown(get_sessions)),
        "worker_status": ("GET", _shown(worker_status)),
        "describe": ("GET", _shown(worker.describe)),
    }
    routes = {f"{API}/{name}": endpoint for name, endpoint in endpoints.items()}
    return application(routes, Guard(host, worker.settings.access), lambda _: "worker")


def _shown(tell: Callable[[], Awaitable[Any]]) -> Endpoint:
    """Return the endpoint that answers with what `tell` returns."""

    async def endpoint(_: Request) -> Response:
        return answer(await tell())

    return endpoint
