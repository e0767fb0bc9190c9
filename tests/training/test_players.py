"""Players in processes of their own: they play what the loop would have played, die, and leave nothing behind."""

from __future__ import annotations

import asyncio
import io
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import pytest

pytest.importorskip("transformers", reason="needs transformers: pip install -e '.[local]'")

from harness import registry
from harness.config import LocalOptions
from harness.core import Ending, EnvOptions, Limits, SamplingParams, Trajectory
from harness.errors import ModelError, OutOfContext, SetupError
from harness.models.local import LocalModel, load_tokenizer
from harness.models.sampler import Request
from tests.training.players import Dicing, tokenizer_folder
from training.play import Order, here
from training.policies import PooledSampler, PoolOptions
from training.process import players
from training.process.options import ProcessOptions
from training.process.parent import Lost, Process
from training.process.players import Players, Relay, Seats
from training.watch import Watch

SECONDS = 120.0
OPTIONS = LocalOptions(answer_tokens=80)
ENVS: dict[str, dict[str, Any]] = {"alfworld": {}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tokenizer_folder(tmp_path_factory.mktemp("tokenizer"))


class Stand:
    """Engines that dice, here, and players that play on them, elsewhere."""

    def __init__(self, folder: Path, out: Path, jitter: float = 0.0, envs: Any = None, **options: Any) -> None:
        self.engines = [Dicing(f"dice:{number}", load_tokenizer(folder), jitter) for number in range(2)]
        self.sampler = PooledSampler(self.engines, PoolOptions(stale_ratio=0.5), folder)
        self.said: list[str] = []
        self.begun: list[Process] = []

        def hold(*words: Any) -> Process:
            self.begun.append(Process(*words))
            return self.begun[-1]

        self.players: Players = players.describe(
            Seats("dice", folder, OPTIONS, envs or ENVS), self.sampler, ProcessOptions(**{"players": 2, **options}),
            folder=out, watch=Watch(io.StringIO()), say=self.said.append, hold=hold,
        )  # fmt: skip

    @asynccontextmanager
    async def playing(self) -> AsyncIterator[Players]:
        await self.sampler.open()
        try:
            await self.players.open()
            yield self.players
        finally:
            await self.players.close()
        assert not self.sampler.in_flight(), "the engines hold nothing for anybody"
        assert not any(alive(process.pid) for process in self.begun)


def alive(pid: int | None) -> bool:
    return pid is not None and Path(f"/proc/{pid}").exists()


def orders(count: int, turns: int = 3) -> list[Order]:
    env = registry.make_env("alfworld", EnvOptions())
    return [
        Order(
            env="alfworld", task=task, params=SamplingParams(temperature=1.0), limits=Limits(turns=turns),
            entry=f"group-{place}", epoch=0, attempt=0, seed=place,
        )
        for place, task in enumerate(islice(env.tasks("train"), count))
    ]  # fmt: skip


async def together(play: Callable[[Order], Any], given: list[Order]) -> list[Trajectory]:
    async with asyncio.timeout(SECONDS):
        return await asyncio.gather(*(play(each) for each in given))


async def at_home(folder: Path, given: list[Order]) -> list[Trajectory]:
    """Play on this event loop."""
    engines = [Dicing(f"dice:{number}", load_tokenizer(folder)) for number in range(2)]
    sampler = PooledSampler(engines, PoolOptions(stale_ratio=0.5), folder)
    envs = {"alfworld": registry.make_env("alfworld", EnvOptions())}
    await envs["alfworld"].open()
    model = LocalModel("dice", folder, sampler, OPTIONS)
    await model.opened()
    found = await together(here(envs, registry.make_agent("direct"), model), given)
    await envs["alfworld"].close()
    return found


def timeless(trajectory: Trajectory) -> Any:
    """Return what a trajectory says but for its times."""
    known = msgspec.to_builtins(trajectory)
    for turn in known["turns"]:
        turn["env_seconds"] = turn["reply"]["usage"] = None
    return {**known, "started": "", "seconds": 0, "usage": None}


async def test_players_play_what_the_loop_would_have_played(folder: Path, tmp_path: Path) -> None:
    given = orders(6)
    expected = [timeless(each) for each in await at_home(folder, given)]
    stand = Stand(folder, tmp_path)
    async with stand.playing() as playing:
        found = await together(playing.play, given)
        assert playing.forks == 0
    assert [timeless(each) for each in found] == expected
    assert all(each.ending is Ending.TURN_LIMIT for each in found)
    tokens = [turn.reply.tokens for each in found for turn in each.turns]
    assert {each.engine.partition("/")[0] for each in tokens if each} == {"current", "stale-1"}
    assert len(stand.begun) == 2 and (tmp_path / "processes" / "player-1.log").exists()
    episodes = {request.episode for engine in stand.engines for request in engine.asked}
    assert len(episodes) == 6 and episodes == {name for engine in stand.engines for name in engine.released}


async def test_a_player_that_dies_plays_its_attempts_again_alike(folder: Path, tmp_path: Path) -> None:
    given = orders(6, turns=6)
    expected = [timeless(each) for each in await at_home(folder, given)]
    stand = Stand(folder, tmp_path, jitter=0.1, restarts=1)
    async with stand.playing() as playing:
        running = asyncio.ensure_future(together(playing.play, given))
        watching = [asyncio.ensure_future(gone()) for gone in playing.gone]
        while sum(len(engine.asked) for engine in stand.engines) < 12:
            await asyncio.sleep(0.01)
        assert stand.begun[0].pid is not None
        os.kill(stand.begun[0].pid, signal.SIGKILL)
        assert [timeless(each) for each in await running] == expected
        assert len(stand.said) == 1 and "SIGKILL" in stand.said[0] and "it is started again" in stand.said[0]
        assert len(stand.begun) == 3 and not any(each.done() for each in watching)
        running = asyncio.ensure_future(together(playing.play, given))
        await asyncio.sleep(0.1)
        assert stand.begun[2].pid is not None
        os.kill(stand.begun[2].pid, signal.SIGKILL)
        with pytest.raises(Lost, match="SIGKILL"):
            await running
        async with asyncio.timeout(SECONDS):
            done, left = await asyncio.wait(watching, return_when=asyncio.FIRST_COMPLETED)
        assert len(done) == 1 and isinstance(done.pop().result(), Lost)
        for each in left:
            each.cancel()


async def test_an_attempt_that_is_called_off_ends_its_turn_and_no_other(folder: Path, tmp_path: Path) -> None:
    stand = Stand(folder, tmp_path, players=1)
    never = asyncio.Event()
    slow = {"group-0"}

    class Waiting(Dicing):
        async def sample(self, request: Request) -> Any:
            if request.episode.split("/")[0] in slow:
                self.asked.append(request)
                await never.wait()
            return await super().sample(request)

    for engine in stand.engines:
        engine.__class__ = Waiting
    async with stand.playing() as playing:
        first, second = orders(2)
        stuck = asyncio.ensure_future(playing.play(first))
        while not any(engine.asked for engine in stand.engines):
            await asyncio.sleep(0.01)
        stuck.cancel()
        (other,) = await together(playing.play, [second])
        assert other.ending is Ending.TURN_LIMIT
        async with asyncio.timeout(SECONDS):
            while not any(engine.released for engine in stand.engines):
                await asyncio.sleep(0.01)
        with pytest.raises(asyncio.CancelledError):
            await stuck
        assert stand.players._players[0].under_way == 0


@pytest.mark.parametrize(
    ("error", "ending"),
    [(OutOfContext("no room"), Ending.CONTEXT_LIMIT), (ModelError("it is ill"), Ending.MODEL_ERROR)],
)
async def test_what_an_engine_raises_is_raised_in_the_player(
    folder: Path, tmp_path: Path, error: Exception, ending: Ending
) -> None:
    def fault(request: Request) -> None:
        raise error

    stand = Stand(folder, tmp_path, players=1)
    for engine in stand.engines:
        engine.fault = fault
    async with stand.playing() as playing:
        (found,) = await together(playing.play, orders(1))
    assert found.ending is ending
    assert ending is Ending.CONTEXT_LIMIT or (found.failure is not None and "it is ill" in found.failure.message)


async def test_environments_are_opened_and_closed_in_the_player(folder: Path, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    stand = Stand(folder, tmp_path, players=1, envs={"tests.training.held:noting": {"notes": str(notes)}})
    async with stand.playing():
        assert notes.read_text().split() == ["open", str(stand.begun[0].pid)]
    assert notes.read_text().split() == ["open", str(stand.begun[0].pid), "close"]
    refused = Stand(folder, tmp_path, players=1, envs={"tests.training.held:noting": {"notes": "/nowhere/at/all"}})
    with pytest.raises(SetupError, match="cannot write /nowhere/at/all: name another file"):
        async with refused.playing():
            pass


async def test_a_question_for_turns_waits_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(players, "ASKED_SECONDS", 0.05)
    relay = Relay()
    assert await relay.asked() == []
    turn = asyncio.ensure_future(relay.sample(Request(episode="e", prompt_ids=(1,), max_tokens=1)))
    (asked,) = await relay.asked()
    assert asked.request is not None and asked.episode == "e" and await relay.asked() == []
    turn.cancel()
    await asyncio.gather(turn, return_exceptions=True)
    relay.answered(asked.number, None, None)  # too late: nobody waits
    await relay.release("e")
    assert [each.request for each in await relay.asked()] == [None]
