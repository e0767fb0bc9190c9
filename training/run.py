"""One training run, from a recipe to scored models: makes the parts, begins or takes up, and puts everything away.

    RUN/recipe.json        the resolved recipe
    RUN/base/              the model that training began with: made here, or the warm start
    RUN/snapshots/         weights that serve
    RUN/checkpoints/       step-NNNNNN: all that a resumed run needs;  best: the best model by validation
    RUN/metrics.jsonl      one line an update, and beside it what `record` says
    RUN/evaluations/       runs of `harness eval`: validation on the way, test at the end

Decided here: scoring is `harness eval` itself, in a process of its own, on one pinned snapshot; one at a time, and one
that outlasts its interval makes the next one late, never many. It plays `hf/`, whatever samples: a server for each
snapshot would take a minute to start, and memory of a GPU that others have set aside.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec

from harness import heldout, newmodel, registry
from harness.core import Env, EnvOptions, Json
from harness.errors import SetupError
from harness.models.local import LocalModel
from harness.models.sampler import Sampler
from training import checkpoint, cluster, disk, staleness
from training import curriculum as choosing
from training.begin import begin
from training.buffer import Buffer
from training.collect import Collector, Table
from training.loop import Parts, train
from training.machine import PATIENT
from training.play import Play, here
from training.policies import PooledSampler
from training.process import engine, learner, players
from training.process.parent import Gone, Hold, Lost, Process, unless_gone
from training.process.replicas import Replicas
from training.recipe import Recipe, digest, text
from training.record import Record
from training.watch import Watch

EVALUATION_SECONDS = 3600.0
END_SECONDS = 10.0
EVALUATE = (
    "import sys; from training.process.child import end_with_parent; end_with_parent(int(sys.argv.pop(1))); "
    "from harness.cli import main; main()"
)
"""`harness eval`, which ends with the run that asks for it."""
BLOCKED_SECONDS = 120.0
"""An event loop that does not move for so long is reported, with what blocks it."""
Say = Callable[[str], None]


class Result(msgspec.Struct, frozen=True):
    """Scores of one evaluation."""

    what: str
    version: int
    score: float
    coverage: float
    folder: str


def run(recipe: Recipe, folder: Path, say: Say, *, resume: bool) -> list[Result]:
    """Train by a recipe in a folder, and score on the way and at the end. Returns the final scores of the test splits.

    Raises:
        SetupError: the folder holds another recipe's run, a package or an environment is missing, nothing to resume.
        StorageError: the disk is full; the last checkpoint is whole.
        KeyboardInterrupt: Ctrl-C or SIGTERM; all that was started is ended.
    """
    newmodel.require_packages()
    _claim(recipe, folder, resume=resume)
    begin(recipe, folder / "base", say)
    try:
        return asyncio.run(_scored(recipe, folder, say))
    except asyncio.CancelledError as error:
        raise KeyboardInterrupt from error


async def _scored(recipe: Recipe, folder: Path, say: Say) -> list[Result]:
    """Train from where the newest checkpoint stands, and score."""
    task = asyncio.current_task()
    if task is not None:  # an end by SIGTERM is as orderly as one by Ctrl-C
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    base, resume = folder / "base", checkpoint.newest(folder / "checkpoints") is not None
    async with AsyncExitStack() as stack:
        scoring = Scoring(recipe, folder, say)
        stack.push_async_callback(scoring.close)
        if not resume:
            scoring.begin(0, base)
        last = await trained(recipe, folder, base, scoring, resume=resume)
        scoring.begin(recipe.steps, last)
        await scoring.wait()
    return await final(recipe, folder, scoring, base)


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


async def trained(recipe: Recipe, folder: Path, base: Path, scoring: Scored, *, resume: bool) -> Path:
    """Train to the end, from the last checkpoint again where the learner is lost. Return the folder of the weights."""
    folder, base = _absolute(folder), _absolute(base)
    settings = {name: EnvOptions(settings=values) for name, values in recipe.envs.items()}
    held_out = {name: await asyncio.to_thread(heldout.digests, name, each) for name, each in settings.items()}
    for left in reversed(range(recipe.spread.restarts + 1)):
        try:
            async with AsyncExitStack() as stack:
                parts = await make(recipe, folder, base, scoring, held_out, stack)
                if resume:
                    scoring.say(f"taken up at update {parts.version}")
                last = await unless_gone(train(parts), parts.gone)
                await asyncio.to_thread(disk.copy, last, folder / "checkpoints" / "last")
                return folder / "checkpoints" / "last"
        except Lost as error:
            if not left:
                raise
            scoring.say(f"{error}; the run goes back to its last checkpoint")
            resume = True
    raise AssertionError("unreachable: the last round returns or raises")


def _absolute(folder: Path) -> Path:
    """Return a folder as actors can name it, who stand elsewhere."""
    return folder.absolute()


def _claim(recipe: Recipe, folder: Path, *, resume: bool) -> None:
    """Take the folder for this recipe. SetupError where it is taken, or there is nothing to take up."""
    note = folder / "recipe.json"
    if not resume and note.exists():
        raise SetupError(f"{folder} holds a run already: go on with harness train --resume {folder}")
    if (newest := checkpoint.newest(folder / "checkpoints")) is not None:
        checkpoint.state_of(newest, digest(recipe))  # before the run's own recipe is written over
    try:
        folder.mkdir(parents=True, exist_ok=True)
        note.write_bytes(text(recipe))
    except OSError as error:
        raise SetupError(f"cannot write {note}: {error.strerror}") from error


class Stage(NamedTuple):
    """Where episodes are played."""

    play: Play
    forks: Callable[[], int]
    gone: tuple[Gone, ...]


async def make(
    recipe: Recipe,
    folder: Path,
    base: Path,
    scoring: Scored,
    held_out: Mapping[str, frozenset[str]],
    stack: AsyncExitStack,
) -> Parts:
    """Make and open the parts, new or as the newest checkpoint has them."""
    watch = Watch()
    await stack.enter_async_context(watch.heartbeat(BLOCKED_SECONDS))
    holds = await stack.enter_async_context(cluster.joined(recipe.cluster, recipe.spread))
    samplers, gone = make_samplers(recipe, folder, base, watch, scoring.say, holds.engine)
    sampler = PooledSampler(samplers, recipe.pools, base)
    model = LocalModel(recipe.name, base, sampler, recipe.engine)
    stack.push_async_callback(model.close)
    envs: dict[str, Env] = {}
    for name, settings in recipe.envs.items():
        envs[name] = registry.make_env(name, EnvOptions(settings=settings))
        await envs[name].open()
        stack.push_async_callback(envs[name].close)
    made = await learner.start(
        recipe.backend, base, recipe.learning, recipe.spread, ranks=recipe.ranks, folder=folder, watch=watch,
        hold=holds.learner,
    )  # fmt: skip
    stack.push_async_callback(made.close)
    await model.opened()
    stage = Stage(here(envs, registry.make_agent("direct"), model), lambda: model.forks, ())
    if recipe.spread.players:
        seats = players.Seats(recipe.name, base, recipe.engine, recipe.envs)
        apart = players.describe(
            seats, sampler, recipe.spread, folder=folder, watch=watch, say=scoring.say, hold=holds.player
        )
        stack.push_async_callback(apart.close)
        await apart.open()
        stage = Stage(apart.play, lambda: apart.forks, apart.gone)
    curriculum = choosing.begin(list(envs), recipe.curriculum, recipe.shown)
    admission = staleness.restarted(recipe.groups, recipe.eta, recipe.running, 0, 0)
    buffer = Buffer(recipe.groups, (recipe.eta + 1) * recipe.groups)
    version, extra = 0, scoring.state
    if (newest := checkpoint.newest(folder / "checkpoints")) is not None:
        found = checkpoint.read(newest, digest(recipe))
        admission, buffer = checkpoint.resumed(found, recipe.groups, recipe.eta, recipe.running)
        curriculum, version = found.state.curriculum, found.state.version
        await made.load(found.learner)
        sampler.mix = found.state.mix
        await sampler.serve(found.serving)
        scoring.state.update(found.state.extra)
    collector = Collector(
        Table(envs=envs, play=stage.play, held_out=held_out),
        msgspec.structs.replace(recipe.collect, seed=recipe.seed),
        recipe.curriculum,
        admission=admission,
        curriculum=curriculum,
        buffer=buffer,
        watch=watch,
    )
    record = Record(folder, recipe.log, scoring.say, version)
    stack.callback(record.close)
    return Parts(
        recipe=recipe,
        folder=folder,
        forks=stage.forks,
        sampler=sampler,
        learner=made,
        collector=collector,
        version=version,
        record=record,
        scored=scoring.begin,
        pinned=scoring.pinned,
        extra=extra,
        gone=(made.gone, *gone, *stage.gone),
        lags=watch.lags,
    )


def make_samplers(
    recipe: Recipe, folder: Path, base: Path, watch: Watch, say: Say, hold: Hold = Process
) -> tuple[Sequence[Sampler], tuple[Gone, ...]]:
    """Return the pools' engines, and what waits for their loss."""
    pools = recipe.pools.depth + 1
    wanted = engine.Wanted(recipe.sampler, base, recipe.engine, pools, recipe.spread.call_seconds)
    if not recipe.spread.engine:
        return engine.made(wanted), ()
    count = recipe.spread.replicas
    engines = [
        engine.describe(
            wanted, recipe.spread, deterministic=recipe.learner.deterministic, folder=folder, watch=watch, say=say,
            hold=hold, name="engine" if count == 1 else f"engine {place}",
        )
        for place in range(count)
    ]  # fmt: skip
    gone = tuple(each.gone for each in engines)
    if count == 1:
        return engines[0].samplers, gone
    return [Replicas([each.samplers[pool] for each in engines]) for pool in range(pools)], gone


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
    out = folder / "evaluations" / f"{what}-{version:06d}"
    shutil.rmtree(out, ignore_errors=True)
    command = [sys.executable, "-c", EVALUATE, str(os.getpid()), "eval", "--model", f"hf/{model}"]
    command += ["--split", split, "--env", ",".join(recipe.envs), "--limit", str(tasks), "--json", "--out", str(out)]
    command += ["--temperature", str(recipe.score.temperature)]
    overrides = {"connection.local": msgspec.to_builtins(recipe.engine), "env_settings": dict(recipe.envs)}
    for name, values in _flat(overrides):
        command += ["--set", f"{name}={json.dumps(values)}"]
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, start_new_session=True,
        env={**os.environ, **PATIENT, **learner.surroundings(recipe.spread.engine_threads)},
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
    return [
        await evaluate(recipe, folder, model, version, score.test, score.test_tasks, what=f"test-{what}")
        for what, (version, model) in models.items()
    ]
