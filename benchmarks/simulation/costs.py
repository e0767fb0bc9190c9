"""What a token costs: measured seconds of one model on one GPU, carried over to other models and GPUs.

Decided here: a decode step of n sequences that hold k tokens of cache together takes a + b·n + c·k, fitted to measured
points. What a roofline explains is scaled by it: a's part that reads the weights by their bytes over the bandwidth, b
by operations over the GPU's, c by the cache's bytes over the bandwidth; the rest of a stays. The learner's mini-batch
ends with its fullest GPU, sequences whole, so that it does not shrink below its longest one.
"""

from __future__ import annotations

import csv
import functools
import heapq
import itertools
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from harness.core import Value

DECODE = Path(__file__).with_name("data") / "decode.csv"
BILLIONS, CACHE_BYTES, TERABYTES_A_SECOND, TERAFLOPS = 8.19, 147456, 3.35, 989.0
"""Of the model and the GPU that the points were measured on: Qwen3-8B, H100."""
PROMPT_TOKENS_A_SECOND = 31_900.0
"""There: (8192 - 2048) tokens over (253.9 - 61.3) ms, the times to the first token of one sequence alone."""


class Gpu(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One GPU."""

    terabytes_a_second: float
    teraflops: float
    cache_gigabytes: float
    """Left for the key-value cache."""


class Network(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The model."""

    billions: float
    """Parameters."""
    cache_bytes: int
    """Of the key-value cache, a token."""


class LearnerCost(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What training costs."""

    utilisation: float
    """Share of the GPU's operations that are the model's."""
    flops: float
    """Operations a parameter and token."""


class Decode(NamedTuple):
    """Seconds of one engine."""

    step: float
    """a"""
    sequence: float
    """b"""
    cached: float
    """c"""
    prompt: float
    """A token of a prompt that is not cached."""
    room: float
    """Tokens of cache that it holds."""

    def seconds(self, sequences: int, cached: float) -> float:
        """Return the seconds of one step."""
        return self.step + self.sequence * sequences + self.cached * cached

    def hastened(self, speed: float) -> Decode:
        """Return the curve of an engine so many times as fast."""
        step, sequence, cached, prompt = (seconds / speed for seconds in self[:4])
        return Decode(step, sequence, cached, prompt, self.room)


class Point(NamedTuple):
    """One measurement."""

    concurrency: int
    input_tokens: int
    output_tokens: int
    milliseconds: float

    @property
    def length(self) -> float:
        """Tokens of one sequence, on average while it is decoded."""
        return self.input_tokens + self.output_tokens / 2


def points(path: Path = DECODE) -> list[Point]:
    """Return the measured points."""
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    rows = csv.DictReader(lines)
    return [
        Point(int(row["concurrency"]), int(row["input_tokens"]), int(row["output_tokens"]), float(row["milliseconds"]))
        for row in rows
    ]


@functools.cache
def measured() -> Decode:
    """Return the curve that fits the points best, relative errors squared."""
    found = points()
    times = np.array([point.milliseconds for point in found]) / 1000
    terms = np.array([[1.0, point.concurrency, point.concurrency * point.length] for point in found])
    step, sequence, cached = np.linalg.lstsq(terms / times[:, None], np.ones(len(found)), rcond=None)[0]
    return Decode(float(step), float(sequence), float(cached), 1 / PROMPT_TOKENS_A_SECOND, float("inf"))


def misfit() -> float:
    """Return the root of the mean squared relative error of the fit."""
    curve = measured()
    errors = [
        1000 * curve.seconds(point.concurrency, point.concurrency * point.length) / point.milliseconds - 1
        for point in points()
    ]
    return float(np.sqrt(np.mean(np.square(errors))))


def decode(network: Network, gpu: Gpu, gpus: int) -> Decode:
    """Return the curve of a model on an engine of so many GPUs, what they say to one another not counted."""
    curve = measured()
    bandwidth = gpus * gpu.terabytes_a_second / TERABYTES_A_SECOND
    operations = (network.billions / BILLIONS) / (gpus * gpu.teraflops / TERAFLOPS)
    reading = 2 * BILLIONS / 1000 / TERABYTES_A_SECOND  # seconds to read the weights once, in bf16
    return Decode(
        step=curve.step - reading + reading * network.billions / BILLIONS / bandwidth,
        sequence=curve.sequence * operations,
        cached=curve.cached * network.cache_bytes / CACHE_BYTES / bandwidth,
        prompt=curve.prompt * operations,
        room=gpus * gpu.cache_gigabytes * 1e9 / network.cache_bytes,
    )


def update_seconds(lengths: Sequence[int], minibatches: int, gpus: int, together: int, token_seconds: float) -> float:
    """Return the seconds of one update.

    Args:
        lengths: of the sequences, in the order in which they are trained on.
        minibatches: that they are cut into.
        gpus: that train.
        together: GPUs that share a sequence.
        token_seconds: of one GPU.
    """
    together = min(together, gpus)
    return token_seconds / together * sum(fullest(part, gpus // together) for part in parts(lengths, minibatches))


def token_seconds(network: Network, gpu: Gpu, cost: LearnerCost) -> float:
    """Return the seconds in which one GPU trains on a token."""
    return cost.flops * network.billions * 1e9 / (cost.utilisation * gpu.teraflops * 1e12)


def parts(lengths: Sequence[int], count: int) -> Iterable[Sequence[int]]:
    """Cut a batch into mini-batches."""
    bounds = [round(len(lengths) * place / count) for place in range(count + 1)]
    return [lengths[begin:end] for begin, end in itertools.pairwise(bounds) if end > begin]


def fullest(lengths: Sequence[int], gpus: int) -> int:
    """Return the tokens of the fullest GPU, the longest sequences placed first."""
    loads = [0] * gpus
    for length in sorted(lengths, reverse=True):
        heapq.heapreplace(loads, loads[0] + length)
    return max(loads)
