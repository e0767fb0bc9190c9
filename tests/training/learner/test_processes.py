"""The learner as the loop sees it: the same bits in a process of its own, ranks as one, and a rank that dies."""

from __future__ import annotations

import asyncio
import io
import os
import signal
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
import pytest
from safetensors.torch import load_file

from harness.config import LocalOptions
from harness.models.hf.engine import TransformersSampler
from tests.training import making
from training import weights
from training.learner.options import LearnerOptions
from training.process import learner
from training.process.options import TOGETHER, ProcessOptions
from training.process.parent import Lost
from training.watch import Watch

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

OPTIONS = {"device": "cpu", "lr": 1e-3, "warmup": 0, "minibatches": 2, "micro_tokens": 64, "deterministic": True}
SPREAD = ProcessOptions(learner_threads=1)


async def started(folder: Path, nano: Path, backend: str, processes: ProcessOptions, ranks: int = 1) -> learner.Learner:
    options = msgspec.convert(OPTIONS, LearnerOptions)
    watch = Watch(io.StringIO())
    return await learner.start(backend, nano, options, processes, ranks=ranks, folder=folder, watch=watch)


async def trained(
    folder: Path, nano: Path, backend: str, processes: ProcessOptions, ranks: int = 1
) -> tuple[list[Any], Path]:
    """Train on two batches, save, and train on a third after loading; return the metrics and the weights' folder."""
    made = await started(folder, nano, backend, processes, ranks)
    saved = folder / "saved"
    saved.mkdir(parents=True)
    try:
        metrics = [await made.update(making.samples(9), version) for version in range(2)]
        await made.save(saved)
        metrics.append(await made.update(making.samples(9, seed=1), 2))
        snapshot = await made.publish(folder / "snapshots", 3)
    finally:
        await made.close()
    again = await started(folder, nano, backend, processes, ranks)
    try:
        await again.load(saved)
        metrics.append(await again.update(making.samples(9, seed=1), 2))
    finally:
        await again.close()
    return metrics, snapshot


async def test_a_process_of_its_own_gives_the_same_bits(nano: Path, tmp_path: Path) -> None:
    here, there = [
        await trained(tmp_path / name, nano, "torch", processes)
        for name, processes in (("here", TOGETHER), ("there", SPREAD))
    ]
    assert there[0] == here[0] and there[0][3] == there[0][2], "saved and loaded, it takes the same third step"
    assert weights.read(there[1]).digest == weights.read(here[1]).digest


async def test_a_snapshot_is_as_the_engines_hold_it(nano: Path, tmp_path: Path) -> None:
    files = {}
    for served in ("auto", "bfloat16"):
        options = msgspec.convert(OPTIONS, LearnerOptions)
        watch = Watch(io.StringIO())
        made = await learner.start(
            "torch", nano, options, TOGETHER, ranks=1, folder=tmp_path, watch=watch, served=served
        )
        try:
            folder = await made.publish(tmp_path / served, 1)
        finally:
            await made.close()
        files[served] = load_file(folder / weights.FILE)
        engine = TransformersSampler(nano, LocalOptions(device="cpu", dtype="bfloat16"))
        await engine.open()
        try:
            await engine.update(str(folder), 1)  # which proves what it computes
        finally:
            await engine.close()
    for name, tensor in files["auto"].items():
        assert files["bfloat16"][name].equal(tensor.bfloat16()), name


BACKENDS = [
    "torch",
    pytest.param("deepspeed", marks=pytest.mark.skipif(find_spec("deepspeed") is None, reason="needs deepspeed")),
]


@pytest.mark.parametrize("backend", BACKENDS)
async def test_two_ranks_are_one_learner(nano: Path, tmp_path: Path, backend: str) -> None:
    alone, _ = await trained(tmp_path / "alone", nano, "torch", TOGETHER)
    two, snapshot = await trained(tmp_path / "zwei Läufe", nano, backend, SPREAD, ranks=2)
    for one, other in zip(two, alone, strict=True):
        assert one["loss"] == pytest.approx(other["loss"], rel=1e-6)
        assert one["tokens/trained"] == other["tokens/trained"]
    assert weights.read(snapshot).version == 3 and (snapshot / "probe.json").is_file()


async def test_a_rank_that_is_killed_is_named_and_takes_the_others_along(nano: Path, tmp_path: Path) -> None:
    made = await started(tmp_path, nano, "torch", SPREAD, ranks=2)
    assert isinstance(made, learner.Ranks)
    pids = [each.pid for each in made.callers if isinstance(each, learner.Process)]
    try:
        await made.update(making.samples(9), 0)
        updating = asyncio.create_task(made.update(making.samples(400), 1))
        await asyncio.sleep(0.2)
        assert pids[1] is not None
        os.kill(pids[1], signal.SIGKILL)
        with pytest.raises(Lost, match="the learner's rank 1 was ended by SIGKILL"):
            await updating
        assert "rank 1" in str(await made.gone())
    finally:
        await made.close()
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


async def test_ranks_without_processes_are_refused(nano: Path, tmp_path: Path) -> None:
    with pytest.raises(Exception, match=r"set processes\.learner to true"):
        await started(tmp_path, nano, "torch", TOGETHER, ranks=2)
