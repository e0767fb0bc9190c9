"""Plays runs for the commands `eval`, `resume` and `score`: folders, signals, display, table, exit code."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import click
import msgspec
from rich.console import Console

from harness import runlog
from harness.cli._display import shown
from harness.config import ContainerOptions, EvalConfig
from harness.core import BoardEntry
from harness.errors import SetupError
from harness.evaluate import Evaluation
from harness.metrics import summarise_board
from harness.models.prices import price_of
from harness.plan import load_board, prepare, resolve_player
from harness.runlog import Header, Run, RunLog
from harness.table import RunTable, logged_table, render_run, run_json

RUNS = Path("runs")
SHOWN = 3
"""Kinds of failure that are listed under a table."""
CANCEL_SECONDS = 10.0
"""After the first interrupt, what is under way has this long to finish."""

COMPLETE, INCOMPLETE, LOW_COVERAGE, INTERRUPTED = 0, 3, 4, 130


def play_all(
    configs: list[EvalConfig], *, out: Path | None, fresh: bool, as_json: bool, denominator: str | None = None
) -> int:
    """Play each configuration, print its table, and return the exit code of the worst."""
    from dotenv import load_dotenv

    load_dotenv(Path(".env"))
    if len(configs) > 1:
        asyncio.run(_refuse_unknown_models(configs))
    codes = []
    for config in configs:
        clock = time.monotonic()
        code, run, stopped = asyncio.run(_play(config, out, fresh))
        report(run, code, as_json=as_json, denominator=denominator)
        console = Console(stderr=True)
        if stopped:
            text = f"stopped: {stopped}. Go on with: harness resume {run.folder}"
            console.print(text, style="yellow", markup=False, highlight=False, soft_wrap=True)
        console.print(f"{time.monotonic() - clock:.1f} s", style="dim", highlight=False)
        codes.append(code)
        if code == INTERRUPTED:
            break
    return max(codes)


async def _refuse_unknown_models(configs: list[EvalConfig]) -> None:
    """Make every model and agent once before the first is played: a wrong name must not cost a finished run."""
    for config in configs:
        for thing in resolve_player(config):
            if thing is not None:
                await thing.close()


async def _play(config: EvalConfig, out: Path | None, fresh: bool) -> tuple[int, Run, str | None]:
    """Play one run; return the exit code, the run, and why it stopped early."""
    console = Console(stderr=True)

    def say(text: str) -> None:
        console.print(text, style="dim", markup=False, highlight=False)

    async with _reach(config, say) as reach, prepare(config, say=say, reach=reach) as plan:
        for name, reason in plan.unavailable.items():
            text = f"{name} cannot run here: {reason}"
            console.print(text, style="yellow", markup=False, highlight=False, soft_wrap=True)
        header = plan.header()
        folder = out or (None if fresh else unfinished(header)) or new_folder(header)
        with RunLog(folder, header) as log:
            evaluation = Evaluation(plan, log)
            if log.finished and evaluation.jobs:
                text = f"continuing {folder}: {len(evaluation.jobs)} attempts to play"
                console.print(text, markup=False, highlight=False, soft_wrap=True)
            # A person who plays has the terminal to themselves.
            display = nullcontext() if hasattr(plan.agent, "max_players") else shown(evaluation, console)
            with _interruptible(evaluation, console):
                async with display:
                    await evaluation.play()
        run = runlog.read(folder)
        return exit_code(evaluation, run, config), run, evaluation.stopped


@asynccontextmanager
async def _reach(config: EvalConfig, say: Callable[[str], None]) -> AsyncIterator[Callable[[BoardEntry], str] | None]:
    """Run the containers that a configuration asks for; the places of its environments, where they are in any."""
    if not config.containers.on:
        yield None
        return
    from harness.cli._service import require_packages

    require_packages()
    from harness.service.containers import containers

    async with containers(load_board(config)[0].entries, config, say) as reach:
        yield reach


@contextmanager
def _interruptible(evaluation: Evaluation, console: Console) -> Iterator[None]:
    """First signal: begin nothing new, cancel after ten seconds. Second: cancel now. Nothing finished is lost."""
    loop = asyncio.get_running_loop()

    def interrupt() -> None:
        if evaluation.stopped:
            evaluation.cancel()
            return
        evaluation.stop("interrupted")
        loop.call_later(CANCEL_SECONDS, evaluation.cancel)
        console.print("interrupted: finishing what is under way; once more to stop at once", style="yellow")

    signals = (signal.SIGINT, signal.SIGTERM)
    for each in signals:
        loop.add_signal_handler(each, interrupt)
    try:
        yield
    finally:
        for each in signals:
            loop.remove_signal_handler(each)


def new_folder(header: Header) -> Path:
    """Return a run folder that is not there yet, named after when, what and who."""
    who = "".join(c if c.isalnum() or c in "-._" else "-" for c in header.model)[:60].strip("-.")
    stem = f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{header.board.name}-{who}"
    names = (stem, *(f"{stem}-{number}" for number in range(2, 1000)))
    return next(RUNS / name for name in names if not (RUNS / name).exists())


def unfinished(header: Header) -> Path | None:
    """Return the newest run in `runs/` that was asked for in the same words and is not finished."""
    same = ("config", "board", "model", "agent", "fingerprints")
    for path in sorted(RUNS.glob(f"*/{runlog.HEADER}"), reverse=True):
        try:
            run = runlog.read(path.parent)
            alike = all(getattr(run.header, name) == getattr(header, name) for name in same)
            if alike and unplayed(run):
                return path.parent
        except SetupError:
            continue
    return None


def unplayed(run: Run) -> int:
    """Return how many attempts of a run have no record yet."""
    epochs = {entry.name: entry.epochs for entry in run.header.board.entries}
    asked = sum(len(tasks) * epochs[entry] for entry, tasks in run.header.tasks.items())
    return asked - len(run.newest())


def exit_code(evaluation: Evaluation, run: Run, config: EvalConfig) -> int:
    """Return what the process says of the run to whoever started it."""
    if evaluation.stopped == "interrupted":
        return INTERRUPTED
    if evaluation.stopped or unplayed(run) or (evaluation.plan.unavailable and run.header.board.published):
        return INCOMPLETE
    coverage = min(summary.coverage for summary in table_of(run).summaries)
    return LOW_COVERAGE if coverage < config.min_coverage else COMPLETE


def table_of(run: Run, code: int | None = None) -> RunTable:
    """Return the table of a run as it stands."""
    summaries = summarise_board(run.attempts(), run.header.board, run.planned)
    return logged_table(run.header, str(run.folder), summaries, code)


def report(run: Run, code: int | None, *, as_json: bool, denominator: str | None = None) -> None:
    """Print a run's table on standard error, and its JSON line on standard output if asked."""
    console = Console(stderr=True)
    table = table_of(run, code)
    console.print(render_run(table, console.width))
    if denominator == "agentrl":
        for summary in table.summaries:
            agentrl = summary.agentrl
            score = "–" if agentrl.score is None else f"{agentrl.score:.3f}"
            line = f"{summary.entry} as agentrl-eval counts: {score} over {agentrl.valid} ({agentrl.dropped} dropped)"
            console.print(line, markup=False, highlight=False)
    for line in failures(run):
        console.print(line, style="yellow", markup=False, highlight=False, soft_wrap=True)
    if run.header.board.published:
        hint = f"Beside the published rows: harness leaderboard {run.header.board.name} {run.folder}"
        console.print(hint, markup=False, highlight=False, soft_wrap=True)
    if as_json:
        click.echo(json.dumps(run_json(table)))


def failures(run: Run) -> list[str]:
    """Return the commonest failures of a run, with how many attempts met each; messages are one line each."""
    counts = Counter(
        (record.entry, record.failure.boundary, " ".join(record.failure.message.split()))
        for record in run.newest().values()
        if record.failure is not None
    )
    lines = [
        f"{count} × {entry}, {boundary}: {text[:200]}" for (entry, boundary, text), count in counts.most_common(SHOWN)
    ]
    return [*lines, f"… and {len(counts) - SHOWN} other failures"] if len(counts) > SHOWN else lines


def forecast(configs: list[EvalConfig], *, as_json: bool) -> None:
    """Print what each configuration would play and about what it would cost; play nothing."""
    plans = [asyncio.run(_forecast(config)) for config in configs]
    for plan in plans:
        if as_json:
            click.echo(json.dumps(plan))
            continue
        click.echo(f"{plan['model']} · {plan['agent']} · board {plan['board']}")
        for name, row in plan["environments"].items():
            turns = row["turn_limit"] or "its own rule"
            click.echo(
                f"  {name}: {row['attempts']} attempts, at most {turns} turns each, fingerprint {row['fingerprint']}"
            )
        if plan["tokens"]:
            (low, high), cost = plan["tokens"], plan["cost_usd"]
            price = f"${cost[0]:.2f} to ${cost[1]:.2f}" if cost else "cost unknown (no price on file)"
            click.echo(f"  {low:,} to {high:,} tokens; {price}")


async def _forecast(config: EvalConfig) -> dict[str, Any]:
    """Open the run's environments, count its attempts, and bound its tokens and cost.

    The lower end is two short turns an attempt, the upper end every turn the limit allows; a token is four characters.
    """
    async with prepare(config, contact=False) as plan:
        rows, ends = {}, [[0, 0], [0, 0]]
        for entry in plan.entries:
            attempts = len(entry.tasks) * entry.entry.epochs
            limit = entry.limits.turns or entry.env.turn_limit
            rows[entry.entry.name] = {
                "attempts": attempts,
                "turn_limit": limit,
                "fingerprint": entry.fingerprint,
                "split": entry.entry.split,
                "epochs": entry.entry.epochs,
            }
            if plan.model is None or not entry.tasks:
                continue
            prompt = sum(len(str(task.tools)) + len(task.instruction) for task in entry.tasks) / len(entry.tasks) / 4
            for end, (turns, reply) in zip(ends, ((2, 50), (limit or 20, 500)), strict=True):
                end[0] += round(attempts * sum(prompt + 200 + turn * (reply + 200) for turn in range(turns)))
                end[1] += attempts * turns * reply
        price = price_of(plan.model_name)
        return {
            "model": plan.model_name,
            "agent": plan.agent.name,
            "board": plan.board.name,
            "environments": rows,
            "unavailable": plan.unavailable,
            "tokens": [sum(end) for end in ends] if plan.model else None,
            "cost_usd": [(i * price.input + o * price.output) / 1e6 for i, o in ends] if price else None,
        }


def replay_config(run: Run, rules: Literal["fixed", "upstream"] | None) -> EvalConfig:
    """Return the configuration that plays a run's recorded replies again: here, wherever it was played."""
    played = dict.fromkeys(key.task_id for key in run.newest())
    return msgspec.structs.replace(
        run.header.config,
        model=f"replay/{run.folder.resolve()}",
        agent="direct",
        agent_settings={},
        env=tuple(run.header.tasks),
        controller=None,
        containers=ContainerOptions(),
        task_ids=tuple(played),
        limit=None,
        shuffle=None,
        rules=rules or run.header.config.rules,
        cost_limit=None,
    )


def changes(before: Run, after: Run) -> list[str]:
    """Return a line for each attempt whose grade differs between a run and its replay."""
    graded = after.newest()
    lines = []
    for key, old in sorted(before.newest().items()):
        new = graded.get(key)
        if new is None or new.score.value != old.score.value:
            now = "not played" if new is None else f"{new.score.value} ({new.ending})"
            lines.append(f"{key.entry}/{key.task_id}/{key.epoch}: {old.score.value} ({old.ending}) before, {now} now")
    return lines
