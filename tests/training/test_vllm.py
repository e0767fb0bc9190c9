"""Engines by vLLM servers, in the shape of a stand-in: each pool has its own, and one that dies is started again."""

from __future__ import annotations

import asyncio
import io
import os
import signal
from pathlib import Path
from typing import Any

import msgspec
import pytest

from harness.config import LocalOptions
from harness.errors import SetupError
from harness.models.sampler import Request
from harness.models.vllm import launch
from tests.models import fake_vllm
from tests.models.fake_vllm import write_model
from tests.models.test_vllm_sampler import says
from tests.models.test_vllm_server import leftovers, servers, until
from training import budget, machine, preflight
from training.process import engine
from training.process.engine import Wanted
from training.process.options import ProcessOptions
from training.recipe import Recipe, digest
from training.watch import Watch

OPTIONS = LocalOptions(dtype="float32", device="cpu")
ASKED = Request(episode="e", prompt_ids=(2, 3, 4), max_tokens=40)


@pytest.fixture(autouse=True)
def _place(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache of its own, whose path a socket's name fits, and a Python that is the stand-in."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("c")))
    monkeypatch.setenv(launch.PYTHON, str(fake_vllm.python(tmp_path)))


def wanted(folder: Path) -> Wanted:
    return Wanted("vllm", folder, OPTIONS, 2, 30.0)


async def test_each_pool_has_a_server_of_its_own_in_this_process_too(tmp_path: Path) -> None:
    base, new = write_model(tmp_path / "base", 5), write_model(tmp_path / "new", 9)
    current, stale = engine.made(wanted(base))
    await asyncio.gather(current.open(), stale.open())
    try:
        assert len(servers(base)) == 2
        await current.update(str(new), 1)
        assert list((await current.sample(ASKED)).ids) == says(ASKED, 9, 40)
        assert list((await stale.sample(ASKED)).ids) == says(ASKED, 5, 40)
    finally:
        await asyncio.gather(current.close(), stale.close())
    await until(lambda: not servers(base) and not leftovers())


async def test_a_server_that_is_killed_is_started_again_with_what_each_pool_served(tmp_path: Path) -> None:
    base, new = write_model(tmp_path / "base", 5, token_seconds=0.02), write_model(tmp_path / "new", 9)
    said: list[str] = []
    held = engine.describe(
        wanted(base), ProcessOptions(restarts=2), deterministic=False, folder=tmp_path / "run",
        watch=Watch(io.StringIO()), say=said.append,
    )  # fmt: skip
    current, stale = held.samplers
    await current.open()
    try:
        before = servers(base)
        assert len(before) == 2
        await current.update(str(new), 3)
        turns = [asyncio.create_task(sampler.sample(ASKED)) for sampler in (current, stale)]
        await asyncio.sleep(0.2)
        os.kill(before[0], signal.SIGKILL)
        fresh, old = await asyncio.gather(*turns)
        assert (list(fresh.ids), set(fresh.versions)) == (says(ASKED, 9, 40), {3}), "sampled again"
        assert (list(old.ids), set(old.versions)) == (says(ASKED, 5, 40), {0})
        assert len(said) == 1 and "the server ended: it was killed by signal 9" in said[0]
        assert said[0].endswith("it is started again")
        after = servers(base)
        assert len(after) == 2 and not set(after) & set(before)
        for pid in after:
            os.kill(pid, signal.SIGKILL)
        await stale.update(str(new), 4)
        assert set((await stale.sample(ASKED)).versions) == {4} and len(said) == 2, "whoever asks first finds it dead"
    finally:
        await held.close()
    await until(lambda: not servers(base) and not leftovers())


def recipe(**above: Any) -> Recipe:
    values = {"name": "a", "envs": {"db": {}}, "steps": 1, "sampler": "vllm", "learner": {"device": "cpu"}}
    return msgspec.convert({**values, "engine": {"device": "cpu"}, **above}, Recipe)


def test_what_cannot_be_is_refused_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    preflight.require_vllm(recipe())
    for above, words in (
        ({"learner": {"deterministic": True}}, r"learner\.deterministic wants the same bits .*: set sampler to 'hf'"),
        ({"engine": {"addresses": ["a:1"]}}, r"engine\.addresses names servers, and training starts its own"),
    ):
        with pytest.raises(SetupError, match=words):
            preflight.require_vllm(recipe(**above))
    monkeypatch.delenv(launch.PYTHON)
    monkeypatch.setattr(launch, "here", lambda: None)
    with pytest.raises(
        SetupError, match=rf"sampler = 'vllm' needs vLLM: pip install vllm .* whose Python {launch.PYTHON}"
    ):
        preflight.require_vllm(recipe())
    preflight.require_vllm(recipe(cluster={"address": "auto"}))
    preflight.require_vllm(recipe(sampler="hf"))
    assert digest(recipe()) != digest(recipe(sampler="hf")), "what samples is part of what is learnt"


HALF = launch.shared(OPTIONS, 2, cpu=True)


def named(parts: list[budget.Part], word: str) -> list[budget.Part]:
    return [part for part in parts if word in part.what]


def test_what_servers_take_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    size = budget.size_of(recipe())
    here = budget.memory(recipe(), size, "cpu")
    assert not named(here, "engine"), "nothing is counted as if transformers computed it"
    assert [part.least for part in named(here, "processes") if "vLLM" in part.what] == [budget.SERVER] * 2
    (one, two) = named(here, "weights, and cache set aside")
    assert one == two._replace(what=one.what) and one.least == 8 * size.parameters + (launch.cache_gib(HALF) << 30)
    monkeypatch.setattr(machine, "whole_gpu", lambda device: 80 << 30)
    on_gpu = budget.memory(recipe(engine={"device": "cuda", "memory": 0.5}), size, "cuda")
    assert [part.least for part in named(on_gpu, "set aside")] == [20 << 30] * 2
    away = recipe(engine={"device": "cuda"}, cluster={"address": "auto"}, processes={"replicas": 3})
    parts = named(budget.memory(away, size, "cpu"), "vLLM")
    assert {part.where for part in parts} == {budget.CLUSTER}
    unknown = named(parts, "not counted")
    assert len(unknown) == 2 and all(part.least == 3 * size.bytes * size.parameters for part in unknown)
    assert all("of 0.45 of a GPU" in part.what for part in unknown)
