"""A controller behind HTTP, in the form of AgentRL's."""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.types import ASGIApp

from harness.core import Json
from harness.service.access import Guard, Party
from harness.service.controller import Controller
from harness.service.metrics import CONTENT_TYPE
from harness.service.protocol import (
    API,
    REQUEST_HEADER,
    SESSION_HEADER,
    Heartbeat,
    Interact,
    Refused,
    SessionOnly,
    StartSample,
    read,
)
from harness.service.status import page
from harness.service.upkeep import reconcile
from harness.service.web import Endpoint, answer, application, decoder, read_body, session_in, turn_in

OF_WORKERS = frozenset({f"{API}/receive_heartbeat", f"{API}/cancel_notice"})
LONGEST_REQUEST_ID = 200
JSON = "application/json"

_start, _interact, _session, _beat = (decoder(kind) for kind in (StartSample, Interact, SessionOnly, Heartbeat))


def app(controller: Controller, host: str, notices: Callable[[], list[str]] = list) -> ASGIApp:
    """Return the HTTP application of a controller that listens on `host`; `notices` are for its status page."""
    most = controller.settings.access.request_bytes

    async def said(request: Request, kind: msgspec.json.Decoder[Any]) -> Any:
        return read(kind, await read_body(request, most))

    async def start_sample(request: Request) -> Response:
        request_id = request.headers.get(REQUEST_HEADER)
        if request_id is not None and len(request_id) > LONGEST_REQUEST_ID:
            raise Refused(400, f"the header {REQUEST_HEADER} is longer than {LONGEST_REQUEST_ID} characters")
        session_id, body = await controller.start_sample(await said(request, _start), request_id)
        return Response(body, headers={SESSION_HEADER: str(session_id)}, media_type=JSON)

    async def interact(request: Request) -> Response:
        session_id = session_in(request)
        if session_id is None:
            raise Refused(400, f"the header {SESSION_HEADER} is missing")
        body = await controller.interact(session_id, await said(request, _interact), turn_in(request))
        return Response(body, media_type=JSON)

    async def named(request: Request) -> int:
        """Return the session that a request names, in a header or its body."""
        session_id = session_in(request)
        if session_id is not None:
            return session_id
        asked: SessionOnly = await said(request, _session)
        return asked.session_id

    async def cancel(request: Request) -> Response:
        session_id = await named(request)
        await controller.cancel(session_id)
        return answer({"session_id": session_id})

    async def finish(request: Request) -> Response:
        session_id = session_in(request)
        if session_id is None:
            raise Refused(400, f"the header {SESSION_HEADER} is missing")
        return Response(await controller.finish(session_id, turn_in(request)), media_type=JSON)

    async def renew(request: Request) -> Response:
        session_id = await named(request)
        await controller.renew(session_id)
        return answer({"session_id": session_id})

    async def healthy(request: Request) -> Response:
        return answer({"healthy": await controller.healthy(_name(request))})

    async def cancel_notice(request: Request) -> Response:
        controller.notice(await named(request))
        return answer({})

    async def cancel_all(request: Request) -> Response:
        asked = request.query_params
        force = asked.get("force", "").lower() in {"1", "true", "yes"}
        return answer({"cancelled": await controller.cancel_all(asked.get("name"), force=force)})

    async def receive_heartbeat(request: Request) -> Response:
        controller.hear(await said(request, _beat))
        return answer({"ok": True})

    async def get_indices(request: Request) -> Response:
        return answer(controller.indices(_name(request)))

    async def describe(request: Request) -> Response:
        return Response(await controller.describe(_name(request)), media_type=JSON)

    async def list_workers(_: Request) -> Response:
        return answer(_workers(controller))

    async def list_sessions(_: Request) -> Response:
        return answer(_sessions(controller))

    async def tell_version(_: Request) -> Response:
        return answer({"version": _version(), "protocol": "agentrl", "service": "harness"})

    async def sync(_: Request) -> Response:
        return answer(await reconcile(controller))

    async def status(_: Request) -> Response:
        text, headers = page(controller, notices())
        return HTMLResponse(text, headers=headers)

    async def metrics(_: Request) -> Response:
        return Response(controller.metrics.text(), media_type=CONTENT_TYPE)

    endpoints: dict[str, tuple[str, Endpoint]] = {
        "interact": ("POST", interact),
        "start_sample": ("POST", start_sample),
        "cancel": ("POST", cancel),
        "finish": ("POST", finish),
        "renew": ("POST", renew),
        "healthy": ("GET", healthy),
        "cancel_all": ("POST", cancel_all),
        "receive_heartbeat": ("POST", receive_heartbeat),
        "cancel_notice": ("POST", cancel_notice),
        "sync": ("POST", sync),
        "sync_all": ("POST", sync),
        "get_indices": ("GET", get_indices),
        "describe": ("GET", describe),
        "list_workers": ("GET", list_workers),
        "list_sessions": ("GET", list_sessions),
        "version": ("GET", tell_version),
    }
    routes = {f"{API}/{name}": (method, _counted(controller, each)) for name, (method, each) in endpoints.items()}
    pages: dict[str, tuple[str, Endpoint]] = {"/": ("GET", status), "/metrics": ("GET", metrics)}
    return application({**routes, **pages}, Guard(host, controller.settings.access), _party_of)


def _party_of(path: str) -> Party:
    return "worker" if path in OF_WORKERS else "client"


def _counted(controller: Controller, endpoint: Endpoint) -> Endpoint:
    """Return an endpoint whose refusals are counted."""

    async def counted(request: Request) -> Response:
        try:
            return await endpoint(request)
        except Refused as error:
            controller.metrics.refused(error.status)
            raise

    return counted


def _name(request: Request) -> str:
    name = request.query_params.get("name")
    if not name:
        raise Refused(400, "the parameter 'name' is missing")
    return name


def _workers(controller: Controller) -> dict[str, list[dict[str, Json]]]:
    """Return what is known of the workers, by task."""
    now = time.monotonic()
    listed: dict[str, list[dict[str, Json]]] = {}
    for worker in controller.dispatch.workers.values():
        listed.setdefault(worker.name, []).append(
            {
                "address": worker.address,
                "concurrency": worker.concurrency,
                "current": len(worker.sessions),
                "state": controller.dispatch.state(worker),
                "last_heartbeat": round(now - worker.seen, 3),
                "indices": len(worker.indices),
            }
        )
    return listed


def _sessions(controller: Controller) -> list[dict[str, Json]]:
    """Return what is known of the sessions."""
    now = time.monotonic()
    return [
        {
            "session_id": session.id,
            "name": session.name,
            "index": session.index,
            "worker": session.worker.address if session.worker else None,
            "state": session.state,
            "idle": round(now - session.used, 3),
            "turns": max(0, session.turns.turn),
        }
        for session in (*controller.sessions.values(), *controller.finished.values())
    ]


def _version() -> str:
    try:
        return version("agent-harness")
    except PackageNotFoundError:
        return "unknown"
