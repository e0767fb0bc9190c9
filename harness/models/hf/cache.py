"""The attention cache of many episodes at once: a row each, of its own length.

`Rows` is what a model of transformers takes for its cache. Decided here: keys and values are written where they belong
and the rows in use are always the first ones, so that what attention reads is a view and never a copy. An episode that
waits for its environment is kept apart, as `Kept`, with no row. On a CPU, where room costs memory only once it is
written, room is made by doubling.
"""

from __future__ import annotations

import math
import mmap
from typing import NamedTuple

import torch
from transformers.cache_utils import Cache

GROWTH = {"cpu": 256, "cuda": 1024}
"""Positions that are added at a time; on a CPU, twice as many as there are where that is more."""


class Kept(NamedTuple):
    """One episode's keys and values, and the tokens that they are of."""

    ids: tuple[int, ...]
    layers: torch.Tensor  # [layer, 2, heads, len(ids), head size]
    version: int
    mixed: bool
    """Whether the tokens were computed under different weights."""

    @property
    def bytes(self) -> int:
        """What it takes."""
        return int(self.layers.nbytes)


class Rows(Cache):  # type: ignore[misc]
    """Keys and values of the rows in use, for one forward pass after another."""

    def __init__(self, rows: int, layers: int, heads: int, size: int, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__(layers=[])
        self._shape = (layers, 2, rows, heads, size)
        self._dtype, self._device = dtype, device
        self.moves = 0
        """How often room was made, and all that is held was moved for it."""
        self._data = torch.zeros((layers, 2, rows, heads, 0, size), dtype=dtype, device=device)
        self._rows = torch.zeros(0, dtype=torch.long, device=device)
        self._positions = torch.zeros(0, dtype=torch.long, device=device)
        self._first, self._used, self._width = 0, 0, 0

    def reserve(self, positions: int) -> None:
        """Make room for that many positions in every row."""
        have = self._data.shape[4]
        if positions <= have:
            return
        layers, two, rows, heads, size = self._shape
        step = GROWTH.get(self._device.type, GROWTH["cuda"])
        more = -(-max(positions, 2 * have if self._device.type == "cpu" else 0) // step) * step
        grown = blank((layers, two, rows, heads, more, size), self._dtype, self._device)
        grown[..., :have, :] = self._data
        self._data = grown
        self.moves += 1

    def prepare(self, first: int, positions: torch.Tensor, width: int) -> None:
        """Say which rows the next pass is of, and where its tokens stand.

        Args:
            first: the first of the rows, which follow one another.
            positions: [rows, tokens] of each token in its row.
            width: positions that attention may look at.
        """
        count = positions.shape[0]
        self._first, self._used, self._width = first, first + count, width
        self._rows = torch.arange(first, first + count, device=self._device)[:, None]
        self._positions = positions

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *_: object, **__: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write [rows, heads, tokens, size] where it belongs; return all that the rows hold."""
        keys, values = self._data[layer_idx]
        keys[self._rows, :, self._positions] = key_states.transpose(1, 2)
        values[self._rows, :, self._positions] = value_states.transpose(1, 2)
        held = slice(self._first, self._used)
        return keys[held, :, : self._width], values[held, :, : self._width]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Return the positions that attention may look at."""
        return self._width

    def take(self, row: int, length: int) -> torch.Tensor:
        """Return a copy of a row's first positions."""
        return self._data[:, :, row, :, :length].clone()

    def put(self, row: int, layers: torch.Tensor, length: int) -> None:
        """Fill a row's first positions."""
        self.reserve(length)
        self._data[:, :, row, :, :length] = layers[..., :length, :]

    def move(self, source: int, target: int, length: int) -> None:
        """Fill a row's first positions with those of another."""
        self._data[:, :, target, :, :length] = self._data[:, :, source, :, :length]


def blank(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Return zeros. On a CPU they take memory only where they are written."""
    if device.type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    memory = mmap.mmap(-1, math.prod(shape) * dtype.itemsize, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return torch.frombuffer(memory, dtype=dtype).view(shape)
