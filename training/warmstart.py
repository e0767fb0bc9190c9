"""Supervised fine-tuning: a model learns to play as given trajectories were played.

Decided here: what is learnt is exactly what the model would have had to sample, ids and all, by the same rendering as a
rollout; only the assistant's tokens count, each alike. Play of any split but `train` is refused: by the trajectory's
own word, and by the digests of the test and validation tasks.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import msgspec
import numpy as np

from harness.core import Count, Natural, Tokens, Trajectory, Value
from harness.errors import SetupError
from harness.models.render import Dialogue, Renderer
from training import packing, samples
from training.learner.options import Optimizer, Precision, fallen
from training.values import Bools, Ints, Sample, Segment

if TYPE_CHECKING:
    from training.learner.backend import Backend

OBSERVED_UNTIL = 0.7
ALIKE = 32
"""Steps whose segments, drawn by lot together, are dealt out by length: those of one step waste little padding."""


class WarmStartOptions(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a model learns from play."""

    lr: Annotated[float, msgspec.Meta(gt=0)] = 1e-3
    optimizer: Optimizer = "adamw"
    """See `LearnerOptions`."""
    warmup: Natural = 10
    epochs: Count = 3
    sequences: Count = 16
    """Segments of one step."""
    seconds: Annotated[float, msgspec.Meta(gt=0)] | None = None
    """It stops there, its learning rate fallen all the same; None is no bound."""
    micro_tokens: Count = 16384
    observed: Annotated[float, msgspec.Meta(ge=0, lt=1)] = 0.0
    """What a token that the model was told weighs beside one that it says. It falls to 0 until `OBSERVED_UNTIL` of the
    way: a model from nothing learns the language faster so, and in the end it learns to play."""
    precision: Precision = "float32"
    seed: int = 0


class Progress(Value, frozen=True, kw_only=True):
    """How far it has come."""

    step: int
    share: float
    """Of all there is to do, in [0, 1]."""
    loss: float
    """Nats a token, mean over the step."""
    tokens: int
    """Learnt from so far."""
    seconds: float


START = Progress(step=0, share=0.0, loss=math.nan, tokens=0, seconds=0.0)


def demonstration(renderer: Renderer, trajectory: Trajectory) -> tuple[Segment, ...]:
    """Return a trajectory as the token sequences that the model would have had to sample."""
    dialogue, history, tools = Dialogue(renderer), list(trajectory.opening), trajectory.tools
    turns: list[Tokens] = []
    for turn in trajectory.turns:
        prompt = dialogue.prompt(history, tools)
        ids = dialogue.demonstrated(turn.reply.message)
        dialogue.sampled(ids)
        count = len(ids)
        turns.append(
            Tokens(
                prompt_ids=prompt,
                sampled_ids=ids,
                logprobs=(0.0,) * count,
                versions=(0,) * count,
                mask=(True,) * count,
                engine="demonstration",
                temperature=1.0,
            )
        )
        history += [turn.reply.message, *turn.messages]
        tools = tools if turn.tools is None else turn.tools
    return samples.segments(turns)


def require_train(trajectories: Iterable[Trajectory], held_out: Collection[str]) -> None:
    """Refuse play that is not of a train split, or of a task that a held-out split has too."""
    for trajectory in trajectories:
        if not trajectory.split.startswith("train"):
            raise SetupError(
                f"{trajectory.env} task {trajectory.task_id} is of split '{trajectory.split}': "
                "a model learns from train splits alone"
            )
        if trajectory.digest in held_out:
            raise SetupError(f"{trajectory.env} task {trajectory.task_id} is also in a held-out split: leave it out")


def fit(
    backend: Backend,
    segments: Sequence[Segment],
    options: WarmStartOptions,
    say: Callable[[Progress], None] = lambda _: None,
    progress: Progress = START,
) -> Progress:
    """Learn from token sequences by cross-entropy. Returns how far it came.

    Args:
        backend: what learns.
        segments: token sequences.
        options: how.
        say: is told of each step.
        progress: how far the backend has come already.

    Raises:
        SetupError: there is nothing to learn from, or the loss is no finite number.
    """
    segments = [segment for segment in segments if segment.tokens]
    if not segments:
        raise SetupError("there is nothing to learn from: no play has a turn of the assistant's")
    steps = options.epochs * math.ceil(len(segments) / options.sequences)
    begun = time.monotonic() - progress.seconds
    for number, batch in islice(enumerate(batches(segments, options), 1), progress.step, None):
        if progress.share >= 1:
            break
        seconds = time.monotonic() - begun
        share = max(number / steps, seconds / options.seconds if options.seconds else 0.0)
        observed = options.observed * max(0.0, 1 - share / OBSERVED_UNTIL)
        loss = step(backend, batch, rate(options, number, share), options.micro_tokens, observed)
        progress = Progress(
            step=number,
            share=min(1.0, share),
            loss=loss,
            tokens=progress.tokens + sum(segment.tokens for segment in batch),
            seconds=time.monotonic() - begun,
        )
        say(progress)
    return progress


def rate(options: WarmStartOptions, step: int, share: float) -> float:
    """Return the learning rate: it rises over `warmup` steps, then falls on a cosine to a tenth."""
    risen = min(1.0, step / (options.warmup + 1))
    return options.lr * risen * fallen(share)


def batches(segments: Sequence[Segment], options: WarmStartOptions) -> Iterator[Sequence[Segment]]:
    """Yield the segments of each step: an epoch has each once, by lot, beside others of about its length."""
    draw = random.Random(options.seed)
    for _ in range(options.epochs):
        order = list(segments)
        draw.shuffle(order)
        for part in _cut(order, ALIKE * options.sequences):
            steps = _cut(sorted(part, key=lambda segment: len(segment.ids)), options.sequences)
            draw.shuffle(steps)
            yield from steps


def _cut(segments: Sequence[Segment], size: int) -> list[Sequence[Segment]]:
    return [segments[start : start + size] for start in range(0, len(segments), size)]


def step(backend: Backend, batch: Sequence[Segment], lr: float, micro_tokens: int, observed: float = 0.0) -> float:
    """Learn from one batch; return the loss before, in nats a token of the assistant's.

    Args:
        backend: what learns.
        batch: token sequences.
        lr: learning rate.
        micro_tokens: positions of one pass.
        observed: what each other token weighs in what is learnt, beside 1 of the assistant's.

    Raises:
        SetupError: the loss is no finite number; nothing was learnt from the batch.
    """
    import torch

    total = sum(segment.tokens for segment in batch)
    made = [sample(segment, number, 1 / total, observed) for number, segment in enumerate(batch)]
    micros = packing.plan(made, micro_tokens, packed=False)
    loss = 0.0
    for number, micro in enumerate(micros):
        rows = packing.rows(micro, packed=False)
        logprobs = backend.logprobs(rows)
        said = torch.from_numpy(rows.tokens.coefficients * (rows.tokens.advantages == 1)).to(logprobs.device)
        weights = torch.from_numpy(rows.tokens.coefficients * rows.tokens.advantages).to(logprobs.device)
        backend.backward(-(logprobs.double() * weights).sum(), last=number == len(micros) - 1)
        loss -= float((logprobs.detach().double() * said).sum())
    if not math.isfinite(loss):
        backend.forget()
        raise SetupError(f"the loss of supervised fine-tuning is {loss}, no finite number: lower its learning rate")
    backend.step(lr)
    return loss


def segment(ids: Ints, mask: Bools) -> Segment:
    """Return token ids as a sequence to learn from, of which the masked are what is to be said."""
    return Segment(
        ids=ids.astype(np.int32),
        mask=mask,
        logprobs=np.zeros(len(ids), np.float32),
        versions=np.where(mask, 0, -1),
        pools=np.where(mask, 0, -1).astype(np.int16),
        turns=np.zeros(len(ids), np.int32),
        mixed_kv=np.zeros(len(ids), np.bool_),
        temperature=1.0,
    )


def sample(segment: Segment, number: int, coefficient: float, observed: float = 0.0) -> Sample:
    """Return a sequence with what its tokens weigh where a sample has their advantages."""
    weights = segment.mask.astype(np.float32)
    kept = segment.mask
    if observed > 0:
        weights = np.where(segment.mask, np.float32(1), np.float32(observed))
        kept = np.ones_like(segment.mask)
        kept[0] = False  # nothing comes before it that it could be predicted from
    return Sample(
        segment=segment,
        env="demonstration",
        group_id=number,
        attempt=0,
        advantages=weights,
        kept=kept,
        coefficient=coefficient,
    )
