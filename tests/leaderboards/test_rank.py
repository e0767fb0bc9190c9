"""Rank ranges: no row outranks another by noise, and clear differences show."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import statistics as simulate
from leaderboards.rank import Cell, Row, rank

scores = st.lists(st.tuples(st.floats(0, 1), st.floats(0.001, 0.2)), min_size=1, max_size=12)


def row(name: str, value: float, error: float | None = 0.01, **fields: object) -> Row:
    cell = Cell(value=value, text=f"{value * 100:.1f}", error=error)
    return Row(name=name, group="API", origin="published, not reproduced", cells={"overall": cell}, **fields)  # type: ignore[arg-type]


def ranks(*rows: Row) -> dict[str, tuple[int, int] | None]:
    return {item.row.name: item.rank for item in rank(rows)}


def test_ties_span_one_another_and_clear_rows_stand_apart() -> None:
    assert ranks(row("a", 0.90), row("b", 0.70), row("c", 0.69), row("d", 0.40)) == {
        "a": (1, 1), "b": (2, 3), "c": (2, 3), "d": (4, 4),
    }  # fmt: skip


def test_the_same_gap_counts_only_with_small_errors() -> None:
    assert ranks(row("a", 0.60, 0.03), row("b", 0.55, 0.03)) == {"a": (1, 2), "b": (1, 2)}
    assert ranks(row("a", 0.60, 0.01), row("b", 0.55, 0.01)) == {"a": (1, 1), "b": (2, 2)}


def test_more_rows_ask_for_more_evidence() -> None:
    pair = row("a", 0.60, 0.015), row("b", 0.55, 0.015)  # z 2.36: enough for one question, not for one among 190
    assert ranks(*pair)["a"] == (1, 1)
    crowd = [row(f"x{i}", 0.575, 0.015) for i in range(18)]
    assert ranks(*pair, *crowd)["a"] == (1, 20)


def test_who_may_not_claim_a_rank_moves_no_one() -> None:
    rows = [row("a", 0.9), row("b", 0.5), row("adapted", 0.99, ranked=False), row("unknown error", 0.95, None)]
    assert ranks(*rows) == {"a": (1, 1), "b": (2, 2), "adapted": None, "unknown error": None}


def test_unscored_attempts_count_against_the_claim() -> None:
    shaky = Row(
        name="shaky", group="API", origin="run here",
        cells={"overall": Cell(value=0.5, text="50.0", error=0.01, lower=0.5, upper=0.9)},
    )  # fmt: skip
    assert ranks(shaky, row("a", 0.8))["a"] == (1, 2)  # shaky may be as good as 0.9
    assert ranks(shaky, row("a", 0.3))["a"] == (2, 2)


def test_groups_keep_their_order_and_ranks_run_over_the_table() -> None:
    rows = [
        row("low", 0.1),
        Row(name="t", group="trained", origin="run here", cells=row("t", 0.9).cells),
        row("mid", 0.5),
    ]
    assert [(item.row.name, item.rank) for item in rank(rows)] == [("mid", (2, 2)), ("low", (3, 3)), ("t", (1, 1))]


@given(scores)
@settings(max_examples=80, deadline=None)
def test_ranges_are_sound(values: list[tuple[float, float]]) -> None:
    found = rank([row(f"r{i}", value, error) for i, (value, error) in enumerate(values)])
    by_score = sorted(found, key=lambda item: -item.row.cells["overall"].value)
    for place, item in enumerate(by_score, 1):
        assert item.rank is not None
        best, worst = item.rank
        assert 1 <= best <= place <= worst <= len(values)


def test_a_table_of_equals_seldom_shows_an_order() -> None:
    assert simulate.false_orders(10, 100, 0.5, 4, 150, seed=3) <= 0.05 + 2.5 * math.sqrt(0.05 * 0.95 / 150)


@pytest.mark.slow
@pytest.mark.parametrize(("systems", "tasks", "p"), [(60, 200, 0.5), (25, 300, 0.02)])
def test_a_long_table_of_equals_seldom_shows_an_order(systems: int, tasks: int, p: float) -> None:
    assert simulate.false_orders(systems, tasks, p, 1, 600, seed=3) <= 0.05 + 2.5 * math.sqrt(0.05 * 0.95 / 600)


def known_board(rng: np.random.Generator, truth: list[float], tasks: int, epochs: int) -> dict[str, tuple[int, int]]:
    """Play systems of known chances and return the rank ranges of the table that they would publish."""
    rows = [simulate.published_row(rng, f"s{place}", [tasks], [p], epochs) for place, p in enumerate(truth)]
    return {item.row.name: item.rank for item in rank(rows) if item.rank}


def coverage(truth: list[float], tasks: int, epochs: int, boards: int, seed: int) -> tuple[float, float]:
    """Return how often every range of a board holds the true rank, and the mean width of a range."""
    rng = np.random.default_rng(seed)
    right, width = 0, 0.0
    for _ in range(boards):
        ranges = known_board(rng, truth, tasks, epochs)
        right += all(ranges[f"s{place}"][0] <= place + 1 <= ranges[f"s{place}"][1] for place in range(len(truth)))
        width += sum(high - low + 1 for low, high in ranges.values()) / len(ranges)
    return right / boards, width / boards


def test_ranges_hold_the_true_order() -> None:
    truth = [0.80, 0.72, 0.70, 0.52, 0.50, 0.30]
    held, width = coverage(truth, 200, 4, 80, seed=7)
    assert held >= 0.95 - 2.5 * math.sqrt(0.05 * 0.95 / 80)
    assert width < 3  # and they say something: of six ranks, fewer than half


@pytest.mark.slow
@pytest.mark.parametrize(
    ("truth", "tasks", "epochs"),
    [
        ([0.9 - 0.03 * place for place in range(25)], 300, 4),  # a crowd, each next to its like
        ([0.5] * 10 + [0.499] * 10, 150, 1),
        ([0.99, 0.97, 0.5, 0.03, 0.01], 60, 1),  # at the ends of the scale, where errors are small
    ],
)
def test_ranges_hold_the_true_order_on_many_boards(truth: list[float], tasks: int, epochs: int) -> None:
    held, _ = coverage(truth, tasks, epochs, 400, seed=11)
    assert held >= 0.95 - 2.5 * math.sqrt(0.05 * 0.95 / 400)


def test_a_lucky_published_row_does_not_outrank_its_equal() -> None:
    """Of 30 equals, the one whose published score came out highest by chance stands first, and claims nothing."""
    rng = np.random.default_rng(2)
    rows = [simulate.published_row(rng, f"s{place}", [150], [0.5], 1) for place in range(30)]
    lucky = max(rows, key=lambda one: one.cells["overall"].value)
    assert lucky.cells["overall"].value > 0.57
    assert {item.rank for item in rank(rows)} == {(1, 30)}
