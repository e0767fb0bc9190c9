"""Measures one engine, in this process or a server that it starts, and prints what it found as a line of JSON.

Run by `benchmarks.inference`, a process each, so that peak memory is of that engine alone.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
import re
import resource
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks._inference_serve import served
from harness.config import LocalOptions, ModelOptions
from harness.errors import HarnessError, SetupError
from harness.models import connect
from harness.models.local import LocalModel, load_tokenizer
from harness.models.sampler import Request, Sampler
from harness.models.vllm import launch

PROMPT, ANSWER = 321, 64
TURNS, SAID, SEEN = 6, 24, 60
ONE_BY_ONE = 8
"""Episodes that are played one after the other: their number changes no rate."""
MOST_ROUNDS = 20
WORD = re.compile("Ġ[a-z]+")
"""A token that is a whole word, so that text of such tokens has these tokens again."""


class Order(NamedTuple):
    """What is to be measured."""

    row: str
    folder: str
    dtype: Any
    at_once: Sequence[int]
    seconds: float


class Played(NamedTuple):
    """What was done."""

    episodes: int
    tokens: int


class Engine(NamedTuple):
    """What plays turns."""

    sample: Callable[[Request], Awaitable[Sequence[int]]]
    """Returns the ids that the history goes on with."""
    release: Callable[[str], Awaitable[None]]
    """Forgets an episode."""


Play = Callable[[Sequence[int], bool], Awaitable[Played]]
"""Play the episodes of these numbers at once, of several turns or one."""


class Words:
    """Prompts of random words of a tokenizer."""

    def __init__(self, tokenizer: Any) -> None:
        names = {index: str(tokenizer.convert_ids_to_tokens(index)) for index in range(len(tokenizer))}
        self.ids = [
            index
            for index, name in names.items()
            if WORD.fullmatch(name) and tokenizer.encode(tokenizer.decode([index]), add_special_tokens=False) == [index]
        ]
        if len(self.ids) < 2 * TURNS:
            raise SetupError("the tokenizer has too few words for prompts: name another model")

    def some(self, seed: str, length: int) -> tuple[int, ...]:
        """Return ids of no meaning."""
        draw = random.Random(seed)
        return tuple(draw.choice(self.ids) for _ in range(length))

    def seen(self, number: int, turn: int) -> tuple[int, ...]:
        """Return what an episode has to read before a turn."""
        return self.some(f"{number}-{turn}", SEEN if turn else PROMPT)


async def episode(engine: Engine, words: Words, number: int, several: bool, *, forget: bool) -> int:
    """Play one episode; return the tokens sampled. `forget` lets no turn use what was read before it."""
    name, length, turns = f"bench-{number}", *((SAID, TURNS) if several else (ANSWER, 1))
    ids: tuple[int, ...] = ()
    sampled = 0
    for turn in range(turns):
        ids = (*ids, *words.seen(number, turn))
        if forget:
            await engine.release(name)
            ids = (words.ids[turn], *ids[1:])
        said = await engine.sample(Request(episode=name, prompt_ids=ids, max_tokens=length, seed=number + turn))
        sampled += len(said)
        ids = (*ids, *said)
    await engine.release(name)
    return sampled


def together(engine: Engine, words: Words, *, forget: bool) -> Play:
    """Return how to play episodes that are under way at once."""

    async def play(numbers: Sequence[int], several: bool) -> Played:
        plays = (episode(engine, words, number, several, forget=forget) for number in numbers)
        return Played(len(numbers), sum(await asyncio.gather(*plays)))

    return play


@asynccontextmanager
async def ours(spec: str, order: Order, *, forget: bool = False) -> AsyncIterator[Play]:
    """Open an engine of the harness."""
    model = connect(spec, ModelOptions(local=LocalOptions(dtype=order.dtype)))
    assert isinstance(model, LocalModel)
    try:
        sampler = await model.opened()
        yield together(sampling(sampler), Words(model.renderer.tokenizer), forget=forget)
    finally:
        await model.close()


def sampling(sampler: Sampler) -> Engine:
    """Return how a sampler plays turns."""

    async def sample(request: Request) -> Sequence[int]:
        return (await sampler.sample(request)).ids

    return Engine(sample, sampler.release)


@asynccontextmanager
async def generate(order: Order, batch: int | None) -> AsyncIterator[Play]:
    """Load transformers' own generate: all episodes a batch, or so many at a time."""
    from harness.models.hf.engine import load

    folder = Path(order.folder)
    model, words = load(folder, LocalOptions(dtype=order.dtype)), Words(load_tokenizer(folder))

    async def play(numbers: Sequence[int], several: bool) -> Played:
        chosen = numbers if batch is None else numbers[:ONE_BY_ONE]
        size = batch or len(chosen)
        parts = [chosen[start : start + size] for start in range(0, len(chosen), size)]
        return Played(len(chosen), sum(plain(model, words, part, several) for part in parts))

    yield play


def plain(model: Any, words: Words, numbers: Sequence[int], several: bool) -> int:
    """Play a batch by generate, which reads the whole history again in every turn."""
    import torch

    ids = torch.empty((len(numbers), 0), dtype=torch.long, device=model.device)
    length, turns = (SAID, TURNS) if several else (ANSWER, 1)
    for turn in range(turns):
        seen = torch.tensor([words.seen(number, turn) for number in numbers], device=model.device)
        ids = model.generate(
            torch.cat([ids, seen], dim=1),
            max_new_tokens=length,
            min_new_tokens=length,
            do_sample=True,
            top_k=0,
            pad_token_id=0,
            eos_token_id=None,
        )
    return len(numbers) * length * turns


@asynccontextmanager
async def over_http(order: Order) -> AsyncIterator[Play]:
    """Start `transformers serve`."""
    folder = Path(order.folder)
    tokenizer = load_tokenizer(folder)
    words = Words(tokenizer)
    async with served(folder, order.dtype) as server:

        async def sample(request: Request) -> Sequence[int]:
            ids = request.prompt_ids
            sampled = await server.complete(tokenizer.decode(ids), len(ids), request.max_tokens)
            # Random text would have other tokens when it is read again: words of that number stand for it.
            return words.some(f"{request.episode}-{len(ids)}", sampled)

        async def release(_: str) -> None:
            """Nothing is kept under an episode's name."""

        yield together(Engine(sample, release), words, forget=False)


def vllm(order: Order, *, forget: bool = False) -> Any:
    """Start vLLM."""
    if not launch.ready():
        raise SetupError(f"vLLM is neither here nor named by {launch.PYTHON}")
    return ours(f"vllm/{order.folder}", order, forget=forget)


ROWS: dict[str, Callable[[Order], Any]] = {
    "hf": lambda order: ours(f"hf/{order.folder}", order),
    "hf, nothing kept": lambda order: ours(f"hf/{order.folder}", order, forget=True),
    "vllm": vllm,
    "vllm, nothing kept": lambda order: vllm(order, forget=True),
    "transformers serve": over_http,
    "generate, batched": lambda order: generate(order, None),
    "generate, one by one": lambda order: generate(order, 1),
}


async def measure(order: Order) -> dict[str, Any]:
    """Return the figures of one engine: tokens and episodes a second of each cell, and megabytes."""
    async with ROWS[order.row](order) as play:
        numbers = itertools.count()
        await play(take(numbers, 2), True)  # what is loaded once is loaded now
        cells = [
            await cell(play, numbers, count, several, order.seconds)
            for several in (False, True)
            for count in order.at_once
        ]
        servers = sum(peak(process) for process in descendants(os.getpid()))
    return {"cells": cells, "memory": servers or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


async def cell(play: Play, numbers: Iterator[int], count: int, several: bool, least: float) -> tuple[float, float]:
    """Return tokens and episodes a second."""
    tokens = episodes = 0
    begun, seconds = time.perf_counter(), 0.0
    for _ in range(MOST_ROUNDS):
        played = await play(take(numbers, count), several)
        tokens, episodes = tokens + played.tokens, episodes + played.episodes
        seconds = time.perf_counter() - begun
        if seconds >= least:
            break
    return tokens / seconds, episodes / seconds


def take(numbers: Iterator[int], count: int) -> list[int]:
    """Return the next numbers: no episode is played twice."""
    return list(itertools.islice(numbers, count))


def descendants(process: int) -> list[int]:
    """Return what a process has started, and what that has."""
    found = []
    for path in Path(f"/proc/{process}/task").glob("*/children"):
        try:
            children = [int(each) for each in path.read_text().split()]
        except OSError:  # it has just ended
            continue
        found += [each for child in children for each in (child, *descendants(child))]
    return found


def peak(process: int) -> float:
    """Return the megabytes that a process had at most; none of one that has ended."""
    try:
        status = Path(f"/proc/{process}/status").read_text()
    except OSError:
        return 0.0
    found = re.search(r"^VmHWM:\s+(\d+) kB", status, re.MULTILINE)
    return int(found[1]) / 1024 if found else 0.0


def main() -> None:
    """Measure what the first argument orders."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that servers are ended
    order = Order(**json.loads(sys.argv[1]))
    try:
        print(json.dumps(asyncio.run(measure(order))))
    except HarnessError as error:
        print(json.dumps({"missing": str(error)}))


if __name__ == "__main__":
    main()
