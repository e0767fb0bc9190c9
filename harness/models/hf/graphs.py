"""Passes of one token a row on a GPU, recorded once and replayed: CUDA graphs.

A pass of a small model is about a thousand short kernels. Launching them takes a processor several times as long as
they take the GPU; a recorded pass is launched at once. Decided here: a pass is recorded for a number of rows, a power
of two, and a width, and again when the memory that it reads has moved; what it computes must be what it computed
unrecorded. Rows that fill it up write where no turn is.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial

import torch

WIDTH = 256
"""Positions by which widths differ."""
TOLERATED = 0.02
"""Share of the largest logit that logits may be apart: bfloat16 has eight bits of precision."""
RECORDING = threading.Lock()
Compute = Callable[[torch.Tensor, torch.Tensor, int], torch.Tensor]
Work = Callable[[], None]
Record = Callable[[Work], Work]


class Graphs:
    """The recorded passes of one batch. It belongs to one thread, which has a stream of its own."""

    def __init__(
        self, compute: Compute, rows: int, vocabulary: int, device: torch.device, record: Callable[[], Record]
    ) -> None:
        """Record nothing yet.

        Args:
            compute: the pass: ids and positions, [rows, 1] both, and the width, to logits [rows, vocabulary] float32.
            rows: the most there are.
            vocabulary: of the model.
            device: that it computes on.
            record: makes what turns work into what replays it: `on_gpu`.
        """
        self._compute, self._most, self._make = compute, rows, record
        self._ids = torch.zeros((rows, 1), dtype=torch.long, device=device)
        self._positions = torch.zeros((rows, 1), dtype=torch.long, device=device)
        self._logits = torch.zeros((rows, vocabulary), dtype=torch.float32, device=device)
        self._place: int | None = None
        self._record = record()
        self._recorded: dict[tuple[int, int], Work] = {}

    def __call__(self, ids: Sequence[int], positions: Sequence[int], width: int, place: int) -> torch.Tensor:
        """Read one token of each of the first rows; return the logits behind it: [rows, vocabulary], until the next.

        Args:
            ids: of the tokens.
            positions: where they stand in their rows.
            width: positions that attention may look at, as `widened` has them.
            place: changes when the memory of keys and values moves.

        Raises:
            RuntimeError: the pass cannot be recorded.
        """
        if place != self._place:
            self._recorded.clear()
            # Memory that the graphs shared cannot be shared by others once they are gone.
            self._record, self._place = self._make(), place
        rows = min(1 << (len(ids) - 1).bit_length(), self._most)
        beyond = [0] * (rows - len(ids))
        self._ids[:rows, 0] = torch.tensor([*ids, *beyond], device=self._ids.device)
        self._positions[:rows, 0] = torch.tensor([*positions, *beyond], device=self._ids.device)
        if (rows, width) not in self._recorded:
            self._recorded[rows, width] = self._checked(rows, width, len(ids))
        self._recorded[rows, width]()
        return self._logits[: len(ids)]

    def _checked(self, rows: int, width: int, used: int) -> Work:
        """Record a pass. RuntimeError where it computes something else than unrecorded."""

        def work() -> None:
            self._logits[:rows] = self._compute(self._ids[:rows], self._positions[:rows], width)

        with torch.inference_mode():
            work()  # what libraries set up at the first use of a shape cannot be recorded
            expected = self._logits[:used].clone()
            replay = self._record(work)
            self._logits[:rows] = 0
            replay()
            apart = float((self._logits[:used] - expected).abs().max())
            if not apart <= TOLERATED * max(1.0, float(expected.abs().max())):
                raise RuntimeError(f"a recorded pass of {rows} rows computed logits that are {apart:.3g} apart")
        return replay


def on_gpu() -> Record:
    """Return what records on the GPU; what it has recorded shares memory, so no two of it may be replayed at once."""
    return partial(_captured, torch.cuda.graph_pool_handle())


def _captured(pool: tuple[int, int], work: Work) -> Work:
    graph = torch.cuda.CUDAGraph()
    with RECORDING:
        torch.cuda.current_stream().synchronize()
        graph.capture_begin(pool=pool, capture_error_mode="thread_local")
        try:
            work()
        finally:
            graph.capture_end()
    replay: Work = graph.replay
    return replay


def widened(width: int) -> int:
    """Return the width that a pass is recorded with."""
    return -(-width // WIDTH) * WIDTH
