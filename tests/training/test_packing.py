"""Samples as arrays: nothing lost, nothing twice, everything aligned, and bounds kept."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.training import making
from training import packing
from training.packing import PADDING

FLOWN = st.builds(making.samples, st.integers(1, 12), seed=st.integers(0, 10_000))


@pytest.mark.parametrize("packed", [True, False])
@given(made=FLOWN, most=st.integers(1, 120))
def test_every_sample_is_in_one_micro_batch_within_bounds(packed: bool, made: list, most: int) -> None:
    plan = packing.plan(made, most, packed)
    assert sorted(id(sample) for batch in plan for row in batch for sample in row) == sorted(map(id, made))
    for batch in plan:
        samples = [sample for row in batch for sample in row]
        rows = packing.rows(batch, packed)
        assert rows.size <= most or len(samples) == 1
        assert rows.tokens_read == sum(len(sample.segment.ids) for sample in samples)


@pytest.mark.parametrize("packed", [True, False])
@given(made=FLOWN, most=st.integers(1, 120))
def test_arrays_are_aligned_token_by_token(packed: bool, made: list, most: int) -> None:
    for batch in packing.plan(made, most, packed):
        rows = packing.rows(batch, packed)
        tokens = rows.tokens
        row_of, column_of = np.nonzero(rows.trained)
        assert len(row_of) == len(tokens.logprobs) == len(tokens.turns) == len(tokens.coefficients)
        samples = [sample for row in batch for sample in row]
        turns: dict[int, set[tuple[int, int]]] = {}
        for place, (row, column) in enumerate(zip(row_of, column_of, strict=True)):
            sample = samples[rows.blocks[row, column]]
            position = rows.positions[row, column]
            assert position >= 1
            assert rows.blocks[row, column - 1] == rows.blocks[row, column]
            assert sample.segment.ids[position] == rows.ids[row, column]
            assert sample.segment.logprobs[position] == tokens.logprobs[place]
            assert sample.segment.versions[position] == tokens.versions[place]
            assert sample.segment.pools[position] == tokens.pools[place]
            assert sample.advantages[position] == tokens.advantages[place]
            assert sample.coefficient == tokens.coefficients[place]
            assert sample.env == rows.env_names[tokens.envs[place]]
            turns.setdefault(int(tokens.turns[place]), set()).add(
                (int(rows.blocks[row, column]), int(sample.segment.turns[position]))
            )
        assert all(len(which) == 1 for which in turns.values())
        assert len(turns) == sum(len(set(sample.segment.turns[sample.kept])) for sample in samples)


def test_padding_belongs_to_no_block_and_is_not_trained_on() -> None:
    short, long = sorted(making.samples(2), key=lambda sample: len(sample.segment.ids))
    rows = packing.rows([[long], [short]], packed=False)
    count = len(short.segment.ids)
    assert (rows.blocks[1, count:] == PADDING).all()
    assert not rows.trained[1, count:].any()


def test_samples_without_a_kept_token_are_left_out() -> None:
    from dataclasses import replace

    made = making.samples(3)
    made[1] = replace(made[1], kept=np.zeros_like(made[1].kept))
    plan = packing.plan(made, 10_000, packed=True)
    assert [id(sample) for batch in plan for row in batch for sample in row].count(id(made[1])) == 0
