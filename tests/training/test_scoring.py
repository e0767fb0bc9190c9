"""Scoring on the way, one at a time, and several models while nothing else computes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from harness import newmodel, runlog
from harness.core import EnvOptions
from harness.errors import SetupError, StorageError
from training import machine, scoring
from training import recipe as recipes
from training.recipe import Recipe
from training.scoring import Result, Scoring, best_of, evaluate, side_by_side


def recipe(threads: int | None) -> Recipe:
    return recipes.made({"name": "r", "envs": {"db": {}}, "steps": 1, "processes": {"engine_threads": threads}}, "r")


async def most_at_once(threads: int | None, count: int) -> int:
    under_way, most = 0, 0

    def scoring(number: int) -> Callable[[], Awaitable[Result]]:
        async def score() -> Result:
            nonlocal under_way, most
            under_way += 1
            most = max(most, under_way)
            await asyncio.sleep(0.01 * (count - number))
            under_way -= 1
            return Result("test", number, 0.5, 1.0, "")

        return score

    found = await side_by_side(recipe(threads), [scoring(number) for number in range(count)])
    assert [each.version for each in found] == list(range(count)), "in the order asked for, not that of their ends"
    return most


async def test_as_many_are_scored_at_once_as_have_cores() -> None:
    cores = machine.cores()
    assert await most_at_once(1, cores + 1) == cores
    assert await most_at_once(cores, 3) == 1
    assert await most_at_once(None, 3) == 1, "an engine that takes all cores has them to itself"


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system binds no process to cores")
async def test_a_run_that_is_bound_to_one_core_scores_one_at_once() -> None:
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        assert await most_at_once(1, 3) == 1
    finally:
        os.sched_setaffinity(0, before)


@pytest.mark.parametrize("end", ["its deadline", "the run's end"])
async def test_an_evaluation_is_ended_with_its_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    up = tmp_path / "up"
    lasting = f"import os, time; open({str(up)!r}, 'w').write(str(os.getpid()) + '\\n'); time.sleep(600)"
    monkeypatch.setattr(scoring, "EVALUATE", lasting)
    score = {"seconds": 5 if end == "its deadline" else 600}
    said: list[str] = []
    one = Scoring(
        recipes.made({"name": "r", "envs": {"db": {}}, "steps": 1, "score": score}, "r"), tmp_path, said.append
    )
    one.begin(1, tmp_path)
    async with asyncio.timeout(60):
        while not (up.exists() and up.read_text().endswith("\n")):
            await asyncio.sleep(0.02)
        await (one.wait() if end == "its deadline" else one.close())
    with pytest.raises(ProcessLookupError):
        os.kill(int(up.read_text()), 0)
    told = "".join(said)
    assert ("took longer than 5 seconds: give score.seconds more" in told) is (end == "its deadline")


async def test_one_that_fails_ends_the_others_and_is_heard() -> None:
    ended = asyncio.Event()

    async def fails() -> Result:
        await asyncio.sleep(0)
        raise SetupError("it does not play")

    async def lasts() -> Result:
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()
        raise AssertionError("unreachable")

    async with asyncio.timeout(10):
        with pytest.raises(SetupError, match="it does not play"):
            await side_by_side(recipe(None), [fails, lasts])
        if machine.cores() > 1:
            with pytest.raises(SetupError, match="it does not play"):
                await side_by_side(recipe(1), [lasts, fails])
            assert ended.is_set()


def weights(folder: Path, version: int) -> Path:
    place = folder / f"v{version}"
    place.mkdir()
    (place / "model.safetensors").write_text(f"weights {version}")
    return place


async def test_the_best_weights_are_kept_with_their_score_whatever_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = {0: 0.2, 1: 0.6, 2: 0.4, 3: StorageError("the disk is full"), 4: 0.7}

    async def evaluated(recipe: Recipe, folder: Path, model: Path, version: int, *rest: object, what: str) -> Result:
        await asyncio.sleep(0)
        if isinstance(value := values[version], Exception):
            raise value
        return Result(what, version, value, 1.0, "")

    monkeypatch.setattr(scoring, "evaluate", evaluated)
    said: list[str] = []
    for versions, best in (((0, 1), (1, 0.6)), ((2, 3), (1, 0.6)),
                           ((4,), (4, 0.7))):  # fmt: skip
        beginning = Scoring(recipe(None), tmp_path, said.append)  # as after a kill: nothing is remembered but the disk
        for version in versions:
            beginning.begin(version, weights(tmp_path, version))
            await beginning.wait()
        assert (found := best_of(tmp_path)) is not None and (found.version, found.score) == best
        kept = tmp_path / "checkpoints" / "best" / "model.safetensors"
        assert kept.read_text() == f"weights {best[0]}"
    assert "validation at update 3 failed: the disk is full" in said


async def test_an_evaluation_that_is_overtaken_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    going = asyncio.Event()

    async def evaluated(recipe: Recipe, folder: Path, model: Path, version: int, *rest: object, what: str) -> Result:
        await going.wait()
        return Result(what, version, 0.1 * version, 1.0, "")

    monkeypatch.setattr(scoring, "evaluate", evaluated)
    said: list[str] = []
    late = Scoring(recipe(None), tmp_path, said.append)
    for version in (1, 2, 3):
        late.begin(version, weights(tmp_path, version))
        await asyncio.sleep(0.01)
    assert said == ["validation at update 2 is left out: the one before it was still under way"]
    assert {path.name for path in late.pinned()} == {"v1", "v3"}
    going.set()
    await late.wait()
    assert [line.split(":")[0] for line in said[1:]] == ["validation at update 1", "validation at update 3"]


async def test_why_an_evaluation_fails_is_told_as_it_said_it_and_without_our_name(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="needs torch: pip install -e '.[train]'")
    with pytest.raises(SetupError, match=f"^hf/{tmp_path}/none: there is no folder"):
        await evaluate(recipe(None), tmp_path, tmp_path / "none", 1, "validation", 1, what="validation")


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_an_evaluation_goes_on_where_it_stood_and_begins_anew_for_other_weights(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="needs torch: pip install -e '.[train]'")
    plays = await newmodel.gold_play("db", 4, 0, EnvOptions())
    small = recipes.made(
        {"name": "r", "envs": {"db": {}}, "steps": 1, "engine": {"answer_tokens": 4, "context": 512}}, "r"
    )
    for name, seed in (("one", 0), ("two", 1)):
        newmodel.make(tmp_path / name, newmodel.SHAPES["nano"], plays, seed)

    async def scored(name: str) -> tuple[Result, Path]:
        found = await evaluate(small, tmp_path, tmp_path / name, 3, "validation", 3, what="validation")
        return found, Path(found.folder) / runlog.LINES

    found, path = await scored("one")
    whole = path.read_bytes()
    assert found.coverage == 1.0 and whole.count(b"\n") == 3
    cut = whole[: whole.index(b"\n") + 1]
    path.write_bytes(cut)
    assert (await scored("one"))[0] == found
    assert path.read_bytes().startswith(cut) and path.read_bytes().count(b"\n") == 3, "what was played is kept"
    await scored("two")
    assert not path.read_bytes().startswith(cut) and path.read_bytes().count(b"\n") == 3
    assert "/two" in runlog.read(path.parent).header.model
