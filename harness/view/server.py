"""The viewer's HTTP server: reads runs, writes nothing, and is reached from this machine alone.

Decided here: it listens on loopback, answers to loopback's names only (a page elsewhere that has its own name resolve
here gets nothing), knows GET and HEAD only, and sends every page under a policy that allows its own stylesheet and
script and nothing else. A run is looked up by name; no part of an address becomes a path.
"""

from __future__ import annotations

import contextlib
import hashlib
import socket
import threading
import webbrowser
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from harness.core import AttemptKey
from harness.errors import SetupError
from harness.metrics import Measure
from harness.view import html, pages, plots, tasks, training
from harness.view.library import Library

NAMES = frozenset({"127.0.0.1", "localhost", "[::1]"})
STATIC = {
    "style.css": "text/css; charset=utf-8",
    "view.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; "
    "form-action 'self'; frame-ancestors 'none'"
)
SAFE = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
MOST_CONNECTIONS = 64
QUIET_SECONDS = 5


class Guard:
    """Turns away what is not asked for from this machine by this machine's name, and adds the safe headers."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)

        async def safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] += [(name.lower().encode(), value.encode()) for name, value in SAFE.items()]
            await send(message)

        refused = refusal(scope["method"], headers)
        app: ASGIApp = PlainTextResponse(*refused) if refused else self._app
        await app(scope, receive, safely)


def refusal(method: str, headers: Mapping[str, str]) -> tuple[str, int] | None:
    """Return why a request is refused, and the status; None where it may pass."""
    host = headers.get("host", "")
    name = host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host
    if name.lower() not in NAMES:
        return "This viewer answers to 127.0.0.1 and localhost only.", 421
    if method not in {"GET", "HEAD"}:
        return "This viewer only shows.", 405
    if headers.get("sec-fetch-site", "none") not in {"none", "same-origin", "same-site"} and (
        headers.get("sec-fetch-mode") != "navigate"
    ):
        return "Other sites may link here, not read from here.", 403
    return None


def make_app(library: Library) -> Starlette:
    """Return the application that shows a library."""

    def page(template: str, values: Callable[[Request], dict[str, Any]]) -> Callable[[Request], Response]:
        def answer(request: Request) -> Response:
            try:
                return _answer(request, html.render(template, **values(request)))
            except KeyError as error:
                return _error(404, f"There is no such run or attempt: {error.args[0] if error.args else ''}.")
            except SetupError as error:
                return _error(409, f"{error}.")
            except OSError as error:
                return _error(409, f"Cannot read {error.filename}: {error.strerror}.")

        return answer

    def run(request: Request) -> dict[str, Any]:
        return pages.run(library.open(_of(request, "run")), tasks.read(request.query_params))

    def attempt(request: Request) -> dict[str, Any]:
        query = request.query_params
        listed = {key.removeprefix("in_"): value for key, value in query.items() if key.startswith("in_")}
        first = _number(query.get("first", "0"))
        number = _number(query["attempt"]) if "attempt" in query else None
        return pages.attempt(library.open(_of(request, "run")), _key(request), number, first, tasks.read(listed))

    def compare(request: Request) -> dict[str, Any]:
        query = request.query_params
        names = [place.name for place in library.places().values() if place.kind == "run"]
        measure: Measure = "reward" if query.get("measure") == "reward" else "success"
        chosen = {"names": names, "a": query.get("a", ""), "b": query.get("b", ""), "measure": measure}
        if not chosen["a"] or not chosen["b"]:
            return {**chosen, "found": None}
        sides = library.open(_of(request, "a")), library.open(_of(request, "b"))
        return {**chosen, "found": pages.comparison(*sides, measure)}

    def pair(request: Request) -> dict[str, Any]:
        return pages.pair(library.open(_of(request, "a")), library.open(_of(request, "b")), _key(request))

    def train(request: Request) -> dict[str, Any]:
        place = library.places()[_of(request, "run")]
        if place.kind != "train":
            raise KeyError(place.name)
        return training.page(library, place, request.query_params.get("x", ""))

    routes = [
        Route("/", page("runs.html", lambda _: pages.runs(library))),
        Route("/run", page("run.html", run)),
        Route("/attempt", page("attempt.html", attempt)),
        Route("/compare", page("compare.html", compare)),
        Route("/pair", page("pair.html", pair)),
        Route("/train", page("train.html", train)),
        Route("/static/{name}", _static),
    ]
    app = Starlette(routes=routes, exception_handlers={404: lambda *_: _error(404, "There is no such page.")})
    app.add_middleware(Guard)
    return app


def _of(request: Request, name: str) -> str:
    return request.query_params.get(name, "")


def _key(request: Request) -> AttemptKey:
    query = request.query_params
    return AttemptKey(query.get("entry", ""), query.get("task", ""), _number(query.get("epoch", "0")))


def _number(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) < 10 else 0


def _answer(request: Request, text: str) -> Response:
    """Send a page, or say that it has not changed."""
    body = text.encode("utf-8", errors="replace")
    tag = f'"{hashlib.sha256(body).hexdigest()[:24]}"'
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers={"ETag": tag})
    return Response(body, media_type="text/html", headers={"ETag": tag})


def _error(status: int, sentence: str) -> Response:
    return Response(html.render("error.html", status=status, sentence=sentence), status, media_type="text/html")


def _static(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in STATIC:
        return _error(404, "There is no such file.")
    return Response((html.HERE / "static" / name).read_bytes(), media_type=STATIC[name])


def serve(
    folders: list[Path], port: int, address: Callable[[Library], str], *, browser: bool, say: Callable[[str], None]
) -> None:
    """Serve until Ctrl-C. `address` names the page to begin with.

    Raises:
        SetupError: a folder is none, the port is taken, or the page to begin with does not exist.
    """
    library = Library(folders)
    path = address(library)
    with contextlib.closing(_listen(port)) as listening:
        where = f"http://127.0.0.1:{listening.getsockname()[1]}{path}"
        say(f"Showing {where} (Ctrl-C ends it)")
        threading.Thread(target=_warm, daemon=True).start()
        if browser:
            threading.Timer(0.5, webbrowser.open, [where]).start()
        config = uvicorn.Config(
            make_app(library),
            log_level="warning",
            access_log=False,
            limit_concurrency=MOST_CONNECTIONS,
            timeout_keep_alive=QUIET_SECONDS,
            timeout_graceful_shutdown=1,
            server_header=False,
            proxy_headers=False,
            lifespan="off",
        )
        try:
            uvicorn.Server(config).run(sockets=[listening])
        finally:
            library.close()


def _listen(port: int) -> socket.socket:
    """Listen on loopback. SetupError where the port is taken."""
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind(("127.0.0.1", port))
        listening.listen(MOST_CONNECTIONS)
    except OSError as error:
        listening.close()
        raise SetupError(f"cannot listen on port {port}: {error.strerror}; choose another with --port") from error
    return listening


def _warm() -> None:
    """Draw one small plot, so that the first page with plots need not wait for the renderer."""
    plots.svg(plots.bars([{"x": "", "y": 1, "series": ""}], x="", y=""))
