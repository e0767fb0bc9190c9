"""What a worker tells of a score when an episode is over."""

from __future__ import annotations

from harness.core import Score
from harness.service.episode import shown


def test_a_graders_own_words_stay_at_the_worker() -> None:
    """BFCL's say which function should have been called."""
    parts = {
        "reason": "'count' is called instead of 'sum_of_squares'",
        "failed_check": "the file should hold 42",
        "expected": ["42"],
        "turns": 3,
        "share": 0.5,
        "committed": True,
        "charged_to": "agent",
        "agentrl_status": "task error",
    }
    kept = {"turns", "share", "committed", "charged_to", "agentrl_status"}
    assert shown(Score(value=0.0, parts=parts)) == {key: parts[key] for key in kept}
