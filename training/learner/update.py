"""One batch to new weights, whatever computes: mini-batches, micro-batches, loss, step.

Decided here: what a token weighs is known before anything is computed, so every split gives the same loss; the
trainer's log-probabilities at the start (prox) are computed in the very micro-batches that are trained on, so that the
first mini-batch's ratio is 1 and not nearly 1. Which groups share a mini-batch depends on (seed, version) alone, so a
resumed run draws as an uninterrupted one. A loss or a gradient that is no finite number changes nothing and ends the
run with a sentence.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import torch
from torch import Tensor

from harness.core import seed_of
from harness.errors import SetupError
from training import losses, packing
from training.learner import report
from training.learner.backend import Backend
from training.learner.options import LearnerOptions, LossOptions, fallen
from training.packing import Rows
from training.values import Metrics, Sample

STEPS_FILE = "steps.json"


@dataclass(slots=True)
class Micro:
    """A micro-batch of this rank and what was computed of it before the update."""

    rows: Rows
    idle: bool
    """Of no weight: there so that all ranks have as many."""
    gold: bool = False
    """Learnt as it is, whatever it is worth."""
    prox: Tensor | None = None
    reference: Tensor | None = None


class Step(NamedTuple):
    """An optimizer step that was taken."""

    loss: float
    gold: float
    """What gold play has in the loss."""
    norm: float
    lr: float
    records: list[report.Record]


class Learner:
    """A backend, and how far it has come."""

    def __init__(self, backend: Backend, options: LearnerOptions) -> None:
        self.backend = backend
        self.options = options
        self.steps = 0
        """Optimizer steps so far."""

    def update(self, samples: Sequence[Sample], version: int, gold: Sequence[Sample] = ()) -> Metrics:
        """Train on one batch by the policy loss.

        Args:
            samples: of the whole batch, the same on every rank.
            version: of the weights that it begins with.
            gold: whose log-likelihood is learnt beside, each token by its advantage and coefficient.

        Raises:
            SetupError: the loss or its gradient is no finite number; the step was not taken.
        """
        parts = self._minibatches(samples, version)
        if not parts:
            return {"tokens/trained": 0, "loss": 0.0}
        # Shared out one by one: each mini-batch has as many of them as can be.
        plan = [
            [*self._micros(part), *self._micros(gold[number :: len(parts)], gold=True)]
            for number, part in enumerate(parts)
        ]
        self._before(plan)
        done = [
            self._minibatch(micros, version, first=epoch == number == 0, scale=len(plan))
            for epoch in range(self.options.epochs)
            for number, micros in enumerate(plan)
        ]
        recorded = [record for one in done for record in one.records]
        records = [record for part in self.backend.gather(recorded) for record in part]
        return {
            "loss": float(np.mean([one.loss for one in done])),
            "grad_norm": float(np.mean([one.norm for one in done])),
            "grad_norm/max": max(one.norm for one in done),
            "lr": done[-1].lr,
            "steps": self.steps,
            "tokens/computed": sum(micro.rows.size for micros in plan for micro in micros) * self.options.epochs,
            "tokens/read": sum(micro.rows.tokens_read for micros in plan for micro in micros) * self.options.epochs,
            **({"ptx/loss": float(np.mean([one.gold for one in done]))} if gold else {}),
            **report.metrics(records, version, self.options.epochs),
        }

    def logprobs(self, samples: Sequence[Sample]) -> Iterator[tuple[Sequence[Sample], Any]]:
        """Yield micro-batches of samples with the log-probabilities of their trained tokens, one after another: [n]."""
        for batch in packing.plan(samples, self.options.micro_tokens, self.options.packed):
            with torch.no_grad():
                values = self.backend.logprobs(packing.rows(batch, self.options.packed))
            yield [sample for row in batch for sample in row], values.cpu().numpy()

    def rate(self, version: int) -> float:
        """Return the learning rate of the next step, under weights of a version."""
        risen = min(1.0, (self.steps + 1) / (self.options.warmup + 1))
        falls = self.options.schedule == "cosine" and self.options.updates > 0
        return self.options.lr * risen * (fallen(version / self.options.updates) if falls else 1.0)

    def weights(self) -> dict[str, Tensor]:
        """Return the model's weights under their own names, adapters merged. Every rank must ask."""
        return self.backend.weights()

    def save(self, folder: Path) -> None:
        """Write everything that the next update depends on into an existing folder. Every rank must ask."""
        self.backend.save(folder)
        if self.backend.rank == 0:
            (folder / STEPS_FILE).write_bytes(msgspec.json.encode({"steps": self.steps}))

    def load(self, folder: Path) -> None:
        """Go on from what was saved. SetupError where it is another model's, or cannot be read."""
        self.backend.load(folder)
        try:
            self.steps = msgspec.json.decode((folder / STEPS_FILE).read_bytes(), type=dict[str, int])["steps"]
        except (OSError, KeyError, msgspec.MsgspecError) as error:
            raise SetupError(f"{folder / STEPS_FILE} cannot be taken up again: {error}") from error

    def _minibatches(self, samples: Sequence[Sample], version: int) -> list[list[Sample]]:
        """Split a batch by groups, shuffled, into parts of as equal a number as can be, without what has no gradient.

        Attempts of no advantage anywhere cost time and change nothing, unless they are held to the model that training
        began with.
        """
        held = self.options.loss.kl > 0
        useful = [sample for sample in samples if sample.kept.any() and (held or sample.advantages[sample.kept].any())]
        groups = sorted({sample.group_id for sample in useful})
        order = np.random.default_rng(seed_of(self.options.seed, "minibatches", version)).permutation(len(groups))
        count = min(self.options.minibatches, len(groups))
        parts = np.array_split(order, count) if count else []
        chosen = [{groups[place] for place in part} for part in parts]
        return [[sample for sample in useful if sample.group_id in part] for part in chosen]

    def _micros(self, samples: Sequence[Sample], *, gold: bool = False) -> list[Micro]:
        """Return this rank's micro-batches of a mini-batch; every rank has as many."""
        plan = packing.plan(samples, self.options.micro_tokens, self.options.packed)
        each = math.ceil(len(plan) / self.backend.ranks)
        places = [self.backend.rank + turn * self.backend.ranks for turn in range(each)]
        return [
            Micro(packing.rows(plan[min(place, len(plan) - 1)], self.options.packed), place >= len(plan), gold)
            for place in places
        ]

    def _before(self, plan: Sequence[Sequence[Micro]]) -> None:
        """Compute what the loss needs of the weights as they are."""
        wanted = self.options.loss
        for micro in (micro for micros in plan for micro in micros if not micro.gold):
            if wanted.correction != "bypass" and wanted.prox == "recompute":
                with torch.no_grad():
                    micro.prox = self.backend.logprobs(micro.rows)
            if wanted.kl > 0:
                micro.reference = self.backend.reference(micro.rows)

    def _minibatch(self, micros: Sequence[Micro], version: int, *, first: bool, scale: int) -> Step:
        """Take one step."""
        own, beside, records = 0.0, 0.0, []
        for place, micro in enumerate(micros):
            if micro.gold:
                part = self._supervised(micro, scale)
                beside += float(part.detach())
            else:
                part, recorded = self._policy(micro, version, first=first, scale=scale)
                own += float(part.detach())
                records += [] if micro.idle else [recorded]
            self.backend.backward(part, last=place == len(micros) - 1)
        own, beside = map(sum, zip(*self.backend.gather((own, beside)), strict=True))
        whole, rate = own + beside, self.rate(version)
        return Step(whole, beside, self._step(whole, rate), rate, records)

    def _supervised(self, micro: Micro, scale: int) -> Tensor:
        """Return a micro-batch of gold play's part of its mini-batch's loss."""
        logprobs = self.backend.logprobs(micro.rows)
        worth = torch.from_numpy(micro.rows.tokens.advantages).to(logprobs.device)
        return -(logprobs.double() * worth * _coefficients(micro, scale, logprobs.device)).sum()

    def _policy(self, micro: Micro, version: int, *, first: bool, scale: int) -> tuple[Tensor, report.Record]:
        """Return a micro-batch's part of its mini-batch's loss, and what to report of it."""
        wanted, tokens = self.options.loss, micro.rows.tokens
        new = self.backend.logprobs(micro.rows)
        behaviour = torch.from_numpy(tokens.logprobs).to(new.device)
        prox = micro.prox
        if wanted.correction != "bypass" and wanted.prox == "log_linear":
            versions = torch.from_numpy(tokens.versions).to(new.device)
            # The weights that this update makes are of the next version.
            prox = losses.log_linear(new, behaviour, versions, version, version + 1)
        terms = policy_terms(wanted, new, behaviour, micro.rows, prox)
        each = terms.loss
        if micro.reference is not None:
            apart = losses.weighted_k3(micro.reference, new, behaviour) if wanted.kl_weighted else None
            each = each + wanted.kl * (losses.k3(micro.reference, new) if apart is None else apart)
        parts = each.double() * _coefficients(micro, scale, new.device)
        start = new.detach() if micro.prox is None else micro.prox
        recorded = report.record(
            micro.rows,
            terms,
            parts.detach().cpu().numpy(),
            (start - behaviour).cpu().numpy(),
            first=first,
            fresh=first or micro.prox is not None,
        )
        return parts.sum(), recorded

    def _step(self, loss: float, rate: float) -> float:
        """Change the weights; return the gradient's norm."""
        norm = self.backend.step(rate) if math.isfinite(loss) else math.nan
        if not math.isfinite(norm):
            self.backend.forget()
            what = f"the loss is {loss}" if not math.isfinite(loss) else f"the gradient's norm is {norm}"
            raise SetupError(
                f"after {self.steps} optimizer steps {what}, and the step was not taken: begin a run of a lower "
                f"learner.lr (it was {rate:.3g}), or of learner.precision float32, from this one's weights "
                "(begin.model, begin.warm_start = none)"
            )
        self.steps += 1
        return norm


def policy_terms(wanted: LossOptions, new: Tensor, behaviour: Tensor, rows: Rows, prox: Tensor | None) -> losses.Terms:
    """Return the terms of the loss that is wanted."""
    return losses.policy(
        new,
        behaviour,
        torch.from_numpy(rows.tokens.advantages).to(new.device),
        torch.from_numpy(rows.tokens.turns).to(new.device),
        prox=prox,
        correction=wanted.correction,
        objective=wanted.objective,
        clip=losses.Clip(wanted.clip_low, wanted.clip_high, wanted.dual_clip),
        cap=wanted.cap,
        band=wanted.band,
        veto=wanted.veto,
    )


def _coefficients(micro: Micro, scale: int, device: torch.device) -> Tensor:
    """Return each token's factor; the mean over the mini-batches is then the batch's loss."""
    values = micro.rows.tokens.coefficients * (0.0 if micro.idle else float(scale))
    return torch.from_numpy(values).to(device)
