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

from harness import runlog
from harness.core import Json, Value
from harness.errors import HarnessError, SetupError
from training import checkpoint, disk, machine, scores, weights
from training.process import learner
from training.recipe import Recipe

END_SECONDS = 10.0
EVALUATE = (
    "import sys; from training.process.child import end_with_parent; end_with_parent(int(sys.argv.pop(1))); "
    "from harness.cli import main; main()"
)
"""`harness eval`, which ends with the run that asks for it."""
BEST, NOTE = "best", "validation.json"
Say = Callable[[str], None]


class Best(Value, frozen=True, kw_only=True):
    """What `checkpoints/best` scored on validation: it stands beside its weights, so neither is without the other."""

    version: int
    score: float
    by: str
    """Split, number of tasks and temperature: scores by others say nothing beside it."""


class Result(msgspec.Struct, frozen=True):
    """Scores of one evaluation."""

    what: str
    version: int
    score: float
    coverage: float
    folder: str


class Scored(Protocol):
    """Who scores weights while a run goes on."""

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
        self.say = say
        self._recipe = recipe
        self._folder = folder
        self._due: tuple[int, Path] | None = None
        self._pinned: set[Path] = set()
        self._task: asyncio.Task[None] | None = None

    def pinned(self) -> list[Path]:
        """Return the snapshots that are being scored or wait for it."""
        return [*self._pinned, *([self._due[1]] if self._due else [])]

    def begin(self, version: int, folder: Path) -> None:
        """Score weights when the evaluation under way is done; those that wait give way to newer ones.

        What is scored already is not played again.
        """
        if self._due is not None:
            self.say(f"validation at update {self._due[0]} is left out: the one before it was still under way")
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
                best = best_of(self._folder)
                by = f"{score.validation}, {score.tasks} tasks, T {score.temperature:g}"
                if best is None or best.by != by or result.score > best.score:
                    found = Best(version=version, score=result.score, by=by)
                    await asyncio.to_thread(_put_best, folder, self._folder, found)
            except (HarnessError, OSError, ValueError) as error:  # the run is worth more than one of its scores
                self.say(f"validation at update {version} failed: {error}")
            finally:
                self._pinned = set()


def best_of(folder: Path) -> Best | None:
    """Return what a run's best weights scored; None where there are none yet."""
    place = folder / checkpoint.FOLDER / BEST
    disk.recover(place)
    try:
        return msgspec.json.decode((place / NOTE).read_bytes(), type=Best)
    except (OSError, msgspec.MsgspecError):
        return None


def _put_best(source: Path, folder: Path, best: Best) -> None:
    def write(part: Path) -> None:
        shutil.copytree(source, part, dirs_exist_ok=True)
        (part / NOTE).write_bytes(msgspec.json.encode(best))

    weights.replace(folder / checkpoint.FOLDER / BEST, write)


async def evaluate(
    recipe: Recipe, folder: Path, model: Path, version: int, split: str, tasks: int, *, what: str
) -> Result:
    """Score a model by `harness eval`, which goes on where one that was cut off stood. SetupError where that fails.

    What stands in its folder of other weights, of the same version before a resume, is begun anew.
    """
    out = folder / scores.FOLDER / f"{what}-{version:06d}"
    command = [sys.executable, "-c", EVALUATE, str(os.getpid()), "eval", "--model", f"hf/{model}"]
    command += ["--split", split, "--env", ",".join(recipe.envs), "--limit", str(tasks), "--json", "--out", str(out)]
    command += ["--temperature", str(recipe.score.temperature)]
    overrides = {"connection.local": msgspec.to_builtins(recipe.engine), "env_settings": dict(recipe.envs)}
    for name, values in _flat(overrides):
        command += ["--set", f"{name}={json.dumps(values)}"]
    output, errors = await _evaluated(recipe, command, what)
    if not output and errors and runlog.OTHER_PROTOCOL in errors[-1]:
        shutil.rmtree(out, ignore_errors=True)
        output, errors = await _evaluated(recipe, command, what)
    if not output:
        raise SetupError(errors[-1].removeprefix("harness: ") if errors else "harness eval said nothing")
    told = json.loads(output[-1])
    overall = told["overall"] or next(iter(told["environments"].values()))
    return Result(what, version, float(overall["score"]), float(overall.get("coverage", 1.0)), str(out))


async def _evaluated(recipe: Recipe, command: Sequence[str], what: str) -> tuple[list[str], list[str]]:
    """Return the lines that `harness eval` says, and those of its errors."""
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, start_new_session=True,
        env={**os.environ, **machine.PATIENT, **learner.surroundings(recipe.spread.engine_threads)},
    )  # fmt: skip
    try:
        async with asyncio.timeout(recipe.score.seconds):
            output, errors = await process.communicate()
    except TimeoutError as error:
        raise SetupError(
            f"the evaluation '{what}' took longer than {recipe.score.seconds:g} seconds: give score.seconds more, or "
            "score.tasks or score.test_tasks fewer; what it played is kept, and --resume goes on with it"
        ) from error
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    said, wrong = (each.decode(errors="replace").strip().splitlines() for each in (output, errors))
    return said, wrong


def _flat(values: Mapping[str, Json], path: str = "") -> list[tuple[str, Json]]:
    found: list[tuple[str, Json]] = []
    for key, value in values.items():
        place = f"{path}.{key}" if path else key
        if isinstance(value, Mapping):
            found += _flat(value, place)
        elif value is not None and value != []:
            found.append((place, value))
    return found


async def final(recipe: Recipe, folder: Path, base: Path) -> list[Result]:
    """Score the warm start, the last and the best weights on the test splits, once each; nothing of 0 tasks."""
    score = recipe.score
    if not score.test_tasks:
        return []
    models = {"warm-start": (0, base), "last": (recipe.steps, folder / checkpoint.FOLDER / "last")}
    best = best_of(folder)
    if best is not None and best.version not in (0, recipe.steps):
        models["best"] = (best.version, folder / checkpoint.FOLDER / BEST)
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
