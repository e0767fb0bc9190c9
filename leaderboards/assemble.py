"""Puts a board together: its published rows and runs, ranked over the whole table."""

from __future__ import annotations

from collections.abc import Sequence

from harness.errors import SetupError, nearest
from harness.runlog import Run
from leaderboards import published
from leaderboards.board import layout, load
from leaderboards.rank import rank
from leaderboards.render import Leaderboard
from leaderboards.runs import agreeing, check_fingerprints, row


def assemble(
    name: str, runs: Sequence[Run], *, by: str = "overall", allow_different: bool = False, narrow: bool = True
) -> Leaderboard:
    """Return a leaderboard, which may have no row. `narrow` leaves out runs of other protocols than the newest's.

    Raises:
        SetupError: an unknown board or column, or runs of different protocols that are neither allowed nor left out.
    """
    board, plan = load(name), layout(name)
    if by != "overall" and by not in plan.columns:
        raise SetupError(f"board '{board.name}' has no column '{by}'{nearest(by, ['overall', *plan.columns])}")
    kept, left = agreeing(runs) if narrow and not allow_different else (list(runs), [])
    warnings = check_fingerprints(kept, allow_different=allow_different)
    if left:
        names_left = ", ".join(str(run.folder) for run in left)
        warnings.append(f"Left out, of other protocols (show them with --allow-different): {names_left}")
    rows = [*published.rows(board), *(row(run, board) for run in kept)]
    return Leaderboard(
        board=board,
        columns=plan.columns,
        by=by,
        rows=tuple(rank(rows, by)),
        warnings=tuple(warnings),
        details=plan.details,
    )
