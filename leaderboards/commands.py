"""The room's command, `harness leaderboard`, and the unpaired half of `harness compare`. Light to import.

`harness leaderboard BOARD` shows a board; its further commands are in `subcommands.py`, since each command at the top
of this file would be one of `harness` itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from leaderboards import subcommands
from leaderboards.bundles import FOLDER as BUNDLES

if TYPE_CHECKING:
    from harness.runlog import Run
    from leaderboards.render import Leaderboard

RUNS = Path("runs")


class Boards(click.Group):
    """A group whose first word may be a board instead of a command: it is then shown."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        """Take `show` as said where no command is named."""
        if not args or (args[0] not in self.commands and args[0] not in context.help_option_names):
            args = ["show", *args]
        return super().parse_args(context, args)


@click.group("leaderboard", cls=Boards)
def leaderboard() -> None:
    """Show a board, take in runs from elsewhere, or build the boards' site.

    harness leaderboard [BOARD] [RUN]... is 'harness leaderboard show'.
    """


for _command in (subcommands.show, subcommands.add, subcommands.build):
    leaderboard.add_command(_command)
del _command


def board_of(board: str, runs: tuple[Path, ...]) -> tuple[str, tuple[Path, ...]]:
    """Take a run folder in the board's place for a run of its own board."""
    from harness import runlog
    from leaderboards.board import names

    if board in names() or not (Path(board) / runlog.HEADER).exists():
        return board, runs
    return runlog.read(Path(board)).header.board.name, (Path(board), *runs)


def build(name: str, folders: Sequence[Path], *, by: str = "overall", allow_different: bool = False) -> Leaderboard:
    """Return a leaderboard of published rows and runs.

    Raises:
        SetupError: an unknown board or column, a run of another board, different protocols, or nothing to show.
    """
    from harness import runlog
    from harness.errors import SetupError
    from leaderboards.assemble import assemble
    from leaderboards.board import load, names
    from leaderboards.runs import discover

    board = load(name)
    found = [*discover(RUNS, board.name), *discover(BUNDLES, board.name)]
    runs = [runlog.read(folder) for folder in folders] if folders else found
    for run in runs:
        if run.header.board.name != board.name:
            raise SetupError(f"{run.folder} is a run of board '{run.header.board.name}', not of '{board.name}'")
    table = assemble(name, runs, by=by, allow_different=allow_different, narrow=not folders)
    if not table.rows:
        others = ", ".join(other for other in names() if other != board.name)
        raise SetupError(
            f"board '{board.name}' has no published rows and {RUNS}/ has no run of it: play one, name its folder, or "
            f"choose another board ({others})"
        )
    return table


def standings(runs: Sequence[Run]) -> list[str]:
    """Return where each run stands among the published rows of its board and the other runs, in a sentence each."""
    from leaderboards import published
    from leaderboards.board import load, names
    from leaderboards.rank import OVERALL, rank
    from leaderboards.render import rank_text
    from leaderboards.runs import row

    found = []
    for run in runs:
        name = run.header.board.name
        if name not in names():
            found.append("")
            continue
        board = load(name)
        same = [other for other in runs if other.header.board.name == name]
        alike = [other for other in same if _one_protocol(run, other)]
        own = [row(other, board) for other in alike]
        ranked = [item for item in rank([*published.rows(board), *own]) if item.rank]
        mine = own[alike.index(run)]
        place = next((item.rank for item in ranked if item.row is mine), None)
        if place is None:
            why = mine.origin if mine.origin.startswith("adapted") else "; ".join(mine.notes) or f"it has no {OVERALL}"
            found.append(f"Not ranked on board {name}: {why}.")
        else:
            found.append(f"Rank {rank_text(place)} of {len(ranked)} ranked rows on board {name} ({mine.origin}).")
    return found


def _one_protocol(first: Run, second: Run) -> bool:
    marks = first.header.fingerprints
    return all(marks.get(entry, mark) == mark for entry, mark in second.header.fingerprints.items())


def compare_published_row(run: Run, name: str, *, as_json: bool) -> None:
    """Print how a run differs from a published row of its board: unpaired, and without a claim for an adapted run."""
    import json

    from rich.console import Console

    from leaderboards import unpaired

    found = unpaired.against(run, name)
    console = Console(stderr=True)
    console.print(unpaired.terminal(found))
    if as_json:
        click.echo(json.dumps(unpaired.as_json(found)))
