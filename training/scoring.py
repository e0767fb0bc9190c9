"""Scores of a run's models: on the way in the background, and at the end on the test splits.

Decided here: scoring is `harness eval` itself, in a process of its own, on one pinned snapshot. On the way it is one at
a time, and one that outlasts its interval makes the next one late, never many. It plays `hf/`, whatever samples: a
server for each snapshot would take a minute to start, and memory of a GPU that others have set aside.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import os
import shutil
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from harness.core import Json
from harness.errors import SetupError
from training import disk, machine, scores
from training.process import learner
from training.recipe import Recipe

EVALUATION_SECONDS = 3600.0
END_SECONDS = 10.0
EVALUATE = (
    "import sys; from training.process.child import end_with_parent; end_with_parent(int(sys.argv.pop(1))); "
    "from harness.cli import main; main()"
)
"""`harness eval`, which ends with the run that asks for it."""
Say = Callable[[str], None]


class Result(msgspec.Struct, frozen=True):
    """Scores of one evaluation."""

    what: str
    version: int
    score: float
    coverage: float
    folder: str


class Scored(Protocol):
    """Who scores weights while a run goes on."""

    state: dict[str, Json]
    """Part of the checkpoint."""
    say: Say

    def begin(self, version: int, folder: Path) -> None:
        """Score weights, without waiting for it."""
        ...

    def pinned(self) -> list[Path]:
        """Return the snapshots that must stay."""
        ...


class Scoring:
    """Evaluations in the background, one at a time, by `harness eval` in a process of its own."""

    def __init__(self, recipe: Recipe, folder: Path, say: Say) -> None:
        self.state: dict[str, Json] = {}
        """The best score so far and its version: part of the checkpoint."""
        self.say = say
        self._recipe = recipe
        self._folder = folder
        self._due: tuple[int, Path] | None = None
        self._newest: int | None = None
        self._pinned: set[Path] = set()
        self._task: asyncio.Task[None] | None = None

    def pinned(self) -> list[Path]:
        """Return the snapshots that are being scored or wait for it."""
        return [*self._pinned, *([self._due[1]] if self._due else [])]

    def begin(self, version: int, folder: Path) -> None:
        """Score weights once, when the evaluation under way is done; one that waits gives way to newer weights."""
        if version == self._newest:
            return
        self._newest = version
        self._due = (version, folder)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._work(), name="scoring")

    async def wait(self) -> None:
        """Wait until all that is due is scored."""
        if self._task is not None:
            await self._task

    async def close(self) -> None:
        """End the evaluation under way."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task], timeout=END_SECONDS)

    async def _work(self) -> None:
        while self._due is not None:
            (version, folder), self._due = self._due, None
            self._pinned = {folder}
            try:
                score = self._recipe.score
                result = await evaluate(
                    self._recipe, self._folder, folder, version, score.validation, score.tasks, what="validation"
                )
                self.say(f"validation at update {version}: {result.score:.3f} (coverage {100 * result.coverage:.0f} %)")
                best = self.state.get("best_score")
                if not isinstance(best, (int, float)) or result.score > best:
                    await asyncio.to_thread(disk.copy, folder, self._folder / "checkpoints" / "best")
                    self.state |= {"best_score": result.score, "best_version": version}
            except SetupError as error:
                self.say(f"validation at update {version} failed: {error}")
            finally:
                self._pinned = set()


async def evaluate(
    recipe: Recipe, folder: Path, model: Path, version: int, split: str, tasks: int, *, what: str
) -> Result:
    """Score a model by `harness eval`. SetupError where that fails."""
    out = folder / scores.FOLDER / f"{what}-{version:06d}"
    shutil.rmtree(out, ignore_errors=True)
    command = [sys.executable, "-c", EVALUATE, str(os.getpid()), "eval", "--model", f"hf/{model}"]
    command += ["--split", split, "--env", ",".join(recipe.envs), "--limit", str(tasks), "--json", "--out", str(out)]
    command += ["--temperature", str(recipe.score.temperature)]
    overrides = {"connection.local": msgspec.to_builtins(recipe.engine), "env_settings": dict(recipe.envs)}
    for name, values in _flat(overrides):
        command += ["--set", f"{name}={json.dumps(values)}"]
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, start_new_session=True,
        env={**os.environ, **machine.PATIENT, **learner.surroundings(recipe.spread.engine_threads)},
    )  # fmt: skip
    try:
        async with asyncio.timeout(EVALUATION_SECONDS):
            output, errors = await process.communicate()
    except TimeoutError as error:
        raise SetupError(f"it took longer than {EVALUATION_SECONDS:.0f} s") from error
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    lines = output.decode(errors="replace").strip().splitlines()
    if not lines:
        raise SetupError((errors.decode(errors="replace").strip().splitlines() or ["harness eval said nothing"])[-1])
    told = json.loads(lines[-1])
    overall = told["overall"] or next(iter(told["environments"].values()))
    return Result(what, version, float(overall["score"]), float(overall.get("coverage", 1.0)), str(out))


def _flat(values: Mapping[str, Json], path: str = "") -> list[tuple[str, Json]]:
    found: list[tuple[str, Json]] = []
    for key, value in values.items():
        place = f"{path}.{key}" if path else key
        if isinstance(value, Mapping):
            found += _flat(value, place)
        elif value is not None and value != []:
            found.append((place, value))
    return found


async def final(recipe: Recipe, folder: Path, scoring: Scoring, base: Path) -> list[Result]:
    """Score the warm start, the last and the best weights on the test splits, once each; nothing of 0 tasks."""
    score = recipe.score
    if not score.test_tasks:
        return []
    models = {"warm-start": (0, base), "last": (recipe.steps, folder / "checkpoints" / "last")}
    best = scoring.state.get("best_version")
    if isinstance(best, int) and best not in (0, recipe.steps):
        models["best"] = (best, folder / "checkpoints" / "best")
    return await side_by_side(
        recipe,
        [
            functools.partial(
                evaluate, recipe, folder, model, version, score.test, score.test_tasks, what=f"test-{what}"
            )
            for what, (version, model) in models.items()
        ],
    )


async def side_by_side(recipe: Recipe, scorings: Sequence[Callable[[], Awaitable[Result]]]) -> list[Result]:
    """Score while nothing else computes: as many at once as have cores, where a recipe bounds an engine's threads.

    The first that fails ends the others.
    """
    threads = recipe.spread.engine_threads
    room = asyncio.Semaphore(max(1, machine.cores() // threads) if threads else 1)

    async def scored(scoring: Callable[[], Awaitable[Result]]) -> Result:
        async with room:
            return await scoring()

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(scored(scoring)) for scoring in scorings]
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None
    return [task.result() for task in tasks]
