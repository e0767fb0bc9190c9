"""What stands between a local model's conversation and the engine that computes: token ids in, token ids out.

Decided here: an engine never sees text, a chat template or a tool; it gives back exactly what it sampled, with the
natural logarithm of each token's probability under the temperature and `top_p` it was drawn with, and the version of
the weights that drew it. New weights may arrive between two tokens; `Refresh` says what becomes of the caches.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Protocol

from harness.core import Json, Value
from harness.errors import ModelError

Kind = Literal["hf", "vllm"]
"""What computes: transformers in this process, or vLLM servers that are started for it."""
Refresh = Literal["keep_kv", "recompute_kv", "abort_requeue"]
"""What an update does to episodes under way: go on over the old cache (such tokens are flagged `mixed_kv`), compute the
cache anew under the new weights, or begin the turn again."""


class Ended(ModelError):  # noqa: N818 - an event
    """The engine is no more: it samples again only when it is made anew."""


class Request(Value, frozen=True, kw_only=True):
    """One turn to sample."""

    episode: str
    """Names the episode: its cache, and its replica, are kept from turn to turn."""
    prompt_ids: tuple[int, ...]  # [P]
    max_tokens: int
    temperature: float = 1.0
    """0 is greedy."""
    top_p: float = 1.0
    stop_ids: tuple[int, ...] = ()
    """A turn ends with any of these; it is part of what was sampled."""
    seed: int = 0
    """Draws depend on (seed, position in the turn) alone, not on what else is being sampled, where the engine can."""


class Sampled(Value, frozen=True, kw_only=True):
    """What was sampled in one turn."""

    ids: tuple[int, ...]  # [T]
    logprobs: tuple[float, ...]  # [T] natural log, under temperature and top_p; greedy: under temperature 1
    versions: tuple[int, ...]  # [T]
    mixed_kv: tuple[bool, ...] = ()  # [T] new weights over an older cache; empty is nowhere
    finish: Literal["stop", "length"]
    engine: str
    """Which replica of which engine: `hf:0`, `vllm:127.0.0.1:8001`."""
    seconds: float = 0.0
    cached_tokens: int = 0
    """Of the prompt, those whose cache was there."""


class Sampler(Protocol):
    """An engine with one model's weights, or several replicas of it."""

    name: str
    context: int
    """Tokens of prompt and answer together that it can hold."""

    async def open(self) -> None:
        """Load the weights or start the server. SetupError with the remedy."""
        ...

    async def sample(self, request: Request) -> Sampled:
        """Sample one turn. OutOfContext where it does not fit, ModelError where the engine failed, Ended if it died."""
        ...

    async def release(self, episode: str) -> None:
        """Forget an episode's cache, and end its turn if one is under way."""
        ...

    async def update(self, weights: Json, version: int, refresh: Refresh = "recompute_kv") -> None:
        """Serve the weights in the folder `weights` as `version` from the next token on, and prove it.

        ModelError where the engine's log-probabilities on a fixed probe are not those of the new weights.
        """
        ...

    def protocol(self) -> Mapping[str, Json]:
        """Return what a score depends on: engine, its version, dtype, digest of the weights."""
        ...

    async def close(self) -> None:
        """End it, and every process it started."""
        ...
