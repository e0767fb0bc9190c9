"""The boards as a static site: pages that stand alone, the numbers as CSV and JSON, and a report of each run.

Decided here: a page says nothing of when or where it was made, so that the same rows make the same bytes; runs are
named by their folders' names. A folder that this did not make is not written to; what an earlier build made and this
one does not is removed.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from harness import runlog
from harness.errors import SetupError
from harness.runlog import Run
from harness.view import html, report, report_forms
from leaderboards.assemble import assemble
from leaderboards.board import layout, names
from leaderboards.commands import RUNS, standings
from leaderboards.rank import Ranked
from leaderboards.render import Leaderboard, as_csv, as_json
from leaderboards.runs import discover
from leaderboards.site.pages import board_page, index_page

MANIFEST = "site.json"
"""Which files the site is made of, each with its SHA-256."""


def build_site(
    out: Path, folders: Sequence[Path], bundles: Path, *, trajectories: int, allow_different: bool = False
) -> dict[str, bytes]:
    """Write the site and return its files. Without `folders`, the runs in runs/ are taken.

    Raises:
        SetupError: a run cannot be read, `out` holds something else, or it cannot be written.
    """
    html.require()
    mine = [runlog.read(folder) for folder in folders] or [run for name in names() for run in discover(RUNS, name)]
    runs = [*mine, *(run for name in names() for run in discover(bundles, name))]
    pages = make(runs, trajectories=trajectories, allow_different=allow_different)
    _write(out, pages)
    return pages


def make(runs: Sequence[Run], *, trajectories: int, allow_different: bool = False) -> dict[str, bytes]:
    """Return the site's files: path -> content."""
    called = _names(runs)
    boards: dict[str, Leaderboard] = {}
    pages: dict[str, bytes] = {}
    for name in names():
        own = [run for run in runs if run.header.board.name == name]
        board = assemble(name, own, allow_different=allow_different)
        if board.rows:
            boards[name] = _portable(board, called)
    shown = {item.row.source for board in boards.values() for item in board.rows}
    for run in runs:
        slug = called[str(run.folder)]
        if slug in shown:
            pages[f"runs/{slug}.html"] = _evidence(run, trajectories)
    for name, board in boards.items():
        pages[f"{name}.html"] = board_page(board, layout(name), boards, _evidence_links(board, pages)).encode()
        pages[f"{name}.csv"] = as_csv(board).encode()
        pages[f"{name}.json"] = (
            json.dumps(as_json(board), indent=1, sort_keys=True, ensure_ascii=False).encode() + b"\n"
        )
    pages["index.html"] = index_page(boards).encode()
    return dict(sorted(pages.items()))


def _names(runs: Sequence[Run]) -> dict[str, str]:
    """Return folder -> a name for it that says nothing of where it lies; each name once."""
    found: dict[str, str] = {}
    for run in runs:
        stem = "".join(c if c.isascii() and (c.isalnum() or c in "-._") else "-" for c in run.folder.resolve().name)
        stem = stem.strip("-.") or "run"
        name, number = stem, 1
        while name in found.values():
            number += 1
            name = f"{stem}-{number}"
        found.setdefault(str(run.folder), name)
    return found


def _portable(board: Leaderboard, called: Mapping[str, str]) -> Leaderboard:
    """Return the board with names in the place of folders."""

    def row(item: Ranked) -> Ranked:
        name = called.get(item.row.source)
        return item if name is None else Ranked(row=msgspec.structs.replace(item.row, source=name), rank=item.rank)

    warnings = []
    for warning in board.warnings:
        # The longest first: one folder's path may begin another's.
        for folder in sorted(called, key=len, reverse=True):
            warning = warning.replace(folder, called[folder])
        warnings.append(warning)
    return msgspec.structs.replace(board, rows=tuple(row(item) for item in board.rows), warnings=tuple(warnings))


def _evidence(run: Run, trajectories: int) -> bytes:
    made = report.gather([run], trajectories=trajectories, standings=standings([run]))
    return report_forms.as_html(made, [run.folder]).encode()


def _evidence_links(board: Leaderboard, pages: Mapping[str, bytes]) -> dict[str, str]:
    """Return source -> the page that shows it."""
    sources = [item.row.source for item in board.rows]
    return {source: f"runs/{source}.html" for source in sources if f"runs/{source}.html" in pages}


def _write(out: Path, pages: Mapping[str, bytes]) -> None:
    """Write what differs, each file in one step, and remove what an earlier build made and this one does not."""
    manifest = {name: hashlib.sha256(content).hexdigest() for name, content in pages.items()}
    try:
        if out.exists() and any(out.iterdir()) and not (out / MANIFEST).is_file():
            raise SetupError(f"{out} holds something that is no site of boards: choose an empty folder with --out")
        old = _made_before(out)
        for name, content in pages.items():
            _place(out / name, content)
        for name in old - set(pages):
            (out / name).unlink(missing_ok=True)
        _place(out / MANIFEST, json.dumps(manifest, indent=1).encode() + b"\n")
    except OSError as error:
        raise SetupError(f"cannot write to {out}: {error.strerror}; choose another folder with --out") from error


def _made_before(out: Path) -> set[str]:
    """Return the files of an earlier build, as far as they lie below the folder."""
    path = out / MANIFEST
    if not path.is_file():
        return set()
    try:
        found = msgspec.json.decode(path.read_bytes(), type=dict[str, str])
    except msgspec.MsgspecError as error:
        raise SetupError(f"{path} cannot be read: {error}; choose an empty folder with --out") from error
    root = out.resolve()
    return {name for name in found if root in (out / name).resolve().parents}


def _place(path: Path, content: bytes) -> None:
    if path.is_file() and path.read_bytes() == content:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_bytes(content)
    temporary.replace(path)
