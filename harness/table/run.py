"""The table of a run: a value, and its rendering.

Decided here: where coverage is below 1 the score column shows the lower bound behind a "≥"; a published board has no
overall unless every entry of it was played; what the run cannot see is said under the table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Group, RenderableType

from harness.core import Board, Ending, Json, Value
from harness.metrics import Overall, Summary, overall
from harness.runlog import Header
from harness.table.cells import NARROW, csv_text, fraction, grid, line, markdown, numbers, percent, plain, rounded

SHORT_ENDINGS = {
    Ending.COMPLETED: "done",
    Ending.TURN_LIMIT: "turns",
    Ending.TOKEN_LIMIT: "tokens",
    Ending.CONTEXT_LIMIT: "context",
    Ending.TIME_LIMIT: "time",
    Ending.INVALID_ACTION: "invalid",
    Ending.VALIDATION_FAILED: "rejected",
    Ending.REFUSED: "refused",
    Ending.MODEL_ERROR: "model!",
    Ending.ENV_ERROR: "env!",
    Ending.GRADER_ERROR: "grader!",
    Ending.CANCELLED: "cancelled",
}


class RunTable(Value, frozen=True, kw_only=True):
    """A run, as its table shows it."""

    run: str
    """The run's folder."""
    board: str
    model: str
    agent: str
    summaries: tuple[Summary, ...]
    fingerprints: Mapping[str, str]
    unavailable: Mapping[str, str]
    """Entry -> why it could not run here, with the remedy."""
    overall: Overall | None
    privileged: bool = False
    exit_code: int | None = None


def run_table(
    *,
    run: str,
    board: Board,
    model: str,
    agent: str,
    summaries: Sequence[Summary],
    fingerprints: Mapping[str, str],
    unavailable: Mapping[str, str],
    privileged: bool = False,
    exit_code: int | None = None,
    of: int | None = None,
) -> RunTable:
    """Make a run's table. `of` is the number of entries on the whole board, where `board` is narrowed."""
    size = max(of or 0, len(board.entries))
    whole = None if board.published and len(summaries) < size else overall(summaries, size)
    return RunTable(
        run=run,
        board=board.name,
        model=model,
        agent=agent,
        summaries=tuple(summaries),
        fingerprints=fingerprints,
        unavailable=unavailable,
        overall=whole,
        privileged=privileged,
        exit_code=exit_code,
    )


def logged_table(header: Header, run: str, summaries: Sequence[Summary], exit_code: int | None = None) -> RunTable:
    """Make the table of a run as its log's header describes it."""
    return run_table(
        run=run,
        board=header.board,
        model=header.model,
        agent=header.agent,
        summaries=summaries,
        fingerprints=header.fingerprints,
        unavailable=header.unavailable,
        privileged=header.privileged,
        exit_code=exit_code,
        of=header.whole,
    )


def run_json(table: RunTable) -> dict[str, Json]:
    """Return what `--json` prints of a run."""
    return {
        "run": table.run,
        "board": table.board,
        "model": table.model,
        "agent": table.agent,
        "privileged": table.privileged,
        "exit_code": table.exit_code,
        "environments": {
            summary.entry: {"fingerprint": table.fingerprints.get(summary.entry, ""), **summary_json(summary)}
            for summary in table.summaries
        },
        "unavailable": dict(table.unavailable),
        "overall": overall_json(table.overall) if table.overall else None,
    }


def summary_json(summary: Summary) -> dict[str, Json]:
    """Return one entry's numbers."""
    return {
        **numbers(summary, "tasks", "epochs", "attempts", "scored"),
        **_scores(summary),
        "endings": dict(summary.endings),
        "turns": rounded(summary.turns),
        "tokens": {
            "input": summary.usage.input_tokens,
            "output": summary.usage.output_tokens,
            "cached": summary.usage.cached_tokens,
            "reasoning": summary.usage.reasoning_tokens,
        },
        "cost_usd": rounded(summary.usage.cost_usd),
        "seconds": rounded(summary.seconds),
        "retries": summary.retries,
        "pass_at_k": {str(k): rounded(value) for k, value in summary.pass_at.items()},
        "pass_all_k": {str(k): rounded(value) for k, value in summary.pass_all.items()},
        "agentrl": numbers(summary.agentrl, "score", "valid", "dropped", "spread"),
        "groups": {
            name: {
                **numbers(group, "tasks", "scored", "score", "lower", "upper"),
                "interval": [rounded(end) for end in group.interval],
            }
            for name, group in summary.groups.items()
        },
        "absent_groups": list(summary.absent),
    }


def overall_json(whole: Overall) -> dict[str, Json]:
    """Return a board's overall."""
    return {"environments": whole.entries, "of": whole.of, **_scores(whole)}


def _scores(summary: Summary | Overall) -> dict[str, Json]:
    return {
        **numbers(summary, "score", "mean_reward", "coverage", "lower", "upper"),
        "interval": [rounded(end) for end in summary.interval],
        **numbers(summary, "error", "detectable"),
    }


RESULT_COLUMNS = ("Environment", "Score", "95 % interval", "Coverage", "Bounds", "Tasks", "Fingerprint")
PLAY_COLUMNS = ("Endings", "Turns", "Tokens in/out", "Cost $", "Seconds (sum)", "Replayed")


def _score(summary: Summary | Overall) -> str:
    return f"≥{summary.headline:.3f}" if summary.coverage < 1 else fraction(summary.score)


def _range(low: float, high: float) -> str:
    return fraction(low) if f"{low:.3f}" == f"{high:.3f}" else f"{low:.3f}–{high:.3f}"


def _endings(endings: Mapping[str, int]) -> str:
    return ", ".join(f"{SHORT_ENDINGS[Ending(name)]} {count}" for name, count in endings.items())


def count(number: int) -> str:
    """Write a large number short: 12.3k, 4.5M."""
    for size, letter in ((1_000_000, "M"), (10_000, "k")):
        if number >= size:
            return f"{number / (1_000_000 if letter == 'M' else 1000):.1f}{letter}"
    return str(number)


def _result_cells(summary: Summary, print_: str) -> list[str]:
    tasks = f"{summary.tasks}×{summary.epochs}" if summary.epochs > 1 else str(summary.tasks)
    return [
        summary.entry,
        _score(summary),
        _range(*summary.interval),
        percent(summary.coverage),
        _range(summary.lower, summary.upper),
        tasks,
        print_[:8],
    ]


def _play_cells(summary: Summary) -> list[str]:
    usage = summary.usage
    return [
        _endings(summary.endings),
        f"{summary.turns:.1f}",
        f"{count(usage.input_tokens)}/{count(usage.output_tokens)}",
        "unknown" if usage.cost_usd is None and usage.calls else f"{usage.cost_usd or 0:.2f}",
        f"{summary.seconds:.1f}",
        str(summary.retries),
    ]


def _overall_cells(whole: Overall) -> list[str]:
    name = "overall" if whole.entries == whole.of else f"overall {whole.entries} of {whole.of}"
    return [
        name,
        _score(whole),
        _range(*whole.interval),
        percent(whole.coverage),
        _range(whole.lower, whole.upper),
        "",
        "",
    ]


def run_rows(table: RunTable) -> list[list[str]]:
    """Return the table's text cells, `RESULT_COLUMNS` then `PLAY_COLUMNS`; the overall is the last row."""
    rows = [
        _result_cells(summary, table.fingerprints.get(summary.entry, "")) + _play_cells(summary)
        for summary in table.summaries
    ]
    if table.overall and table.overall.of > 1:
        rows.append(_overall_cells(table.overall) + [""] * len(PLAY_COLUMNS))
    return rows


def run_notes(table: RunTable) -> list[str]:
    """Return the sentences under the table: what the run can see, what is missing, and what may not be claimed."""
    notes = []
    seen = [f"{summary.entry} {summary.detectable:.3f}" for summary in table.summaries]
    if table.overall and table.overall.entries > 1:
        seen.append(f"overall {table.overall.detectable:.3f}")
    if seen:
        notes.append(
            f"Smallest difference that two independent runs like this one show (80 % power, α 0.05): {', '.join(seen)}."
        )
    if any(summary.coverage < 1 for summary in table.summaries):
        notes.append("≥ is the lower bound (unscored attempts count 0); its interval is that of both bounds.")
    notes += [
        f"{summary.entry}: no task of {', '.join(summary.absent)}; the score leaves them out."
        for summary in table.summaries
        if summary.absent
    ]
    for summary in table.summaries:
        if summary.pass_at:
            k = max(summary.pass_at)
            notes.append(
                f"{summary.entry}: pass@{k} {summary.pass_at[k]:.3f}, pass^{k} {summary.pass_all.get(k, 0.0):.3f}."
            )
    notes += [f"{name} could not run here: {reason}" for name, reason in table.unavailable.items()]
    if table.overall is None and table.summaries:
        notes.append("No overall: a published board has one only when all of its environments were played.")
    if table.privileged:
        notes.append("The agent was handed gold play: this run checks the instruments and is never ranked.")
    return notes


def render_run(table: RunTable, width: int) -> RenderableType:
    """Return a run's table for a terminal of `width` columns."""
    rows = run_rows(table)
    parts: list[RenderableType] = [line(f"{table.model} · {table.agent} · board {table.board}", "bold")]
    split = len(RESULT_COLUMNS)
    if width >= NARROW:
        parts.append(grid((*RESULT_COLUMNS, *PLAY_COLUMNS), rows))
    else:
        parts.append(grid(RESULT_COLUMNS, [row[:split] for row in rows]))
        parts.append(grid(("Environment", *PLAY_COLUMNS), [[row[0], *row[split:]] for row in rows if any(row[split:])]))
    parts += [line(note, "dim") for note in run_notes(table)]
    if table.run:
        parts.append(line(f"Run folder: {table.run}"))
    return Group(*parts)


def run_markdown(table: RunTable) -> str:
    """Return a run's table as Markdown, its notes as a list."""
    notes = "".join(f"- {plain(note)}\n" for note in run_notes(table))
    return markdown((*RESULT_COLUMNS, *PLAY_COLUMNS), run_rows(table)) + "\n" + notes


def run_csv(table: RunTable) -> str:
    """Return a run's numbers as CSV: one row an environment, and the overall."""
    rows = [{"environment": name, **_flat(values)} for name, values in run_json(table)["environments"].items()]
    if table.overall:
        rows.append({"environment": "overall", **_flat(overall_json(table.overall))})
    columns = list(dict.fromkeys(key for row in rows for key in row))
    return csv_text(columns, [[row.get(column, "") for column in columns] for row in rows])


def _flat(values: Mapping[str, Json]) -> dict[str, Json]:
    """Return the plain numbers of a JSON row; the interval's ends and the tokens by names of their own."""
    plain = {key: value for key, value in values.items() if not isinstance(value, (dict, list))}
    low, high = values["interval"]
    tokens = {f"{kind}_tokens": count for kind, count in values.get("tokens", {}).items()}
    return {**plain, "interval_low": low, "interval_high": high, **tokens}
