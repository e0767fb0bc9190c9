"""Validation scores are read from the evaluations' own runs, once they are complete."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from harness import runlog
from training import scores


def test_a_score_is_there_when_its_evaluation_is_whole(
    tmp_path: Path, run: Callable[..., tuple[int, str, str]]
) -> None:
    out = tmp_path / "evaluations" / "validation-000010"
    words = ["--board", "", "--env", "tests.contracts.guessing:make", "--limit", "8", "--model", "scripted/oracle"]
    assert run("eval", *words, "--out", str(out))[0] == 0
    (score,) = scores.read(tmp_path)
    assert (score.version, score.score, score.coverage) == (10, 1.0, 1.0)
    assert 0.5 < score.low < 1.0 == score.high
    assert score.envs == (("tests.contracts.guessing:make", 1.0),)
    assert scores.read(tmp_path, skip={10}) == []
    log = out / runlog.LINES
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:7]))
    assert scores.read(tmp_path) == [], "it is under way"
    (out / runlog.HEADER).write_text("{")
    assert scores.read(tmp_path) == []
    (tmp_path / "evaluations" / "test-last-000010").mkdir()
    assert scores.read(tmp_path / "nowhere") == []
