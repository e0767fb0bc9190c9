"""Does training learn, and what of it helps? Experiments over declared seeds, each run written down as it ends.

`python -m benchmarks training` prints this section from the results on disk and draws its plots; with names of
experiments after it they are run first (what has a result is not run again), and with `--plan` it says what there is to
run and how long that takes; docs/experiments.md says how. Success is on held-out test tasks, the mean of the
environments. Intervals, in brackets, are over seeds and tasks both; in parentheses, and as the band around each curve
(where there are at most five), stands what the seeds span; "detectable" is the difference that such a comparison finds
four times in five.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.training import lines, section
from benchmarks.training.table import EXPERIMENTS


def main() -> None:
    """Print the section and draw its plots, from the results that are committed."""
    from benchmarks.training.command import show

    show(lines.FOLDER, section.PLOTS, EXPERIMENTS)


def command(words: Sequence[str]) -> int:
    """Do what the words after `python -m benchmarks training` say; return the exit code."""
    from benchmarks.training.command import program
    from harness.cli import run

    return run(program, words, "python -m benchmarks training")
