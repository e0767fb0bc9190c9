"""A model from nothing learns to copy before it learns to play: most of what an agent says, it was told before.

Decided here: what is copied are sequences of random tokens that come round again after a length of their own, so that
only *what* stood there tells what comes next, never how far back it stood. First of few different tokens, then of more,
then of all of them, then longer: with all of them from the start the same takes many times as long, unless the model
begins with the heads for it (`FROM_HEADS`). No text is used, so nothing can be learnt here that a held-out split has.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec
import numpy as np

from harness.core import Seconds, Value
from harness.models.local import load_tokenizer
from training import learner, partway, warmstart, weights
from training.learner.backend import Backend
from training.learner.options import LearnerOptions, Precision
from training.values import Segment

SHORTEST = 6
"""Tokens until a sequence comes round again, at least."""
KNOWN = 0.3
"""Nats a token from which on a lesson is known; guessing is log(number of different tokens)."""
REMEMBERED = 0.95
WARMUP = 50


class CopyingOptions(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a model learns to copy."""

    lr: Annotated[float, msgspec.Meta(gt=0)] = 4e-3
    seconds: Seconds = 180.0
    """It stops there, even if it cannot copy yet."""
    precision: Precision = "float32"
    """Of the passes; weights and optimizer are float32."""
    seed: int = 0


class Lesson(NamedTuple):
    """Sequences of one kind."""

    different: float
    """Tokens that occur: a number, or a share of the vocabulary up to 1."""
    length: int
    sequences: int


LESSONS: tuple[Lesson, ...] = (
    Lesson(64, 48, 20),
    Lesson(256, 64, 16),
    Lesson(1.0, 64, 16),
    Lesson(1.0, 256, 4),
    Lesson(1.0, 512, 2),
)
FROM_HEADS: tuple[Lesson, ...] = (*LESSONS[2:], Lesson(1.0, 1024, 1))
"""Of a model that begins with the heads for it (`harness.lookback`)."""


class Copied(NamedTuple):
    """How far it came."""

    lessons: int
    """Of those it was given, how many it knows."""
    steps: int
    loss: float
    """Nats a token, of the last lesson taken."""
    seconds: float
    taken: int = 0
    """Steps of the lesson that it does not know yet."""


NOTHING = Copied(lessons=0, steps=0, loss=math.inf, seconds=0.0)


def run(
    folder: Path,
    options: CopyingOptions,
    lessons: Sequence[Lesson],
    *,
    device: str | None,
    say: Callable[[str], None],
    out: Path | None = None,
    work: Path | None = None,
) -> Copied:
    """Teach the model in a folder to copy, and write it back there.

    Args:
        folder: of the model.
        options: how.
        lessons: to take.
        device: as torch names it.
        say: is told of each lesson.
        out: where it is written to instead.
        work: where it is kept how far it has come; what is there is gone on from.

    Raises:
        SetupError: a package is missing, or the model cannot be trained.
        StorageError: the disk is full; the model is as it was.
    """
    made = learner.make(
        "torch",
        folder,
        LearnerOptions(lr=options.lr, device=device, seed=options.seed, betas=(0.9, 0.98), precision=options.precision),
    )
    with partway.Steps(work) as steps:
        copied = teach(
            made.backend,
            len(load_tokenizer(folder)),
            options,
            lessons,
            say,
            copied=steps.read(made.backend, Copied) or NOTHING,
            keep=lambda copied: steps.keep(made.backend, copied),
        )
    weights.write_model(made.backend, folder, out or folder)
    return copied


def teach(
    backend: Backend,
    vocabulary: int,
    options: CopyingOptions,
    lessons: Sequence[Lesson],
    say: Callable[[str], None] = lambda _: None,
    *,
    copied: Copied = NOTHING,
    keep: Callable[[Copied], None] = lambda _: None,
) -> Copied:
    """Take one lesson after the other until all are known, or time is up.

    Args:
        backend: what learns.
        vocabulary: how many different tokens there are.
        options: how.
        lessons: to take.
        say: is told of each lesson.
        copied: how far the backend has come already.
        keep: is told of each step.
    """
    begun = time.monotonic() - copied.seconds
    for number, lesson in enumerate(lessons[copied.lessons :], copied.lessons):
        loss = copied.loss if copied.taken else 2 * KNOWN + 1
        for batch in islice(sequences(lesson, vocabulary, (options.seed, number)), copied.taken, None):
            if loss < KNOWN:
                break
            if (seconds := time.monotonic() - begun) > options.seconds:
                return copied._replace(seconds=seconds)
            rate = options.lr * min(1.0, (copied.steps + 1) / WARMUP)
            found = warmstart.step(backend, batch, rate, micro_tokens=lesson.length * lesson.sequences)
            loss = REMEMBERED * loss + (1 - REMEMBERED) * found
            copied = Copied(number, copied.steps + 1, loss, time.monotonic() - begun, copied.taken + 1)
            keep(copied)
        copied = copied._replace(lessons=number + 1, taken=0)
        say(f"copying: lesson {number + 1} of {len(lessons)} known after {copied.steps:,} steps")
    return copied


def sequences(lesson: Lesson, vocabulary: int, seed: tuple[int, ...]) -> Iterator[list[Segment]]:
    """Yield batches of sequences without end; what is learnt is their second half, which has all been there before."""
    draw = np.random.default_rng(seed)
    different = int(lesson.different * vocabulary) if lesson.different <= 1 else min(int(lesson.different), vocabulary)
    tokens = draw.permutation(vocabulary)[:different]
    while True:
        yield [_sequence(draw, tokens, lesson.length) for _ in range(lesson.sequences)]


def _sequence(draw: np.random.Generator, tokens: np.ndarray, length: int) -> Segment:
    period = int(draw.integers(SHORTEST, length // 2))
    ids = np.resize(draw.choice(tokens, period), length)  # [T] comes round again until it is full
    mask = np.arange(length) > length // 2
    return warmstart.segment(ids, mask)
