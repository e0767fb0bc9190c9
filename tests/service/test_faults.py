"""Workers that are killed or frozen, a controller that is started again, connections that break at the wrong moment."""

from __future__ import annotations

import asyncio
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager, suppress
from urllib.parse import urlsplit

import pytest

from harness.core import EnvOptions
from harness.service.http import Broken, Http, Unreachable
from harness.service.running import running_controller, running_worker
from harness.service.settings import ControllerSettings, WorkerSettings
from harness.service.upkeep import reconcile
from tests.service.drill import Caller, Drill
from tests.service.process import worker_process
from tests.service.rig import rig

SECONDS = 30.0
HASTY: dict[str, float] = {"coma": 2.5, "lost": 2.0, "sweep": 0.1, "start_wait": 20.0}


async def until(true: Callable[[], object]) -> None:
    end = time.monotonic() + SECONDS
    while not true():
        assert time.monotonic() < end, "it did not come about"
        await asyncio.sleep(0.02)


@pytest.mark.slow
async def test_a_killed_worker_costs_its_sessions_and_no_other() -> None:
    async with running_controller(ControllerSettings(**HASTY)) as running:
        client, workers = Caller(running.address), running.state.dispatch.workers
        async with worker_process(running.address) as killed:
            await until(lambda: workers)
            session = await client.start("slow")
            under_way = asyncio.create_task(client.say(session, "go"))
            await asyncio.sleep(0.3)
            killed.kill()
            heard = await under_way
            assert heard.status == 502 and "lost" in heard.body["error"]
            assert (await client.say(session, "go")).body == heard.body
            waiting = asyncio.create_task(client.start())
            async with worker_process(running.address):
                session = await waiting
                assert [(await client.say(session)).status for _ in range(3)] == [200] * 3
        client.close()


@pytest.mark.slow
async def test_a_frozen_worker_is_passed_over_given_up_and_taken_back() -> None:
    async with running_controller(ControllerSettings(**HASTY)) as running:
        client, dispatch = Caller(running.address), running.state.dispatch
        async with worker_process(running.address, concurrency=50) as frozen:
            await until(lambda: dispatch.workers)
            session = await client.start("long")
            async with worker_process(running.address, concurrency=5):
                await until(lambda: len(dispatch.workers) == 2)
                frozen.send_signal(signal.SIGSTOP)
                heard = await client.say(session)
                assert heard.status == 502 and "lost" in heard.body["error"]
                other = await client.start("long")
                assert (await client.say(other)).status == 200
                frozen.send_signal(signal.SIGCONT)
                await until(lambda: [dispatch.state(worker) for worker in dispatch.of("drill")] == ["live"] * 2)
                counts = await reconcile(running.state)
                assert counts["dropped"] == 0 and list(running.state.sessions) == [other]
                assert (await reconcile(running.state)) == {"dropped": 0, "cancelled": 0}
        client.close()


async def test_a_controller_started_again_goes_on_with_the_sessions_of_its_workers() -> None:
    """Whatever was under way: a turn not begun, one whose answer nobody heard, a start, a last answer."""
    env, first = Drill(EnvOptions()), AsyncExitStack()
    old = await first.enter_async_context(running_controller(ControllerSettings()))
    settings = WorkerSettings(env="drill", controller=old.address, heartbeat=0.1)
    async with running_worker(settings, env):
        client = Caller(old.address)
        idle, unheard = await client.start("long"), await client.start("long")
        unbegun = await client.start("long", request_id="x")
        ended = await client.start()
        for turn in range(3):
            assert (await client.say(ended, turn=turn)).status == 200
        heard = await client.say(unheard, turn=0)
        await first.aclose()
        async with running_controller(ControllerSettings(port=int(old.address.rpartition(":")[2]))) as new:
            told = await client.say(idle)
            assert told.status == 404 and "not registered" in told.body["error"] and told.headers["retry-after"] == "1"
            await until(lambda: new.state.dispatch.workers)
            assert len(new.state.dispatch.of("drill")[0].sessions) == 3
            assert (await client.say(idle)).body["messages"][0]["content"] == "turn 1: hello"
            played = env.steps.total()
            assert (await client.say(unheard, turn=0)).body == heard.body
            assert await client.start("long", request_id="x") == unbegun
            assert (await client.say(ended, turn=2)).body["finish"]
            assert env.steps.total() == played and env.opened == 4
            assert (await client.say(ended, turn=3)).status == 400
            for turn in range(1, 4):
                said = await client.say(unheard, turn=turn)
                assert said.body["messages"][0]["content"] == f"turn {turn + 1}: hello"
            assert await reconcile(new.state) == {"dropped": 0, "cancelled": 0}
            assert (await client.ask("POST", "finish", {}, session_id=unheard, turn=4)).body["finish"]
            await client.ask("POST", "cancel_all", {})
            assert env.open_sessions == 0 and not new.state.sessions and not new.state.dispatch.of("drill")[0].sessions
            client.close()


async def test_a_start_that_was_begun_again_elsewhere_is_not_gone_on_with() -> None:
    async with rig() as r:
        session = await r.client.start("long", request_id="x")
        held = [[7, 0, 0, False, "x"], [8, 0, -1, False, "y"], [9, 0, 2, False, ""]]
        beat = {"name": "drill", "address": "http://127.0.0.1:9", "concurrency": 9, "instance": "b", "sessions": held}
        assert (await r.client.ask("POST", "receive_heartbeat", beat)).status == 200
        assert sorted(r.controller.sessions) == sorted([session, 9])
        assert await r.client.start("long", request_id="x") == session


async def test_a_session_whose_worker_does_not_come_back_is_over() -> None:
    async with rig({"coma": 0.5}) as r:
        assert "not registered" in (await r.client.say(5)).body["error"]
        await asyncio.sleep(0.6)
        gone = await r.client.say(5)
        assert gone.status == 404 and "restarted" in gone.body["error"] and "retry-after" not in gone.headers


async def test_a_worker_that_is_replaced_at_its_address_is_another_worker() -> None:
    async with rig() as r:
        session = await r.client.start("long")
        beat = {"name": "drill", "address": r.worker.address, "concurrency": 9, "instance": "another"}
        await r.client.ask("POST", "receive_heartbeat", beat)
        assert (await r.client.say(session)).status == 502


class Cut:
    """Stands between two sides; passes everything on until it is told to cut, then so many answers are lost."""

    def __init__(self, to: str, listening: socket.socket | None = None) -> None:
        self.listening = listening or socket.create_server(("127.0.0.1", 0))
        parts = urlsplit(to)
        self.host, self.port = parts.hostname or "", parts.port or 0
        self.lose = 0
        self.path = parts.path

    async def __aenter__(self) -> Cut:
        self.server = await asyncio.start_server(self.serve, sock=self.listening)
        self.address = f"http://127.0.0.1:{self.listening.getsockname()[1]}{self.path}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self.server.close()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, on = await asyncio.open_connection(self.host, self.port)

        async def back() -> None:
            while data := await there.read(1 << 16):
                if self.lose:
                    self.lose -= 1
                    break
                writer.write(data)
            writer.transport.abort()

        answers = asyncio.create_task(back())
        with suppress(OSError):
            while data := await reader.read(1 << 16):
                on.write(data)
        on.close()
        await answers


async def test_a_turn_whose_answer_is_lost_on_the_way_from_the_worker_is_played_once() -> None:
    async with rig() as r, Cut(r.worker.address) as cut:
        worker = r.controller.dispatch.of("drill")[0]
        session = await r.client.start("long")
        worker.address, cut.lose = cut.address, 1
        heard = await r.client.say(session)
        assert heard.body["messages"][0]["content"] == "turn 1: hello" and r.env.steps["long"] == 1
        cut.lose = 2
        assert (await r.client.say(session)).status == 502 and r.env.steps["long"] == 2


@contextmanager
def full() -> Iterator[socket.socket]:
    """Yield a socket that listens, and whose line is so long that nobody gets a connection."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listening, ExitStack() as waiting:
        for _ in range(3):
            one = waiting.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(listening.getsockname())
        yield listening


async def test_a_turn_waits_for_a_connection_while_its_worker_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    async with rig() as r:
        session = await r.client.start("long")
        monkeypatch.setattr("harness.service.http.CONNECT_SECONDS", 0.5)
        with full() as listening:
            cut = Cut(r.worker.address, listening)
            r.controller.dispatch.of("drill")[0].address = f"http://127.0.0.1:{listening.getsockname()[1]}{cut.path}"
            turn = asyncio.create_task(r.client.say(session))
            await asyncio.sleep(1.5)
            assert not turn.done() and r.env.steps["long"] == 0
            async with cut:
                assert (await turn).status == 200 and r.env.steps["long"] == 1


async def test_a_controller_that_did_not_run_blames_nobody_for_silence() -> None:
    hasty = {"coma": 0.5, "lost": 0.5, "sweep": 0.1, "idle": 1.0}
    async with rig(hasty, {"heartbeat": 0.1}) as r:
        session = await r.client.start("long")
        time.sleep(2.0)
        await asyncio.sleep(0.15)  # a sweep, before anybody may have been heard
        assert (await r.client.say(session)).status == 200


async def test_a_start_whose_answer_is_lost_is_begun_again_and_leaves_nothing() -> None:
    async with rig() as r, Cut(r.worker.address) as cut:
        worker = r.controller.dispatch.of("drill")[0]
        worker.address, cut.lose = cut.address, 1
        session = await r.client.start("long")
        assert (await r.client.say(session)).status == 200
        await until(lambda: r.env.open_sessions == 1 and list(r.worker.sessions) == [session])


async def answering(said: bytes, *, close: bool = False) -> tuple[asyncio.Server, str]:
    """Serve the same bytes to every request."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(1 << 16):
            writer.write(said)
            if close:
                break
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    return server, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/x"


@pytest.mark.parametrize(
    "said", [b"nonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nshort", b"HTTP/1.1 200"]
)
async def test_an_answer_that_is_none_is_a_broken_connection(said: bytes) -> None:
    server, url = await answering(said, close=True)
    http = Http()
    with pytest.raises(Broken):
        await http.request("GET", url, seconds=5)
    server.close()


async def test_answers_in_pieces_are_put_together_and_connections_used_again() -> None:
    server, url = await answering(
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n"
    )
    http = Http()
    replies = [await http.request("POST", url, body=b"{}", seconds=5) for _ in range(3)]
    assert [reply.body for reply in replies] == [b"abc"] * 3
    assert len(next(iter(http._idle.values()))) == 1
    http.close()
    server.close()


async def test_nobody_there_and_nobody_answering_are_told_apart() -> None:
    server, url = await answering(b"")
    http = Http()
    with pytest.raises(TimeoutError):
        await http.request("GET", url, seconds=0.1)
    server.close()
    await server.wait_closed()
    with pytest.raises(Unreachable):
        await http.request("GET", url, seconds=5)
