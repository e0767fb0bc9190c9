"""Which attempts of a run a person wants to see, and in which order: a value that an address holds whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

import msgspec

from harness.core import Ending
from harness.view.index import Row

PER_PAGE = 100
MOST_QUERY = 200
OUTCOMES: dict[str, Callable[[Row], bool]] = {
    "solved": lambda row: row.value == 1,
    "partly": lambda row: row.value is not None and 0 < row.value < 1,
    "failed": lambda row: row.value == 0,
    "unscored": lambda row: row.value is None,
}
SORTS: dict[str, Callable[[Row], Any]] = {
    "task": lambda row: row.task_id,
    "environment": lambda row: row.entry,
    "group": lambda row: row.group,
    "reward": lambda row: -1.0 if row.value is None else row.value,
    "ending": lambda row: str(row.ending),
    "turns": lambda row: row.turns,
    "tokens": lambda row: row.usage.input_tokens + row.usage.output_tokens,
    "cost": lambda row: row.usage.cost_usd or 0.0,
    "seconds": lambda row: row.seconds,
}


class Filter(msgspec.Struct, frozen=True):
    """What is wanted of a run's attempts."""

    q: str = ""
    """Words that the task, its group or its failure must hold."""
    entry: str = ""
    ending: str = ""
    outcome: str = ""
    sort: str = ""
    """A name of `SORTS`, with "-" before it from the highest down; else as played."""
    page: int = 1

    @property
    def address(self) -> dict[str, str]:
        """Return what an address says of it."""
        default = Filter()
        return {
            name: str(value)
            for name in self.__struct_fields__
            if (value := getattr(self, name)) != getattr(default, name)
        }


def read(query: Mapping[str, str]) -> Filter:
    """Read a filter from an address; what makes no sense there is left out."""
    sort, ending, outcome = query.get("sort", ""), query.get("ending", ""), query.get("outcome", "")
    page = query.get("page", "1")
    return Filter(
        q=query.get("q", "")[:MOST_QUERY].strip(),
        entry=query.get("entry", ""),
        ending=ending if ending in list(Ending) else "",
        outcome=outcome if outcome in OUTCOMES else "",
        sort=sort if sort.removeprefix("-") in SORTS else "",
        page=max(1, int(page)) if page.isdecimal() and len(page) < 8 else 1,
    )


def select(rows: Iterable[Row], wanted: Filter) -> list[Row]:
    """Return the rows that a filter lets through, in its order."""
    words = wanted.q.lower().split()
    found = [row for row in rows if _passes(row, wanted, words)]
    if wanted.sort:
        found.sort(key=SORTS[wanted.sort.removeprefix("-")], reverse=wanted.sort.startswith("-"))
    return found


def _passes(row: Row, wanted: Filter, words: Sequence[str]) -> bool:
    if wanted.entry and row.entry != wanted.entry:
        return False
    if wanted.ending and row.ending != wanted.ending:
        return False
    if wanted.outcome and not OUTCOMES[wanted.outcome](row):
        return False
    if not words:
        return True
    text = f"{row.task_id} {row.group} {row.failure}".lower()
    return all(word in text for word in words)


def link(path: str, *parts: Mapping[str, str], **values: str | int) -> str:
    """Return an address of this viewer."""
    query: dict[str, str | int] = {}
    for part in parts:
        query |= part
    query |= values
    return f"{path}?{urlencode(query)}" if query else path
