"""Controller and worker together: sessions, turns, slots, cancellation, and what each says."""

from __future__ import annotations

import asyncio
import time

import pytest

from harness.service.settings import AccessSettings
from harness.service.upkeep import reconcile, sweep
from tests.service.drill import GOLD, KINDS
from tests.service.rig import rig


async def until(true: object, seconds: float = 5.0) -> None:
    """Wait until a condition holds."""
    assert callable(true)
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not come about"
        await asyncio.sleep(0.01)


async def test_a_session_is_played_in_the_flat_dialect() -> None:
    async with rig() as r:
        heard = await r.client.ask("POST", "start_sample", {"name": "drill", "index": 0})
        assert set(heard.body) == {"messages", "tools", "finish", "reward", "status", "metrics"}
        assert [message["role"] for message in heard.body["messages"]] == ["system", "user"]
        assert heard.body["tools"][0]["function"]["name"] == "act"
        session = int(heard.headers["session_id"])
        call = {"id": "c9", "type": "function", "function": {"name": "act", "arguments": "{}"}}
        said = {"messages": [{"role": "assistant", "content": None, "tool_calls": [call]}]}
        first = await r.client.ask("POST", "interact", said, session_id=session)
        assert first.body["messages"] == [{"role": "tool", "content": "turn 1: ", "tool_call_id": "c9"}]
        assert (first.body["status"], first.body["finish"]) == ("running", False)
        await r.client.say(session)
        last = await r.client.say(session)
        assert (last.body["status"], last.body["finish"], last.body["reward"]) == ("completed", True, 1.0)
        assert last.body["metrics"] == {"score": 1.0, "ending": "completed", "parts": {"turns": 3}}
        again = await r.client.say(session)
        assert again.status == 400 and "finished" in again.body["error"]
        assert r.env.open_sessions == 0 and not r.worker.sessions and not r.controller.sessions


async def test_a_worker_answers_in_its_own_dialect() -> None:
    async with rig() as r:
        heard = await r.at_worker.ask("POST", "start_sample", {"index": "0", "session_id": 5})
        assert set(heard.body) == {"messages", "tools", "status", "finish", "reward", "metric"}
        said = {"session_id": 5, "messages": [{"role": "assistant", "content": "a"}]}
        heard = await r.at_worker.ask("POST", "interact", said)
        assert heard.body["session_id"] == 5 and heard.body["env_out"]["status"] == "running"
        assert (await r.at_worker.ask("GET", "get_sessions")).body == {"5": "0"}
        assert (await r.at_worker.ask("GET", "worker_status")).body == {"concurrency": 128, "current": 1}
        status = await r.at_worker.ask("POST", "sample_status", {"session_id": 5})
        assert status.body["status"] == {"waiting_for_env": False, "waiting_for_agent": True}
        assert (await r.at_worker.ask("POST", "cancel", {"session_id": 5})).status == 200
        assert (await r.at_worker.ask("POST", "interact", said)).status == 400
        overall = {"name": "drill", "results": [{"status": "completed"}, {"status": "cancelled"}]}
        told = await r.at_worker.ask("POST", "calculate_overall", overall)
        assert told.body == {"total": 2, "status": {"completed": 1, "cancelled": 1}}


async def test_several_messages_are_one_turn() -> None:
    async with rig() as r:
        session = await r.client.start()
        said = {"messages": [{"role": "assistant", "content": text} for text in ("one", "two")]}
        heard = await r.client.ask("POST", "interact", said, session_id=session)
        assert heard.body["messages"][0]["content"] == "turn 1: one\ntwo"


async def test_the_turn_limit_is_the_environments_and_is_scored() -> None:
    async with rig() as r:
        session = await r.client.start("long")
        answers = [(await r.client.say(session)).body for _ in range(20)]
        assert [answer["finish"] for answer in answers] == [False] * 19 + [True]
        assert (answers[-1]["status"], answers[-1]["reward"]) == ("task limit reached", 1.0)


@pytest.mark.parametrize(("kind", "ending"), [("breaks", "env_error"), ("bad_score", "grader_error")])
async def test_what_breaks_is_charged_as_in_a_rollout(kind: str, ending: str) -> None:
    async with rig() as r:
        session = await r.client.start(kind)
        answer = {}
        while not answer.get("finish"):
            answer = (await r.client.say(session, "go")).body
        assert (answer["status"], answer["reward"]) == ("task error", 0.0)
        assert answer["metrics"]["ending"] == ending
        assert answer["metrics"]["parts"] == {"charged_to": "agent"} and answer["metrics"]["failure"]
        assert r.env.open_sessions == 0


async def test_a_turn_asked_for_twice_is_played_once() -> None:
    async with rig() as r:
        session = await r.client.start("long")
        first, twin = await asyncio.gather(r.client.say(session, "a", turn=0), r.client.say(session, "a", turn=0))
        later = await r.client.say(session, "a", turn=0)
        assert first.body == twin.body == later.body and r.env.steps["long"] == 1
        wrong = await r.client.say(session, turn=2)
        assert wrong.status == 409 and "next turn is 1" in wrong.body["error"]
        assert (await r.client.say(session, turn=1)).body["messages"][0]["content"] == "turn 2: hello"


async def test_a_start_asked_for_twice_is_one_session() -> None:
    async with rig() as r:
        first, second = await asyncio.gather(r.client.start(request_id="x"), r.client.start(request_id="x"))
        assert first == second == await r.client.start(request_id="x") and r.env.opened == 1
        assert await r.client.start(request_id="y") != first


async def test_the_last_answer_of_a_finished_session_can_be_fetched_again() -> None:
    async with rig() as r:
        session = await r.client.start()
        answers = [await r.client.say(session, turn=turn) for turn in range(3)]
        assert (await r.client.say(session, turn=2)).body == answers[-1].body
        r.controller.finished[session].used -= 10_000
        sweep(r.controller)
        assert (await r.client.say(session, turn=2)).status == 404


async def test_two_requests_at_once_without_a_turn_are_refused() -> None:
    async with rig() as r:
        session = await r.client.start("slow")
        first = asyncio.create_task(r.client.say(session, "go"))
        await until(lambda: r.env.steps["slow"])
        second = await r.client.say(session)
        assert second.status == 400 and "busy" in second.body["error"]
        await r.client.ask("POST", "cancel", session_id=session)
        assert (await first).body["status"] == "cancelled"


async def test_cancelling_ends_a_step_under_way_and_frees_everything() -> None:
    async with rig() as r:
        session = await r.client.start("slow")
        step = asyncio.create_task(r.client.say(session, "go"))
        await until(lambda: r.env.steps["slow"])
        clock = time.monotonic()
        assert (await r.client.ask("POST", "cancel", {"session_id": session})).body == {"session_id": session}
        assert time.monotonic() - clock < 5 and r.env.open_sessions == 0
        answer = (await step).body
        assert (answer["finish"], answer["status"], answer["metrics"]["score"]) == (True, "cancelled", None)
        assert (await r.client.ask("POST", "cancel", session_id=session)).status == 200
        assert "cancelled" in (await r.client.say(session)).body["error"]
        assert not r.worker.sessions and not r.controller.dispatch.of("drill")[0].sessions


async def test_a_full_task_is_waited_for_in_order() -> None:
    async with rig(worker={"concurrency": 1}) as r:
        first = await r.client.start()
        waiting = [asyncio.create_task(r.client.start()) for _ in range(2)]
        await until(lambda: len(r.controller.dispatch.waiting["drill"]) == 2)
        for task in waiting:
            assert not task.done()
            await r.client.ask("POST", "cancel", session_id=first)
            first = await task
        assert r.env.opened == 3 and not r.controller.dispatch.waiting["drill"]


async def test_a_wait_is_bounded_in_time_and_number() -> None:
    async with rig({"start_wait": 0.3, "waiting": 1}, {"concurrency": 1}) as r:
        await r.client.start()
        body = {"name": "drill", "index": 0}
        answers = await asyncio.gather(*(r.client.ask("POST", "start_sample", body) for _ in range(2)))
        assert {answer.status for answer in answers} == {429}
        assert all(int(answer.headers["retry-after"]) > 0 for answer in answers)
        assert {"too many" in answer.body["error"] for answer in answers} == {True, False}
        assert len(r.controller.dispatch.of("drill")[0].sessions) == 1


async def test_a_worker_that_others_fill_is_tried_again_later() -> None:
    async with rig(worker={"concurrency": 1}) as r:
        await r.at_worker.ask("POST", "start_sample", {"index": 0, "session_id": 1})
        full = await r.at_worker.ask("POST", "start_sample", {"index": 0, "session_id": 2})
        assert full.status == 406 and int(full.headers["retry-after"]) > 0
        waiting = asyncio.create_task(r.client.start())
        await asyncio.sleep(0.3)
        assert not waiting.done()
        await r.at_worker.ask("POST", "cancel", {"session_id": 1})
        assert await waiting in r.controller.sessions


async def test_a_session_that_nobody_asks_for_is_ended_at_its_worker_too() -> None:
    async with rig({"idle": 0.2, "sweep": 0.05}) as r:
        session = await r.client.start()
        await until(lambda: not r.env.open_sessions)
        await until(lambda: session in r.controller.finished)
        assert "nobody asked" in (await r.client.say(session)).body["error"]


async def test_a_worker_ends_what_its_controller_forgot() -> None:
    async with rig(worker={"idle": 0.2}) as r:
        await r.client.start()
        await until(lambda: not r.env.open_sessions)


async def test_controller_and_worker_come_to_agree() -> None:
    async with rig() as r:
        kept, dropped = await r.client.start(), await r.client.start()
        await r.at_worker.ask("POST", "start_sample", {"index": 0, "session_id": 77})
        await r.at_worker.ask("POST", "cancel", {"session_id": dropped})
        assert await reconcile(r.controller) == {"dropped": 1, "cancelled": 1}
        assert set(r.worker.sessions) == set(r.controller.sessions) == {kept}
        assert (await r.client.say(dropped)).status == 502
        assert (await r.client.ask("POST", "sync")).body == {"dropped": 0, "cancelled": 0}


async def test_everything_can_be_cancelled_but_not_by_mistake() -> None:
    async with rig() as r, rig() as other:
        worker = other.worker.address
        beat = {"name": "another", "address": worker, "concurrency": 5, "indices": list(range(len(KINDS)))}
        assert (await r.client.ask("POST", "receive_heartbeat", beat)).body == {"ok": True}
        await r.client.start()
        await r.client.start(name="another")
        assert (await r.client.ask("POST", "cancel_all")).status == 403
        assert (await r.client.ask("POST", "cancel_all?name=another")).body == {"cancelled": 1}
        assert (await r.client.ask("POST", "cancel_all?force=true")).body == {"cancelled": 1}
        assert not r.env.open_sessions and not other.env.open_sessions


async def test_the_worker_with_most_free_slots_gets_the_next_session() -> None:
    async with rig(worker={"concurrency": 2}) as r, rig(worker={"concurrency": 4}) as other:
        beat = {"name": "drill", "address": other.worker.address, "concurrency": 4, "indices": list(range(len(KINDS)))}
        await r.client.ask("POST", "receive_heartbeat", beat)
        for _ in range(5):
            await r.client.start()
        assert (r.env.open_sessions, other.env.open_sessions) in {(1, 4), (2, 3)}


async def test_listings() -> None:
    async with rig() as r:
        session = await r.client.start()
        assert (await r.client.ask("GET", "get_indices?name=drill")).body == list(range(len(KINDS)))
        workers = (await r.client.ask("GET", "list_workers")).body["drill"]
        assert [(w["concurrency"], w["current"], w["state"]) for w in workers] == [(128, 1, "live")]
        sessions = (await r.client.ask("GET", "list_sessions")).body
        assert [(s["session_id"], s["state"], s["turns"]) for s in sessions] == [(session, "running", 0)]
        assert (await r.client.ask("GET", "version")).body["protocol"] == "agentrl"


async def test_gold_answers_stay_at_the_worker() -> None:
    async with rig() as r:
        described = await r.client.ask("GET", "describe?name=drill")
        assert [task["id"] for task in described.body["tasks"]] == list(KINDS)
        session = await r.client.start()
        heard = [described, *[await r.client.say(session, "go") for _ in range(3)]]
        heard += [await r.client.ask("GET", path) for path in ("list_sessions", "list_workers", "/", "/metrics")]
        heard += [await r.at_worker.ask("GET", path) for path in ("describe", "get_sessions", "worker_status")]
        assert all(answer.status == 200 for answer in heard)
        assert not any(GOLD in str(answer) for answer in heard)


async def test_custom_tasks_are_off_unless_asked_for() -> None:
    custom = {"name": "drill", "index": -1, "custom_task": {"data": {"kind": "plain"}}}
    async with rig() as r:
        assert (await r.client.ask("POST", "start_sample", custom)).status == 403
        assert (await r.at_worker.ask("POST", "start_sample", {**custom, "session_id": 1})).status == 403
    async with rig({"custom_tasks": True}, {"custom_tasks": True}) as r:
        heard = await r.client.ask("POST", "start_sample", custom)
        assert heard.status == 200 and heard.body["tools"][0]["function"]["name"] == "act"
        by_index = await r.client.ask("POST", "start_sample", {**custom, "custom_task": {"index": 0}})
        assert by_index.status == 200
        for bad in ({}, {"data": 1}, {"data": {}, "more": 1}, {"index": 99}, {"index": -1}):
            refused = await r.client.ask("POST", "start_sample", {**custom, "custom_task": bad})
            assert refused.status == 400, bad


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"name": "drill", "index": 99}, 400),
        ({"name": "drill", "index": "zero"}, 400),
        ({"name": "drill"}, 400),
        ({"name": "", "index": 0}, 400),
        (b"{", 400),
        (b" " * 2000, 413),
    ],
)
async def test_bad_starts_are_refused(body: object, status: int) -> None:
    async with rig({"access": AccessSettings(request_bytes=1000)}) as r:
        heard = await r.client.ask("POST", "start_sample", body)
        assert heard.status == status and heard.body["error"] == heard.body["detail"]
        assert not r.controller.sessions and not r.controller.dispatch.of("drill")[0].sessions


async def test_bad_turns_are_refused_and_cost_nothing() -> None:
    async with rig() as r:
        session = await r.client.start("long")
        for body in ({}, {"messages": []}, {"messages": [{"role": "user", "content": "x"}]}, {"messages": [3]}):
            assert (await r.client.ask("POST", "interact", body, session_id=session)).status == 400
        many = {"messages": [{"role": "assistant", "content": "x"}] * 300}
        assert (await r.client.ask("POST", "interact", many, session_id=session)).status == 400
        assert (await r.client.ask("POST", "interact", many)).status == 400
        assert (await r.client.say(session, turn="x")).status == 400
        assert (await r.client.say(12345)).status == 404
        assert r.env.steps["long"] == 0 and (await r.client.say(session)).status == 200


async def test_half_a_surrogate_pair_is_play_like_any_other() -> None:
    async with rig() as r:
        session = await r.client.start("long")
        body = b'{"messages": [{"role": "assistant", "content": "a\\ud800b"}]}'
        heard = await r.client.ask("POST", "interact", body, session_id=session)
        assert heard.body["messages"][0]["content"] == "turn 1: a\ufffdb"


async def test_an_unknown_task_is_told_apart_from_a_controller_that_just_began() -> None:
    body = {"name": "nothing", "index": 0}
    async with rig() as r:
        assert (await r.client.ask("POST", "start_sample", body)).status == 503
    async with rig({"coma": 0.01}) as r:
        await asyncio.sleep(0.05)
        heard = await r.client.ask("POST", "start_sample", body)
        assert heard.status == 400 and "no workers available" in heard.body["error"]
        assert (await r.client.ask("GET", "get_indices?name=nothing")).status == 400


async def test_a_worker_that_drains_takes_nothing_new_and_leaves() -> None:
    async with rig() as r:
        session = await r.client.start()
        draining = asyncio.create_task(r.worker.drain(5))
        await until(lambda: r.controller.dispatch.of("drill")[0].concurrency == 0)
        assert (await r.at_worker.ask("POST", "start_sample", {"index": 0, "session_id": 3})).status == 406
        assert not draining.done()
        for _ in range(3):
            await r.client.say(session)
        await draining
        await r.worker.close()
        assert not r.controller.dispatch.workers


async def test_a_session_can_be_graded_as_it_stands() -> None:
    async with rig() as r:
        session = await r.client.start("long")
        await r.client.say(session)
        graded = await r.client.ask("POST", "finish", {}, session_id=session, turn=1)
        assert graded.body["finish"] and graded.body["metrics"]["parts"] == {"turns": 1}
        assert graded.body["metrics"]["score"] == graded.body["reward"] == 1.0
        assert (await r.client.ask("POST", "finish", {}, session_id=session, turn=1)).body == graded.body
        assert (await r.client.say(session)).status == 400 and r.env.open_sessions == 0


async def test_a_session_is_kept_while_its_agent_thinks() -> None:
    async with rig({"idle": 0.4, "sweep": 0.05}, {"idle": 0.4}) as r:
        session = await r.client.start("long")
        for _ in range(10):
            await asyncio.sleep(0.1)
            assert (await r.client.ask("POST", "renew", {}, session_id=session)).status == 200
        assert (await r.client.say(session)).status == 200
        assert (await r.client.ask("POST", "renew", {}, session_id=1)).status == 404


async def test_health_is_the_environments() -> None:
    async with rig() as r:
        assert (await r.client.ask("GET", "healthy?name=drill")).body == {"healthy": True}
        assert (await r.client.ask("GET", "healthy?name=nothing")).body == {"healthy": False}


async def test_what_json_cannot_say_is_the_environments_failure() -> None:
    async with rig() as r:
        session = await r.client.start("unsayable")
        answer = (await r.client.say(session, "go")).body
        assert answer["status"] == "task error" and answer["metrics"]["ending"] == "env_error"
