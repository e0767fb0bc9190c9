"""The learner's backend on plain torch: one process with a CPU or a GPU, or several that share the micro-batches.

Decided here: what is trained is float32, with its optimizer; under `bfloat16` the passes are not, nor weights that stay
as they are. Where a process group is initialised, each rank holds the whole model, and the gradients are summed once,
before the step.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, distributed

from harness.errors import SetupError
from training.learner import network
from training.learner.muon import Muon
from training.learner.network import Scorer
from training.learner.options import LearnerOptions
from training.packing import Rows

FILE = "learner.pt"
MATRIX = 2


class TorchBackend:
    """A model, its gradients and its optimizers."""

    def __init__(self, folder: Path, options: LearnerOptions) -> None:
        if options.deterministic:
            torch.set_num_threads(1)
            torch.use_deterministic_algorithms(True)
        together = distributed.is_available() and distributed.is_initialized()
        self.rank = distributed.get_rank() if together else 0
        self.ranks = distributed.get_world_size() if together else 1
        self.network = network.load(folder, options)
        self._scorer = Scorer(self.network, options)
        self._adapted = options.lora is not None
        self._reference: Scorer | None = None
        if options.loss.kl > 0 and not self._adapted:
            self._reference = Scorer(copy.deepcopy(self.network).requires_grad_(False), options)
        self._trained = {name: each for name, each in self.network.named_parameters() if each.requires_grad}
        self._grad_clip = options.grad_clip
        self._optimizers = _optimizers(self.network, self._trained.values(), options)

    def logprobs(self, rows: Rows) -> Tensor:
        """Return the log-probabilities of the tokens trained on: [n]."""
        return self._scorer(rows)

    def reference(self, rows: Rows) -> Tensor:
        """Return the same of the model that training began with."""
        with torch.no_grad():
            if self._reference is not None:
                return self._reference(rows)
            with network.without_adapters(self.network):
                return self._scorer(rows)

    def backward(self, loss: Tensor, *, last: bool) -> None:
        """Add the gradient of a micro-batch's part of the loss."""
        loss.backward()

    def forget(self) -> None:
        """Throw the gradient away."""
        for optimizer in self._optimizers:
            optimizer.zero_grad(set_to_none=True)

    def step(self, lr: float) -> float:
        """Change the weights; return the gradient's norm before it was clipped."""
        if self.ranks > 1:
            for each in self._trained.values():
                each.grad = torch.zeros_like(each) if each.grad is None else each.grad
                distributed.all_reduce(each.grad)
        norm = float(torch.nn.utils.clip_grad_norm_(self._trained.values(), self._grad_clip))
        if norm < float("inf"):
            for optimizer in self._optimizers:
                for group in optimizer.param_groups:
                    group["lr"] = lr
                optimizer.step()
        self.forget()
        return norm

    def gather(self, value: Any) -> list[Any]:
        """Return every rank's value."""
        found: list[Any] = [value] * self.ranks
        if self.ranks > 1:
            distributed.all_gather_object(found, value)
        return found

    def weights(self) -> dict[str, Tensor]:
        """Return the model's weights under their own names, adapters merged."""
        return network.merged(self.network)

    def save(self, folder: Path) -> None:
        """Write weights, optimizer and random state into a folder."""
        if self.rank:
            return
        cuda = self.network.device.type == "cuda"
        state = {
            "weights": {name: each.detach() for name, each in self._trained.items()},
            "optimizers": [optimizer.state_dict() for optimizer in self._optimizers],
            "random": torch.get_rng_state(),
            "random_cuda": torch.cuda.get_rng_state(self.network.device) if cuda else None,
        }
        torch.save(state, folder / FILE)

    def load(self, folder: Path) -> None:
        """Take them back. SetupError where they are another model's, or cannot be read."""
        path = folder / FILE
        try:
            state = torch.load(path, map_location="cpu", weights_only=True)
            with torch.no_grad():
                if set(state["weights"]) != set(self._trained):
                    raise ValueError("it holds weights of other names")
                for name, each in self._trained.items():
                    each.copy_(state["weights"][name])
            for optimizer, saved in zip(self._optimizers, state["optimizers"], strict=True):
                optimizer.load_state_dict(saved)
            torch.set_rng_state(state["random"])
            if state["random_cuda"] is not None and self.network.device.type == "cuda":
                torch.cuda.set_rng_state(state["random_cuda"], self.network.device)
        except Exception as error:  # a cut file, another shape, another version: no common base
            reason = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
            raise SetupError(f"{path} cannot be taken up again: {reason}") from error


def _optimizers(model: Any, trained: Iterable[Tensor], options: LearnerOptions) -> list[torch.optim.Optimizer]:
    """Return what changes the weights: AdamW, and Muon of the matrices that lie between embedding and head."""
    ends = {id(each.weight) for each in (model.get_input_embeddings(), model.get_output_embeddings()) if each}
    matrices: list[Tensor] = []
    others: list[Tensor] = []
    for each in trained:
        turned = options.optimizer == "muon" and each.ndim == MATRIX and id(each) not in ends
        (matrices if turned else others).append(each)
    given: dict[str, Any] = {"lr": options.lr, "weight_decay": options.weight_decay}
    made: list[torch.optim.Optimizer] = []
    if others:  # with adapters there may be nothing but matrices
        fused = model.device.type == "cuda"
        made.append(torch.optim.AdamW(others, betas=options.betas, fused=fused, **given))
    if matrices:
        made.append(Muon(matrices, **given))
    return made
