"""Recorded passes: the same turns as unrecorded, also when the memory that they read moves, or they cannot be."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from harness.config import LocalOptions  # noqa: E402
from harness.models.hf import batch, graphs  # noqa: E402
from harness.models.hf.engine import load, own_stream  # noqa: E402
from harness.models.sampler import Request  # noqa: E402

ROWS = 6


@pytest.fixture(scope="module")
def model(tiny: Path) -> Any:
    return load(tiny, LocalOptions(device="cpu", dtype="float32"))


def requests() -> list[Request]:
    """Turns of many lengths: some in the middle make the rows grow, by reading and by sampling."""
    lengths = [*range(20, 120, 10), 250, 251, 300, 600, *range(120, 200, 10)]
    return [
        Request(
            episode=str(length),
            prompt_ids=tuple(random.Random(length).randrange(20, 500) for _ in range(length)),
            max_tokens=7 + length % 11,
            temperature=float(length % 40 == 0),
            seed=length,
        )
        for length in lengths
    ]


def played(turns: batch.Batch) -> dict[str, batch.Done]:
    """Sample all turns, some of them under way while others come."""
    waiting, found, steps = requests(), {}, 0
    while waiting or turns.busy:
        while waiting and turns.free and steps % 3 == 0:
            turns.join(waiting.pop(0))
        found |= {done.request.episode: done for done in turns.step()}
        steps += 1
    return found


def recording(turns: batch.Batch, record: Callable[[], graphs.Record]) -> batch.Batch:
    turns._graphs = graphs.Graphs(turns._first_rows, ROWS, turns.model.config.vocab_size, torch.device("cpu"), record)
    return turns


def close(found: dict[str, batch.Done], expected: dict[str, batch.Done], within: float) -> None:
    assert found.keys() == expected.keys()
    for episode, done in found.items():
        assert done.ids == expected[episode].ids
        assert done.logprobs == pytest.approx(expected[episode].logprobs, abs=within)


def test_turns_by_recorded_passes_are_those_by_others(model: Any) -> None:
    recorded: list[int] = []
    turns = batch.Batch(model, ROWS, 1 << 20)

    def record() -> graphs.Record:
        """Hold on to the memory that a pass reads and writes, as a CUDA graph does."""

        def held(work: graphs.Work) -> graphs.Work:
            recorded.append(turns._rows.moves)
            memory = turns._rows._data

            def replay() -> None:
                now, turns._rows._data = turns._rows._data, memory
                work()
                turns._rows._data = now

            return replay

        return held

    close(played(recording(turns, record)), played(batch.Batch(model, ROWS, 1 << 20)), within=1e-4)
    assert turns.records and len(set(recorded)) > 1, "the rows grew, and passes were recorded before and after"
    assert len(recorded) < 20, "a pass is recorded once for all of its kind"


def test_a_pass_that_computes_something_else_is_not_taken(model: Any) -> None:
    turns = recording(batch.Batch(model, ROWS, 1 << 20), lambda: lambda work: lambda: None)
    with pytest.warns(UserWarning, match="passes cannot be recorded, so each token takes longer: a recorded pass of 6"):
        found = played(turns)
    assert not turns.records
    close(found, played(batch.Batch(model, ROWS, 1 << 20)), within=1e-4)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_records_passes(tiny: Path) -> None:
    model = load(tiny, LocalOptions(device="cuda", dtype="float32"))
    with own_stream(model):
        turns, others = batch.Batch(model, ROWS, 1 << 20), batch.Batch(model, ROWS, 1 << 20)
        others._graphs = None
        close(played(turns), played(others), within=1e-3)
        assert turns.records
