"""Writes a report in the form that was asked for."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
from collections.abc import Sequence
from pathlib import Path

import click

from harness import registry, runlog
from harness.errors import SetupError
from harness.runlog import Run
from harness.view import html, plots, report, report_forms

BY_SUFFIX = {".html": "html", ".htm": "html", ".md": "markdown", ".csv": "csv", ".json": "json"}
DEFAULT_OUT = {
    "html": "report.html",
    "markdown": "report.md",
    "csv": "report.csv",
    "json": "report.json",
    "svg": "report-plots",
    "png": "report-plots",
}


def write(
    folders: Sequence[Path],
    out: Path | None,
    form: str | None,
    *,
    trajectories: int,
    seed: int,
    allow_different: bool,
) -> None:
    """Write the report and say where it is."""
    if len({folder.resolve() for folder in folders}) < len(folders):
        raise SetupError("a run is named twice: name each once")
    runs = [runlog.read(folder) for folder in folders]
    form = form or (BY_SUFFIX.get(out.suffix.lower()) if out else "html")
    if form is None:
        raise SetupError(f"what to write into {out} is not told by its name: say --format")
    if form in ("html", "svg", "png"):
        html.require()
    target = out or Path(DEFAULT_OUT[form])
    made = report.gather(
        runs,
        trajectories=trajectories,
        seed=seed,
        standings=_standings(runs),
        allow_different=allow_different,
    )
    if form in ("svg", "png"):
        for name, (_, spec) in report_forms.specs(made).items():
            content = plots.svg(spec).encode() if form == "svg" else plots.png(spec)
            _write(target / f"{name}.{form}", content)
        click.echo(f"{target}/: {len(report_forms.specs(made))} plots", err=True)
        return
    if form == "html":
        text = report_forms.as_html(made, folders)
    elif form == "markdown":
        text = report_forms.as_markdown(made)
    elif form == "csv":
        text = report_forms.as_csv(made)
    else:
        text = json.dumps(report_forms.as_json(made), indent=1) + "\n"
    _write(target, text.encode())
    click.echo(f"{target}: {len(text.encode()):,} bytes. {made.rule}", err=True)


def _standings(runs: Sequence[Run]) -> list[str]:
    """Return where each run stands on its board, where there are boards."""
    if registry.room("leaderboards") is None:
        return [""] * len(runs)
    found: list[str] = importlib.import_module("leaderboards.commands").standings(runs)
    return found


def _write(path: Path, content: bytes) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(content)
        temporary.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise SetupError(f"cannot write {path}: {error.strerror}; choose another with --out") from error
