"""Attention of many rows at once, as `Batch` has them: no copy of keys for grouped heads, one mask for all layers.

Decided here: on a CPU a pass costs the keys and values that it reads, so rows of different lengths are different calls,
each as wide as its longest row. On other devices all rows are one call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

NAME = "harness"
SPARED = 96
"""Positions of one row, which are read in about the time that another call takes."""


class Run(NamedTuple):
    """Rows that follow one another, and the positions that one call reads of each."""

    first: int
    end: int
    width: int


def runs(widths: Sequence[int], tokens: int) -> list[Run]:
    """Divide rows with so many positions each, for a pass of so many tokens a row."""
    found: list[Run] = []
    for row, width in enumerate(widths):
        if found:
            first, _, widest = found[-1]
            longest = max(width, widest)
            if (longest - width + (longest - widest) * (row - first)) * tokens <= SPARED:
                found[-1] = Run(first, row + 1, longest)
                continue
        found.append(Run(row, row + 1, width))
    return found


def attend(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    runs: Sequence[Run] = (),
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """Return [rows, tokens, heads, size]: heads that share keys are taken for further tokens of the same head.

    Args:
        module: the layer; not looked at.
        query: [rows, heads, tokens, size].
        key: [rows, key heads, positions, size].
        value: as `key`.
        attention_mask: [rows, 1, tokens or shared heads * tokens, positions], added to the scores; None is causal.
        scaling: of the scores; None is the root of the size.
        runs: the calls to make; none is one for all rows.
    """
    rows, heads, tokens, size = query.shape
    shared = heads // key.shape[1]
    if attention_mask is None:
        positions = key.shape[2]
        seen = torch.ones(tokens, positions, dtype=torch.bool, device=query.device).tril(positions - tokens)
        attention_mask = torch.zeros((), dtype=query.dtype, device=query.device).where(seen, float("-inf"))[None, None]
    if attention_mask.shape[2] not in (1, shared * tokens):
        attention_mask = attention_mask.repeat(1, 1, shared, 1)
    grouped = query.reshape(rows, key.shape[1], shared * tokens, size)
    outputs = [
        torch.nn.functional.scaled_dot_product_attention(
            grouped[first:end],
            key[first:end, :, :width],
            value[first:end, :, :width],
            attn_mask=attention_mask[first:end, ..., :width],
            scale=scaling,
        )
        for first, end, width in runs or [Run(0, rows, key.shape[2])]
    ]
    output = torch.cat(outputs) if len(outputs) > 1 else outputs[0]
    return output.reshape(rows, heads, tokens, size).transpose(1, 2), None


def register(model: Any) -> None:
    """Let a model attend so."""
    from transformers import AttentionInterface

    AttentionInterface.register(NAME, attend)
    model.config._attn_implementation = NAME
