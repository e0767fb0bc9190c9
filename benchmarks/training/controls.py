"""What the same seconds bring by supervised learning: three ways to go on from the same warm start, by the same parts.

Continued SFT learns from gold play of train tasks that the warm start has not seen. Rejection sampling (RFT,
2308.01825) plays train tasks with the warm start, keeps what succeeded, and learns it. Expert iteration (ReST-EM,
2312.06585) plays on with what it has become, round after round: a reinforcement learner by itself, without a baseline
and without failures. Decided here so that none is a straw man: making gold play is not counted in the seconds; a task
that is easy does not crowd out the others (so many different successes of one task a round, and no more); in expert
iteration play goes on while learning does, as it does under GRPO; and none spends a second on scoring itself. Learning
rates come from the sweep, on validation.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import defaultdict
from collections.abc import Iterable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import msgspec

from benchmarks.training import playing
from benchmarks.training.playing import Say
from harness.core import Count, Trajectory, Value, seed_of
from harness.errors import SetupError
from training import learner, renaming, sft, warmstart, weights
from training.begin import gold_play
from training.collect import Collector
from training.policies import PooledSampler, PoolOptions
from training.recipe import Recipe
from training.values import Group, Segment
from training.warmstart import WarmStartOptions

if TYPE_CHECKING:
    from training.learner.backend import Backend

FURTHER = 1
"""Tasks of gold play that continued SFT has, for each one that the warm start had; its seconds may pass them again."""
ENDLESS = 100_000
"""Epochs, updates, or versions ahead, that are never reached: the seconds end it."""


class Done(Value, frozen=True, kw_only=True):
    """What a control did."""

    model: str
    seconds: float
    samples: int
    """Plays learnt from, repetitions counted."""
    tokens: int
    played: int = 0
    """Attempts of its own."""
    rounds: int = 0


class RejectionOptions(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How rejection sampling goes round."""

    groups: Count = 16
    """Tasks of one round."""
    epochs: Count = 2
    """Over the successes of a round."""
    most_of_a_task: Count = 4
    """Different successes of one task that are kept."""
    once: Annotated[float, msgspec.Meta(gt=0, lt=1)] | None = None
    """There is one round, and so much of the seconds is play; None goes round and round, a batch at a time."""


def once(played: float) -> RejectionOptions:
    """Return how rejection sampling goes: so much of the seconds is play; no more than the warm start's epochs."""
    return RejectionOptions(epochs=4, once=played)


def continued_sft(recipe: Recipe, base: Path, out: Path, seconds: float, say: Say) -> Done:
    """Go on learning from gold play that the warm start has not seen, for so long. `out` must not be there."""
    plays = renaming.renamed(further_plays(recipe), recipe.begin.renamed, seed_of("further", recipe.seed))
    say(f"gold play of {len(plays):,} further tasks")
    options = _learning(recipe, epochs=ENDLESS, seconds=seconds, part=0)
    done = sft.run(base, out, plays, options, longest=recipe.begin.longest, device=recipe.learner.device)
    samples = done.step * options.sequences
    return Done(model=str(out), seconds=done.seconds, samples=samples, tokens=done.tokens)


def further_plays(recipe: Recipe) -> list[Trajectory]:
    """Return gold play of train tasks that come after those of the warm start, and are none of them."""
    found = []
    for gold in recipe.gold:
        behind = recipe.shown.get(gold.env, 0)
        played = gold_play(recipe, [msgspec.structs.replace(gold, tasks=behind + FURTHER * gold.tasks)])
        seen = {play.digest for play in played[:behind]}
        found += [play for play in played[behind:] if play.digest not in seen]
    return found


async def rejection_sampled(
    recipe: Recipe, folder: Path, base: Path, seconds: float, say: Say, options: RejectionOptions
) -> Done:
    """Play, keep what succeeded, learn it, and play on with it unless it is to be once, for so long."""
    (folder / "processes").mkdir(parents=True)
    learning = sft.supervised(recipe.learner, recipe.begin.warm_start or WarmStartOptions())
    made = await asyncio.to_thread(learner.make, "torch", base, learning)
    pools = PoolOptions(depth=0, stale_ratio=0.0)
    async with playing.table(recipe, folder, base, pools, say) as (table, sampler):
        wanted = playing.options(recipe)
        eta = ENDLESS if options.once else recipe.eta  # what is played once waits for no new weights
        async with AsyncExitStack() as play:
            collecting = playing.collecting(table, recipe, wanted, options.groups, eta)
            collector = await play.enter_async_context(collecting)
            going = _Going(recipe, folder, base, made.backend, collector, play, sampler)
            return await _rounds(going, options, seconds, say)


class _Going(NamedTuple):
    """What a round needs."""

    recipe: Recipe
    folder: Path
    base: Path
    backend: Backend
    collector: Collector
    play: AsyncExitStack
    """Ends it."""
    sampler: PooledSampler


async def _rounds(going: _Going, options: RejectionOptions, seconds: float, say: Say) -> Done:
    begun, samples, tokens, played, rounds = time.monotonic(), 0, 0, 0, 0
    model = going.base
    until = begun + seconds * (options.once or 1)
    while groups := await _played(going.collector, until, once=options.once is not None):
        if options.once:
            await going.play.aclose()  # nothing computes besides while that is learnt
        attempts = [one for group in groups for one in group.attempts]
        played += len(attempts)
        won = successes(groups, options.most_of_a_task)
        left = seconds - (time.monotonic() - begun)
        if won and left > 0:
            wanted = _learning(going.recipe, epochs=options.epochs, seconds=left, part=rounds)
            done = await asyncio.to_thread(warmstart.fit, going.backend, won, wanted)
            tokens += done.tokens
            samples += done.step * wanted.sequences
        rounds += 1
        model = await _publish(going, rounds)
        rate = sum(one.succeeded for one in attempts) / len(attempts)
        over = seconds - (time.monotonic() - begun)
        say(f"round {rounds}: {rate:.2f} succeeded, {len(won)} learnt, {played:,} attempts so far, {over:.0f} s left")
    return Done(
        model=str(model),
        seconds=time.monotonic() - begun,
        samples=samples,
        tokens=tokens,
        played=played,
        rounds=rounds,
    )


async def _played(collector: Collector, until: float, *, once: bool) -> list[Group]:
    """Return the groups of the next batch, or, where it is to be once, all that are played until then."""
    found: list[Group] = []
    with contextlib.suppress(TimeoutError):
        while (left := until - time.monotonic()) > 0 and (once or not found):
            async with asyncio.timeout(left):
                found += (await collector.batch()).groups
    return found


async def _publish(going: _Going, version: int) -> Path:
    """Let the engine play with what was learnt."""
    write = weights.model_writer(going.backend.weights(), going.backend.network, going.base)
    model, _ = await asyncio.to_thread(weights.publish, going.folder / "snapshots", version, write)
    await going.sampler.update(str(model), version)
    weights.prune(going.folder / "snapshots", [model])
    going.collector.published(version)
    return model


def successes(groups: Iterable[Group], most: int) -> list[Segment]:
    """Return the token sequences of attempts that succeeded: of each task at most so many, no two alike."""
    found: list[Segment] = []
    kept: dict[tuple[str, str], set[bytes]] = defaultdict(set)
    for group in groups:
        of_task = kept[group.env, group.task_id]
        for attempt in group.attempts:
            text = b"|".join(segment.ids.tobytes() for segment in attempt.segments)
            if attempt.succeeded and text not in of_task and len(of_task) < most:
                of_task.add(text)
                found += attempt.segments
    return found


def _learning(recipe: Recipe, *, epochs: int, seconds: float, part: int) -> WarmStartOptions:
    """Return how a control learns: as the warm start did, at the learner's rate, for so long; the rate rises once."""
    if seconds <= 0:
        raise SetupError(f"a control needs seconds to learn in, not {seconds:g}: run the arm that it is compared with")
    before = recipe.begin.warm_start or WarmStartOptions()
    warmup, seed = 0 if part else before.warmup, seed_of("control", recipe.seed, part)
    return msgspec.structs.replace(
        before, lr=recipe.learner.lr, observed=0.0, warmup=warmup, epochs=epochs, seconds=seconds, seed=seed
    )
