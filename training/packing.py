"""Samples as arrays for one forward pass: padded rows, or packed ones where segments share a row.

Decided here: a micro-batch is bounded by tokens, and which samples share one depends on the samples alone. Packed and
padded say the same: in a packed row a token sees those of its own block only, and positions begin at 0 in each block.
Nothing that is not trained on is carried further than its id.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from training.values import Bools, Doubles, Floats, Ints, Sample

PADDING = -1


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Tokens:
    """The tokens of a micro-batch that are trained on, one after another: all arrays [n]."""

    logprobs: Floats
    """Of the behaviour."""
    versions: Ints
    pools: Ints
    turns: Ints
    """Which turn of the micro-batch; turns of different attempts differ."""
    envs: Ints
    """Index into `Rows.env_names`."""
    mixed_kv: Bools
    temperatures: Floats
    advantages: Floats
    coefficients: Doubles


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Rows:
    """A micro-batch."""

    ids: Ints  # [rows, length]
    positions: Ints  # [rows, length] in the block
    blocks: Ints  # [rows, length] which segment; PADDING behind the last
    trained: Bools  # [rows, length]; row by row, these are the tokens of `tokens`
    packed: bool
    """Whether a row may hold more than one block."""
    tokens: Tokens
    env_names: tuple[str, ...]

    @property
    def size(self) -> int:
        """Positions computed."""
        return int(self.ids.size)

    @property
    def tokens_read(self) -> int:
        """Positions computed that hold a token; the others fill rows up."""
        return int((self.blocks != PADDING).sum())


def plan(samples: Sequence[Sample], most_tokens: int, packed: bool) -> list[list[list[Sample]]]:
    """Return micro-batches of rows of samples, each of at most so many positions; a longer sample is alone.

    Samples of which no token is kept are left out.
    """
    useful = [sample for sample in samples if sample.kept.any()]
    # Longest first, then as they came: neighbours waste little padding, and the order is the samples' own.
    useful.sort(key=lambda sample: -len(sample.segment.ids))
    return [[row] for row in _filled(useful, most_tokens)] if packed else _padded(useful, most_tokens)


def _filled(samples: Iterable[Sample], most: int) -> list[list[Sample]]:
    """Put each sample into the first row that has room."""
    rows: list[list[Sample]] = []
    room: list[int] = []
    for sample in samples:
        length = len(sample.segment.ids)
        place = next((index for index, free in enumerate(room) if free >= length), None)
        if place is None:
            rows.append([])
            room.append(most)
            place = len(rows) - 1
        rows[place].append(sample)
        room[place] -= length
    return rows


def _padded(samples: Iterable[Sample], most: int) -> list[list[list[Sample]]]:
    """Put neighbours together, a row each, while rows times the longest stay within bounds."""
    batches: list[list[list[Sample]]] = []
    for sample in samples:
        longest = len(batches[-1][0][0].segment.ids) if batches else 0
        if not batches or longest * (len(batches[-1]) + 1) > most:
            batches.append([])
        batches[-1].append([sample])
    return batches


def rows(batch: Sequence[Sequence[Sample]], packed: bool) -> Rows:
    """Return one micro-batch of `plan` as arrays."""
    length = max(sum(len(sample.segment.ids) for sample in row) for row in batch)
    shape = (len(batch), length)
    ids, positions = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    blocks, trained = np.full(shape, PADDING, np.int64), np.zeros(shape, np.bool_)
    samples = [sample for row in batch for sample in row]
    block = 0
    for number, row in enumerate(batch):
        ends = list(accumulate(len(sample.segment.ids) for sample in row))
        for sample, end in zip(row, ends, strict=True):
            count = len(sample.segment.ids)
            place = slice(end - count, end)
            ids[number, place] = sample.segment.ids
            positions[number, place] = np.arange(count)
            blocks[number, place] = block
            trained[number, place] = sample.kept
            block += 1
    names = tuple(sorted({sample.env for sample in samples}))
    return Rows(
        ids=ids,
        positions=positions,
        blocks=blocks,
        trained=trained,
        packed=packed,
        tokens=_tokens(samples, names),
        env_names=names,
    )


def _tokens(samples: Sequence[Sample], names: tuple[str, ...]) -> Tokens:
    """Return the arrays of the trained tokens, sample after sample."""
    kept = [sample.kept for sample in samples]
    counts = [int(mask.sum()) for mask in kept]
    # A turn's sampled tokens are all in one segment: segment and turn number name it.
    keys = [
        np.stack([np.full(count, number), sample.segment.turns[mask]], axis=1)
        for number, (sample, mask, count) in enumerate(zip(samples, kept, counts, strict=True))
    ]
    turns = np.unique(np.concatenate(keys), axis=0, return_inverse=True)[1].reshape(-1)

    def spread(values: Iterable[float], kind: type) -> NDArray[Any]:
        return np.repeat(np.array(list(values), dtype=kind), counts)

    def gathered(name: str, kind: type) -> NDArray[Any]:
        return np.concatenate(
            [getattr(sample.segment, name)[mask] for sample, mask in zip(samples, kept, strict=True)]
        ).astype(kind)

    return Tokens(
        logprobs=gathered("logprobs", np.float32),
        versions=gathered("versions", np.int64),
        pools=gathered("pools", np.int64),
        turns=turns.astype(np.int64),
        envs=spread((names.index(sample.env) for sample in samples), np.int64),
        mixed_kv=gathered("mixed_kv", np.bool_),
        temperatures=spread((sample.segment.temperature for sample in samples), np.float32),
        advantages=np.concatenate([sample.advantages[mask] for sample, mask in zip(samples, kept, strict=True)]),
        coefficients=spread((sample.coefficient for sample in samples), np.float64),
    )
