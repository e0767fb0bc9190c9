"""Our Muon beside torch's, in both of the precisions that machines have."""

from __future__ import annotations

import copy

import pytest

pytest.importorskip("torch", reason="needs torch: pip install -e '.[train]'")

import torch

from training import machine
from training.learner.muon import Muon, orthogonal

SHAPES = ((16, 16), (48, 16), (16, 48), (16, 16), (24, 40))


@pytest.mark.parametrize("half", [True, False])
def test_it_does_what_torch_does(monkeypatch: pytest.MonkeyPatch, *, half: bool) -> None:
    monkeypatch.setattr(machine, "has_bfloat16", lambda device: half)
    draw = torch.Generator().manual_seed(1)
    begun = [torch.randn(shape, generator=draw) for shape in SHAPES]
    ours, theirs = ([torch.nn.Parameter(each.clone()) for each in begun] for _ in range(2))
    lr, decay = 0.05, 0.1
    one = Muon(ours, lr=lr, weight_decay=decay)
    other = torch.optim.Muon(theirs, lr=lr, weight_decay=decay, adjust_lr_fn="match_rms_adamw")
    for _ in range(3):
        for mine, given in zip(ours, theirs, strict=True):
            mine.grad = torch.randn(mine.shape, generator=draw)
            given.grad = mine.grad.clone()
        one.step()
        other.step()
    for mine, given, first in zip(ours, theirs, begun, strict=True):
        moved = (given - first).norm()
        assert (mine - given).norm() < 0.02 * moved, "bfloat16 has two to three digits"
        assert moved > 0.2


def test_singular_values_come_to_one_and_directions_stay() -> None:
    draw = torch.Generator().manual_seed(2)
    given = [torch.randn(shape, generator=draw) for shape in SHAPES]
    for before, after in zip(given, orthogonal(given), strict=True):
        assert after.shape == before.shape and after.dtype == before.dtype
        left, values, right = torch.linalg.svd(before, full_matrices=False)
        turned = left.mT @ after @ right.mT
        off = turned - torch.diag(turned.diagonal())
        large = values > 0.02 * values[0]
        assert off.abs().max() < 0.05
        assert turned.diagonal()[large].min() > 0.6 and turned.diagonal().max() < 1.3


def test_what_has_no_gradient_stays_and_momentum_is_taken_up_again() -> None:
    still, moved = torch.nn.Parameter(torch.ones(4, 4)), torch.nn.Parameter(torch.eye(4))
    one = Muon([still, moved], lr=0.1)
    moved.grad = torch.randn(4, 4, generator=torch.Generator().manual_seed(3))
    one.step()
    assert torch.equal(still, torch.ones(4, 4)) and not torch.equal(moved, torch.eye(4))
    copied = torch.nn.Parameter(moved.detach().clone())
    other = Muon([torch.nn.Parameter(torch.ones(4, 4)), copied], lr=0.1)
    other.load_state_dict(copy.deepcopy(one.state_dict()))
    copied.grad = moved.grad.clone()
    one.step()
    other.step()
    assert torch.equal(moved, copied)
