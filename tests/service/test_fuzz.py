"""Whatever is sent to any endpoint, in whatever form: an answer below 500, soon, and the service goes on."""

from __future__ import annotations

import asyncio
import http.client
import threading
from collections.abc import Iterator
from urllib.parse import urlsplit

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.service.drill import KINDS
from tests.service.rig import rig

SECONDS = 10
PATHS = [
    *("list_workers", "list_sessions", "version", "get_indices", "describe", "start_sample", "interact", "cancel"),
    *("cancel_all", "receive_heartbeat", "cancel_notice", "sync", "sync_all", "get_sessions", "worker_status"),
    *("sample_status", "cancel_with_notice", "cancel_all_with_notice", "calculate_overall", "nowhere", "../metrics"),
]
FIELDS = ["name", "index", "custom_task", "messages", "session_id", "address", "concurrency", "indices", "turn", "role"]
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 2**64)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=10)
    | st.sampled_from(["drill", "assistant", "http://127.0.0.1:9/api"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=4),
    max_leaves=12,
)
BODIES = st.binary(max_size=60) | VALUES.map(msgspec.json.encode) | st.just(b"[" * 50_000) | st.just(b'{"a":' * 20_000)
HEADER = st.text(st.characters(min_codepoint=32, max_codepoint=255, exclude_characters="\x7f"), max_size=12)
HEADERS = st.dictionaries(
    st.sampled_from(["session_id", "turn", "request-id", "origin", "authorization", "content-type"]),
    HEADER | st.integers(-1, 3).map(str),
    max_size=3,
)
QUERIES = st.sampled_from(["", "?name=drill", "?name=", "?force=1", "?name=%ff%00", "?" + "a" * 3000])


@pytest.fixture(scope="module")
def addresses() -> Iterator[list[str]]:
    """Serve a controller and its worker from a thread; each example is a request of its own."""
    ready: list[str] = []
    started, stop = threading.Event(), asyncio.Event()
    loop = asyncio.new_event_loop()

    async def serve() -> None:
        async with rig({"start_wait": 0.05, "start": 2, "interact": 2}, {"concurrency": 4}) as r:
            ready.extend((r.client.address, r.at_worker.address))
            started.set()
            await stop.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    assert started.wait(20)
    yield ready
    loop.call_soon_threadsafe(stop.set)
    thread.join(20)
    assert not thread.is_alive()
    loop.close()


def send(address: str, method: str, path: str, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
    """Send a request as it is, and return its status and body."""
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=SECONDS)
    try:
        connection.request(method, path, body, {name: value.strip() for name, value in headers.items()})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


@pytest.mark.parametrize("which", [0, 1], ids=["controller", "worker"])
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    method=st.sampled_from(["GET", "POST", "POST", "POST", "PUT", "DELETE", "OPTIONS"]),
    path=st.sampled_from(PATHS),
    query=QUERIES,
    body=BODIES,
    headers=HEADERS,
)
def test_no_request_breaks_anything(
    addresses: list[str], which: int, method: str, path: str, query: str, body: bytes, headers: dict[str, str]
) -> None:
    status, answer = send(addresses[which], method, f"/api/{path}{query}", body, headers)
    # 502 and 504 speak of a worker that a fuzzed heartbeat invented; 503 of a task that has none.
    assert status < 500 or status in {502, 503, 504}, answer
    if status >= 400 and answer:
        assert msgspec.json.decode(answer)["error"]


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    messages=st.lists(VALUES, max_size=3), kind=st.sampled_from(["plain", "long"]), turn=st.none() | st.integers(-1, 2)
)
def test_no_message_breaks_a_session(addresses: list[str], messages: list[object], kind: str, turn: int | None) -> None:
    controller = addresses[0]
    asked = msgspec.json.encode({"name": "drill", "index": KINDS.index(kind)})
    connection = http.client.HTTPConnection(urlsplit(controller).netloc, timeout=SECONDS)
    connection.request("POST", "/api/start_sample", asked)
    opened = connection.getresponse()
    assert opened.status == 200, opened.read()
    headers = {"session_id": opened.headers["session_id"]}
    opened.read()
    connection.close()
    said = [{**message, "role": "assistant"} if isinstance(message, dict) else message for message in messages]
    body = msgspec.json.encode({"messages": said})
    status, answer = send(
        controller, "POST", "/api/interact", body, headers | ({} if turn is None else {"turn": str(turn)})
    )
    assert status in {200, 400, 409}, answer
    assert send(controller, "POST", "/api/cancel", b"", headers)[0] == 200


def test_the_service_goes_on_after_all_that(addresses: list[str]) -> None:
    for address, path in ((addresses[0], "list_sessions"), (addresses[1], "get_sessions")):
        assert send(address, "GET", f"/api/{path}", b"", {})[0] == 200
    assert send(addresses[0], "POST", "/api/start_sample", b'{"name": "drill", "index": 0}', {})[0] == 200
