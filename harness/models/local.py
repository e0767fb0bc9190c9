"""A model whose tokens are ours: rendering, tool calls and the record of what was sampled, over any `Sampler`.

Every reply has its `Tokens`: the exact prompt, what was sampled, the log-probabilities and weight versions, so that an
evaluation and a training rollout are the same thing. What the sampler does not know (messages, tools, templates) is
decided here, once for all engines.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.config import LocalOptions
from harness.core import Json, Message, Reply, SamplingParams, Tokens, ToolCall, ToolSpec, Usage, seed_of
from harness.errors import ModelError, OutOfContext, SetupError
from harness.models import toolcalls, wire
from harness.models.render import Dialogue, Renderer
from harness.models.sampler import Refresh, Request, Sampled, Sampler

REFUSED = ("reasoning_effort", "thinking_tokens")
"""Sampling parameters that mean nothing to a model on disk."""
OPENING_IDS = 16
"""Of a prompt's end: those of `<think>` and a line break, with room for a tokenizer that knows neither."""


class LocalModel:
    """One model on disk and the engine that computes it. Loaded by the first use."""

    def __init__(self, name: str, folder: Path, sampler: Sampler, options: LocalOptions) -> None:
        self.name = name
        self.sampler = sampler
        self.forks = 0
        """How often a chat template rewrote a history, over all episodes."""
        self._options = options
        self._tokenizer = load_tokenizer(folder)
        self._stop_ids = stop_ids(folder, self._tokenizer)
        self.renderer = Renderer(self._tokenizer, self._stop_ids, options.template, options.tool_style)
        self.style = self.renderer.style
        self._opening = asyncio.Lock()
        self._open = False

    async def opened(self) -> Sampler:
        """Return the sampler, loaded. SetupError with the remedy where it cannot be."""
        async with self._opening:
            if not self._open:
                await self.sampler.open()
                self._open = True
        return self.sampler

    def open(self, episode: str, seed: int) -> LocalConversation:
        """Begin an episode's conversation."""
        return LocalConversation(self, episode, seed, self._options.answer_tokens)

    def protocol(self) -> Mapping[str, Json]:
        """Return what a score depends on beyond name and sampling."""
        return {
            "engine": dict(self.sampler.protocol()),
            "tool_style": self.style,
            "template": str(self._tokenizer.chat_template),
            "template_settings": dict(self._options.template),
            "stop_ids": list(self._stop_ids),
            "answer_tokens": self._options.answer_tokens,
        }

    async def check(self, params: SamplingParams, *, tools: bool) -> None:
        """Load it and sample one token. SetupError with what mends what it finds."""
        require_parameters(params)
        if tools and self.style == toolcalls.NONE:
            raise SetupError(
                f"the chat template of {self.name} says nothing of tools: give connection.local.tool_style, "
                "or play with --agent react"
            )
        sampler = await self.opened()
        conversation = LocalConversation(self, "check", 0, 1)
        try:
            await conversation.generate([Message(role="user", content="Hello")], [], SamplingParams())
        except ModelError as error:
            raise SetupError(f"{self.name}: {error}") from error
        finally:
            await sampler.release("check")

    async def update(self, weights: Json, version: int, refresh: Refresh = "recompute_kv") -> None:
        """Serve the weights in the folder `weights` as `version` from the next token on."""
        await (await self.opened()).update(weights, version, refresh)

    async def close(self) -> None:
        """End the engine."""
        async with self._opening:
            if self._open:
                self._open = False
                await self.sampler.close()


class LocalConversation:
    """One episode."""

    def __init__(self, model: LocalModel, episode: str, seed: int, answer_tokens: int) -> None:
        self._model = model
        self._episode = episode
        self._seed = seed
        self._answer_tokens = answer_tokens
        self._dialogue = Dialogue(model.renderer)
        self._turn = 0
        self._ids: set[str] = set()
        """Of all calls so far."""

    async def generate(self, messages: Sequence[Message], tools: Sequence[ToolSpec], params: SamplingParams) -> Reply:
        """Answer the whole history so far. OutOfContext where it does not fit, ModelError where the engine fails."""
        require_parameters(params)
        begun = time.monotonic()
        sampler = await self._model.opened()
        forks = self._dialogue.forks
        prompt = self._dialogue.prompt(messages, tools)
        self._model.forks += self._dialogue.forks - forks
        room = sampler.context - len(prompt)
        if room < 1:
            raise OutOfContext(f"the history has {len(prompt)} tokens, and {self._model.name} holds {sampler.context}")
        request = Request(
            episode=self._episode,
            prompt_ids=prompt,
            max_tokens=min(params.max_output_tokens or self._answer_tokens, room),
            temperature=1.0 if params.temperature is None else params.temperature,
            top_p=1.0 if params.top_p is None else params.top_p,
            stop_ids=self._model.renderer.stop_ids,
            seed=seed_of(self._seed, self._turn),
        )
        sampled = await sampler.sample(request)
        self._turn += 1
        self._dialogue.sampled(sampled.ids)
        return self._reply(request, sampled, tools, time.monotonic() - begun)

    def _reply(self, request: Request, sampled: Sampled, tools: Sequence[ToolSpec], seconds: float) -> Reply:
        decode = self._model.renderer.decode
        thinking = toolcalls.opens_thinking(decode(request.prompt_ids[-OPENING_IDS:]))
        parsed = toolcalls.parse(decode(sampled.ids), self._model.style, tools, thinking=thinking)
        calls = tuple(
            ToolCall(id=self._identity(call, place), name=call.name, arguments=call.arguments)
            for place, call in enumerate(parsed.calls)
        )
        message = Message(role="assistant", content=parsed.content, reasoning=parsed.reasoning, tool_calls=calls)
        tokens = Tokens(
            prompt_ids=request.prompt_ids,
            sampled_ids=sampled.ids,
            logprobs=sampled.logprobs,
            versions=sampled.versions,
            mask=(True,) * len(sampled.ids),
            mixed_kv=sampled.mixed_kv,
            engine=sampled.engine,
            temperature=request.temperature,
        )
        usage = Usage(
            input_tokens=len(request.prompt_ids),
            output_tokens=len(sampled.ids),
            cached_tokens=sampled.cached_tokens,
            cost_usd=0.0,
            calls=1,
            seconds=sampled.seconds,
            waited_seconds=max(0.0, seconds - sampled.seconds),
        )
        finish: wire.Finish = "length" if sampled.finish == "length" else "tool_calls" if calls else "stop"
        return Reply(message=message, usage=usage, finish=finish, tokens=tokens)

    def _identity(self, call: toolcalls.Call, place: int) -> str:
        """Return the model's own id of a call, where it gave one that is not taken; one of ours elsewhere."""
        own = call.id if call.id is not None and call.id not in self._ids else f"call_{self._turn}_{place}"
        self._ids.add(own)
        return own

    async def close(self) -> None:
        """Let the engine forget the episode."""
        await self._model.sampler.release(self._episode)


def require_parameters(params: SamplingParams) -> None:
    """Refuse sampling parameters that a model on disk has no use for. SetupError names the parameter."""
    if given := [name for name in REFUSED if getattr(params, name) is not None]:
        raise SetupError(f"sampling.{given[0]} means nothing to a model on disk: leave it out")
    if params.extra:
        raise SetupError(f"sampling.extra.{next(iter(params.extra))} means nothing to a model on disk: leave it out")
    if params.temperature is not None and params.temperature < 0:
        raise SetupError(f"sampling.temperature must be 0 or more, not {params.temperature}")
    if params.top_p is not None and not 0 < params.top_p <= 1:
        raise SetupError(f"sampling.top_p must be above 0 and at most 1, not {params.top_p}")


def model_folder(name: str, spec: str) -> Path:
    """Return the folder of a model on disk, or of one in Hugging Face's cache. SetupError where it is no model."""
    folder = Path(name).expanduser()
    if not folder.is_dir():
        folder = _cached(name, spec)
    if not (folder / "config.json").is_file():
        raise SetupError(f"{spec}: {folder} holds no config.json, so it is no model; name the folder of one")
    return folder.resolve()


def _cached(name: str, spec: str) -> Path:
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, ignore_patterns=["*.bin", "*.pth", "original/*"]))
    except Exception as error:  # its errors have no common base
        reason = str(error).splitlines()[0][:200]
        raise SetupError(f"{spec}: there is no folder '{name}', and it cannot be downloaded: {reason}") from error


def load_tokenizer(folder: Path) -> Any:
    """Return the tokenizer of a model. SetupError where it cannot be loaded or has no chat template."""
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except Exception as error:
        reason = str(error).splitlines()[0][:200]
        raise SetupError(f"the tokenizer in {folder} cannot be loaded: {reason}") from error
    if not tokenizer.chat_template:
        raise SetupError(f"the tokenizer in {folder} has no chat template: add chat_template.jinja to the folder")
    return tokenizer


def stop_ids(folder: Path, tokenizer: Any) -> tuple[int, ...]:
    """Return the ids that end a turn: those of generation_config.json, config.json and the tokenizer."""
    found: list[Json] = [tokenizer.eos_token_id]
    for name in ("generation_config.json", "config.json"):
        path = folder / name
        content = wire.parse_object(path.read_text(encoding="utf-8")) if path.is_file() else None
        value = (content or {}).get("eos_token_id")
        found += value if isinstance(value, list) else [value]
    ids = tuple(dict.fromkeys(each for each in found if isinstance(each, int)))
    if not ids:
        raise SetupError(f"the model in {folder} names no token that ends a turn: set eos_token_id in its config.json")
    return ids
