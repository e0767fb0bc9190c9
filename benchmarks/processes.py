"""The same training run in one process, with the learner in one of its own, and with the engines in one as well.

The tiny model after a short warm start, so that attempts differ and there is something to train on, on two environments
that answer in a millisecond. Rounds take turns, and each layout's ratio to one process is of the same round.
HARNESS_WORK names a folder where finished runs are kept, and not run again.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec

from harness import newmodel
from harness.core import Json
from training import run, sft
from training.process.options import TOGETHER, ProcessOptions
from training.recipe import Recipe
from training.values import Gold
from training.warmstart import WarmStartOptions

LAYOUTS = {
    "all in one": TOGETHER,
    "learner apart": ProcessOptions(engine=False),
    "learner and engines apart": ProcessOptions(),
    "the same, one thread each": ProcessOptions(learner_threads=1, engine_threads=1),
}
CPU = "cpu.txt"
ROUNDS, STEPS, WARM = 3, 10, 2
"""The first updates are not counted: caches, kernels and imports."""
TASKS, WARM_START_SECONDS = 200, 90.0
ENVS: dict[str, dict[str, Json]] = {"alfworld": {"difficulty": 0.0}, "webshop": {"difficulty": 0.0}}


class Unscored:
    """Stands for the evaluations: there are none. Of what the run says it keeps the processor's time."""

    def __init__(self, path: Path) -> None:
        self.say: run.Say = self._note
        self._path = path

    def _note(self, line: str) -> None:
        if line.startswith("update "):
            with self._path.open("a") as file:
                file.write(f"{processor_seconds(os.getpid())}\n")

    def begin(self, version: int, folder: Path) -> None:
        """Score nothing."""

    def pinned(self) -> list[Path]:
        """Return nothing."""
        return []


def processor_seconds(pid: int) -> float:
    """Return the processor's time that a process and all that it has started have taken."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    own = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    children = [child for path in Path(f"/proc/{pid}/task").glob("*/children") for child in path.read_text().split()]
    return own + sum(processor_seconds(int(child)) for child in children)


def recipe(layout: str) -> Recipe:
    """Return what is run."""
    values = {
        "name": "processes", "envs": ENVS, "steps": STEPS, "groups": 4, "eta": 1, "running": 8, "checkpoint_every": 5,
        "collect": {"group_size": 8, "limits": {"turns": 4}}, "pools": {"stale_interval": 5},
        "learner": {"lr": 3e-4, "minibatches": 2, "micro_tokens": 8192},
        "engine": {"answer_tokens": 48, "context": 4096}, "log": {"tensorboard": False},
        "processes": msgspec.to_builtins(LAYOUTS[layout]),
    }  # fmt: skip
    return msgspec.convert(values, Recipe)


def made(folder: Path) -> Path:
    """Return the model that all runs begin with."""
    if not folder.is_dir():
        plays = sft.plays([Gold(env=env, tasks=TASKS, settings=settings) for env, settings in ENVS.items()], 0)
        source = folder.with_name("made")
        shutil.rmtree(source, ignore_errors=True)
        newmodel.make(source, newmodel.SHAPES["tiny"], plays, seed=0)
        sft.run(source, folder, plays, WarmStartOptions(lr=2e-3, epochs=2, seconds=WARM_START_SECONDS))
    return folder


def measured(work: Path, layout: str, turn: int) -> dict[str, float]:
    """Return what one run did; run it where that is not known yet."""
    folder = work / f"{turn}-{layout.replace(' ', '-')}"
    lines = folder / "metrics.jsonl"
    if not (folder / "checkpoints" / "last").is_dir():
        command = [sys.executable, "-m", "benchmarks.processes", layout, str(folder), str(made(work / "model"))]
        environment = {**os.environ, "OMP_WAIT_POLICY": "PASSIVE"}
        subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
    updates = [json.loads(line) for line in lines.read_text().splitlines()]
    counted = updates[WARM:]
    seconds = counted[-1]["seconds"] - updates[WARM - 1]["seconds"]
    generated = sum(line["tokens/generated"] for line in counted)
    taken = [float(line) for line in (folder / CPU).read_text().split()]
    return {
        "generated": generated / seconds,
        "processor": 1e6 * (taken[-1] - taken[WARM - 1]) / generated,
        "updates": len(counted) / seconds,
        "idle": statistics.mean(line["idle/learner"] for line in counted),
    }


def main() -> None:
    """Run each layout in turn, and print its median."""
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(os.environ.get("HARNESS_WORK") or temporary) / "processes"
        work.mkdir(parents=True, exist_ok=True)
        turns = [{layout: measured(work, layout, turn) for layout in LAYOUTS} for turn in range(ROUNDS)]
        found = {layout: [turn[layout] for turn in turns] for layout in LAYOUTS}
    print("| layout | tokens generated/s | updates/min | learner idle | µs of processor a token | ratio, tokens/s |")
    print("|---|---|---|---|---|---|")
    first = found["all in one"]
    for layout, rounds in found.items():
        ratios = [one["generated"] / other["generated"] for one, other in zip(rounds, first, strict=True)]
        generated, taken, updates, idle = (statistics.median(one[key] for one in rounds) for key in rounds[0])
        spread = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        print(f"| {layout} | {generated:,.0f} | {60 * updates:.1f} | {100 * idle:.0f} % | {taken:,.0f} | {spread} |")


if __name__ == "__main__":
    name, place, base = sys.argv[1:4]
    asyncio.run(run.trained(recipe(name), Path(place), Path(base), {}, Unscored(Path(place) / CPU), resume=False))
