"""Milliseconds of the learner's passes on a CPU thread: `training/learner/qwen3.py`'s beside `transformers`'.

Forward and backward of four rows of a thousand positions, the shape of `tiny`, random weights, the two in turn. GRPO
trains on what was sampled, about every seventh position; the first part of a warm start also on what is read.
"""

from __future__ import annotations

import statistics
import time

import numpy as np
import torch
from transformers import Qwen3ForCausalLM

from harness.newmodel import SHAPES, configuration
from training import packing, warmstart
from training.learner.network import Scorer
from training.learner.options import LearnerOptions, Precision
from training.packing import Rows

SHAPE = SHAPES["tiny"]
ROWS, LENGTH, EVERY, SAMPLED = 4, 1000, 84, 12
ROUNDS = 15


def rows(observed: float, count: int = ROWS, length: int = LENGTH) -> Rows:
    """Return a micro-batch of random ids; with `observed` above 0 what is read is trained on as well."""
    draw = np.random.default_rng(0)
    mask = np.arange(length) % EVERY >= EVERY - SAMPLED
    plays = [warmstart.segment(draw.integers(0, SHAPE.vocabulary, length), mask) for _ in range(count)]
    (batch,) = packing.plan([warmstart.sample(play, 0, 1.0, observed) for play in plays], count * length, packed=False)
    return packing.rows(batch, packed=False)


def seconds(scorers: tuple[Scorer, Scorer], batch: Rows) -> tuple[float, float]:
    """Return the median seconds of a forward and a backward pass of each, taken in turn, after one to warm up."""
    taken: tuple[list[float], list[float]] = ([], [])
    for _ in range(1 + ROUNDS):
        for scorer, found in zip(scorers, taken, strict=True):
            began = time.perf_counter()
            scorer(batch).sum().backward()
            found.append(time.perf_counter() - began)
    first, second = (statistics.median(each[1:]) for each in taken)
    return first, second


def main() -> None:
    """Print the table."""
    precisions: tuple[Precision, ...] = ("bfloat16", "float32")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as beside an engine
    print("| passes in | trained on | transformers, ms | here, ms | ratio |\n|---|---|---|---|---|")
    for precision in precisions:
        options = LearnerOptions(device="cpu", precision=precision)
        made = Qwen3ForCausalLM(configuration(SHAPE)).train()
        scorers = Scorer(made, options, own=False), Scorer(made, options)
        for name, observed in (("what was sampled", 0.0), ("all", 1.0)):
            theirs, ours = seconds(scorers, rows(observed))
            print(f"| {precision} | {name} | {1000 * theirs:.0f} | {1000 * ours:.0f} | {theirs / ours:.2f} |")
    torch.set_num_threads(threads)
