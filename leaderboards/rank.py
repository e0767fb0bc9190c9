"""Rows of a leaderboard as values, and rank ranges.

Two rows are told apart by the difference of their scores against both standard errors, task sampling included, under
Holm's correction over all pairs of ranked rows: with probability 0.95 no row of the whole table stands wrongly above
another. A row's rank runs from one more than the number of rows shown to be better, to the number of rows less those
shown to be worse: it spans every row that it cannot be told from.

Published rows were played on the same tasks as one another, but which tasks each solved is unknown. Taking them as
independent overstates the error of a difference where systems agree on what is hard, so ranges err on the wide side.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Literal

import msgspec

from harness.core import Value
from harness.metrics import holm, two_sided

ALPHA = 0.05
OVERALL = "overall"
GROUPS = ("API", "open", "trained", "other")
Group = Literal["API", "open", "trained", "other"]

PUBLISHED = "published, not reproduced"
HERE = "run here"
REGRADED = "re-graded, not attested"
"""Sent in as a bundle, its actions re-played here; that the named model wrote them is the submitter's word."""


class Cell(Value, frozen=True, kw_only=True):
    """One score of a row, as a fraction."""

    value: float
    text: str
    """As published, in per cent and to its own decimals; made alike for runs."""
    error: float | None = None
    """Standard error, task sampling included; None where it is unknown, which keeps the row from being ranked."""
    spread: str = ""
    """The published run-to-run spread, as written."""
    lower: float | None = None
    upper: float | None = None
    """Bounds where attempts are unscored; None is `value`."""
    tasks: int | None = None
    note: str = ""

    @property
    def low(self) -> float:
        """What the score is at least."""
        return self.value if self.lower is None else self.lower

    @property
    def high(self) -> float:
        """What the score is at most."""
        return self.value if self.upper is None else self.upper


class Row(Value, frozen=True, kw_only=True):
    """One system on a board."""

    name: str
    group: Group
    origin: str
    """`published, not reproduced`, `run here`, `re-graded, not attested`, or `adapted: …`."""
    cells: Mapping[str, Cell]
    """Column -> score; `overall` among them where there is one."""
    ranked: bool = True
    """False for rows that may not claim a rank: adapted ones, and agents that were handed gold play."""
    tasks: int | None = None
    date: str = ""
    fingerprints: Mapping[str, str] = msgspec.field(default_factory=dict)
    source: str = ""
    notes: tuple[str, ...] = ()
    cost: float | None = None
    """US dollars of one attempt; of 1,000 model calls on a board whose published rows say it so. None is unknown."""
    cost_text: str = ""
    latency_text: str = ""
    """Seconds of one model call, on a board whose published rows say it."""
    error_share: float | None = None
    """Of the attempts, those that ended by no doing of the agent; None where it is unknown."""


class Ranked(Value, frozen=True, kw_only=True):
    """A row and its rank range."""

    row: Row
    rank: tuple[int, int] | None
    """Best and worst rank that the data allow; None where the row is not ranked."""


def rank(rows: Sequence[Row], column: str = OVERALL, alpha: float = ALPHA) -> list[Ranked]:
    """Return the rows by group, best first within a group, each with its rank range over the whole table."""
    contenders = [index for index, row in enumerate(rows) if _contends(row, column)]
    better = dict.fromkeys(contenders, 0)
    worse = dict.fromkeys(contenders, 0)
    pairs = list(combinations(contenders, 2))
    tests = [_test(rows[a].cells[column], rows[b].cells[column]) for a, b in pairs]
    for (a, b), (a_is_better, _), p in zip(pairs, tests, holm([p for _, p in tests]), strict=True):
        if p < alpha:
            winner, loser = (a, b) if a_is_better else (b, a)
            better[loser] += 1
            worse[winner] += 1
    ranked = [
        Ranked(row=row, rank=(1 + better[index], len(contenders) - worse[index]) if index in better else None)
        for index, row in enumerate(rows)
    ]
    return sorted(ranked, key=lambda item: (GROUPS.index(item.row.group), -_value(item.row, column), item.row.name))


def _contends(row: Row, column: str) -> bool:
    cell = row.cells.get(column)
    return row.ranked and cell is not None and cell.error is not None


def _value(row: Row, column: str) -> float:
    return row.cells[column].value if column in row.cells else -1.0


def _test(a: Cell, b: Cell) -> tuple[bool, float]:
    """Return whether the first is better, and the p-value of their difference; bounds count against whoever leads."""
    a_is_better = a.value >= b.value
    gap = a.low - b.high if a_is_better else b.low - a.high
    error = ((a.error or 0.0) ** 2 + (b.error or 0.0) ** 2) ** 0.5
    return a_is_better, two_sided(max(0.0, gap), error)
