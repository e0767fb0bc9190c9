"""Milliseconds of the learner's passes on a CPU thread: `training/learner/qwen3.py`'s beside `transformers`'.

Forward and backward of four rows of a thousand positions, the shape of `tiny`, random weights, the two in turn. GRPO
trains on what was sampled, about every seventh position; the first part of a warm start also on what is read.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from harness.newmodel import SHAPES
from training.learner.network import Scorer
from training.learner.options import LearnerOptions, Precision
from training.packing import Rows, Tokens

ROWS, LENGTH, EVERY, SAMPLED = 4, 1000, 84, 12
ROUNDS = 15


def model() -> Qwen3ForCausalLM:
    """Return a model of the shape of `tiny`."""
    shape = SHAPES["tiny"]
    config = Qwen3Config(
        vocab_size=shape.vocabulary, hidden_size=shape.hidden, num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads, num_key_value_heads=shape.key_value_heads, head_dim=shape.head_size,
        intermediate_size=shape.feed_forward, max_position_embeddings=shape.context,
    )  # fmt: skip
    return Qwen3ForCausalLM(config).train()


def rows(trained: np.ndarray) -> Rows:
    """Return a micro-batch of random ids that trains on these positions: [rows, length] bool."""
    zeros = np.zeros(int(trained.sum()))
    ids = np.random.default_rng(0).integers(0, SHAPES["tiny"].vocabulary, trained.shape)
    counts = dict.fromkeys(("versions", "pools", "turns", "envs"), zeros.astype(np.int64))
    tokens = Tokens(
        logprobs=zeros.astype(np.float32), mixed_kv=zeros.astype(np.bool_), temperatures=np.float32(zeros + 1),
        advantages=zeros.astype(np.float32), coefficients=zeros, **counts,
    )  # fmt: skip
    places = np.zeros_like(ids)
    return Rows(ids=ids, positions=places, blocks=places, trained=trained, packed=False, tokens=tokens, env_names=())


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute on one thread, as beside an engine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


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
    positions = np.arange(LENGTH) % EVERY
    sampled = np.tile((positions >= EVERY - SAMPLED) & (np.arange(LENGTH) > 0), (ROWS, 1))
    read = np.tile(np.arange(LENGTH) > 0, (ROWS, 1))
    precisions: tuple[Precision, ...] = ("bfloat16", "float32")
    print("| passes in | trained on | transformers, ms | here, ms | ratio |\n|---|---|---|---|---|")
    with one_thread():
        for precision in precisions:
            options = LearnerOptions(device="cpu", precision=precision)
            made = model()
            scorers = Scorer(made, options, own=False), Scorer(made, options)
            for name, trained in (("what was sampled", sampled), ("all", read)):
                theirs, ours = seconds(scorers, rows(trained))
                print(f"| {precision} | {name} | {1000 * theirs:.0f} | {1000 * ours:.0f} | {theirs / ours:.2f} |")
