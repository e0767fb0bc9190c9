"""The learner's backend on DeepSpeed: ZeRO-2 or ZeRO-3 over as many processes as were started together.

Decided here: only how gradients and optimizer state are spread. The loss, its factors and the micro-batches come from
`update`, as with any backend; DeepSpeed takes the mean over ranks, so each rank's part is multiplied by their number.
On a machine without a GPU the processes talk by gloo.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import deepspeed
import torch
from torch import Tensor, distributed

from harness.core import Json
from harness.errors import SetupError
from training.learner import network
from training.learner.network import Scorer
from training.learner.options import LearnerOptions, halves
from training.packing import Rows

TAG = "learner"


class DeepSpeedBackend:
    """A DeepSpeed engine around the scorer."""

    def __init__(self, folder: Path, options: LearnerOptions) -> None:
        if "RANK" not in os.environ:
            raise SetupError("the deepspeed learner runs in several processes: start it with torchrun or deepspeed")
        cuda = network.device_of(options).type == "cuda"
        if cuda:
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
        deepspeed.init_distributed(dist_backend="nccl" if cuda else "gloo", verbose=False)
        self.rank, self.ranks = distributed.get_rank(), distributed.get_world_size()
        self.network = network.load(folder, options)
        # DeepSpeed casts the weights itself, and gathers them as each module of the model is called.
        scorer = Scorer(self.network, options, autocast=False, own=False)
        self._reference: Scorer | None = None
        if options.loss.kl > 0 and options.lora is None:
            frozen = copy.deepcopy(self.network).requires_grad_(False)
            self._reference = Scorer(frozen, options, autocast=False, own=False)
        trained = [each for each in self.network.parameters() if each.requires_grad]
        self._engine, self._optimizer, _, _ = deepspeed.initialize(
            model=scorer,
            optimizer=torch.optim.AdamW(trained, lr=options.lr, betas=options.betas, weight_decay=options.weight_decay),
            config=settings(options, self.ranks),
        )

    def logprobs(self, rows: Rows) -> Tensor:
        """Return the log-probabilities of the tokens trained on: [n]."""
        return self._engine(rows)

    def reference(self, rows: Rows) -> Tensor:
        """Return the same of the model that training began with."""
        with torch.no_grad():
            if self._reference is not None:
                return self._reference(rows)
            with network.without_adapters(self.network):
                return self._engine(rows)

    def backward(self, loss: Tensor, *, last: bool) -> None:
        """Add the gradient of a micro-batch's part of the loss."""
        self._engine.set_gradient_accumulation_boundary(last)
        self._engine.backward(loss * self.ranks)

    def forget(self) -> None:
        """Throw the gradient away."""
        self._engine.zero_grad()

    def step(self, lr: float) -> float:
        """Change the weights; return the gradient's norm, which DeepSpeed knows only after the step."""
        for group in self._optimizer.param_groups:
            group["lr"] = lr
        self._engine.step()
        return float(self._engine.get_global_grad_norm())

    def gather(self, value: Any) -> list[Any]:
        """Return every rank's value."""
        found: list[Any] = [None] * self.ranks
        distributed.all_gather_object(found, value)
        return found

    def weights(self) -> dict[str, Tensor]:
        """Return the model's weights under their own names, adapters merged, on the CPU."""

        def whole(parameters: Sequence[Any]) -> Any:
            return deepspeed.zero.GatheredParameters([each for each in parameters if hasattr(each, "ds_id")])

        return network.merged(self.network, whole, lambda each: each.detach().cpu().clone())

    def save(self, folder: Path) -> None:
        """Write weights, optimizer and random state into a folder: a file a rank."""
        self._engine.save_checkpoint(str(folder), tag=TAG, save_latest=False)

    def load(self, folder: Path) -> None:
        """Take them back. SetupError where they are another model's, or cannot be read."""
        try:
            found, _ = self._engine.load_checkpoint(str(folder), tag=TAG)
        except Exception as error:  # a cut file, another shape, another number of ranks: no common base
            reason = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
            raise SetupError(f"{folder / TAG} cannot be taken up again: {reason}") from error
        if found is None:
            raise SetupError(f"{folder / TAG} cannot be taken up again: there is no such checkpoint")


def settings(options: LearnerOptions, ranks: int) -> dict[str, Json]:
    """Return DeepSpeed's configuration."""
    zero: dict[str, Json] = {"stage": options.zero_stage}
    if options.offload:
        zero["offload_optimizer"] = {"device": "cpu"}
    return {
        # Micro-batches are ours: to DeepSpeed each is one sample, and we say which is the last before a step.
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 1,
        "train_batch_size": ranks,
        "gradient_clipping": options.grad_clip,
        "zero_optimization": zero,
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "bf16": {"enabled": halves(options, network.device_of(options).type)},
        "steps_per_print": 1_000_000_000,
    }
