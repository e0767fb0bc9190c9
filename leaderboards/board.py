"""Boards, as files: `boards/NAME.toml` says what a board measures, and how its published table is read.

A path that ends in `.toml` is a board too, so that a person can bring one. Unknown keys are refused at every depth.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from harness.config import Strict, convert, read_toml
from harness.core import Aggregate, Board, BoardEntry, SamplingParams, Value
from harness.errors import SetupError, nearest

FOLDER = Path(__file__).parent / "boards"


class Category(Strict, frozen=True, kw_only=True):
    """A task group of a published board."""

    tasks: int
    column: str
    """The published column that tells its score best."""


class _File(Strict, frozen=True, kw_only=True):
    """What a board's file may say."""

    title: str
    note: str = ""
    epochs: int = 1
    published: str | None = None
    sampling: SamplingParams = SamplingParams()
    """`epochs` and `sampling` hold for every entry."""
    includes: tuple[str, ...] = ()
    """Boards whose entries come first, each with its own epochs and sampling."""
    entries: tuple[BoardEntry, ...] = ()
    columns: tuple[Aggregate, ...] = ()
    details: tuple[Aggregate, ...] = ()
    """Further columns, where there is room for them."""
    cost_column: str | None = None
    latency_column: str | None = None
    """Published columns of what 1,000 model calls cost and of how long one takes."""
    categories: Mapping[str, Category] = msgspec.field(default_factory=dict)


class Layout(Value, frozen=True, kw_only=True):
    """How a board's rows are laid out."""

    columns: tuple[str, ...]
    """Shown beside the overall: the entries, or the parts of the only entry's aggregate and what else is published."""
    details: tuple[str, ...]
    """Shown as well where there is room: on the site, in CSV and JSON."""
    parts: Mapping[str, Aggregate]
    """Column -> how task groups make it, where the board has one entry with an aggregate; overall among them."""
    categories: Mapping[str, Category]
    cost_column: str | None = None
    latency_column: str | None = None


def names() -> list[str]:
    """Return the names of the boards."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def load(name: str) -> Board:
    """Return a board by name, or by the path of its file.

    Raises:
        SetupError: there is none (the message has the nearest names), or its file is wrong (the message has the key).
    """
    file = _read(name)
    return Board(
        name=Path(name).stem,
        title=file.title,
        entries=file.entries,
        published=file.published,
        note=file.note,
    )


def layout(name: str) -> Layout:
    """Return how a board's rows are laid out. SetupError as in `load`."""
    file = _read(name)
    tree = file.entries[0].aggregate
    if len(file.entries) > 1 or tree is None:
        columns = tuple(entry.name for entry in file.entries)
        return Layout(columns=columns, details=(), parts={}, categories=file.categories)
    parts = {part.name: part for part in (*tree.parts, *file.columns)}
    details = {part.name: part for part in file.details}
    return Layout(
        columns=tuple(parts),
        details=tuple(details),
        parts={**parts, **details, "overall": tree},
        categories=file.categories,
        cost_column=file.cost_column,
        latency_column=file.latency_column,
    )


def _read(name: str) -> _File:
    path = Path(name) if name.endswith(".toml") else FOLDER / f"{name}.toml"
    if not name.endswith(".toml") and name not in names():
        raise SetupError(f"no board '{name}'{nearest(name, names())}")
    values = read_toml(path)
    file = convert(_File, values, str(path))
    own = [msgspec.structs.replace(entry, epochs=file.epochs, sampling=file.sampling) for entry in file.entries]
    included = [entry for board in file.includes for entry in _read(board).entries]
    file = msgspec.structs.replace(file, entries=(*included, *own))
    if not file.entries:
        raise SetupError(f"{path}: a board needs at least one [[entries]]")
    twice = [entry.name for entry in file.entries if sum(other.name == entry.name for other in file.entries) > 1]
    if twice:
        raise SetupError(f"{path}: two entries are called '{twice[0]}'")
    return file
