"""Published scores as rows, read from `published/*.csv`: facts, with their sources, never reproduced here.

`scores.csv` has one score a line, for several boards; `bfcl-v3.csv` has one model a line, as its leaderboard shows it.
Texts are kept as written. The errors are ours: task sampling p(1 - p)/n is added to the published spread.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from harness.core import Board
from harness.errors import SetupError, nearest
from harness.metrics import leaves, published_error, shares
from leaderboards.board import Layout, layout
from leaderboards.rank import OVERALL, PUBLISHED, Cell, Group, Row

FOLDER = Path(__file__).parent / "published"
SCORES = "scores.csv"
GROUP_OF: Mapping[str, Group] = {
    "api": "API",
    "open-prompting": "open",
    "open-trained": "trained",
    "agentrl": "trained",
}
RANKABLE = frozenset({"success_rate", "accuracy"})


def rows(board: Board) -> list[Row]:
    """Return the published rows of a board; none where nothing published is comparable."""
    if board.published is None:
        return []
    plan = layout(board.published)
    return [*_long(board, plan), *_wide(board, plan)]


def find(board: Board, name: str) -> Row:
    """Return a published row by its model's name, or by the only name that begins so; case aside.

    Raises:
        SetupError: there is none, or several begin so; the message has the names.
    """
    known = {row.name: row for row in rows(board)}
    matching = [row for key, row in known.items() if key.lower() == name.lower()]
    begun = [row for key, row in known.items() if key.lower().startswith(name.lower())]
    if not matching and len(begun) > 1:
        raise SetupError(f"several published rows begin with '{name}': {', '.join(row.name for row in begun)}")
    matching = matching or begun
    if not known:
        raise SetupError(f"board '{board.name}' has no published scores")
    if not matching:
        raise SetupError(f"board '{board.name}' has no published row '{name}'{nearest(name, known)}")
    return matching[0]


def date_of(source: str) -> str:
    """Return the year and month (and day) that a source names, or that its arXiv number tells."""
    if found := re.search(r"\b20\d\d-\d\d(?:-\d\d)?\b", source):
        return found[0]
    number = re.search(r"arXiv (\d\d)(\d\d)\.\d", source)
    return f"20{number[1]}-{number[2]}" if number else ""


def _read(path: Path) -> Iterator[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as lines:
        for line in csv.DictReader(lines):
            yield {key: value or "" for key, value in line.items()}


def _long(board: Board, plan: Layout) -> Iterator[Row]:
    by_model: dict[tuple[str, str], list[dict[str, str]]] = {}
    for line in _read(FOLDER / SCORES):
        if line["board"] == board.published:
            by_model.setdefault((line["group"], line["model"]), []).append(line)
    for (group, model), lines in by_model.items():
        cells = {line["env"]: _cell(line, plan) for line in lines}
        notes = tuple(f"{line['env']}: {line['note']}" for line in lines if line["note"])
        if OVERALL not in cells and all(name in cells and cells[name].error is not None for name in plan.columns):
            cells[OVERALL] = _mean([cells[name] for name in plan.columns])
        counts = [cell.tasks for name, cell in cells.items() if name != OVERALL]
        total = sum(count or 0 for count in counts) if all(counts) else None
        yield Row(
            name=model,
            group=GROUP_OF[group],
            origin=PUBLISHED,
            cells=cells,
            tasks=total or sum(category.tasks for category in plan.categories.values()) or None,
            date=date_of(lines[0]["source"]),
            source=lines[0]["source"],
            notes=notes,
        )


def _cell(line: Mapping[str, str], plan: Layout) -> Cell:
    value = float(line["value"]) / 100
    tasks = int(line["n_tasks"]) if line["n_tasks"] else None
    error: float | None = None
    if line["metric"] in RANKABLE and tasks:
        spread, runs = float(line["spread"] or 0) / 100, int(line["runs"] or 1)
        error = published_error(value, tasks, spread, runs)
    elif line["metric"] in RANKABLE and line["env"] in plan.parts:
        error = _part_error(line["env"], {line["env"]: line["value"]}, plan)
    return Cell(value=value, text=line["value"], spread=line["spread"], error=error, tasks=tasks, note=line["note"])


def _wide(board: Board, plan: Layout) -> Iterator[Row]:
    path = FOLDER / f"{board.published}.csv"
    if not path.exists():
        return
    for line in _read(path):
        cells = {
            name: Cell(value=float(line[name]) / 100, text=line[name], error=_part_error(name, line, plan))
            for name in (*plan.columns, *plan.details, OVERALL)
            if line.get(name)
        }
        cost = line.get(plan.cost_column or "", "")
        yield Row(
            name=f"{line['model']} ({line['mode']})" if line["mode"] else line["model"],
            group="API" if line["license"] == "Proprietary" else "open",
            origin=PUBLISHED,
            cells=cells,
            tasks=sum(category.tasks for category in plan.categories.values()) or None,
            date=date_of(line["source"]),
            source=line["source"],
            cost=float(cost) if _is_number(cost) else None,
            cost_text=cost if _is_number(cost) else "",
            latency_text=latency if _is_number(latency := line.get(plan.latency_column or "", "")) else "",
        )


def _is_number(text: str) -> bool:
    """Whether a published figure is one; the tables say "N/A" where there is none."""
    return re.fullmatch(r"\d+(\.\d+)?", text) is not None


def _part_error(name: str, line: Mapping[str, str], plan: Layout) -> float:
    """Return the error of a mean of categories, each at its own published score, or else at the mean's."""
    tree = plan.parts[name]
    sizes = {group: plan.categories[group].tasks for group in leaves(tree)}
    total = 0.0
    for group, weight in shares(tree, sizes).items():
        percent = float(line.get(plan.categories[group].column) or line[name])
        total += (weight * published_error(percent / 100, sizes[group])) ** 2
    return math.sqrt(total)


def _mean(cells: list[Cell]) -> Cell:
    """Return the unweighted mean of a row's environments, to the decimals of the published averages."""
    value = sum(cell.value for cell in cells) / len(cells)
    error = math.sqrt(sum((cell.error or 0.0) ** 2 for cell in cells)) / len(cells)
    return Cell(value=value, text=f"{value * 100:.1f}", error=error)
