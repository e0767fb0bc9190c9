"""The site's pages: the index, and one page a board.

Decided here: a row's text is exactly what was published, and a run's is made alike. A score that is not whole is shown
as its lower bound. Cost against score shows who is worth looking at; it ranks nobody, so it takes scores as they are.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.view import html, plots
from leaderboards.board import Layout
from leaderboards.rank import HERE, OVERALL, PUBLISHED, REGRADED, Cell, Ranked
from leaderboards.render import ERROR_REACH, Leaderboard, notes, rank_text

if TYPE_CHECKING:
    from jinja2 import Environment

TEMPLATES = Path(__file__).parent / "templates"
MOST_INTERVALS = 40
"""Rows of the plot of scores."""
KINDS = {HERE: "here", REGRADED: "regraded", PUBLISHED: "published"}
TITLES = {
    "alfworld": "ALFWorld", "bfcl": "BFCL", "db": "DB", "kg": "KG", "os": "OS", "webshop": "WebShop",
    "live": "Live", "multi_turn": "Multi-turn", "non_live": "Non-live", "non_live_ast": "Non-live AST",
}  # fmt: skip
MOST_LABEL = 24
"""Characters of a row's name beside a plot."""
PER_CALL, PER_ATTEMPT = "US$ / 1,000 calls", "US$ / attempt"


@cache
def _environment() -> Environment:
    return html.environment(TEMPLATES)


def index_page(boards: Mapping[str, Leaderboard]) -> str:
    """Return the page that lists the boards."""
    entries = [
        {
            "name": name,
            "board": board.board,
            "rows": len(board.rows),
            "kinds": {kind: sum(_kind(item) == kind for item in board.rows) for kind in (*KINDS.values(), "adapted")},
            "first": [item.row for item in board.rows if item.rank and item.rank[0] == 1],
        }
        for name, board in boards.items()
    ]
    return _environment().get_template("index.html").render(inline=True, entries=entries)


def board_page(board: Leaderboard, plan: Layout, boards: Mapping[str, Leaderboard], evidence: Mapping[str, str]) -> str:
    """Return a board's page. `evidence` is source -> the page that shows a run."""
    rows = sorted(board.rows, key=lambda item: (-_overall(item), item.row.group, item.row.name))
    scored = [name for name in board.columns if any(name in item.row.cells for item in rows)]
    details = [name for name in board.details if any(name in item.row.cells for item in rows)]
    cost_title = PER_CALL if plan.cost_column else PER_ATTEMPT
    figures = []
    if intervals := _intervals(rows):
        figures.append(("Overall score with its 95 % interval", plots.svg(plots.intervals(intervals, x="overall"))))
    if costs := _costs(rows):
        title = "Cost and score: the dashed line joins what nothing cheaper beats, ties and all"
        figures.append((title, plots.svg(plots.pareto(costs, x=cost_title, y="overall, per cent"))))
    return (
        _environment()
        .get_template("board.html")
        .render(
            inline=True,
            board=board,
            boards={name: other.board.title for name, other in boards.items()},
            names={name: TITLES.get(name, name.replace("_", " ")) for name in (*scored, *details)},
            scored=scored,
            details=details,
            rows=[_row(item, evidence) for item in rows],
            notes=notes(board),
            figures=figures,
            cost_title=cost_title if any(item.row.cost_text for item in rows) else "",
            latency=any(item.row.latency_text for item in rows),
            errors=any(item.row.error_share is not None for item in rows),
            prints=any(item.row.fingerprints for item in rows),
        )
    )


def _row(item: Ranked, evidence: Mapping[str, str]) -> dict[str, Any]:
    row = item.row
    return {
        "rank": rank_text(item.rank),
        "best": item.rank[0] if item.rank else 10_000,
        "row": row,
        "kind": _kind(item),
        "cells": {name: _cell(cell) for name, cell in row.cells.items()},
        "prints": [f"{entry} {mark}" for entry, mark in row.fingerprints.items()],
        "evidence": evidence.get(row.source, ""),
        "errors": "" if row.error_share is None else f"{row.error_share * 100:.1f} %",
    }


def _kind(item: Ranked) -> str:
    return KINDS.get(item.row.origin, "adapted")


def _cell(cell: Cell) -> dict[str, str]:
    """Return a score's text, its run-to-run spread, its 95 % reach, and whether it is a lower bound."""
    return {
        "text": cell.text,
        "spread": cell.spread,
        "reach": "" if cell.error is None else f"{cell.error * 100 * ERROR_REACH:.1f}",
        "bound": "≥" if cell.high > cell.low else "",
        "note": cell.note,
    }


def _overall(item: Ranked) -> float:
    cell = item.row.cells.get(OVERALL)
    return -1.0 if cell is None else cell.value


def _intervals(rows: list[Ranked]) -> list[dict[str, Any]]:
    """Return the rows of the plot of scores, best first."""
    found: list[dict[str, Any]] = []
    for item in rows:
        cell = item.row.cells.get(OVERALL)
        if cell is not None and cell.error is not None and len(found) < MOST_INTERVALS:
            reach = cell.error * ERROR_REACH
            ends = {"low": max(0.0, cell.low - reach), "high": min(1.0, cell.high + reach)}
            name = _label(item.row.name, {str(one["name"]) for one in found})
            found.append({"name": name, "value": cell.value, "series": _kind(item), **ends})
    return found if len(found) > 1 else []


def _label(name: str, taken: Collection[str]) -> str:
    """Return a short name that no other row has: two rows of one name would share a line."""
    short = name if len(name) <= MOST_LABEL else name[: MOST_LABEL - 1] + "…"
    numbered = (f"{short} ({number})" for number in range(2, len(taken) + 3))
    return short if short not in taken else next(other for other in numbered if other not in taken)


def _costs(rows: list[Ranked]) -> list[dict[str, Any]]:
    """Return the rows of the plot of cost against score: those that have both."""
    found: list[dict[str, Any]] = [
        {
            "name": item.row.name[:MOST_LABEL],
            "x": item.row.cost,
            "y": item.row.cells[OVERALL].value * 100,
            "series": item.row.group,
        }
        for item in rows
        if item.row.cost is not None and OVERALL in item.row.cells
    ]
    for one in found:
        one["front"] = not any(
            other["x"] <= one["x"] and other["y"] >= one["y"] and (other["x"], other["y"]) != (one["x"], one["y"])
            for other in found
        )
    return found if len(found) > 1 else []
