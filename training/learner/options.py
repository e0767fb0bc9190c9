"""How the learner learns: plain values with their defaults. Nothing here reads a recipe."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Annotated, Literal

import msgspec

from harness.core import Count, Natural, Value
from training import machine

Positive = Annotated[float, msgspec.Meta(gt=0)]
Optimizer = Literal["adamw", "muon"]
Precision = Literal["float32", "bfloat16"]
Share = Annotated[float, msgspec.Meta(ge=0)]
FINAL_SHARE = 0.1
"""Of a learning rate that falls, at the end."""


class LossOptions(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which loss: `training/losses.py` has the formulas."""

    correction: Literal["bypass", "decoupled", "tis", "masked"] = "tis"
    prox: Literal["recompute", "log_linear"] = "recompute"
    """The trainer's policy at the start of the update: by a forward pass, or interpolated (A-3PO)."""
    objective: Literal["ppo", "gspo", "cispo"] = "ppo"
    clip_low: Share = 0.2
    clip_high: Share = 0.28
    dual_clip: Positive = 3.0
    cap: Positive = 2.0
    """C of `tis`: the largest weight."""
    band: tuple[float, float] = (0.5, 2.0)
    """Of `masked`: weights outside are 0."""
    veto: tuple[float, float] | None = None
    """A turn whose geometric mean weight is outside is dropped; None drops none."""
    kl: Share = 0.0
    """β of the k3 to the model that training began with; without LoRA it takes a second copy of the weights."""
    kl_weighted: bool = True
    """Weigh k3 by π_θ/μ: unbiased off-policy."""


class LoraOptions(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Low-rank adapters, by PEFT."""

    rank: Count = 16
    alpha: Positive = 32.0
    targets: tuple[str, ...] | Literal["all-linear"] = "all-linear"
    """Names of the modules that get one."""


class LearnerOptions(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How one batch changes the weights."""

    loss: LossOptions = LossOptions()
    lr: Positive = 1e-6
    warmup: Natural = 10
    """Optimizer steps in which the learning rate rises to `lr`."""
    schedule: Literal["constant", "cosine"] = "constant"
    """Of the learning rate after that; `cosine` has it fall to a tenth until the last update."""
    updates: Natural = 0
    """That there will be, for a rate that falls; 0 stands for the recipe's `steps`, and its digest has them then."""
    optimizer: Optimizer = "adamw"
    """Muon: of the matrices between embedding and head, momentum made orthogonal, its steps as large as AdamW's are at
    the same rate (arXiv 2502.16982); AdamW of all else. Of the torch learner."""
    weight_decay: Share = 0.0
    betas: tuple[float, float] = (0.9, 0.999)
    grad_clip: Positive = 1.0
    """Largest norm of the gradient."""
    epochs: Count = 1
    minibatches: Count = 4
    """Optimizer steps an epoch; fewer where there are fewer groups."""
    micro_tokens: Count = 16384
    """Positions of one forward pass."""
    packed: bool = False
    """Several segments a row, under a block mask: pays off with flash attention, and costs time on a CPU."""
    precision: Precision = "float32"
    """bfloat16: under autocast, weights and optimizer in float32 (with LoRA the frozen weights in bfloat16); a CPU that
    has no instructions for it computes in float32 all the same, but with LoRA."""
    device: str | None = None
    """As torch names it; None takes a GPU where there is one."""
    checkpointing: bool = False
    """Compute activations again instead of keeping them: a third more time, much less memory."""
    lora: LoraOptions | None = None
    deterministic: bool = False
    """One thread and deterministic kernels: the same batch gives the same weights, bit for bit."""
    seed: int = 0
    """Of what adapters begin with; which groups share a mini-batch depends on it and on the version."""
    zero_stage: Literal[2, 3] = 2
    """Of the DeepSpeed learner."""
    offload: bool = False
    """Of the DeepSpeed learner: optimizer state in the CPU's memory."""


def halves(options: LearnerOptions, device: str) -> bool:
    """Return whether passes on a device are bfloat16."""
    return options.precision == "bfloat16" and (options.lora is not None or machine.has_bfloat16(device))


def most_logits(device: str) -> int:
    """Return how many logits are computed at once; beyond, they are in parts, and again for the gradient."""
    return 1 << (29 if device.startswith("cuda") else 27)


def own_passes(model_type: str, layer_types: Iterable[str], device: str) -> bool:
    """Return whether `qwen3` makes a model's passes on a device: Qwen3 on a CPU, of which each token sees all."""
    return model_type == "qwen3" and device == "cpu" and set(layer_types) <= {"full_attention"}


def fallen(share: float) -> float:
    """Return what is left of a learning rate that falls on a cosine, after a share of the way, which may be over."""
    return FINAL_SHARE + (1 - FINAL_SHARE) * (1 + math.cos(math.pi * min(1.0, share))) / 2
