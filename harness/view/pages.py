"""What each page of the viewer says, as values for its template. Nothing here knows HTTP."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from harness.core import AttemptKey, Ending
from harness.errors import SetupError
from harness.fingerprint import apart
from harness.metrics import Comparison, EntryComparison, Measure, Summary, compare
from harness.table import (
    COMPARISON_COLUMNS,
    PLAY_COLUMNS,
    RESULT_COLUMNS,
    ComparisonTable,
    RunTable,
    comparison_notes,
    comparison_rows,
    run_notes,
    run_rows,
)
from harness.view import conversation, plots
from harness.view.index import Row
from harness.view.library import METRICS, Library, Opened, Place, stamp
from harness.view.tasks import OUTCOMES, PER_PAGE, Filter, link, select
from harness.view.tokens import decoder

WAIT = 0.3
"""Seconds that a page waits for what is being read."""
LIST_WAIT = 0.6
"""Seconds that the list of runs takes to open runs it does not know yet; the rest follow on its next look."""
MOST_LISTED = 200
MOST_FLIPS = 500
LIVE_SECONDS = 2.0
ALL = Filter()
Values = dict[str, Any]


class Card(msgspec.Struct, frozen=True):
    """One run in the list of runs."""

    name: str
    kind: str
    address: str
    model: str = ""
    agent: str = ""
    board: str = ""
    created: str = ""
    state: str = ""
    done: int = 0
    planned: int = 0
    score: str = ""
    problem: str = ""


def runs(library: Library) -> Values:
    """Return the list of runs, the newest first."""
    places = list(library.places().values())
    end = time.monotonic() + LIST_WAIT
    cards = [_card(library, place, end) for place in places[:MOST_LISTED]]
    cards.sort(key=lambda card: card.created, reverse=True)
    busy = any(card.state in {"playing", "reading"} for card in cards)
    return {"cards": cards, "left_out": len(places) - len(cards), "live": LIVE_SECONDS if busy else 5 * LIVE_SECONDS}


_CARDS: dict[Place, tuple[tuple[object, ...], Card]] = {}


def _card(library: Library, place: Place, end: float) -> Card:
    """Return a run's card: as it is known where nothing changed, else made anew if there is time."""
    if place.kind == "train":
        return Card(place.name, "training", link("/train", run=place.name), created=_written(place))
    known, now = _CARDS.get(place), stamp(place)
    if known and known[0] == now:
        return known[1]
    left = end - time.monotonic()
    if left <= 0:
        return known[1] if known else Card(place.name, "evaluation", link("/run", run=place.name), state="reading")
    card, whole = _made(library, place, left)
    if whole:
        _CARDS[place] = now, card
    return card


def _made(library: Library, place: Place, left: float) -> tuple[Card, bool]:
    """Return a run's card, and whether it says all there is to say."""
    address = link("/run", run=place.name)
    try:
        opened = library.open(place.name)
        whole = opened.catch_up(left)
        table, progress, header = opened.table(), opened.progress, opened.header
    except (SetupError, OSError, KeyError) as error:
        return Card(place.name, "evaluation", address, problem=str(error)), False
    card = Card(
        place.name,
        "evaluation",
        address,
        model=header.model,
        agent=header.agent,
        board=header.board.name,
        created=header.created,
        state=progress.state if whole else "reading",
        done=progress.done,
        planned=progress.planned,
        score=run_rows(table)[-1][1] if table and table.summaries else "",
    )
    return card, whole and table is not None


def _written(place: Place) -> str:
    """Return when a training run last wrote a line; "" where it has none yet."""
    try:
        moment = (place.folder / METRICS).stat().st_mtime
    except OSError:
        return ""
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="seconds")


def run(opened: Opened, wanted: Filter) -> Values:
    """Return a run's page: its tables, and the attempts that are wanted."""
    whole = opened.catch_up(WAIT)
    table, progress = opened.table(), opened.progress
    found = select(opened.index.counting(), wanted)
    pages = max(1, -(-len(found) // PER_PAGE))
    page = min(wanted.page, pages)
    first = (page - 1) * PER_PAGE
    counting = progress.state == "playing" or not whole or table is None
    return {
        "name": opened.place.name,
        "header": opened.header,
        "progress": progress,
        "damaged": opened.index.damaged,
        "problem": opened.problem,
        "table": _tables(table) if table else None,
        "wanted": wanted,
        "entries": list(opened.header.tasks),
        "endings": sorted({row.ending for row in opened.index.counting()}),
        "outcomes": list(OUTCOMES),
        "rows": [(row, attempt_link(opened.place.name, row, wanted)) for row in found[first : first + PER_PAGE]],
        "found": len(found),
        "page": page,
        "pages": pages,
        "page_link": lambda number: link("/run", {"run": opened.place.name} | wanted.address, page=number),
        "sort_link": lambda sort: link("/run", {"run": opened.place.name} | wanted.address | {"page": "1"}, sort=sort),
        "live": LIVE_SECONDS if counting else 0,
    }


def _tables(table: RunTable) -> Values:
    """Return the run's two tables as the terminal has them, and what pictures them."""
    rows, split = run_rows(table), len(RESULT_COLUMNS)
    return {
        "result_columns": RESULT_COLUMNS,
        "results": [(row[:split], one) for row, one in zip(rows, [*table.summaries, table.overall], strict=False)],
        "play_columns": (*PLAY_COLUMNS[1:], "Seconds a call"),
        "plays": [
            (row[0], endings(summary.endings), [*row[split + 1 :], _latency(summary)])
            for row, summary in zip(rows, table.summaries, strict=False)
        ],
        "endings": endings(_sum(summary.endings for summary in table.summaries)),
        "notes": run_notes(table),
        "groups": [summary for summary in table.summaries if len(summary.groups) > 1],
    }


def _latency(summary: Summary) -> str:
    return f"{summary.usage.seconds / summary.usage.calls:.2f}" if summary.usage.calls else "–"


def _sum(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for one in counts:
        for name, number in one.items():
            total[name] = total.get(name, 0) + number
    return total


def endings(counts: Mapping[str, int]) -> list[tuple[str, int, str]]:
    """Return the parts of a stacked bar, in the order in which endings are declared: name, number, class."""
    return [(str(one).replace("_", " "), counts[one], f"ending-{one}") for one in Ending if counts.get(one)]


def attempt_link(name: str, row: Row, wanted: Filter = ALL) -> str:
    """Return the address of one attempt, which remembers the list that it was chosen from."""
    listed = {key: value for key, value in wanted.address.items() if key != "page"}
    listed = {f"in_{key}": value for key, value in listed.items()}
    return link("/attempt", listed, run=name, entry=row.entry, task=row.task_id, epoch=row.epoch, attempt=row.attempt)


def attempt(opened: Opened, key: AttemptKey, number: int | None, first: int, wanted: Filter) -> Values:
    """Return one attempt's page. KeyError where the run has none of that key."""
    row = record(opened, key, number)
    trajectory = opened.index.read(row)
    listed = select(opened.index.counting(), wanted)
    place = next((at for at, one in enumerate(listed) if one.key == key), None)
    beside = (None, None) if place is None else (place - 1 if place else None, place + 1)
    before, after = (listed[at] if at is not None and at < len(listed) else None for at in beside)
    name = opened.place.name
    view = conversation.view(trajectory, first=first, tokens=True, decode=decoder(opened.header.model))
    here = attempt_link(name, row, wanted)
    return {
        "name": name,
        "row": row,
        "trajectory": trajectory,
        "view": view,
        "records": [(one.attempt, attempt_link(name, one, wanted)) for one in opened.index.records(key)],
        "place": None if place is None else place + 1,
        "listed": len(listed),
        "before": attempt_link(name, before, wanted) if before else None,
        "after": attempt_link(name, after, wanted) if after else None,
        "up": link("/run", {"run": name} | wanted.address),
        "earlier": f"{here}&first={max(0, view.first - conversation.MOST_TURNS)}" if view.first else None,
        "later": f"{here}&first={view.first + view.shown}" if view.first + view.shown < view.turns else None,
    }


def record(opened: Opened, key: AttemptKey, number: int | None = None) -> Row:
    """Return the record of a key that counts, or the one of that number. KeyError where there is none."""
    opened.catch_up(WAIT)
    if number is None:
        return opened.index.rows[opened.index.newest[key]]
    found = [row for row in opened.index.records(key) if row.attempt == number]
    if not found:
        raise KeyError(key.task_id)
    return found[-1]


def comparison(first: Opened, second: Opened, measure: Measure) -> Values:
    """Return the comparison of two runs. SetupError where they have no environment in common."""
    for opened in (first, second):
        opened.catch_up(10 * WAIT)
    before, after = first.header, second.header
    shared = {
        entry.name: entry.aggregate
        for entry in before.board.entries
        if entry.name in before.tasks and entry.name in after.tasks
    }
    if not shared:
        raise SetupError(f"{first.place.name} and {second.place.name} have no environment in common")
    different = apart(before.protocols, after.protocols, shared)
    found = _compared(first, second, shared, measure)
    names = first.place.name, second.place.name
    rows = _difference_rows(found)
    table = ComparisonTable(first=names[0], second=names[1], comparison=found, different=different)
    return {
        "columns": COMPARISON_COLUMNS,
        "rows": comparison_rows(table),
        "notes": comparison_notes(table),
        "different": _alike(different),
        "entries": [_entry(entry, *names) for entry in found.entries],
        "plot": plots.svg(plots.differences(rows, x="B − A, with its 95 % interval")),
        "numbers": [[row["name"], *(f"{row[end]:+.3f}" for end in ("low", "value", "high"))] for row in rows],
    }


def _alike(different: Mapping[str, tuple[str, ...]]) -> list[tuple[tuple[str, ...], list[str]]]:
    """Return what differs between the protocols, and the entries that differ in just that."""
    found: dict[tuple[str, ...], list[str]] = {}
    for entry, keys in different.items():
        found.setdefault(keys, []).append(entry)
    return list(found.items())


_COMPARED: dict[tuple[Any, ...], Comparison] = {}
MOST_COMPARED = 16


def _compared(first: Opened, second: Opened, shared: Mapping[str, Any], measure: Measure) -> Comparison:
    """Compare, once for what was read of both."""
    key = (first.place, first.index.offset, second.place, second.index.offset, measure)
    if key not in _COMPARED:
        while len(_COMPARED) >= MOST_COMPARED:
            _COMPARED.pop(next(iter(_COMPARED)), None)
        before, after = ([row.light() for row in opened.index.rows] for opened in (first, second))
        _COMPARED[key] = compare(before, after, shared, measure=measure)
    return _COMPARED[key]


def _difference_rows(found: Comparison) -> list[dict[str, Any]]:
    rows = [(entry.entry, entry) for entry in found.entries]
    every = [*rows, ("overall", found.overall)] if found.overall else rows
    return [
        {"name": name, "low": one.interval[0], "value": one.difference, "high": one.interval[1], "series": one.verdict}
        for name, one in every
    ]


def _entry(entry: EntryComparison, first: str, second: str) -> Values:
    return {
        "comparison": entry,
        "flips": [(flip, pair_link(first, second, flip.first_key)) for flip in entry.flips[:MOST_FLIPS]],
        "left_out": max(0, len(entry.flips) - MOST_FLIPS),
    }


def pair_link(first: str, second: str, key: AttemptKey) -> str:
    """Return the address of two attempts side by side."""
    return link("/pair", a=first, b=second, entry=key.entry, task=key.task_id, epoch=key.epoch)


def pair(first: Opened, second: Opened, key: AttemptKey) -> Values:
    """Return two runs' attempts at one task, side by side. KeyError where one has none."""
    sides = []
    for letter, opened in zip("AB", (first, second), strict=True):
        row = record(opened, key)
        view = conversation.view(opened.index.read(row))
        sides.append((letter, opened, row, view, attempt_link(opened.place.name, row)))
    return {"sides": sides, "key": key, "same": _same_turns(sides[0][3], sides[1][3])}


def _same_turns(first: conversation.Conversation, second: conversation.Conversation) -> int:
    """Return how many turns the two begin with in common."""
    replies = [[one for one in view.messages if one.anchor] for view in (first, second)]
    same = 0
    for a, b in zip(*replies, strict=False):
        if (a.text, a.calls) != (b.text, b.calls):
            break
        same += 1
    return same
