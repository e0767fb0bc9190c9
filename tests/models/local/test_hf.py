"""The transformers engine: exact tokens and log-probabilities, whatever else is sampled at the same time."""

from __future__ import annotations

import asyncio
import hashlib
import math
import random
import shutil
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

torch = pytest.importorskip("torch", reason="needs torch: pip install -e '.[local]'")
pytest.importorskip("transformers", reason="needs transformers: pip install -e '.[local]'")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from harness.config import LocalOptions  # noqa: E402
from harness.errors import ModelError, OutOfContext, SetupError  # noqa: E402
from harness.models import proof  # noqa: E402
from harness.models.hf import attention, batch, engine  # noqa: E402
from harness.models.hf.engine import ADMITTED_EVERY, TransformersSampler, load, weights_digest  # noqa: E402
from harness.models.sampler import Request, Sampled  # noqa: E402

EXACT = 1e-5


@pytest_asyncio.fixture
async def sampler(tiny: Path) -> AsyncIterator[TransformersSampler]:
    engine = TransformersSampler(tiny, LocalOptions(batch=8))
    await engine.open()
    yield engine
    await engine.close()


@pytest.fixture(scope="session")
def reference(tiny: Path) -> Any:
    return load(tiny, LocalOptions())


def prompts(count: int, seed: int = 0) -> list[tuple[int, ...]]:
    draw = random.Random(seed)
    return [tuple(draw.randrange(20, 600) for _ in range(draw.randrange(1, 90))) for _ in range(count)]


def worst(model: Any, request: Request, sampled: Sampled) -> float:
    """Return the largest difference from a plain forward pass, in nats."""
    ids = torch.tensor([[*request.prompt_ids, *sampled.ids]])
    with torch.inference_mode():
        logits = model(ids).logits[0, len(request.prompt_ids) - 1 : -1].float() / (request.temperature or 1.0)
    expected = torch.log_softmax(logits, dim=-1).gather(1, ids[0, len(request.prompt_ids) :, None])[:, 0]
    return float((expected - torch.tensor(sampled.logprobs)).abs().max())


async def ask(sampler: TransformersSampler, requests: Sequence[Request]) -> list[Sampled]:
    return list(await asyncio.gather(*(sampler.sample(request) for request in requests)))


async def test_greedy_is_what_generate_says(sampler: TransformersSampler, reference: Any) -> None:
    asked = [
        Request(episode=str(place), prompt_ids=ids, max_tokens=10 + place, temperature=0.0)
        for place, ids in enumerate(prompts(20))
    ]
    for request, sampled in zip(asked, await ask(sampler, asked), strict=True):
        said = reference.generate(
            torch.tensor([request.prompt_ids]), max_new_tokens=request.max_tokens, do_sample=False, eos_token_id=None
        )
        assert said[0, len(request.prompt_ids) :].tolist() == list(sampled.ids)
        assert sampled.finish == "length" and len(sampled.ids) == request.max_tokens
        assert worst(reference, request, sampled) < EXACT


async def test_several_turns_go_on_from_their_cache(sampler: TransformersSampler, reference: Any) -> None:
    histories = prompts(20)
    for turn in range(4):
        asked = [
            Request(episode=str(place), prompt_ids=ids, max_tokens=5 + place % 7, temperature=0.8, seed=turn)
            for place, ids in enumerate(histories)
        ]
        answers = await ask(sampler, asked)
        for request, sampled in zip(asked, answers, strict=True):
            assert worst(reference, request, sampled) < EXACT
            assert len(sampled.ids) == len(sampled.logprobs) == len(sampled.versions)
            assert (sampled.cached_tokens > 0) == (turn > 0)
        histories = [
            (*ids, *sampled.ids, *prompts(1, turn)[0]) for ids, sampled in zip(histories, answers, strict=True)
        ]


async def test_what_prompts_begin_with_is_read_once(sampler: TransformersSampler, reference: Any) -> None:
    start = tuple(range(30, 130))
    asked = [
        Request(episode=str(place), prompt_ids=(*start, *ids), max_tokens=9 + place, temperature=0.0)
        for place, ids in enumerate(prompts(20))
    ]
    answers = await ask(sampler, asked)
    for request, sampled in zip(asked, answers, strict=True):
        assert worst(reference, request, sampled) < EXACT
    assert [sampled.cached_tokens >= len(start) for sampled in answers] == [False] + [True] * 19


@pytest.mark.parametrize(("refresh", "shared"), [("keep_kv", 0), ("recompute_kv", 39)])
def test_what_was_read_under_other_weights_is_not_shared(reference: Any, refresh: Any, shared: int) -> None:
    turns = batch.Batch(reference, 2, 1 << 20)
    turns.join(Request(episode="old", prompt_ids=tuple(range(30, 70)), max_tokens=9))
    turns.step()
    turns.updated(1, refresh)
    turns.join(Request(episode="new", prompt_ids=tuple(range(30, 70)), max_tokens=2))
    assert turns.step() == []
    (done,) = turns.step()
    assert done.request.episode == "new" and done.cached == shared and not any(done.mixed)


async def test_a_draw_depends_on_its_seed_and_not_on_company(sampler: TransformersSampler) -> None:
    asked = [
        Request(episode=str(place), prompt_ids=ids, max_tokens=12, temperature=1.0, seed=place % 3)
        for place, ids in enumerate(prompts(8))
    ]
    together = await ask(sampler, asked)
    for request, sampled in zip(asked, together, strict=True):
        await sampler.release(request.episode)
        assert (await sampler.sample(request)).ids == sampled.ids


async def test_a_stop_token_ends_a_turn_and_is_part_of_it(sampler: TransformersSampler) -> None:
    request = Request(episode="a", prompt_ids=prompts(1)[0], max_tokens=30, temperature=0.0)
    ids = (await sampler.sample(request)).ids
    stopped = Request(episode="b", prompt_ids=request.prompt_ids, max_tokens=30, temperature=0.0, stop_ids=(ids[7],))
    sampled = await sampler.sample(stopped)
    assert sampled.finish == "stop"
    assert sampled.ids == ids[: ids.index(ids[7]) + 1]


@pytest.mark.parametrize("refresh", ["recompute_kv", "keep_kv", "abort_requeue"])
async def test_new_weights_in_the_middle_of_a_turn(
    sampler: TransformersSampler, reference: Any, tiny: Path, tmp_path: Path, refresh: Any
) -> None:
    new = tmp_path / "new"
    shutil.copytree(tiny, new)
    changed = load(tiny, LocalOptions())
    with torch.no_grad():
        for parameter in changed.parameters():
            parameter.add_(0.02 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))
    changed.save_pretrained(new)
    proof.write(new, changed)
    asked = [
        Request(episode=str(place), prompt_ids=ids, max_tokens=250, temperature=1.0, seed=place)
        for place, ids in enumerate(prompts(4))
    ]
    under_way = asyncio.gather(*(sampler.sample(request) for request in asked))
    await sampler.sample(Request(episode="clock", prompt_ids=(30,), max_tokens=20))
    await sampler.update(str(new), 3, refresh)
    for request, sampled in zip(asked, await under_way, strict=True):
        assert list(sampled.versions) == sorted(sampled.versions)
        first = next((place for place, version in enumerate(sampled.versions) if version == 3), len(sampled.ids))
        assert first < len(sampled.ids), "the update came too late to be seen"
        assert first > 0 or refresh == "abort_requeue", "the update came too early to be seen"
        ids = torch.tensor([[*request.prompt_ids, *sampled.ids]])
        with torch.inference_mode():
            logits = changed(ids).logits[0, len(request.prompt_ids) - 1 : -1].float()
        expected = torch.log_softmax(logits, dim=-1).gather(1, ids[0, len(request.prompt_ids) :, None])[:, 0]
        difference = (expected - torch.tensor(sampled.logprobs))[first:].abs().max()
        if refresh == "keep_kv" and first:
            assert all(sampled.mixed_kv[first:]) and not any(sampled.mixed_kv[:first])
            assert difference > EXACT
        else:
            assert not sampled.mixed_kv and difference < EXACT
        if refresh == "abort_requeue":
            assert set(sampled.versions) == {3}
    after = Request(episode="0", prompt_ids=asked[0].prompt_ids, max_tokens=5, temperature=1.0)
    assert worst(changed, after, await sampler.sample(after)) < EXACT or refresh == "keep_kv"


async def test_weights_that_are_not_what_they_say_are_refused(
    sampler: TransformersSampler, tiny: Path, tmp_path: Path
) -> None:
    wrong = tmp_path / "wrong"
    shutil.copytree(tiny, wrong)
    (wrong / proof.FILE).write_text('{"ids": [20, 30, 40], "logprobs": [-1.0, -2.0]}')
    with pytest.raises(ModelError, match="does not compute the weights it was given"):
        await sampler.update(str(wrong), 1)
    with pytest.raises(ModelError, match="are not those of this model"):
        await sampler.update(str(tmp_path), 1)


async def test_what_does_not_fit_is_said(sampler: TransformersSampler, tiny: Path, tmp_path: Path) -> None:
    with pytest.raises(OutOfContext, match="do not fit into"):
        await sampler.sample(Request(episode="a", prompt_ids=(30,) * 9000, max_tokens=10))
    with pytest.raises(ModelError, match="has no token"):
        await sampler.sample(Request(episode="a", prompt_ids=(), max_tokens=10))
    broken = tmp_path / "broken"
    shutil.copytree(tiny, broken)
    (broken / "model.safetensors").write_bytes(b"nothing")
    with pytest.raises(SetupError, match="cannot be loaded"):
        await TransformersSampler(broken, LocalOptions()).open()


async def test_a_turn_given_up_leaves_the_others_alone(sampler: TransformersSampler, reference: Any) -> None:
    asked = [
        Request(episode=str(place), prompt_ids=ids, max_tokens=200, temperature=1.0, seed=place)
        for place, ids in enumerate(prompts(12))
    ]
    turns = [asyncio.ensure_future(sampler.sample(request)) for request in asked]
    await asyncio.sleep(0.05)
    for turn in turns[::2]:
        turn.cancel()
    done = await asyncio.gather(*turns, return_exceptions=True)
    for request, sampled in list(zip(asked, done, strict=True))[1::2]:
        assert isinstance(sampled, Sampled)
        assert worst(reference, request, sampled) < EXACT


async def test_where_passes_are_recorded_turns_are_read_in_together(
    sampler: TransformersSampler, monkeypatch: pytest.MonkeyPatch
) -> None:
    joined: list[int] = []
    join = batch.Batch.join

    def watched(turns: batch.Batch, request: Request) -> None:
        joined.append(max((len(turn.ids) for turn in turns._turns), default=0))
        join(turns, request)

    monkeypatch.setattr(batch.Batch, "records", True)
    monkeypatch.setattr(batch.Batch, "join", watched)
    asked = [
        Request(episode=str(place), prompt_ids=ids, max_tokens=30, temperature=0.0)
        for place, ids in enumerate(prompts(6))
    ]

    async def later(place: int) -> Sampled:
        while len(joined) < place:  # each asks while those before it are under way
            await asyncio.sleep(0)
        return await sampler.sample(asked[place])

    answers = await asyncio.gather(*map(later, range(6)))
    assert [len(answer.ids) for answer in answers] == [30] * 6
    assert len(joined) == 6 and all(count % ADMITTED_EVERY == 0 for count in joined) and max(joined) > 0


def test_a_large_file_is_hashed_part_by_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(bytes(range(256)) * 10)
    whole = weights_digest(tmp_path)
    assert whole == hashlib.sha256(b"model.safetensors 2560\n" + path.read_bytes()).hexdigest()
    monkeypatch.setattr(engine, "LARGE", 1000)
    monkeypatch.setattr(engine, "PART", 300)
    parts = [path.read_bytes()[start : start + 300] for start in range(0, 2560, 300)]
    expected = hashlib.sha256(b"model.safetensors 2560\n" + b"".join(hashlib.sha256(part).digest() for part in parts))
    assert weights_digest(tmp_path) == expected.hexdigest() != whole


async def test_a_closed_engine_says_so(tiny: Path) -> None:
    engine = TransformersSampler(tiny, LocalOptions(batch=2))
    await engine.open()
    turns = [
        asyncio.ensure_future(engine.sample(Request(episode=str(place), prompt_ids=(30, 40), max_tokens=4000)))
        for place in range(5)
    ]
    await asyncio.sleep(0.05)
    await engine.close()
    assert all(isinstance(outcome, ModelError) for outcome in await asyncio.gather(*turns, return_exceptions=True))
    with pytest.raises(ModelError, match="closed"):
        await engine.sample(Request(episode="a", prompt_ids=(30,), max_tokens=2))


def test_draws_follow_the_distribution() -> None:
    logprobs = torch.log_softmax(torch.tensor([[0.0, 1.0, -50.0, 2.0]]), dim=-1)
    count = 4000
    numbers = torch.tensor([batch.uniform(5, place) for place in range(count)], dtype=torch.float64)
    drawn = batch.inverse(logprobs.expand(count, -1), numbers)
    for token, logprob in enumerate(logprobs[0].tolist()):
        share, expected = float((drawn == token).float().mean()), math.exp(logprob)
        assert abs(share - expected) < 4 * math.sqrt(expected * (1 - expected) / count) + 1e-9


def test_the_nucleus_is_the_least_that_reaches_top_p() -> None:
    logprobs = torch.log(torch.tensor([[0.1, 0.5, 0.15, 0.25], [0.1, 0.5, 0.15, 0.25]]))
    kept = batch.nucleus(logprobs, torch.tensor([0.7, 1.0])).exp()
    assert torch.allclose(kept, torch.tensor([[0.0, 2 / 3, 0.0, 1 / 3], [0.1, 0.5, 0.15, 0.25]]), atol=1e-6)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 3000), max_size=30))
def test_reading_in_groups_reads_everything_once(unread: list[int]) -> None:
    found = batch.groups(unread)
    read = [place for start, end in found for place in range(start, end)]
    assert read == [place for place, tokens in enumerate(unread) if tokens > 0]
    for start, end in found:
        assert end - start == 1 or max(unread[start:end]) * (end - start) <= batch.READ_TOKENS


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(1, 3000), max_size=30), st.sampled_from([1, 80]))
def test_runs_are_of_all_rows_and_as_wide_as_their_longest(widths: list[int], tokens: int) -> None:
    found = attention.runs(widths, tokens)
    assert [row for run in found for row in range(run.first, run.end)] == list(range(len(widths)))
    for run in found:
        assert run.width == max(widths[run.first : run.end])
        spared = (run.end - run.first - 1) * attention.SPARED
        assert sum(run.width - width for width in widths[run.first : run.end]) * tokens <= spared


@pytest.mark.parametrize("tokens", [1, 4])
def test_attention_is_the_same_in_runs_as_in_one_call(tokens: int) -> None:
    widths = torch.tensor([30, 7, 9, 200, 195, 12])
    query, key, value = (torch.randn(6, heads, size, 8) for heads, size in ((4, tokens), (2, 200), (2, 200)))
    own = torch.arange(200) < (widths[:, None] - tokens + 1 + torch.arange(tokens))[:, None, :, None]
    mask = torch.zeros(()).where(own, float("-inf"))
    for some in (attention.runs(widths.tolist(), tokens), [attention.Run(row, row + 1, 200) for row in range(6)]):
        divided = attention.attend(None, query, key, value, mask, runs=some)[0]
        assert torch.allclose(divided, attention.attend(None, query, key, value, mask)[0], atol=1e-6)
