"""A report as one HTML page, as Markdown, CSV and JSON, and its plots.

Decided here: the page stands alone and opens from a file without a network. Its attempts lie in it as compressed text,
some to a block, and the page's script unpacks the one that is read; tables and plots need no script. The page has a
bound of bytes: where the attempts do not fit their texts are cut shorter, and what still does not fit is left out and
counted.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from harness.core import AttemptKey, Ending, Json, Trajectory
from harness.table import (
    COMPARISON_COLUMNS,
    PLAY_COLUMNS,
    RESULT_COLUMNS,
    comparison_json,
    comparison_markdown,
    comparison_notes,
    comparison_rows,
    csv_text,
    markdown,
    overall_json,
    run_csv,
    run_json,
    run_markdown,
    run_notes,
    run_rows,
)
from harness.table import plain as printable
from harness.view import conversation, html, plots
from harness.view.report import Chosen, Report, ReportRun, read_chosen

MOST_BYTES = 10_000_000
"""Of the page."""
BLOCK = 16
"""Attempts that are compressed together: what they share (tools, prompts) is then stored once."""
SEPARATOR = "\x1e"
MOST_TEXTS = (6_000, 1_200, 300)
"""Characters of one text of an attempt: the first that lets all attempts fit."""
MOST_ROW = 400
"""Bytes that an attempt's row grows by once it can be opened."""
FLIPS_SHOWN = 200
ATTEMPT_COLUMNS = ("Attempt", "Run", "Group", "Why", "Reward", "Ending", "Turns", "Tokens in/out", "Cost $", "Seconds")


def as_html(report: Report, folders: Sequence[Path], *, most_bytes: int = MOST_BYTES) -> str:
    """Return the report as one page. `folders` are those of its runs, where the chosen attempts are read.

    Raises:
        SetupError: the packages that pages need are not installed, or a log cannot be read.
    """
    html.require()
    figures = {name: (title, plots.svg(spec)) for name, (title, spec) in specs(report).items()}
    room = most_bytes - len(_page(report, figures, [], {}, "").encode()) - MOST_ROW * len(report.chosen) - MOST_ROW
    for most_text in MOST_TEXTS:
        blocks, places = _blocks(read_chosen(report, folders), room, most_text)
        if len(places) == len(report.chosen):
            break
    said = []
    if most_text < MOST_TEXTS[0]:
        said.append(f"Texts are cut at {most_text:,} characters, since the page would grow too large.")
    if left := len(report.chosen) - len(places):
        said.append(f"{left} of them are left out all the same.")
    return _page(report, figures, blocks, places, " ".join(said))


def _page(
    report: Report, figures: Mapping[str, Any], blocks: Sequence[str], places: Mapping[int, tuple[int, int]], said: str
) -> str:
    alike = _by_key(report, places)
    rows = [
        {
            "number": number,
            "place": places.get(number),
            "cells": attempt_cells(report, one),
            "partners": [
                (report.runs[report.chosen[other].run].letter, other)
                for other in alike.get(one.attempt.key, [])
                if other != number
            ],
        }
        for number, one in enumerate(report.chosen)
    ]
    return html.render(
        "report.html",
        inline=True,
        scripts=("report.js",),
        report=report,
        figures=figures,
        result_columns=RESULT_COLUMNS,
        play_columns=("Environment", *PLAY_COLUMNS),
        run_rows={run.letter: run_rows(run.table) for run in report.runs},
        run_notes={run.letter: run_notes(run.table) for run in report.runs},
        asked={run.letter: _asked(run) for run in report.runs},
        comparison_columns=COMPARISON_COLUMNS,
        comparisons=[
            (table, comparison_rows(table), comparison_notes(table), _flips(table)) for table in report.comparisons
        ],
        attempt_columns=[name for name in ATTEMPT_COLUMNS if name != "Run" or len(report.runs) > 1],
        rows=rows,
        blocks=blocks,
        said=said,
    )


def _blocks(
    trajectories: Iterable[tuple[int, Trajectory]], room: int, most_text: int
) -> tuple[list[str], dict[int, tuple[int, int]]]:
    """Return compressed blocks of attempts as far as there is room, and where each attempt is."""
    blocks: list[str] = []
    places: dict[int, tuple[int, int]] = {}
    waiting: list[tuple[int, str]] = []

    def close() -> bool:
        nonlocal room
        text = SEPARATOR.join(fragment for _, fragment in waiting)
        block = base64.b64encode(zlib.compress(text.encode(), 9)).decode()
        room -= len(block) + 100
        if room >= 0:
            places.update({number: (len(blocks), index) for index, (number, _) in enumerate(waiting)})
            blocks.append(block)
        waiting.clear()
        return room >= 0

    for number, trajectory in trajectories:
        shown = conversation.view(trajectory, most_text=most_text)
        waiting.append((number, html.render("report_attempt.html", shown=shown).replace(SEPARATOR, "")))
        if len(waiting) == BLOCK and not close():
            return blocks, places
    if waiting:
        close()
    return blocks, places


def _by_key(report: Report, places: Mapping[int, tuple[int, int]]) -> dict[AttemptKey, list[int]]:
    """Return key -> the attempts at it that can be opened, one a run."""
    found: dict[AttemptKey, list[int]] = {}
    for number in sorted(places):
        found.setdefault(report.chosen[number].attempt.key, []).append(number)
    return found


def attempt_cells(report: Report, one: Chosen) -> list[str]:
    """Return the text cells of a chosen attempt, `ATTEMPT_COLUMNS` without "Run" where there is one run."""
    attempt, usage = one.attempt, one.attempt.usage
    name = f"{attempt.entry}/{attempt.task_id}" + (f" epoch {attempt.epoch}" if attempt.epoch else "")
    unknown = usage.calls and usage.cost_usd is None
    return [
        name,
        *([report.runs[one.run].letter] if len(report.runs) > 1 else []),
        attempt.group,
        one.why,
        "not scored" if attempt.score.value is None else f"{attempt.score.value:g}",
        str(attempt.ending).replace("_", " "),
        str(len(attempt.turns)),
        f"{usage.input_tokens}/{usage.output_tokens}",
        "unknown" if unknown else f"{usage.cost_usd or 0:.4f}",
        f"{attempt.seconds:.1f}",
    ]


def _flips(table: Any) -> list[list[str]]:
    """Return the rows of what flipped, over all entries."""
    return [
        [f"{entry.entry}/{flip.task_id}", str(flip.epoch), flip.group, f"{flip.first:g}", f"{flip.second:g}"]
        for entry in table.comparison.entries
        for flip in entry.flips
    ][:FLIPS_SHOWN]


def _asked(run: ReportRun) -> str:
    """Return what was asked for, as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(run.header.config), indent=1).decode()


def specs(report: Report) -> dict[str, tuple[str, plots.Spec]]:
    """Return name -> title and plot; a plot that would say nothing is left out."""
    several = len(report.runs) > 1
    met = {ending for run in report.runs for summary in run.table.summaries for ending in summary.endings}
    kinds = [ending for ending in Ending if ending in met]
    scores, tokens = [], []
    found: dict[str, tuple[str, plots.Spec] | None] = {"scores": None}
    for run in report.runs:
        mark = f" · {run.letter}" if several else ""
        series = f"{run.letter} {run.table.model}".strip()
        for summary in run.table.summaries:
            name = summary.entry + mark
            low, high = summary.interval
            scores.append({"name": name, "low": low, "value": summary.headline, "high": high, "series": series})
            spent = (("input", summary.usage.input_tokens), ("output", summary.usage.output_tokens))
            attempts = max(1, summary.attempts)
            tokens += [{"x": name, "y": number / attempts, "series": kind} for kind, number in spent if number]
        if (whole := run.table.overall) and whole.of > 1:
            ends = {"low": whole.interval[0], "high": whole.interval[1]}
            scores.append({"name": f"overall{mark}", "value": whole.headline, "series": series, **ends})
        found[f"endings-{run.letter}" if several else "endings"] = _endings(run, mark, kinds)
    # The runs' values of one environment stand together, in the order of the first run's.
    order = list(dict.fromkeys(str(row["name"]).partition(" · ")[0] for row in scores))
    scores.sort(key=lambda row: order.index(str(row["name"]).partition(" · ")[0]))
    found |= {
        "scores": ("Score with its 95 % interval", plots.intervals(scores, x="score")) if scores else None,
        "tokens": ("Tokens of an attempt", plots.bars(tokens, x="", y="tokens")) if tokens else None,
        "cost": _cost(report),
    }
    for table in report.comparisons:
        entries = [(entry.entry, entry) for entry in table.comparison.entries]
        whole_rows = [("overall", table.comparison.overall)] if table.comparison.overall else []
        rows = [
            {"name": name, "low": row.interval[0], "value": row.difference, "high": row.interval[1], "series": "B − A"}
            for name, row in (*entries, *whole_rows)
        ]
        title = f"{table.second} minus {table.first}, with 95 % intervals"
        found[f"difference-{table.first}-{table.second}"] = (title, plots.differences(rows, x="difference"))
    return {name: plot for name, plot in found.items() if plot is not None}


def _endings(run: ReportRun, mark: str, kinds: Sequence[Ending]) -> tuple[str, plots.Spec] | None:
    """Plot how attempts ended; `kinds` are those of all runs, so that each has one colour."""
    rows = [
        {"x": summary.entry, "y": summary.endings.get(ending, 0), "series": ending.replace("_", " ")}
        for summary in run.table.summaries
        for ending in kinds
    ]
    return (f"How attempts ended{mark}", plots.bars(rows, x="", y="share", share=True)) if rows else None


def _cost(report: Report) -> tuple[str, plots.Spec] | None:
    """Return cost against score, where two runs or more have both."""
    rows: list[dict[str, Any]] = []
    for run in report.runs:
        costs = [summary.usage.cost_usd for summary in run.table.summaries]
        attempts = sum(summary.attempts for summary in run.table.summaries)
        whole = run.table.overall
        if whole is not None and attempts and all(cost is not None for cost in costs):
            cost = sum(cost or 0.0 for cost in costs) / attempts
            name = f"{run.letter} {run.table.model}".strip()
            rows.append({"name": name, "x": cost, "y": whole.headline, "series": run.table.board})
    for row in rows:
        row["front"] = not any(
            other["x"] <= row["x"] and other["y"] >= row["y"] and (other["x"], other["y"]) != (row["x"], row["y"])
            for other in rows
        )
    if len(rows) < 2:
        return None
    return "Cost and score", plots.pareto(rows, x="US dollars an attempt", y="score")


def as_markdown(report: Report) -> str:
    """Return the report as Markdown."""
    parts = [f"# {printable(report.title)}\n"]
    for run in report.runs:
        head = f"{run.letter}: " if run.letter else ""
        standing = f"\nStanding: {printable(run.standing)}\n" if run.standing else ""
        names = f"{run.table.model} · {run.table.agent} · board {run.table.board} · {run.header.created[:16]}"
        parts.append(f"## {printable(head + names)}\n\n{run_markdown(run.table)}{standing}")
    parts += [
        f"## {table.second} against {table.first}\n\n{comparison_markdown(table)}" for table in report.comparisons
    ]
    if report.left:
        parts.append("".join(f"- {printable(text)}\n" for text in report.left))
    if report.chosen:
        columns = [name for name in ATTEMPT_COLUMNS if name != "Run" or len(report.runs) > 1]
        rows = [attempt_cells(report, one) for one in report.chosen]
        parts.append(f"## Attempts\n\n{printable(report.rule)}\n\n{markdown(columns, rows)}")
    return "\n".join(parts)


def as_csv(report: Report) -> str:
    """Return the runs' numbers as CSV: one row an environment of a run, and each overall."""
    import csv
    import io

    rows: list[dict[str, str]] = []
    for run in report.runs:
        names = {"run": run.table.run, "model": run.table.model, "agent": run.table.agent, "board": run.table.board}
        rows += [{**names, **row} for row in csv.DictReader(io.StringIO(run_csv(run.table)))]
    columns = list(dict.fromkeys(key for row in rows for key in row))
    return csv_text(columns, [[row.get(column, "") for column in columns] for row in rows])


def as_json(report: Report) -> dict[str, Json]:
    """Return the report as JSON values; attempts by their keys, not whole."""
    return {
        "runs": [
            {
                **run_json(run.table),
                "letter": run.letter,
                "created": run.header.created,
                "standing": run.standing,
                "overall": overall_json(run.table.overall) if run.table.overall else None,
            }
            for run in report.runs
        ],
        "left": list(report.left),
        "comparisons": [comparison_json(table) for table in report.comparisons],
        "rule": report.rule,
        "attempts": [
            {
                "run": report.runs[one.run].table.run,
                "entry": one.attempt.entry,
                "task_id": one.attempt.task_id,
                "epoch": one.attempt.epoch,
                "attempt": one.attempt.attempt,
                "why": one.why,
                "reward": one.attempt.score.value,
                "ending": str(one.attempt.ending),
            }
            for one in report.chosen
        ],
    }
