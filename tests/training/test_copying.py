"""A model from nothing learns to copy what it has never seen, wherever it stands."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from training import copying
from training.copying import FROM_HEADS, LESSONS, CopyingOptions, Lesson
from training.values import Gold

pytest.importorskip("torch")


def test_what_is_to_be_said_has_all_been_there_before_at_a_distance_that_varies() -> None:
    batch = next(copying.sequences(Lesson(16, 48, 64), 100, (0,)))
    periods = set()
    for each in batch:
        ids, said = each.ids, np.flatnonzero(each.mask)
        assert len(set(ids.tolist())) <= 16
        assert (said > len(ids) // 2).all()
        period = next(n for n in range(1, len(ids)) if (ids[n:] == ids[:-n]).all())
        assert period < said[0]
        periods.add(period)
    assert len(periods) > 8, "a fixed distance can be learnt without looking"


def test_batches_are_of_the_seed() -> None:
    def ids(seed: int) -> list[list[int]]:
        return [each.ids.tolist() for each in next(copying.sequences(LESSONS[0], 500, (seed, 0)))]

    assert ids(1) == ids(1) != ids(2)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("shape", "lessons", "lr"), [("tiny", LESSONS, 4e-3), ("tiny-copying", FROM_HEADS, 1e-3)])
def test_a_model_that_was_taught_copies_tokens_it_was_not_taught_with(
    shape: str, lessons: Sequence[Lesson], lr: float, tmp_path: Path
) -> None:
    """The lessons end before the bound, and what is then copied are sequences of another seed, twice as long."""
    from harness import newmodel
    from training import learner, sft, warmstart
    from training.learner.options import LearnerOptions

    plays = sft.plays([Gold(env="kg", tasks=30, settings={})], 0)
    newmodel.make(tmp_path / "model", newmodel.SHAPES[shape], plays, seed=0)
    options = CopyingOptions(lr=lr, seconds=1000)
    found = copying.run(tmp_path / "model", options, lessons, device="cpu", say=lambda line: None)
    assert found.lessons == len(lessons)
    made = learner.make("torch", tmp_path / "model", LearnerOptions(device="cpu"))
    held_out = next(copying.sequences(Lesson(1.0, 256, 8), 600, (99,)))
    assert warmstart.step(made.backend, held_out, lr=1e-9, micro_tokens=4096) < 1.0
