"""Groups are played on a real environment: as admitted, tokens as sampled, broken attempts again, none lost."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import io
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

pytest.importorskip("transformers", reason="needs transformers: pip install -e '.[local]'")

from envs.alfworld.env import AlfworldEnv
from harness import registry
from harness.config import LocalOptions
from harness.core import EnvOptions, Limits, Score, Trajectory
from harness.errors import ModelError, SetupError, StorageError
from harness.models.local import LocalModel, load_tokenizer
from harness.models.sampler import Request, Sampled
from tests.training.players import Dicing, tokenizer_folder
from training import counts, staleness
from training import curriculum as choosing
from training.buffer import Buffer, Spent, decode, encode
from training.collect import CollectOptions, Collector, Table
from training.curriculum import Curriculum, CurriculumOptions
from training.play import Order, Play, here
from training.policies import PooledSampler, PoolOptions
from training.staleness import Admission, Budget
from training.watch import Overdue, Watch

Saved = tuple[bytes, Curriculum, Spent, int]

B, G = 2, 2
COURSE = CurriculumOptions()
QUICK = CollectOptions(group_size=G, limits=Limits(turns=3), retry_seconds=0.0, batch_seconds=60.0, seed=5)


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tokenizer_folder(tmp_path_factory.mktemp("tokenizer"))


class Stage:
    """A collector at play, with its engines in reach."""

    def __init__(
        self,
        folder: Path,
        *,
        eta: int = 0,
        options: CollectOptions = QUICK,
        pools: PoolOptions = PoolOptions(stale_ratio=0.5, stale_interval=2),  # noqa: B008 - a constant
        jitter: float = 0.0,
        most: int = 16,
        names: tuple[str, ...] = ("alfworld",),
        course: CurriculumOptions = COURSE,
        keep: Callable[[Trajectory], None] | None = None,
        saved: Saved | None = None,
        play: Play | None = None,
    ) -> None:
        tokenizer = load_tokenizer(folder)
        self.engines = [Dicing(f"dice:{number}", tokenizer, jitter) for number in range(pools.depth + 1)]
        self.sampler = PooledSampler(self.engines, pools, folder)
        self.model = LocalModel("dice", folder, self.sampler, LocalOptions(answer_tokens=80))
        self.envs = {name: registry.make_env(name, EnvOptions()) for name in names}
        self.out = io.StringIO()
        self.seen: list[Trajectory] = []
        groups, state, spent, version = saved or (b"", choosing.begin(names, course), Spent(), 0)
        waiting = decode(groups) if groups else ()
        self.buffer = Buffer(B, (eta + 1) * B, waiting, spent)
        self.collector = Collector(
            Table(envs=self.envs, play=play or here(self.envs, registry.make_agent("direct"), self.model)),
            options,
            course,
            admission=staleness.restarted(B, eta, most, version, len(waiting)),
            curriculum=state,
            buffer=self.buffer,
            watch=Watch(self.out),
            keep=keep or self.seen.append,
        )

    @contextlib.asynccontextmanager
    async def playing(self) -> AsyncIterator[Collector]:
        for env in self.envs.values():
            await env.open()
        running = asyncio.create_task(self.collector.run())
        try:
            yield self.collector
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            for env in self.envs.values():
                await env.close()

    async def publish(self, version: int) -> None:
        await self.sampler.update(f"w{version}", version)
        self.collector.published(version)

    def save(self) -> Saved:
        state = msgspec.json.decode(msgspec.json.encode(self.collector.curriculum), type=Curriculum)
        return encode(self.buffer.groups), state, self.buffer.spent, self.collector.admission.version


async def settled(what: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not what():
            await asyncio.sleep(0.01)


async def test_a_batch_is_whole_groups_of_tokens_as_they_were_sampled(folder: Path) -> None:
    stage = Stage(folder)
    async with stage.playing() as collector:
        batch = await collector.batch()
    assert [group.group_id for group in batch.groups] == [0, 1]
    assert all(len(group.attempts) == G for group in batch.groups)
    asked = [request.prompt_ids for engine in stage.engines for request in engine.asked]
    assert len(asked) == sum(one.turns for group in batch.groups for one in group.attempts)
    by_digest = {trajectory.seed: trajectory for trajectory in stage.seen}
    assert len(by_digest) == B * G, "each attempt has a seed of its own"
    for group in batch.groups:
        assert group.env == "alfworld" and group.admitted_version == 0
        for one in group.attempts:
            (part,) = one.segments
            played = [
                [turn.reply.tokens for turn in trajectory.turns]
                for trajectory in stage.seen
                if trajectory.task_id == group.task_id
            ]
            sampled = [[each for turn in turns if turn for each in turn.sampled_ids] for turns in played]
            assert part.ids[part.mask].tolist() in sampled
            assert one.reward == -0.2 and one.by_agent, "three turns are not enough, and that is the agent's doing"
            assert set(part.pools[part.mask].tolist()) <= {0, 1}
    metrics = collector.metrics()
    assert metrics["attempts"] == B * G and metrics["env/errors"] == 0
    assert metrics["task/alfworld/reward"] == pytest.approx(-0.2)
    assert {"env/alfworld/step_seconds/p99", "task/alfworld/success", "queue/complete"} <= set(metrics)
    alike, other = batch.groups
    first, *rest = other.attempts
    mixed = replace(other, attempts=(replace(first, reward=1.0), *rest))
    said = counts.rewards([alike, mixed])
    assert said["reward/spread"] == pytest.approx(0.6), "0 in one group, and 1.2 in the other"
    assert said["reward/mean"] == pytest.approx((1.0 - 0.2 * (2 * G - 1)) / (2 * G))


async def test_nothing_is_begun_beyond_the_admission_rule(folder: Path) -> None:
    stage = Stage(folder, eta=1)
    async with stage.playing() as collector:
        await settled(lambda: len(stage.buffer) == 2 * B)
        await asyncio.sleep(0.1)
        assert collector.admission == Admission(batch=B, eta=1, max_running=16, accepted=2 * B)
        assert len(stage.seen) == 2 * B * G
        await collector.batch()
        await asyncio.sleep(0.1)
        assert len(stage.seen) == 2 * B * G, "taking a batch is no new version"
        await stage.publish(1)
        await settled(lambda: len(stage.buffer) == 2 * B)
        assert collector.curriculum.next_group == 3 * B


async def test_only_so_many_groups_run_at_once(folder: Path) -> None:
    stage = Stage(folder, eta=3, most=1, jitter=0.005)
    most = 0
    async with stage.playing() as collector:
        while len(stage.buffer) < 4:
            most = max(most, collector.admission.running)
            await asyncio.sleep(0.001)
    assert most == 1


async def test_two_environments_get_their_tokens(folder: Path) -> None:
    stage = Stage(folder, names=("alfworld", "db"))
    async with stage.playing() as collector:
        for version in range(3):
            await collector.batch()
            await stage.publish(version + 1)
    notes = collector.curriculum.envs
    assert notes["alfworld"].tokens > 0 and notes["db"].tokens > 0


async def batches(stage: Stage, count: int) -> list[bytes]:
    found = []
    async with stage.playing() as collector:
        for _ in range(count):
            batch = await collector.batch()
            found.append(encode(batch.groups))
            await stage.publish(collector.admission.version + 1)
    return found


async def test_without_staleness_timing_changes_nothing(folder: Path) -> None:
    steady = await batches(Stage(folder, names=("alfworld", "db")), 3)
    hectic = await batches(Stage(folder, names=("alfworld", "db"), jitter=0.02, most=1), 3)
    assert steady == hectic


@pytest.mark.parametrize("when", [0, 3, 9])
async def test_killed_and_resumed_the_groups_are_those_of_a_run_in_one_piece(folder: Path, when: int) -> None:
    whole = await batches(Stage(folder), 3)
    first = Stage(folder, jitter=0.003)
    found = []
    async with first.playing() as collector:
        found.append(encode((await collector.batch()).groups))
        await first.publish(1)
        await settled(lambda: len(first.seen) >= 2 * B + when // 3)
        saved = first.save()
        engines = [engine.version for engine in first.engines]
    second = Stage(folder, saved=saved)
    for engine, version in zip(second.engines, engines, strict=True):
        engine.version = version
    second.sampler.serving = first.sampler.serving
    assert found + await batches(second, 2) == whole
    numbers = [group.group_id for data in whole for group in decode(data)]
    assert numbers == sorted(set(numbers))


async def test_lag_budgets_hold_also_after_a_resume(folder: Path) -> None:
    pools = PoolOptions(stale_ratio=0.5, stale_interval=2)
    budget = Budget(eta=1, stale_interval=2)
    stage, dropped = Stage(folder, eta=1, pools=pools, jitter=0.01), 0
    trained: list[int] = []
    for _ in range(2):
        async with stage.playing() as collector:
            for _ in range(4):
                batch = await collector.batch()
                version = collector.admission.version
                for group in batch.groups:
                    trained.append(group.group_id)
                    for part in (part for one in group.attempts for part in one.segments):
                        kept = staleness.keep(part, version, budget)
                        dropped += part.tokens - int(kept.sum())
                        lags = version - part.versions[kept]
                        assert (lags <= 1 + 2 * part.pools[kept]).all() and (lags >= 0).all()
                await stage.publish(version + 1)
            saved, old = stage.save(), stage
        stage = Stage(folder, eta=1, pools=pools, jitter=0.01, saved=saved)
        await stage.sampler.serve(old.sampler.serving)
    assert len(trained) == len(set(trained)) == 8 * B
    assert dropped == 0, "the admission rule alone keeps short attempts within their budget"


def broken(times: int) -> Callable[[Request], None]:
    left = [times]

    def fault(request: Request) -> None:
        if left[0] > 0:
            left[0] -= 1
            raise ModelError("the engine is out of breath")

    return fault


async def test_a_broken_attempt_is_played_again_under_its_own_seed(folder: Path) -> None:
    whole = await batches(Stage(folder, pools=PoolOptions(depth=0)), 1)
    stage = Stage(folder, pools=PoolOptions(depth=0))
    stage.engines[0].fault = broken(2)
    assert await batches(stage, 1) == whole
    failed = [trajectory for trajectory in stage.seen if trajectory.failure]
    assert len(failed) == 2 and {trajectory.attempt for trajectory in failed} <= {0, 1}


async def test_a_group_that_keeps_failing_is_dropped_and_its_capacity_given_back(folder: Path) -> None:
    options = msgspec.structs.replace(QUICK, retries=1)
    stage = Stage(folder, options=options, pools=PoolOptions(depth=0), most=1)
    stage.engines[0].fault = broken(2)
    async with stage.playing() as collector:
        batch = await collector.batch()
        assert [group.group_id for group in batch.groups] == [1, 2]
        assert collector.admission.capacity == 0 and collector.admission.accepted == B
        metrics = collector.metrics()
    assert metrics["drop/alfworld/failed"] == 1 and metrics["env/errors"] > 0
    assert not collector.curriculum.open
    assert 0 in stage.buffer.spent


async def test_failures_with_success_between_them_do_not_end_the_run(folder: Path) -> None:
    options = msgspec.structs.replace(QUICK, retries=0, most_failed=2)
    stage = Stage(folder, options=options, pools=PoolOptions(depth=0), most=1)

    def every_other(request: Request) -> None:
        if int(request.episode.split("/")[0].removeprefix("group-")) % 2 == 0:
            raise ModelError("the engine is out of breath")

    stage.engines[0].fault = every_other
    async with stage.playing() as collector:
        assert [group.group_id for group in (await collector.batch()).groups] == [1, 3]


async def test_no_more_sessions_than_an_environment_has(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AlfworldEnv, "max_sessions", 1)
    stage = Stage(folder, pools=PoolOptions(depth=0))
    stage.engines[0].fault = broken(1)  # an attempt that fails gives its place back, too
    sample, under_way, most = stage.engines[0].sample, set[str](), []

    async def counted(request: Request) -> Sampled:
        under_way.add(request.episode)
        most.append(len(under_way))
        await asyncio.sleep(0.001)
        return await sample(request)

    async def release(episode: str) -> None:
        under_way.discard(episode)

    monkeypatch.setattr(stage.engines[0], "sample", counted)
    monkeypatch.setattr(stage.engines[0], "release", release)
    async with stage.playing() as collector, asyncio.timeout(60):
        await collector.batch()
    assert max(most) == 1


async def no_number(session: object) -> Score:
    return Score(value=float("nan"))


async def no_start(session: object) -> Any:
    raise OSError("the games are gone")


def break_always(stage: Stage, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Break an engine, the environment under it, or its grading, for good."""
    session = type(stage.envs["alfworld"].session(next(stage.envs["alfworld"].tasks("train"))))
    if what == "engine":
        stage.engines[0].fault = broken(10**6)
    elif what == "start":
        monkeypatch.setattr(session, "start", no_start)
    elif what == "score":
        monkeypatch.setattr(session, "score", no_number)
    else:
        monkeypatch.setattr(type(stage.envs["alfworld"]), "tasks", lambda *_: (1 // 0 for _ in range(1)))


@pytest.mark.parametrize(
    ("what", "cause"),
    [
        ("engine", "model: the engine is out of breath"),
        ("start", "env: starting the session: OSError: the games are gone"),
        ("score", "grader: grading: the score nan is not in [0, 1]"),
        ("tasks", "making task 2 of train of alfworld: ZeroDivisionError"),
    ],
)
async def test_an_environment_that_always_fails_ends_the_run_with_a_sentence(
    folder: Path, what: str, cause: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = msgspec.structs.replace(QUICK, retries=0, most_failed=3)
    stage = Stage(folder, options=options, pools=PoolOptions(depth=0))
    break_always(stage, what, monkeypatch)
    async with stage.playing() as collector:
        with pytest.raises(SetupError) as caught:
            await collector.batch()
    assert f"3 groups of alfworld in a row came to nothing ({cause}" in str(caught.value)
    assert "harness validate alfworld" in str(caught.value)


async def test_a_log_that_cannot_be_written_ends_the_run(folder: Path) -> None:
    def refuse(trajectory: Trajectory) -> None:
        raise StorageError("cannot write the log: no space left")

    stage = Stage(folder, keep=refuse)
    async with stage.playing() as collector:
        with pytest.raises(StorageError, match="no space left"):
            await collector.batch()


async def test_a_group_that_fails_while_another_ends_the_run_is_told_once(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    gc.collect()  # what tests before this one left is not told here
    caplog.clear()
    under_way: set[int] = set()

    async def play(order: Order) -> Trajectory:
        under_way.add(id(order))
        try:
            await asyncio.sleep(0.1 if order.entry == "group-0" else 600)
        finally:
            under_way.remove(id(order))
            raise StorageError("cannot write the log: no space left")

    stage = Stage(folder, play=play)
    async with stage.playing() as collector:
        with pytest.raises(StorageError, match="no space left"):
            await collector.batch()
        assert not under_way, "who is told finds nothing under way"
    del collector, stage
    gc.collect()
    assert "never retrieved" not in caplog.text


async def test_groups_that_say_nothing_are_played_for_again_within_a_bound(folder: Path) -> None:
    options = msgspec.structs.replace(QUICK, most_alike=2)
    stage = Stage(folder, options=options, pools=PoolOptions(depth=0), most=1)
    async with stage.playing() as collector:
        batch = await collector.batch()
        metrics = collector.metrics()
    assert [group.group_id for group in batch.groups] == [2, 5], "two of three are dropped: all were worth -0.2"
    assert metrics["drop/alfworld/all_alike"] == 4
    assert collector.admission.accepted == B and not collector.curriculum.open


async def test_a_group_that_takes_too_long_is_dropped_with_a_report(folder: Path) -> None:
    options = msgspec.structs.replace(QUICK, group_seconds=2)
    stage = Stage(folder, options=options, pools=PoolOptions(depth=0), most=1)
    hung = asyncio.Event()
    sample = stage.engines[0].sample

    async def hang_once(request: Request) -> Any:
        if not hung.is_set():
            hung.set()
            await asyncio.sleep(600)
        return await sample(request)

    stage.engines[0].sample = hang_once  # type: ignore[method-assign]
    async with stage.playing() as collector:
        batch = await collector.batch()
        assert 0 not in [group.group_id for group in batch.groups]
        assert collector.metrics()["drop/alfworld/overdue"] >= 1
    text = stage.out.getvalue()
    assert "group 0 of alfworld took more than 2 seconds" in text
    assert "hang_once" in text and "queue groups running: 1" in text


async def test_a_learner_that_waits_in_vain_and_a_collector_without_capacity_end_with_a_report(folder: Path) -> None:
    options = msgspec.structs.replace(QUICK, batch_seconds=3)
    stage = Stage(folder, options=options, pools=PoolOptions(depth=0))
    async with stage.playing() as collector:
        await settled(lambda: len(stage.buffer) == B)
        await collector.batch()
        with pytest.raises(Overdue, match="waiting for"):
            await collector.batch()
        with pytest.raises(Overdue, match="waiting for"):
            await collector.batch()
    text = stage.out.getvalue()
    assert "waiting for capacity to begin a group took more than 3 seconds" in text
    assert "queue groups that may begin: 0" in text


async def test_what_is_in_flight_is_counted_by_pool_and_version(folder: Path) -> None:
    stage = Stage(folder, jitter=0.3)
    async with stage.playing() as collector:
        await settled(lambda: bool(stage.sampler.in_flight() and collector.unfinished()))
        assert {version for _, version in stage.sampler.in_flight() + collector.unfinished()} == {0}
        await collector.batch()
    assert not collector.unfinished() and not stage.sampler.in_flight()
    assert collector.admission.running == 0


async def test_the_horizon_bounds_the_turns(folder: Path) -> None:
    course = CurriculumOptions(horizon={"alfworld": ((0, 2), (1, 4))})
    stage = Stage(folder, options=msgspec.structs.replace(QUICK, limits=Limits(turns=3)), course=course)
    async with stage.playing() as collector:
        first = await collector.batch()
        await stage.publish(1)
        second = await collector.batch()
    assert {one.turns for group in first.groups for one in group.attempts} == {2}
    assert {one.turns for group in second.groups for one in group.attempts} == {3}, "the smaller of both"
