"""One training run, from a recipe to scored models: makes the parts, begins or takes up, and puts everything away.

    RUN/recipe.json        the resolved recipe
    RUN/base/              the model that training began with: made here, or the warm start
    RUN/snapshots/         weights that serve
    RUN/checkpoints/       step-NNNNNN: all that a resumed run needs;  best: the best model by validation
    RUN/metrics.jsonl      one line an update, and beside it what `record` says
    RUN/evaluations/       runs of `harness eval`: validation on the way, test at the end

Decided here: in which order the parts are opened, what is put away when, and how often a lost learner is begun again.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from harness import heldout, newmodel, registry, runlog
from harness.core import Env, EnvOptions
from harness.errors import SetupError, StorageError
from harness.models.local import LocalModel
from harness.models.sampler import Sampler
from training import budget, checkpoint, cluster, disk, machine, partway, ptx, scores, staleness, weights
from training import curriculum as choosing
from training.begin import begin, own_base
from training.buffer import Buffer, Stopped
from training.collect import Collector, Table
from training.loop import Parts, train
from training.play import Play, here
from training.policies import PooledSampler
from training.process import engine, learner, players
from training.process.parent import Gone, Hold, Lost, Process, unless_gone
from training.process.replicas import Replicas
from training.recipe import NOTE, Recipe, digest, text
from training.record import Record
from training.scoring import BEST, Result, Scored, Scoring, final
from training.watch import Watch

BLOCKED_SECONDS = 120.0
"""An event loop that does not move for so long is reported, with what blocks it."""
PATIENCE = 2
"""Signals that an event loop is left to deal with."""
Say = Callable[[str], None]


def run(recipe: Recipe, folder: Path, say: Say, *, resume: bool) -> list[Result]:
    """Train by a recipe in a folder, and score on the way and at the end. Returns the final scores of the test splits.

    Raises:
        SetupError: the folder holds another recipe's run, a package or an environment is missing, nothing to resume.
        StorageError: the disk is full; the last checkpoint is whole.
        KeyboardInterrupt: Ctrl-C or SIGTERM; all that was started is ended.
    """
    newmodel.require_packages()
    with claimed(recipe, folder, resume=resume):
        if told := budget.told_of_bfloat16(recipe, machine.default_device()):
            say(told)
        begin(recipe, folder / "base", say)
        with partway.signals(partway.at_once):
            gold = ptx.play(recipe, folder / "base", folder / "gold", say)
        try:
            return asyncio.run(_scored(recipe, _absolute(folder), gold, say))
        except (asyncio.CancelledError, Stopped) as error:
            raise KeyboardInterrupt from error


async def _scored(recipe: Recipe, folder: Path, gold: ptx.Plays, say: Say) -> list[Result]:
    """Train from where the newest checkpoint stands, and score."""
    base, resume = folder / "base", checkpoint.newest(folder / checkpoint.FOLDER) is not None
    async with AsyncExitStack() as stack:
        stack.enter_context(signals(asyncio.Task.cancel))
        scoring = Scoring(recipe, folder, say)
        stack.push_async_callback(scoring.close)
        if not resume:
            scoring.begin(0, base)
        last = await trained(recipe, folder, base, gold, scoring, resume=resume)
        if recipe.steps % recipe.score.every:
            scoring.begin(recipe.steps, last)
        await scoring.wait()
        return await final(recipe, folder, base)


async def trained(recipe: Recipe, folder: Path, base: Path, gold: ptx.Plays, scoring: Scored, *, resume: bool) -> Path:
    """Train to the end, from the last checkpoint again where the learner is lost. Return the folder of the weights."""
    folder, base = _absolute(folder), _absolute(base)
    settings = {name: EnvOptions(settings=values) for name, values in recipe.envs.items()}
    held_out = {name: await asyncio.to_thread(heldout.digests, name, each) for name, each in settings.items()}
    asked = asyncio.Event()
    for left in reversed(range(recipe.spread.restarts + 1)):
        try:
            async with AsyncExitStack() as stack:
                parts = await make(recipe, folder, base, gold, scoring, held_out, stack)
                if resume:
                    scoring.say(f"taken up at update {parts.version}")
                with signals(functools.partial(_end, asked, parts.collector.buffer, scoring.say)):
                    last = await unless_gone(train(parts), parts.gone)
                if asked.is_set():
                    raise Stopped("an end was asked for in the last update")
                await asyncio.to_thread(disk.copy, last, folder / checkpoint.FOLDER / "last")
                return folder / checkpoint.FOLDER / "last"
        except Lost as error:
            if not left or asked.is_set():
                raise
            scoring.say(f"{error}; the run goes back to its last checkpoint")
            resume = True
    raise AssertionError("unreachable: the last round returns or raises")


@contextmanager
def signals(asked: Callable[[asyncio.Task[Any]], object]) -> Iterator[None]:
    """Have what Ctrl-C or SIGTERM ask for done to this task, on its own loop; the third ends a loop that is blocked."""
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert task is not None  # noqa: S101 - a coroutine asks
    times = itertools.count(1)

    def handle(number: int, frame: object) -> None:
        if next(times) > PATIENCE:
            raise KeyboardInterrupt
        loop.call_soon_threadsafe(asked, task)

    with partway.signals(handle):
        yield


def _end(asked: asyncio.Event, buffer: Buffer, say: Say, task: asyncio.Task[Any]) -> None:
    """End behind the update under way, which is kept; asked a second time, at once."""
    if asked.is_set():
        task.cancel()
        return
    asked.set()
    buffer.stop()
    say("the run ends behind the update under way, which is kept; asked again, it ends at once")


def _absolute(folder: Path) -> Path:
    """Return a folder as actors can name it, who stand elsewhere."""
    return folder.absolute()


@contextmanager
def claimed(recipe: Recipe, folder: Path, *, resume: bool) -> Iterator[None]:
    """Have the folder for this recipe, and for this process alone.

    Without a checkpoint there is nothing that another recipe could not go on from, but the model it began with and what
    that scored: they are removed where it would now be another.

    Raises:
        SetupError: it is taken, its checkpoint is another recipe's or further than `steps`, or another process has it.
        StorageError: the disk refuses; what was there is as it was.
    """
    note = folder / NOTE
    if not resume and note.exists():
        raise SetupError(f"{folder} holds a run already: go on with harness train --resume {folder}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = runlog.lock(folder, f"another process trains in {folder}: wait for it, or end it")
    except OSError as error:
        raise StorageError(disk.refusal(folder, error)) from error
    with lock:
        if (newest := checkpoint.newest(folder / checkpoint.FOLDER)) is not None:
            state = checkpoint.state_of(newest, digest(recipe))  # before the run's own recipe is written over
            if state.step > recipe.steps:
                raise SetupError(f"{folder} has {state.step} updates behind it: give --steps as many, or more")
        elif own_base(recipe, folder) is None:
            for other in ("base", scores.FOLDER, f"{checkpoint.FOLDER}/{BEST}"):
                shutil.rmtree(folder / other, ignore_errors=True)
        try:
            runlog.write_atomically(note, text(recipe))
        except OSError as error:
            raise StorageError(disk.refusal(note, error)) from error
        yield


class Stage(NamedTuple):
    """Where episodes are played."""

    play: Play
    forks: Callable[[], int]
    gone: tuple[Gone, ...]


async def make(
    recipe: Recipe,
    folder: Path,
    base: Path,
    gold: ptx.Plays,
    scoring: Scored,
    held_out: Mapping[str, frozenset[str]],
    stack: AsyncExitStack,
) -> Parts:
    """Make and open the parts, new or as the newest checkpoint has them."""
    watch = Watch()
    await stack.enter_async_context(watch.heartbeat(BLOCKED_SECONDS))
    holds = await stack.enter_async_context(cluster.joined(recipe.cluster, recipe.spread))
    samplers, gone = make_samplers(recipe, folder, base, watch, scoring.say, holds.engine)
    waits = recipe.spread.start_seconds + recipe.spread.call_seconds
    sampler = PooledSampler(samplers, recipe.pools, base, seconds=waits)
    model = LocalModel(recipe.name, base, sampler, recipe.engine)
    stack.push_async_callback(sampler.close)  # also where it could be opened by half
    envs: dict[str, Env] = {}
    for name, settings in recipe.envs.items():
        envs[name] = registry.make_env(name, EnvOptions(settings=settings))
        await envs[name].open()
        stack.push_async_callback(envs[name].close)
    made = await learner.start(
        recipe.backend, base, recipe.learning, recipe.spread, ranks=recipe.ranks, folder=folder, watch=watch,
        hold=holds.learner, served=recipe.engine.dtype,
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
    version = 0
    if (newest := checkpoint.newest(folder / checkpoint.FOLDER)) is not None:
        found = checkpoint.read(newest, digest(recipe))
        admission, buffer = checkpoint.resumed(found, recipe.groups, recipe.eta, recipe.running)
        curriculum, version = found.state.curriculum, found.state.version
        await made.load(found.learner)
        sampler.mix = found.state.mix
        await sampler.serve(found.serving)
        if version % recipe.score.every == 0 and scores.of(folder, version) is None:
            scoring.begin(version, _named_as_before(folder, Path(found.serving[0].folder)))  # it was cut off
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
        gold=functools.partial(ptx.batch, recipe, gold),
        collector=collector,
        version=version,
        record=record,
        scored=scoring.begin,
        pinned=scoring.pinned,
        gone=(made.gone, *gone, *stage.gone),
        lags=watch.lags,
    )


def _named_as_before(folder: Path, served: Path) -> Path:
    """Return a checkpoint's weights under the name that they were scored by, so that their evaluation can go on."""
    snapshot = folder / "snapshots" / weights.noted(served).name
    return snapshot if snapshot.is_dir() else served


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
