"""Factors of tokens: each aggregation against its formula, and the task share that token_mean does not hold."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import SetupError
from training import aggregation
from training.aggregation import Sequence

THREE = [Sequence("db", 10), Sequence("db", 30), Sequence("alfworld", 160)]
BATCHES = st.lists(st.builds(Sequence, st.sampled_from(["a", "b", "c"]), st.integers(1, 500)), min_size=1, max_size=12)


def test_token_mean_weighs_tokens_alike() -> None:
    assert aggregation.token_mean(THREE) == [1 / 200] * 3


def test_seq_mean_weighs_attempts_alike() -> None:
    assert aggregation.seq_mean(THREE) == pytest.approx([1 / 30, 1 / 90, 1 / 480])


def test_an_attempt_without_tokens_is_no_part_of_a_mean() -> None:
    assert aggregation.seq_mean([Sequence("db", 0), Sequence("db", 10)]) == [0.0, 0.1]


def test_dr_grpo_divides_by_a_constant() -> None:
    assert aggregation.dr_grpo(THREE, longest=1000) == [1 / 3000] * 3


def test_task_mean_weighs_environments_alike_whatever_their_tokens() -> None:
    factors = aggregation.task_mean(THREE, floor=1)
    assert factors == pytest.approx([0.5 / 40, 0.5 / 40, 0.5 / 160])


def test_task_mean_renormalises_shares_over_the_tasks_present() -> None:
    factors = aggregation.task_mean(THREE[:2], {"db": 0.2, "alfworld": 0.8}, floor=1)
    assert factors == pytest.approx([1 / 40] * 2)


def test_task_mean_floors_the_tokens_of_a_rare_task() -> None:
    factors = aggregation.task_mean([Sequence("db", 2), Sequence("kg", 1000)], floor=100)
    assert factors == pytest.approx([0.5 / 100, 0.5 / 1000])


@pytest.mark.parametrize("how", [aggregation.token_mean, aggregation.seq_mean])
@given(batch=BATCHES)
def test_factors_of_a_mean_sum_to_1(how: aggregation.Aggregation, batch: list[Sequence]) -> None:
    assert sum(f * one.tokens for f, one in zip(how(batch), batch, strict=True)) == pytest.approx(1)


@given(batch=BATCHES)
def test_task_shares_are_held(batch: list[Sequence]) -> None:
    factors = aggregation.task_mean(batch, floor=1)
    for env in {one.env for one in batch}:
        share = sum(f * one.tokens for f, one in zip(factors, batch, strict=True) if one.env == env)
        assert share == pytest.approx(1 / len({one.env for one in batch}))


def test_a_batch_without_tokens_weighs_nothing() -> None:
    for how in (aggregation.token_mean, aggregation.seq_mean, aggregation.task_mean):
        assert how([Sequence("db", 0)]) == [0.0]


def test_aggregations_are_chosen_by_name() -> None:
    assert aggregation.named("dr_grpo", longest=10)([Sequence("db", 5)]) == [0.1]
    assert aggregation.named("task_mean", floor=5)([Sequence("db", 5)]) == [0.2]
    with pytest.raises(SetupError, match="did you mean 'task_mean'"):
        aggregation.named("task_means")
