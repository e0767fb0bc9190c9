"""A beginning of seconds, ended at moments that a seed draws: `python -m tests.training.beginner FOLDER SEED`.

Everything is imported once; each attempt is a child of its own, forked before anything is computed.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import torch
import transformers  # noqa: F401 - imported before anything is forked

from training import begin, copying, partway
from training.copying import Lesson
from training.recipe import Recipe

ENV = "tests.training.provoking:make"
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
MOST = 100
"""Attempts."""
LONGER = 1.05
"""Times as long as the one before may each take: what a slow machine needs to come some way, it has in the end."""
LONG = {"epochs": 6, "sequences": 4, "observed": 0.3}


def recipe(**above: Any) -> Recipe:
    """Return a recipe that begins with a model from nothing, in so many steps and not so many seconds."""
    given = {
        "shape": "nano",
        "tasks": 24,
        "copying": {"seconds": 1e6},
        "warm_start": {"epochs": 2, "sequences": 2, "observed": 0.3, "warmup": 3},
    }
    values = {"name": "small", "envs": {ENV: {}}, "steps": 1, "learner": {"device": "cpu"}, "begin": given | above}
    return msgspec.convert(values, Recipe)


def attempt(folder: Path) -> int:
    """Begin in a child; return its process id."""
    if child := os.fork():
        return child
    status = 1
    try:
        begin.begin(recipe(warm_start=LONG), folder / "base", lambda line: print(line, flush=True))
        status = 0
    except KeyboardInterrupt:
        status = 130
    finally:
        sys.stdout.flush()
        os._exit(status)


def main() -> None:
    """Attempt until it is done; end each attempt but the first, which tells how long one takes, after a while."""
    folder, dice = Path(sys.argv[1]), random.Random(int(sys.argv[2]))
    torch.set_num_threads(1)
    partway.SECONDS, partway.SHARE = 0.1, 1.0
    copying.LESSONS, copying.KNOWN = (Lesson(16, 16, 2), Lesson(24, 16, 2)), 5.0
    before = time.monotonic()
    os.waitpid(attempt(folder / "whole"), 0)
    whole = time.monotonic() - before
    for tried in range(MOST):
        child = attempt(folder / "cut")
        number = dice.choice(SIGNALS)
        time.sleep(dice.uniform(0.05, 0.8) * whole * LONGER**tried)
        os.kill(child, number)
        asked = time.monotonic()
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        print(f"{number.name} {status} {time.monotonic() - asked:.1f}", flush=True)
        if status == 0:
            return


if __name__ == "__main__":
    main()
