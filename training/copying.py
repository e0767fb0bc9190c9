"""A model from nothing learns to copy before it learns to play: most of what an agent says, it was told before.

Decided here: what is copied are sequences of random tokens that come round again after a length of their own, so that
only *what* stood there tells what comes next, never how far back it stood. First of few different tokens, then of more,
then of all of them, then longer: with all of them from the start the same takes many times as long. No text is used,
so nothing can be learnt here that a held-out split has.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import msgspec
import numpy as np

from harness.core import Seconds, Value
from harness.models.local import load_tokenizer
from training import learner, warmstart, weights
from training.learner.backend import Backend
from training.learner.options import LearnerOptions
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
    precision: Literal["float32", "bfloat16"] = "float32"
    """Of the passes; weights and optimizer are float32."""
    seed: int = 0


class Lesson(NamedTuple):
    """Sequences of one kind."""

    different: float
    """Tokens that occur: a number, or a share of the vocabulary up to 1."""
    length: int
    sequences: int


LESSONS = (Lesson(64, 48, 20), Lesson(256, 64, 16), Lesson(1.0, 64, 16), Lesson(1.0, 256, 4), Lesson(1.0, 512, 2))


class Copied(NamedTuple):
    """How far it came."""

    lessons: int
    """Of `LESSONS`, those it knows."""
    steps: int
    loss: float
    """Nats a token, of the last lesson taken."""
    seconds: float


def run(folder: Path, options: CopyingOptions, *, device: str | None, say: Callable[[str], None]) -> Copied:
    """Teach the model in a folder to copy, and write it back there.

    Raises:
        SetupError: a package is missing, or the model cannot be trained.
        StorageError: the disk is full; the model is as it was.
    """
    made = learner.make(
        "torch",
        folder,
        LearnerOptions(lr=options.lr, device=device, seed=options.seed, betas=(0.9, 0.98), precision=options.precision),
    )
    copied = teach(made.backend, len(load_tokenizer(folder)), options, say)
    weights.write_model(made.backend, folder, folder)
    return copied


def teach(
    backend: Backend, vocabulary: int, options: CopyingOptions, say: Callable[[str], None] = lambda _: None
) -> Copied:
    """Take one lesson after the other until all are known, or time is up."""
    begun, steps, loss = time.monotonic(), 0, float("inf")
    for number, lesson in enumerate(LESSONS):
        loss = 2 * KNOWN + 1
        for batch in sequences(lesson, vocabulary, (options.seed, number)):
            if (seconds := time.monotonic() - begun) > options.seconds:
                return Copied(number, steps, loss, seconds)
            steps += 1
            rate = options.lr * min(1.0, steps / WARMUP)
            found = warmstart.step(backend, batch, rate, micro_tokens=lesson.length * lesson.sequences)
            loss = REMEMBERED * loss + (1 - REMEMBERED) * found
            if loss < KNOWN:
                break
        say(f"copying: lesson {number + 1} of {len(LESSONS)} known after {steps:,} steps")
    return Copied(len(LESSONS), steps, loss, time.monotonic() - begun)


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
