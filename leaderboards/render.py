"""A leaderboard for terminals, Markdown, CSV and JSON. Scores are per cent, published ones exactly as written."""

from __future__ import annotations

from itertools import groupby

from rich.console import Group, RenderableType

from harness.core import Board, Json, Value
from harness.table import csv_text, grid, line, markdown, plain
from leaderboards.rank import HERE, OVERALL, PUBLISHED, REGRADED, Cell, Ranked, Row

WIDE = 150
"""From this many columns on, origin, number of tasks and date have columns of their own."""
ERROR_REACH = 1.96
MARKS = {PUBLISHED: "", HERE: "● ", REGRADED: "○ "}
ADAPTED = "◆ "


class Leaderboard(Value, frozen=True, kw_only=True):
    """A board with its rows."""

    board: Board
    columns: tuple[str, ...]
    by: str
    """The column that rows are ranked by."""
    rows: tuple[Ranked, ...]
    warnings: tuple[str, ...] = ()
    details: tuple[str, ...] = ()
    """Further columns, where there is room for them."""


def rank_text(rank: tuple[int, int] | None) -> str:
    """Write a rank range: "1", "3–11", or "–" for a row that is not ranked."""
    if rank is None:
        return "–"
    return str(rank[0]) if rank[0] == rank[1] else f"{rank[0]}–{rank[1]}"


def _error(cell: Cell | None) -> str:
    return "" if cell is None or cell.error is None else f"{cell.error * 100 * ERROR_REACH:.1f}"


def _ranking_cell(cell: Cell | None) -> str:
    if cell is None:
        return "–"
    return f"{cell.text} ±{_error(cell)}" if cell.error is not None else cell.text


def _plain_cell(cell: Cell | None, spread: bool) -> str:
    if cell is None:
        return "–"
    star = "*" if cell.note else ""
    return f"{cell.text}{star} ({cell.spread})" if spread and cell.spread else cell.text + star


def _shown(board: Leaderboard, share: float = 0.0) -> list[str]:
    """Return the columns that more than a share of the rows have."""
    return [
        name
        for name in (*board.columns, OVERALL)
        if sum(name in item.row.cells for item in board.rows) > share * len(board.rows)
    ]


def notes(board: Leaderboard) -> list[str]:
    """Return what a reader must know of the table."""
    rows = [item.row for item in board.rows]
    found = [board.board.note] if board.board.note else []
    if any(row.origin == PUBLISHED for row in rows):
        found.append(f"Rows without a mark are {PUBLISHED}; (…) is their run-to-run spread.")
    found.append(
        f"± is {ERROR_REACH} standard errors of the column '{board.by}', task sampling included. A rank spans every "
        "row that it cannot be told from (Holm over all pairs, α 0.05)."
    )
    found += [
        f"{mark}{row.name}: {row.origin}{_tail(row)}"
        for row in rows
        if (mark := MARKS.get(row.origin, ADAPTED)) and mark != ADAPTED
    ]
    found += [f"{ADAPTED}{row.name}: {row.origin}; not ranked{_tail(row)}" for row in rows if row.origin not in MARKS]
    starred: dict[str, list[str]] = {}
    for row in rows:
        if row.origin == PUBLISHED:
            for note in row.notes:
                starred.setdefault(note, []).append(row.name)
    found += [f"* {', '.join(names)}: {note}" for note, names in starred.items()]
    return [*board.warnings, *found]


def _tail(row: Row) -> str:
    marks = ", ".join(f"{entry} {mark[:8]}" for entry, mark in row.fingerprints.items())
    details = [*row.notes, row.source, *([f"fingerprints {marks}"] if marks else [])]
    return f" ({'; '.join(details)})"


def _table(board: Leaderboard, *, wide: bool, sections: bool) -> tuple[list[str], list[list[str]]]:
    others = [name for name in _shown(board, 0.0 if wide else 0.5) if name != board.by]
    columns = ["Rank", "Model", board.by.capitalize(), *others]
    columns += ["Origin", "n", "Date"] if wide else []
    columns += [] if sections else ["Fingerprint"]
    rows: list[list[str]] = []
    for group, items in groupby(board.rows, key=lambda item: item.row.group):
        if sections:
            rows.append(["", f"— {group} —", *[""] * (len(columns) - 2)])
        for item in items:
            row = item.row
            mark = "" if wide and not sections else MARKS.get(row.origin, ADAPTED)
            cells = [rank_text(item.rank), mark + row.name, _ranking_cell(row.cells.get(board.by))]
            cells += [_plain_cell(row.cells.get(name), wide) for name in others]
            cells += [row.origin, str(row.tasks or ""), row.date] if wide else []
            marks = " ".join(value[:8] for value in row.fingerprints.values())
            rows.append(cells if sections else [row.group, *cells, marks])
    return (columns if sections else ["Group", *columns]), rows


def terminal(board: Leaderboard, width: int) -> RenderableType:
    """Return the leaderboard for a terminal of `width` columns."""
    columns, rows = _table(board, wide=width >= WIDE, sections=True)
    return Group(line(board.board.title, "bold"), grid(columns, rows), *(line(note, "dim") for note in notes(board)))


def as_markdown(board: Leaderboard) -> str:
    """Return the leaderboard as Markdown, everything in columns."""
    columns, rows = _table(board, wide=True, sections=False)
    text = "".join(f"- {plain(note)}\n" for note in notes(board))
    return f"## {plain(board.board.title)}\n\n{markdown(columns, rows)}\n{text}"


def as_csv(board: Leaderboard) -> str:
    """Return the leaderboard as CSV: scores and spreads exactly as published, one row a system."""
    scored = [*_shown(board), *(name for name in board.details if any(name in item.row.cells for item in board.rows))]
    columns = ["rank_best", "rank_worst", "group", "model", "origin"]
    columns += [f"{name}{suffix}" for name in scored for suffix in ("", "_spread", "_error")]
    rows: list[list[object]] = []
    for item in board.rows:
        row = item.row
        best, worst = item.rank or ("", "")
        cells: list[object] = [best, worst, row.group, row.name, row.origin]
        for name in scored:
            cell = row.cells.get(name)
            error = "" if cell is None or cell.error is None else f"{cell.error * 100:.3f}"
            cells += [cell.text if cell else "", cell.spread if cell else "", error]
        marks = ";".join(f"{entry}={value}" for entry, value in row.fingerprints.items())
        rows.append([*cells, row.tasks or "", row.date, marks, row.source, "; ".join(row.notes)])
    return csv_text([*columns, "n", "date", "fingerprints", "source", "notes"], rows)


def as_json(board: Leaderboard) -> dict[str, Json]:
    """Return the leaderboard as JSON values; scores are fractions, with the published text beside them."""
    return {
        "board": board.board.name,
        "title": board.board.title,
        "by": board.by,
        "rows": [
            {
                "rank": list(item.rank) if item.rank else None,
                "group": item.row.group,
                "model": item.row.name,
                "origin": item.row.origin,
                "scores": {name: _cell_json(cell) for name, cell in item.row.cells.items()},
                "tasks": item.row.tasks,
                "date": item.row.date,
                "fingerprints": dict(item.row.fingerprints),
                "source": item.row.source,
                "notes": list(item.row.notes),
            }
            for item in board.rows
        ],
        "notes": notes(board),
    }


def _cell_json(cell: Cell) -> dict[str, Json]:
    return {
        "score": round(cell.value, 6),
        "text": cell.text,
        "spread": cell.spread,
        "error": None if cell.error is None else round(cell.error, 6),
        "lower": round(cell.low, 6),
        "upper": round(cell.high, 6),
    }
