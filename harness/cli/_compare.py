"""Compares a run with a run, or with a published row of its board."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import click
from rich.console import Console

from harness import registry, runlog
from harness.errors import SetupError
from harness.fingerprint import apart
from harness.metrics import compare
from harness.runlog import Run
from harness.table import ComparisonTable, comparison_json, render_comparison

REGRESSION = 5


def compare_runs(first: Path, second: str, *, gate: bool, allow_different: bool, as_json: bool) -> int:
    """Print the comparison and return the exit code: 5 for a significant fall under `gate`, else 0.

    Raises:
        SetupError: the runs share no environment, or their fingerprints differ and that was not allowed.
    """
    before = runlog.read(first)
    if second.startswith("published:"):
        if registry.room("leaderboards") is None:
            raise SetupError("there are no published rows here: the folder 'leaderboards' beside 'harness' is missing")
        importlib.import_module("leaderboards.commands").compare_published_row(
            before, second.removeprefix("published:"), as_json=as_json
        )
        return 0
    after = runlog.read(Path(second))
    shared = {
        entry.name: entry.aggregate
        for entry in before.header.board.entries
        if entry.name in before.header.tasks and entry.name in after.header.tasks
    }
    if not shared:
        raise SetupError(f"{first} and {second} have no environment in common")
    table = ComparisonTable(
        first=str(first),
        second=second,
        comparison=compare(before.attempts(), after.attempts(), shared),
        different=_different(before, after, list(shared), allow_different),
    )
    console = Console(stderr=True)
    console.print(render_comparison(table, console.width))
    if as_json:
        click.echo(json.dumps(comparison_json(table)))
    return REGRESSION if gate and table.comparison.fallen else 0


def _different(before: Run, after: Run, entries: list[str], allowed: bool) -> dict[str, tuple[str, ...]]:
    """Return entry -> the protocol's keys that differ."""
    found = apart(before.header.protocols, after.header.protocols, entries)
    if found and not allowed:
        name, keys = next(iter(found.items()))
        shown = "; ".join(keys[:6]) + ("; …" if len(keys) > 6 else "")
        raise SetupError(f"{name} was played under two protocols ({shown}): compare them with --allow-different")
    return found
