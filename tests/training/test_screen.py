"""A run as a person watches it: every width, a run that is taken up, a terminal left as it was."""

from __future__ import annotations

import io
import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from training import screen
from training.alarms import Alarm
from training.scores import Score
from training.screen import BARS, Folder, Seen, draw, sparkline

ROOT = Path(__file__).parents[2]
LAST = {
    "version": 40, "seconds": 200.0, "tokens/generated_per_second": 1834.2, "tokens/trained_per_second": 1501.0,
    "lag/trained/0/max": 2, "lag/trained/0/mean": 0.8, "lag/trained/1/max": 6, "ess": 0.93, "idle/learner": 0.12,
    "idle/engine": 0.3, "memory/peak_bytes": 3 << 29,
}  # fmt: skip


def seen(updates: int = 40, scored: int = 5) -> Seen:
    curve = [update / updates for update in range(updates)]
    return Seen(
        name="tiny",
        steps=60,
        last=LAST,
        curves={name: {"success": curve, "reward": curve} for name in ("alfworld", "tests.training.somewhere:make")},
        seconds=[5.0] * 10,
        scores=[
            Score(version=10 * at, score=at / 10, low=at / 20, high=0.1 + at / 10, coverage=1.0) for at in range(scored)
        ],
        alarms=[Alarm(name="learner idle", cause="it waited 83% of the time", remedy="raise max_running")],
        said=["validation at update 40: 0.700 (coverage 100 %)"],
        elapsed=230,
    )


def drawn(what: Seen, width: int, height: int = 40) -> list[str]:
    console = Console(record=True, width=width, height=height, file=io.StringIO())
    console.print(draw(what, width, height))
    return console.export_text().splitlines()


@pytest.mark.parametrize("width", [40, 50, 60, 80, 100, 120, 160, 200])
def test_all_is_there_at_every_width(width: int) -> None:
    rows = drawn(seen(), width)
    text = " ".join(" ".join(rows).split())
    assert max(cell_len(row) for row in rows) <= width
    for wanted in ("tiny", "update 40/60", "3m50s", "1m40s to go", "alfworld", "ESS 0.93", "engine idle 30 %",
                   "learner idle", "83% of the time", "raise max_running", "0.400 [0.200, 0.500]", "best",
                   "lag 0.8, at most 6", "1,834 tokens/s generated", "1,501 tokens/s trained"):  # fmt: skip
        assert wanted in text, wanted
    assert BARS[-1] in text and BARS[0] in text


def test_before_the_first_update_there_is_a_title() -> None:
    nothing = seen()._replace(last={}, curves={}, scores=[], alarms=[], said=["warm start"], seconds=[])
    assert drawn(nothing, 80)[-1].strip() == "warm start"


def test_where_scores_are_many_the_first_the_best_and_the_newest_stay() -> None:
    scores = [Score(version=at, score=0.9 if at == 7 else 0.1, low=0.0, high=1.0, coverage=1.0) for at in range(60)]
    rows = drawn(seen()._replace(scores=scores), 100, height=24)
    text = "\n".join(rows)
    assert "validation 0 " in text and "validation 59" in text and "between" in text
    assert "best" in next(row for row in rows if "validation 7 " in row)
    assert len(rows) <= 24


@given(st.lists(st.floats(0, 1), min_size=1, max_size=300), st.integers(1, 120))
def test_a_sparkline_is_as_long_as_it_may_and_rises_where_values_do(values: list[float], width: int) -> None:
    line = sparkline(values, width, 0.0, 1.0)
    assert len(line) == min(width, len(values)) and set(line) <= set(BARS)
    rising = sparkline(sorted(values), width, 0.0, 1.0)
    assert list(rising) == sorted(rising, key=BARS.index)


def line(version: int, **more: Any) -> str:
    values = {"version": version, "seconds": 5.0 * version, "task/db/success": version / 10, "update/seconds": 5.0}
    return json.dumps({**values, **more}) + "\n"


def test_a_folder_is_read_as_it_grows_and_anew_where_it_was_cut(tmp_path: Path) -> None:
    folder, metrics = Folder(tmp_path), tmp_path / "metrics.jsonl"
    assert not folder.look()
    metrics.write_text(line(1) + line(2)[:9])
    assert folder.look() and folder.curves["db"]["success"] == [0.1]
    with metrics.open("a") as file:
        file.write(line(2)[9:] + "no JSON\n" + line(3, **{"task/kg/reward": None}))
    assert folder.look() and folder.curves == {"db": {"success": [0.1, 0.2, 0.3]}}
    assert not folder.look()
    raised = {"version": 3, "event": "raised", "name": "a", "cause": "b", "remedy": "c"}
    (tmp_path / "alarms.jsonl").write_text(json.dumps(raised) + "\n")
    folder.look()
    assert list(folder.alarms) == ["a"]
    with (tmp_path / "alarms.jsonl").open("a") as file:
        file.write(json.dumps({**raised, "event": "gone"}) + "\n")
    folder.look()
    assert not folder.alarms
    (tmp_path / "new").write_text(line(1))
    (tmp_path / "new").replace(metrics)
    assert folder.look() and folder.curves == {"db": {"success": [0.1]}}, "a run that was taken up dropped lines"


def test_without_a_terminal_lines_are_lines(tmp_path: Path) -> None:
    out = io.StringIO()
    with screen.shown(tmp_path, "tiny", 60, Console(file=out)) as say:
        say("update 1  reward [+0.1]")
    assert out.getvalue() == "update 1  reward [+0.1]\n"


WATCHED = """
import sys, time
from pathlib import Path
from rich.console import Console
from training import screen
with screen.shown(Path(sys.argv[1]), "tiny", 60, Console(stderr=True)) as say:
    say("it goes on")
    print("ready", flush=True)
    time.sleep(60)
"""


def test_an_interrupt_gives_the_terminal_back(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text(line(1))
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", WATCHED, str(tmp_path)],
        stdout=theirs, stderr=theirs, stdin=theirs, env={**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm"},
    )  # fmt: skip
    os.close(theirs)
    shown = b""
    try:
        until = time.monotonic() + 60
        while b"it goes on" not in shown and time.monotonic() < until:
            shown += os.read(ours, 65536)
        assert b"\x1b[?25l" in shown, "the cursor is hidden while it is drawn"
        process.send_signal(signal.SIGINT)
        while True:
            try:
                more = os.read(ours, 65536)
            except OSError:  # the terminal's other end is closed
                break
            if not more:
                break
            shown += more
        assert process.wait(timeout=60) != 0
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    assert shown.rindex(b"\x1b[?25h") > shown.rindex(b"\x1b[?25l"), "the cursor is back"
