"""One training run without its evaluations, to be killed: `python -m tests.training.driver FOLDER BASE RECIPE`."""

from __future__ import annotations

import asyncio
import functools
import sys
from pathlib import Path

import msgspec

from training import ptx, run
from training.recipe import Recipe


class Unscored:
    """Stands for the evaluations: there are none."""

    def __init__(self) -> None:
        self.say: run.Say = functools.partial(print, flush=True)

    def begin(self, version: int, folder: Path) -> None:
        pass

    def pinned(self) -> list[Path]:
        return []


if __name__ == "__main__":
    folder, base, recipe = map(Path, sys.argv[1:4])
    wanted = msgspec.json.decode(recipe.read_bytes(), type=Recipe)
    gold = ptx.play(wanted, base, folder / "gold", print)
    resume = (folder / "checkpoints").exists()
    print(asyncio.run(run.trained(wanted, folder, base, gold, Unscored(), resume=resume)))
