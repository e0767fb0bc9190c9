"""Muon (arXiv 2502.16982), as `torch.optim.Muon` has it, for machines that have no bfloat16 too.

That one makes its updates orthogonal in bfloat16 wherever it runs, which a CPU without instructions for it is slow at:
42 matrices of 128 x 128 to 128 x 512 took two such cores 2.0 s a step, and take them 0.08 s here, in float32. On two
that have it (AMX) that one takes 0.051 s a step, and this one, in bfloat16 there, 0.019 s.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from training import machine

QUINTIC = (3.4445, -4.7750, 2.0315)
"""Of the Newton-Schulz iteration (https://kellerjordan.github.io/posts/muon): singular values come to about 1."""
ITERATIONS = 5
SMALLEST_NORM = 1e-7
RMS = 0.2
"""Of an update at a learning rate of 1: about what AdamW's have."""


class Muon(torch.optim.Optimizer):  # type: ignore[misc]
    """Nesterov momentum of matrices, made orthogonal; weight decay apart from it."""

    def __init__(self, matrices: Iterable[Tensor], lr: float, weight_decay: float = 0.0, momentum: float = 0.95):
        super().__init__(matrices, {"lr": lr, "weight_decay": weight_decay, "momentum": momentum})

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def step(self, closure: Any = None) -> None:
        """Change the weights that have a gradient."""
        for group in self.param_groups:
            matrices = [each for each in group["params"] if each.grad is not None]
            updates = orthogonal([self._smoothed(each, group["momentum"]) for each in matrices])
            for each, update in zip(matrices, updates, strict=True):
                each.mul_(1 - group["lr"] * group["weight_decay"])
                each.sub_(update, alpha=group["lr"] * RMS * math.sqrt(max(each.shape)))

    def _smoothed(self, matrix: Tensor, momentum: float) -> Tensor:
        state = self.state[matrix]
        if not state:
            state["momentum_buffer"] = torch.zeros_like(matrix)
        kept = state["momentum_buffer"].lerp_(matrix.grad, 1 - momentum)
        return matrix.grad.lerp(kept, momentum)


def orthogonal(matrices: Sequence[Tensor]) -> list[Tensor]:
    """Return each matrix with its singular values brought to about 1 (0.7 to 1.2)."""
    by_shape: dict[torch.Size, list[int]] = defaultdict(list)
    for number, each in enumerate(matrices):
        by_shape[each.shape].append(number)
    found: dict[int, Tensor] = {}
    for numbers in by_shape.values():
        found |= zip(numbers, _iterated(torch.stack([matrices[number] for number in numbers])), strict=True)
    return [found[number] for number in range(len(matrices))]


def _iterated(matrices: Tensor) -> Tensor:
    """Do it to matrices of one shape, lying, so that the products are of the shorter side: [n, rows, columns]."""
    tall = matrices.shape[1] > matrices.shape[2]
    first, third, fifth = QUINTIC
    half = machine.has_bfloat16(matrices.device.type)
    found = (matrices.mT if tall else matrices).to(torch.bfloat16 if half else matrices.dtype)
    found = found / found.norm(dim=(1, 2), keepdim=True).clamp(min=SMALLEST_NORM)
    for _ in range(ITERATIONS):
        gram = found @ found.mT
        found = torch.baddbmm(found, torch.baddbmm(gram, gram, gram, beta=third, alpha=fifth), found, beta=first)
    return (found.mT if tall else found).to(matrices.dtype)
