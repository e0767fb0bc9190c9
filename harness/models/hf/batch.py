"""Many turns sampled together, token by token: a turn joins when there is room and leaves when it ends.

One `Batch` belongs to one thread. Decided here: a pass is over rows that follow one another, one token each; new turns
are read in first, several together, no more than `READ_TOKENS` a pass, from where their episode's kept cache ends. A
turn without one takes over its beginning from another turn under way whose row was all read under the present weights.
What a turn draws depends on its seed and the position alone: the inverse of the cumulated distribution at one number of
a counter-based generator. Log-probabilities are float32, of the logits divided by the temperature.
"""

from __future__ import annotations

import hashlib
import inspect
import struct
import warnings
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from harness.models.hf import attention
from harness.models.hf.cache import Kept, Rows
from harness.models.hf.graphs import Graphs, on_gpu, widened
from harness.models.sampler import Refresh, Request

READ_TOKENS = 8192
"""Of prompts, in one pass."""
SHARED_LEAST = 16
"""Tokens that two prompts have to begin with alike to share what was read of them."""


class Done(NamedTuple):
    """A turn that ended."""

    request: Request
    ids: list[int]
    logprobs: list[float]
    versions: list[int]
    mixed: list[bool]
    finish: str
    cached: int


class Turn:
    """A turn under way."""

    def __init__(self, request: Request, cached: int, mixed: bool) -> None:
        self.request = request
        self.cached = cached
        """Tokens of prompt and answer whose keys and values the row holds."""
        self.first_cached = cached
        self.mixed_now = mixed
        self.ids: list[int] = []
        self.logprobs: list[float] = []
        self.versions: list[int] = []
        self.mixed: list[bool] = []

    @property
    def tokens(self) -> tuple[int, ...]:
        """Prompt and answer so far."""
        return (*self.request.prompt_ids, *self.ids)

    def unread_tokens(self) -> Sequence[int]:
        """Return the tokens that the row does not hold yet."""
        beyond = self.cached - len(self.request.prompt_ids)
        return self.ids[beyond:] if beyond >= 0 else [*self.request.prompt_ids[self.cached :], *self.ids]

    @property
    def unread(self) -> int:
        """Tokens that the row does not hold yet."""
        return len(self.request.prompt_ids) + len(self.ids) - self.cached

    def finish(self) -> str | None:
        """Say why the turn is over; None while it is not."""
        if self.ids and self.ids[-1] in self.request.stop_ids:
            return "stop"
        return "length" if len(self.ids) >= self.request.max_tokens else None

    def forget(self) -> None:
        """Begin again."""
        self.ids, self.logprobs, self.versions, self.mixed = [], [], [], []
        self.cached, self.mixed_now = 0, False


class Batch:
    """The turns under way and the caches kept, over one model."""

    def __init__(self, model: Any, rows: int, keep_bytes: int) -> None:
        self.model = model
        self.version = 0
        config = model.config
        heads = config.num_key_value_heads
        size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        attention.register(model)
        # Transformers 5.24 began to call it `cache`, and warns of the name that all others have.
        given = inspect.signature(model.base_model.forward).parameters
        self._cache_name = "cache" if "cache" in given else "past_key_values"
        self._device, self._dtype = next(model.parameters()).device, next(model.parameters()).dtype
        self._shared = config.num_attention_heads // heads
        self._rows = Rows(rows, config.num_hidden_layers, heads, size, self._dtype, self._device)
        self._most = rows
        self._graphs: Graphs | None = None
        if self._device.type == "cuda":
            self._graphs = Graphs(self._first_rows, rows, config.vocab_size, self._device, on_gpu)
        self._turns: list[Turn] = []
        """Row by row."""
        self._kept: OrderedDict[str, Kept] = OrderedDict()
        self._keep_bytes, self._kept_bytes = keep_bytes, 0

    @property
    def free(self) -> int:
        """Rows for turns to come."""
        return self._most - len(self._turns)

    @property
    def records(self) -> bool:
        """Whether a pass of one token a row costs little, since it was recorded."""
        return self._graphs is not None

    @property
    def busy(self) -> bool:
        """Whether a turn is under way."""
        return bool(self._turns)

    def join(self, request: Request) -> None:
        """Begin a turn, from its episode's kept cache as far as the prompt is the same."""
        kept, cached = self._drop(request.episode), 0
        if kept is not None and kept.version <= self.version:
            # The last token is always read again: its logits are what the first draw needs.
            cached = min(common(kept.ids, request.prompt_ids), len(request.prompt_ids) - 1)
        turn = Turn(request, cached, bool(kept and cached and (kept.mixed or kept.version != self.version)))
        if kept is not None and cached:
            self._rows.put(len(self._turns), kept.layers, cached)
        else:
            turn.cached = turn.first_cached = self._share(request.prompt_ids)
        self._turns.append(turn)

    def _share(self, prompt: Sequence[int]) -> int:
        """Fill the next row from the one that begins most like a prompt; return how many tokens it holds then."""
        length, row = max(
            (
                (min(common(turn.request.prompt_ids, prompt), turn.cached + turn.unread - 1, len(prompt) - 1), row)
                for row, turn in enumerate(self._turns)
                if not turn.mixed_now
            ),
            default=(0, 0),
        )
        if length < SHARED_LEAST:
            return 0
        if self._turns[row].cached < length:
            self._pass(row, [self._turns[row].unread_tokens()[:-1]])
        self._rows.move(row, len(self._turns), length)
        return length

    def step(self) -> list[Done]:
        """Sample one token of every turn; return the turns that ended."""
        self._read_prompts()
        logits = self._pass(0, [turn.unread_tokens() for turn in self._turns])
        self._draw(logits)
        return self._leave()

    def _read_prompts(self) -> None:
        """Read all but the last token of every prompt that is new."""
        for start, end in groups([turn.unread - 1 for turn in self._turns]):
            self._pass(start, [turn.unread_tokens()[:-1] for turn in self._turns[start:end]])

    def _pass(self, first: int, tokens: Sequence[Sequence[int]]) -> torch.Tensor:
        """Read tokens of neighbouring rows. Return the logits behind each row's last: [rows, vocabulary]."""
        turns = self._turns[first : first + len(tokens)]
        longest = max(len(row) for row in tokens)
        starts = [turn.cached for turn in turns]
        widths = [start + longest for start in starts]
        width = max(widths)
        logits = None
        if longest == 1 and len(tokens) == len(self._turns):
            logits = self._replayed([row[0] for row in tokens], starts, width)
        if logits is None:
            self._rows.reserve(width)
            ids = torch.tensor([[*row, *[0] * (longest - len(row))] for row in tokens], device=self._device)
            positions = torch.tensor(starts, device=self._device)[:, None]
            positions = positions + torch.arange(longest, device=self._device)
            last = torch.tensor([len(row) - 1 for row in tokens], device=self._device)
            runs = attention.runs(widths, longest) if self._device.type == "cpu" else []
            logits = self._compute(first, ids, positions, width, last, runs)
        for turn, row in zip(turns, tokens, strict=True):
            turn.cached += len(row)
        return logits

    def _replayed(self, ids: Sequence[int], positions: Sequence[int], width: int) -> torch.Tensor | None:
        """Read one token of every turn by a recorded pass; None where there is no such thing."""
        if self._graphs is None:
            return None
        self._rows.reserve(widened(width))
        try:
            return self._graphs(ids, positions, widened(width), self._rows.moves)
        except RuntimeError as error:  # a model that waits for its GPU somewhere, or too little memory
            reason = str(error).splitlines()[0][:200]
            warnings.warn(f"passes cannot be recorded, so each token takes longer: {reason}", stacklevel=1)
            self._graphs = None
            return None

    def _first_rows(self, ids: torch.Tensor, positions: torch.Tensor, width: int) -> torch.Tensor:
        """Read one token of each of the first rows."""
        return self._compute(0, ids, positions, width, torch.zeros_like(ids[:, 0]), ())

    def _compute(
        self,
        first: int,
        ids: torch.Tensor,
        positions: torch.Tensor,
        width: int,
        last: torch.Tensor,
        runs: Sequence[attention.Run],
    ) -> torch.Tensor:
        """Do a pass, all of it on the device. Return the logits behind each row's last token: [rows, vocabulary].

        Args:
            first: of the rows.
            ids: [rows, tokens].
            positions: where they stand, [rows, tokens].
            width: positions that attention may look at.
            last: place of each row's last token, [rows].
            runs: calls of attention, see there.
        """
        self._rows.prepare(first, positions, width)
        # What lies behind a row's own tokens is never looked at, and is written over when its turn comes.
        seen = torch.arange(width, device=self._device) <= positions[:, None, :, None]  # [rows, 1, tokens, width]
        mask = torch.zeros((), dtype=self._dtype, device=self._device).where(seen, float("-inf"))
        if ids.shape[1] > 1:
            mask = mask.repeat(1, 1, self._shared, 1)
        with torch.inference_mode():
            hidden = self.model.base_model(
                input_ids=ids,
                attention_mask=mask,
                position_ids=positions,
                use_cache=True,
                runs=runs,
                **{self._cache_name: self._rows},
            )[0]
            rows = torch.arange(len(ids), device=self._device)
            return self.model.get_output_embeddings()(hidden[rows, last]).float()

    def _draw(self, logits: torch.Tensor) -> None:
        requests = [turn.request for turn in self._turns]
        heat = torch.tensor([request.temperature or 1.0 for request in requests], device=self._device)
        logprobs = torch.log_softmax(logits / heat[:, None], dim=-1)  # [rows, vocabulary]
        top_p = [request.top_p if request.temperature > 0 else 1.0 for request in requests]
        if min(top_p) < 1:
            logprobs = nucleus(logprobs, torch.tensor(top_p, device=self._device))
        chosen = logprobs.argmax(dim=-1)
        if any(request.temperature > 0 for request in requests):
            numbers = [uniform(turn.request.seed, len(turn.ids)) for turn in self._turns]
            drawn = inverse(logprobs, torch.tensor(numbers, dtype=torch.float64, device=self._device))
            chosen = torch.where(
                torch.tensor([r.temperature > 0 for r in requests], device=self._device), drawn, chosen
            )
        values = logprobs.gather(1, chosen[:, None])[:, 0].tolist()
        for turn, token, value in zip(self._turns, chosen.tolist(), values, strict=True):
            turn.ids.append(token)
            turn.logprobs.append(value)
            turn.versions.append(self.version)
            turn.mixed.append(turn.mixed_now)

    def _leave(self) -> list[Done]:
        done = []
        for row in reversed(range(len(self._turns))):
            turn = self._turns[row]
            why = turn.finish()
            if why is None:
                continue
            self._keep(row)
            done.append(Done(turn.request, turn.ids, turn.logprobs, turn.versions, turn.mixed, why, turn.first_cached))
            self._remove(row)
        return done

    def _remove(self, row: int) -> None:
        """Let the last row take the place of one that is free."""
        last = len(self._turns) - 1
        if row != last:
            self._rows.move(last, row, self._turns[last].cached)
            self._turns[row] = self._turns[last]
        self._turns.pop()

    def _keep(self, row: int) -> None:
        turn = self._turns[row]
        kept = Kept(turn.tokens[: turn.cached], self._rows.take(row, turn.cached), self.version, any(turn.mixed))
        self._drop(turn.request.episode)
        self._kept[turn.request.episode] = kept
        self._kept_bytes += kept.bytes
        while self._kept_bytes > self._keep_bytes:
            self._drop(next(iter(self._kept)))

    def _drop(self, episode: str) -> Kept | None:
        kept = self._kept.pop(episode, None)
        self._kept_bytes -= kept.bytes if kept else 0
        return kept

    def release(self, episode: str) -> None:
        """Forget an episode, its turn included."""
        self._drop(episode)
        for row in reversed(range(len(self._turns))):
            if self._turns[row].request.episode == episode:
                self._remove(row)

    def updated(self, version: int, refresh: Refresh) -> None:
        """Go on under new weights."""
        self.version = version
        if refresh != "keep_kv":
            self._kept.clear()
            self._kept_bytes = 0
        for turn in self._turns:
            if refresh == "keep_kv":
                turn.mixed_now = turn.mixed_now or turn.cached > 0
            elif refresh == "recompute_kv":
                turn.cached, turn.mixed_now = 0, False
            else:
                turn.forget()


def groups(unread: Sequence[int]) -> list[tuple[int, int]]:
    """Return runs of neighbours with something to read, each of at most `READ_TOKENS` when filled up to its longest."""
    found: list[tuple[int, int]] = []
    start = 0
    while start < len(unread):
        if unread[start] <= 0:
            start += 1
            continue
        end, longest = start, 0
        while end < len(unread) and unread[end] > 0:
            longest = max(longest, unread[end])
            if end > start and longest * (end + 1 - start) > READ_TOKENS:
                break
            end += 1
        found.append((start, end))
        start = end
    return found


def common(one: Sequence[int], other: Sequence[int]) -> int:
    """Return how many tokens two sequences begin with alike."""
    least = min(len(one), len(other))
    blocks = range(0, least, 64)
    start = next((place for place in blocks if one[place : place + 64] != other[place : place + 64]), least)
    return next((place for place in range(start, min(start + 64, least)) if one[place] != other[place]), least)


def uniform(seed: int, position: int) -> float:
    """Return a number in [0, 1) that depends on its arguments alone."""
    digest = hashlib.blake2b(struct.pack("<Qq", seed % 2**64, position), digest_size=8).digest()
    return int(struct.unpack("<Q", digest)[0] >> 11) / 2.0**53


def inverse(logprobs: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
    """Return the tokens at which the cumulated distribution passes the numbers: [rows]."""
    cumulated = logprobs.double().exp().cumsum(dim=-1)
    targets = (numbers * cumulated[:, -1])[:, None]
    places = torch.searchsorted(cumulated, targets, right=True)[:, 0]
    # A token of probability zero is never the place: the sum does not rise there.
    return places.clamp(max=logprobs.shape[1] - 1)


def nucleus(logprobs: torch.Tensor, top_p: torch.Tensor) -> torch.Tensor:
    """Return the distribution over the likeliest tokens that together have `top_p`: [rows, vocabulary]."""
    ordered, places = logprobs.sort(dim=-1, descending=True)
    before = ordered.exp().cumsum(dim=-1) - ordered.exp()
    ordered = ordered.masked_fill(before >= top_p[:, None], float("-inf"))
    return torch.empty_like(logprobs).scatter_(1, places, ordered.log_softmax(dim=-1))
