"""What asynchronous training is worth on a cluster: the loop itself, in virtual time, on fake engines and learners.

The same `training.loop`, collector, buffer and staleness rule that train; only the parts that take time are fake, and
an hour of a cluster takes a second. What they cost is committed with its sources in `benchmarks/simulation/data`: a
decode curve measured on one GPU, carried over by a roofline; the learner's operations; lengths and latencies of
episodes. Every way of training is tuned on the same number of GPUs: synchronous (all GPUs generate, then all learn),
one-step-off (the next batch is generated while one is trained on), asynchronous with eta 1 to 8. A token further behind
than eta is dropped, and counts as generated in vain.

`python -m benchmarks simulation` prints this section from the results on disk and draws its plots; with `run` after it,
what has no result yet is run first (`run 2`: in two processes).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main() -> None:
    """Print the section and draw its plots, from the results that are committed."""
    from benchmarks.simulation import report, sweep

    done = sweep.load()
    for path in report.draw(done):
        print(f"![{path.stem}](simulation/{path.name})")
    print(f"\n{report.text(done)}", end="")


def command(words: Sequence[str]) -> int:
    """Run what is missing, in as many processes as a number says, and print the section."""
    from benchmarks.simulation import sweep

    if words[0] != "run" or len(words) > 2 or not all(word.isdigit() for word in words[1:]):
        print("python -m benchmarks simulation [run [PROCESSES]]", file=sys.stderr)
        return 2
    for case in sweep.work(processes=int(words[1]) if words[1:] else 0):
        print(f"{case.setting.place} {case.method.way} {case.method.eta} {case.method.engines:g}", file=sys.stderr)
    main()
    return 0
