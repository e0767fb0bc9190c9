"""A model from nothing learns to copy what it has never seen, wherever it stands."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from training import copying
from training.copying import LESSONS, CopyingOptions, Lesson

pytest.importorskip("torch")


def test_what_is_to_be_said_has_all_been_there_before_at_a_distance_that_varies() -> None:
    batch = next(copying.sequences(Lesson(48, 64), 100, (0,)))
    periods = set()
    for each in batch:
        ids, said = each.ids, np.flatnonzero(each.mask)
        assert set(ids.tolist()) <= set(range(100))
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
def test_a_model_that_was_taught_copies_tokens_it_was_not_taught_with(tmp_path: Path) -> None:
    """The lessons end before the bound, and what is then copied are sequences of another seed, twice as long."""
    from harness import newmodel
    from training import learner, sft, warmstart
    from training.learner.options import LearnerOptions

    plays = sft.plays({"kg": 30}, 0, {})
    newmodel.make(tmp_path / "model", newmodel.SHAPES["tiny"], plays, seed=0)
    found = copying.run(tmp_path / "model", CopyingOptions(seconds=1000), device="cpu", say=lambda line: None)
    assert found.lessons == len(LESSONS)
    made = learner.make("torch", tmp_path / "model", LearnerOptions(device="cpu"))
    held_out = next(copying.sequences(Lesson(2048, 2), 600, (99,)))
    assert warmstart.step(made.backend, held_out, lr=1e-9, micro_tokens=4096) < 1.0
