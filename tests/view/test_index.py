"""The index of a log: the same attempts as a whole reading, however the log grows, tears or shrinks."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness import runlog
from harness.core import AttemptKey
from harness.errors import SetupError
from harness.metrics import summarise_board
from harness.view import index as module
from harness.view.index import Index
from tests.view import making


def rows(index: Index) -> list[tuple[AttemptKey, int, float | None, int, str]]:
    return [(row.key, row.attempt, row.value, row.turns, str(row.ending)) for row in index.rows]


def test_it_holds_what_a_whole_reading_holds(runs: Path) -> None:
    run = runlog.read(runs / "bad")
    index = Index(run.folder / runlog.LINES)
    while index.advance(5_000):
        pass
    attempts = run.attempts()
    assert rows(index) == [(a.key, a.attempt, a.score.value, len(a.turns), str(a.ending)) for a in attempts]
    assert {key: index.rows[place].attempt for key, place in index.newest.items()} == {
        key: one.attempt for key, one in run.newest().items()
    }
    light = [row.light() for row in index.rows]
    board, planned = run.header.board, run.planned
    assert summarise_board(light, board, planned) == summarise_board(attempts, board, planned)


def test_each_row_leads_to_its_trajectory(runs: Path) -> None:
    run = runlog.read(runs / "good")
    index = Index(run.folder / runlog.LINES)
    index.advance()
    assert [index.read(row) for row in index.rows] == list(run.trajectories())


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cuts=st.lists(st.integers(0, 3000), max_size=6), most=st.integers(1, 4000))
def test_it_grows_with_the_log_wherever_a_write_was_cut(tmp_path: Path, cuts: list[int], most: int) -> None:
    every = [making.trajectory("text", number=at % 3) for at in range(5)]
    every[4] = msgspec.structs.replace(every[4], attempt=1)
    whole = b"".join(msgspec.json.encode(one) + b"\n" for one in every)
    log = tmp_path / "log.jsonl"
    log.write_bytes(b"")
    index = Index(log)
    for cut in [*sorted(cuts), len(whole)]:
        log.write_bytes(whole[:cut] if cut < len(whole) else whole)
        while index.advance(most):
            pass
        assert len(index.rows) == whole[:cut].count(b"\n")
    assert index.offset == len(whole)
    assert [row.attempt for row in index.counting()] == [0, 1, 0]


def test_a_log_that_shrank_is_read_anew(tmp_path: Path) -> None:
    folder = making.write_run(tmp_path / "run", [making.trajectory("x", number=at) for at in range(3)])
    log = folder / runlog.LINES
    index = Index(log)
    index.advance()
    log.write_bytes(log.read_bytes().splitlines(keepends=True)[0])
    index.advance()
    assert len(index.rows) == len(index.newest) == 1


def test_a_damaged_line_is_counted_and_passed_over(tmp_path: Path) -> None:
    folder = making.write_run(tmp_path / "run", [making.trajectory("x", number=at) for at in range(3)])
    log = folder / runlog.LINES
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(lines[0] + b"\xff\xfe\n" + b"[" * 5000 + b"\n" + lines[2])
    index = Index(log)
    index.advance()
    assert (len(index.rows), index.damaged) == (2, 2)
    log.write_bytes(log.read_bytes().replace(b'"seed"', b'"sxxd"'))
    with pytest.raises(SetupError, match="is damaged"):
        index.read(index.rows[0])


def test_a_long_logs_index_is_kept_and_taken_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LONG", 0)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    every = [making.trajectory("x", number=at) for at in range(4)]
    folder = making.write_run(tmp_path / "run", every[:3])
    log = folder / runlog.LINES
    first = Index(log)
    first.advance()
    first.keep()
    before = sorted(path.name for path in folder.iterdir())
    with log.open("ab") as file:
        file.write(msgspec.json.encode(every[3]) + b"\n")
    second = Index(log)
    assert second.recall() is not None
    assert rows(second) == rows(first)
    second.advance()
    assert [row.task_id for row in second.rows] == [one.task_id for one in every]
    assert sorted(path.name for path in folder.iterdir()) == before


@pytest.mark.parametrize("change", ["begin", "end", "shrunk", "garbage"])
def test_a_kept_index_of_another_log_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    monkeypatch.setattr(module, "LONG", 0)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = making.write_run(tmp_path / "run", [making.trajectory("x", number=at) for at in range(9)])
    log = folder / runlog.LINES
    index = Index(log)
    index.advance()
    index.keep()
    content = log.read_bytes()
    if change == "garbage":
        next((tmp_path / "cache").rglob("*.index")).write_bytes(b"\x00garbage")
    log.write_bytes(
        {
            "begin": content.replace(b'"epoch":0', b'"epoch":7', 1),
            "end": content[:-2] + b" }\n"[-2:],
            "shrunk": content[: len(content) // 2],
            "garbage": content,
        }[change]
        if change != "end"
        else content[: content.rindex(b'"seconds"')] + b'"seconds":2.5}\n'
    )
    assert Index(log).recall() is None
