"""Who may ask: loopback, tokens, Host and Origin, workers' addresses; and that the status page asks for nothing."""

from __future__ import annotations

import pytest

from harness.errors import SetupError
from harness.service.access import Guard, check_settings, is_loopback, split_token, worker_allowed
from harness.service.protocol import Heartbeat, Refused
from harness.service.running import running_controller, running_worker
from harness.service.settings import AccessSettings, ControllerSettings, WorkerSettings
from tests.service.drill import Caller
from tests.service.rig import rig

CLIENT, WORKER = "c" * 20, "w" * 20
TOKENS = AccessSettings(client_token=CLIENT, worker_token=WORKER)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.8.0.1", "::1"])
def test_loopback_is_told_by_name_or_address(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "example.org", "10.0.0.1", "localhost.example.org", "", "::"])
def test_anything_else_is_not_loopback(host: str) -> None:
    assert not is_loopback(host)


def test_others_can_only_be_served_with_two_tokens() -> None:
    check_settings("127.0.0.1", AccessSettings(), ("client", "worker"))
    check_settings("0.0.0.0", TOKENS, ("client", "worker"))
    for settings, named in (
        (AccessSettings(), "HARNESS_CLIENT_TOKEN"),
        (AccessSettings(client_token=CLIENT), "HARNESS_WORKER_TOKEN"),
        (AccessSettings(client_token=CLIENT, worker_token=CLIENT), "equal"),
        (AccessSettings(client_token="short", worker_token=WORKER), "16"),
        (AccessSettings(client_token="a/" * 20, worker_token=WORKER), "'/'"),
    ):
        with pytest.raises(SetupError, match=named):
            check_settings("0.0.0.0", settings, ("client", "worker"))


async def test_a_controller_or_worker_for_others_does_not_start_without_tokens() -> None:
    with pytest.raises(SetupError, match="HARNESS_CLIENT_TOKEN"):
        async with running_controller(ControllerSettings(host="0.0.0.0")):
            pass
    open_to_all = WorkerSettings(env="tests.service.drill:make", host="0.0.0.0")
    with pytest.raises(SetupError, match="HARNESS_WORKER_TOKEN"):
        async with running_worker(open_to_all):
            pass


async def test_a_port_that_is_taken_is_named() -> None:
    async with running_controller(ControllerSettings()) as running:
        port = int(running.address.rpartition(":")[2])
        with pytest.raises(SetupError, match=f"cannot listen on 127.0.0.1:{port}"):
            async with running_controller(ControllerSettings(port=port)):
                pass


@pytest.mark.parametrize(
    ("headers", "right"),
    [
        ({"host": "127.0.0.1:5020"}, True),
        ({"host": "localhost"}, True),
        ({"host": "[::1]:5020"}, True),
        ({"host": "evil.example:5020"}, False),
        ({"host": "127.0.0.1.evil.example"}, False),
        ({}, False),
        ({"host": "localhost:5020", "origin": "http://localhost:5020"}, True),
        ({"host": "localhost:5020", "origin": "http://localhost:9999"}, False),
        ({"host": "localhost:5020", "origin": "https://evil.example"}, False),
        ({"host": "localhost:5020", "origin": "null"}, False),
    ],
)
def test_no_web_page_can_ask_a_local_controller(headers: dict[str, str], right: bool) -> None:
    guard = Guard("127.0.0.1", AccessSettings())
    if right:
        guard.check("client", None, headers)
        return
    with pytest.raises(Refused) as refused:
        guard.check("client", None, headers)
    assert refused.value.status == 403


@pytest.mark.parametrize(
    ("token", "headers", "right"),
    [
        (CLIENT, {}, True),
        (None, {"authorization": f"Bearer {CLIENT}"}, True),
        (None, {"authorization": f"bearer  {CLIENT} "}, True),
        (None, {}, False),
        ("", {}, False),
        (WORKER, {}, False),
        (CLIENT[:-1], {"authorization": f"Bearer {CLIENT}"}, False),
        (None, {"authorization": f"Basic {CLIENT}"}, False),
        ("é" * 20, {}, False),
    ],
)
def test_a_token_is_needed_where_one_is_set(token: str | None, headers: dict[str, str], right: bool) -> None:
    guard = Guard("0.0.0.0", TOKENS)
    if right:
        guard.check("client", token, headers)
        return
    with pytest.raises(Refused) as refused:
        guard.check("client", token, headers)
    assert refused.value.status == 401


def test_a_token_is_taken_out_of_the_path() -> None:
    assert split_token("/t/abc/api/cancel") == ("abc", "/api/cancel")
    assert split_token("/t/abc") == ("abc", "")
    assert split_token("/api/t/abc") == (None, "/api/t/abc")


@pytest.mark.parametrize(
    "address",
    [
        "http://127.0.0.1:5021/api",
        "http://[::1]:1/api",
        "https://worker.example/api",
        "http://10.1.2.3:80/api",
    ],
)
def test_workers_that_may_register(address: str) -> None:
    assert worker_allowed(AccessSettings(allow_workers=("worker.example", "10.0.0.0/8")))(address)


@pytest.mark.parametrize(
    "address",
    [
        "http://169.254.169.254/latest",
        "http://worker.example.evil/api",
        "file:///etc/passwd",
        "http://user@127.0.0.1/api",
        "http://127.0.0.1:99999/api",
        "http://127.0.0.1/api?x=",
        "http://127.0.0.1/a\r\nb",
        "http://127.0.0.1 /",
        "http://[::1",
        "gopher://127.0.0.1",
        "",
    ],
)
def test_workers_that_may_not(address: str) -> None:
    assert not worker_allowed(AccessSettings(allow_workers=("worker.example", "10.0.0.0/8")))(address)


async def test_tokens_work_end_to_end_by_header_and_by_path() -> None:
    async with rig({"access": TOKENS}, {"access": AccessSettings(worker_token=WORKER)}) as r:
        nobody, worker = r.client, Caller(r.client.address, authorization=f"Bearer {WORKER}")
        by_header = Caller(r.client.address, authorization=f"Bearer {CLIENT}")
        by_path = Caller(f"{r.client.address}/t/{CLIENT}")
        for path in ("list_workers", "/", "/metrics", "nowhere"):
            assert (await nobody.ask("GET", path)).status == 401
            assert (await worker.ask("GET", path)).status == 401
        for caller in (by_header, by_path):
            session = await caller.start()
            assert [(await caller.say(session)).status for _ in range(3)] == [200] * 3
            assert (await caller.ask("GET", "/metrics")).status == (await caller.ask("GET", "/")).status == 200
        beat = Heartbeat(name="drill", address="http://127.0.0.1:9/api", concurrency=9)
        assert (await by_header.ask("POST", "receive_heartbeat", beat)).status == 401
        assert (await worker.ask("POST", "receive_heartbeat", beat)).status == 200
        assert (await r.at_worker.ask("GET", "get_sessions")).status == 401
        for caller in (worker, by_header, by_path):
            caller.close()


async def test_a_foreign_address_cannot_register() -> None:
    async with rig() as r:
        beat = {"name": "drill", "address": "http://169.254.169.254/api", "concurrency": 9, "indices": [0]}
        assert (await r.client.ask("POST", "receive_heartbeat", beat)).status == 403
        refused = await r.client.ask("POST", "receive_heartbeat", {**beat, "address": "grpc://127.0.0.1:9"})
        assert refused.status == 400 and "over HTTP here, not gRPC" in refused.body["error"]
        assert len(r.controller.dispatch.workers) == 1


async def test_the_status_page_is_small_escaped_and_asks_for_nothing() -> None:
    async with rig() as r:
        beat = {"name": "<script>x</script>", "address": "http://127.0.0.1:9/api", "concurrency": 1, "indices": []}
        await r.client.ask("POST", "receive_heartbeat", beat)
        heard = await r.client.ask("GET", "/")
        text = heard.body.decode()
        assert "<script" not in text and "&lt;script&gt;" in text and "drill" in text
        assert "default-src 'none'" in heard.headers["content-security-policy"]
        assert "src=" not in text and "url(" not in text and "@import" not in text and len(text) < 10_000


async def test_the_metrics_say_what_happened() -> None:
    async with rig() as r:
        session = await r.client.start()
        await r.client.say(session)
        await r.client.say(1)
        lines = (await r.client.ask("GET", "/metrics")).body.decode().splitlines()
        for line in (
            'harness_workers{state="live",task="drill"} 1.0',
            'harness_sessions{state="running",task="drill"} 1.0',
            'harness_interact_seconds_count{task="drill"} 1.0',
            'harness_start_seconds_count{task="drill"} 1.0',
            'harness_refusals_total{status="404"} 1.0',
            'harness_queue{task="drill"} 0.0',
        ):
            assert line in lines
